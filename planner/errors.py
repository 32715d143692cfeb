"""Everything that can go wrong, with a stable reason code.

The tree::

    PlannerError                 reason "INTERNAL"            exit status 1
    └── InputError               reason "INVALID_INPUT"       exit status 2
        ├── UnitError            reason "BAD_UNIT"            "80 gigs", a bare number
        ├── FileFormatError      reason "BAD_FILE"            unreadable, empty, too large
        │   └── ProfileError     reason "BAD_PROFILE"         a row or column of a layer profile
        ├── ModelConfigError     reason "BAD_MODEL_CONFIG"    a config.json that is no known model
        ├── ClusterError         reason "BAD_CLUSTER"         a cluster file or name
        ├── GraphError           reason "BAD_GRAPH"           cycle, duplicate, dangling, self-loop
        ├── LayoutError          reason "BAD_LAYOUT"          degrees or batch that do not divide
        ├── PinError             reason "BAD_PIN"             pins or colocations that contradict
        ├── ScheduleError        reason "BAD_SCHEDULE_SHAPE"  P, M, V a schedule cannot run
        ├── OrderError           reason "BAD_ORDER"           an order that cannot be executed
        ├── PlanFileError        reason "BAD_PLAN"            a plan file that cannot be read
        └── NotInCatalogError    reason "NOT_IN_CATALOG"      an unknown catalog name

"Nothing fits" is an answer (a plan with status ``infeasible``), never an exception.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ClusterError",
    "FileFormatError",
    "GraphError",
    "InputError",
    "LayoutError",
    "ModelConfigError",
    "NotInCatalogError",
    "OrderError",
    "PinError",
    "PlanFileError",
    "PlannerError",
    "ProfileError",
    "ScheduleError",
    "UnitError",
]


class PlannerError(Exception):
    """Root of the tree: the planner itself failed."""

    reason: ClassVar[str] = "INTERNAL"
    exit_status: ClassVar[int] = 1


class InputError(PlannerError):
    """The caller's input cannot be used; the message says where, why and what would work.

    Parameters
    ----------
    problem
        What is wrong, in one sentence without a final full stop.
    file, line, column
        Where it is: file name (``<stdin>`` for standard input), 1-based line, column name.
    key
        The key of a JSON or YAML file, dotted where it is nested (``links.cluster.latency``).
    value
        The offending value as written.
    expected
        What was expected in its place.
    fix
        The nearest change that would work.

    Examples
    --------
    >>> print(InputError("is negative", file="vgg.csv", line=17, column="forward_ms",
    ...                  value="-3", expected="a number >= 0"))
    vgg.csv:17 column forward_ms: "-3" is negative; expected a number >= 0
    """

    reason: ClassVar[str] = "INVALID_INPUT"
    exit_status: ClassVar[int] = 2

    def __init__(
        self,
        problem: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: str | None = None,
        key: str | None = None,
        value: object = None,
        expected: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = file
        self.line = line
        self.column = column
        self.key = key
        self.value = value
        self.expected = expected
        self.fix = fix
        super().__init__(self._message())

    def _message(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}" if place else f"line {self.line}"
        if self.column is not None:
            place += f" column {self.column}" if place else f"column {self.column}"
        if self.key is not None:
            place += f" key {self.key}" if place else f"key {self.key}"
        text = f"{place}: " if place else ""
        if self.value is not None:
            shown = str(self.value)
            if len(shown) > 60:
                shown = shown[:57] + "..."
            text += f'"{shown}" '
        text += self.problem
        if self.expected is not None:
            text += f"; expected {self.expected}"
        if self.fix is not None:
            text += f"; {self.fix}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments survive pickling, so that workers can raise these.
        state = {
            key: getattr(self, key)
            for key in ("file", "line", "column", "key", "value", "expected", "fix")
        }
        return (_rebuild, (type(self), self.problem, state))


def _rebuild(kind: type[InputError], problem: str, state: dict[str, object]) -> InputError:
    return kind(problem, **state)  # type: ignore[arg-type]


class UnitError(InputError):
    """A quantity without a unit, or with one that is not known."""

    reason: ClassVar[str] = "BAD_UNIT"


class FileFormatError(InputError):
    """A file that cannot be read as what it was given for."""

    reason: ClassVar[str] = "BAD_FILE"


class ProfileError(FileFormatError):
    """A layer profile with a bad header, row or value."""

    reason: ClassVar[str] = "BAD_PROFILE"


class ModelConfigError(InputError):
    """A config.json that describes no model the planner knows."""

    reason: ClassVar[str] = "BAD_MODEL_CONFIG"


class ClusterError(InputError):
    """A cluster file, name or node count that cannot be used."""

    reason: ClassVar[str] = "BAD_CLUSTER"


class GraphError(InputError):
    """A layer graph with a cycle, a duplicate, a dangling input or a self-loop."""

    reason: ClassVar[str] = "BAD_GRAPH"


class LayoutError(InputError):
    """Parallel degrees or batch sizes that do not fit together."""

    reason: ClassVar[str] = "BAD_LAYOUT"


class PinError(InputError):
    """Pins or colocations that contradict each other or the number of stages."""

    reason: ClassVar[str] = "BAD_PIN"


class OrderError(InputError):
    """A schedule's order with a missing, doubled, misplaced or circular operation.

    ``file`` says where in the order: ``rank 3 operation 12``, after the file's name if any.
    """

    reason: ClassVar[str] = "BAD_ORDER"


class ScheduleError(InputError):
    """A schedule asked for a shape (P, M, V, group size) it cannot run."""

    reason: ClassVar[str] = "BAD_SCHEDULE_SHAPE"


class PlanFileError(InputError):
    """A plan file that cannot be read back."""

    reason: ClassVar[str] = "BAD_PLAN"


class NotInCatalogError(InputError):
    """A name that is neither a file nor in the catalog."""

    reason: ClassVar[str] = "NOT_IN_CATALOG"
