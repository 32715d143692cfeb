"""A server computes: the commands' questions as calls, and its answers as the library's own.

Files are read here and sent; the server sees none of our paths. What it refuses is raised as the
library's own error, so that a message is the same wherever it was found.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli.backend import CatalogRow, Shown, SimulationQuestion, TextKind
from planner.cli.output import emit_shown, line_width, warn
from planner.errors import InputError, NotInCatalogError, PlannerError
from planner.plans import Plan, Status
from planner.specs import Cluster, Model, Training

if TYPE_CHECKING:
    from planner.check import Verification
    from planner.client import PlanAnswer, PlannerClient, Rendering, SimulationAnswer
    from planner.client.options import JudgeOptions, SimulateOptions
    from planner.plans import Explanation

__all__ = ["RemoteBackend"]

_TIMEOUT_S = 3600.0
"""Of a call without a time limit; a search in this process has none either."""
_CONNECT_TIMEOUT_S = 5.0
_KINDS = {"model": "models", "cluster": "clusters", "device": "devices"}


class RemoteBackend:
    """The verbs of the library, asked of a server.

    Parameters
    ----------
    address, token_file, ca_file, certificate_file, key_file
        As :class:`planner.client.PlannerClient` takes them; the token is in a file.
    on_close
        Takes what is to be called when the command ends.
    """

    def __init__(
        self,
        address: str,
        *,
        token_file: str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        on_close: Callable[[Callable[[], None]], object] = lambda close: None,
    ) -> None:
        self._address = address
        self._token_file = token_file
        self._files: dict[str, Any] = {
            "ca_file": ca_file,
            "certificate_file": certificate_file,
            "key_file": key_file,
        }
        self._on_close = on_close

    @cached_property
    def _client(self) -> PlannerClient:
        from planner.client import PlannerClient

        client = PlannerClient(
            self._address,
            token=None if self._token_file is None else _token(self._token_file),
            timeout_s=_TIMEOUT_S,
            connect_timeout_s=_CONNECT_TIMEOUT_S,
            **self._files,
        )
        self._on_close(client.close)
        return client

    def plan(self, model: Model, cluster: Cluster, **options: Any) -> Plan:
        """As ``planner.plan``; how many processes work on it is the server's matter."""
        from planner.options import schedules_of

        options.pop("workers", None)
        progress: Callable[[str], None] | None = options.pop("progress", None)
        options["schedules"] = schedules_of(options["schedules"])
        with _library_errors():
            if progress is None or not sys.stderr.isatty():
                answer = self._client.solve_plan(model, cluster, **options)
            else:
                answer = self._watched(model, cluster, options, progress)
        _say(answer.warnings)
        return answer.plan

    def _watched(
        self,
        model: Model,
        cluster: Cluster,
        options: dict[str, Any],
        progress: Callable[[str], None],
    ) -> PlanAnswer:
        """A plan whose search is told about on the way."""
        from planner.client import PlanAnswer

        for item in self._client.stream_plan(model, cluster, **options):
            if isinstance(item, PlanAnswer):
                return item
            best = "" if item.value_ms is None else f", best so far {item.value_ms:.1f} ms"
            progress(f"{item.layouts_done} of {item.layouts_total} layouts{best}")
        raise PlannerError("the server ended the search without an answer")

    def partition(
        self, model: Model, stages: int, microbatches: int, *, cluster: str | None, **options: Any
    ) -> Plan:
        """As ``planner.partition``."""
        from planner import api
        from planner.options import schedules_of

        spec = None if cluster is None else api.load_cluster(cluster)
        options["schedule"] = schedules_of(options["schedule"])
        with _library_errors():
            answer = self._client.partition_stages(
                model, stages, microbatches, cluster=spec, **options
            )
        _say(answer.warnings)
        return answer.plan

    def evaluate(
        self, plan: Plan, *, model: str | None, cluster: str | None, training: Training | None
    ) -> Verification:
        """As ``planner.evaluate``; what the plan names is read here."""
        options = _about(plan, model, cluster, training)
        with _library_errors():
            answer = self._client.evaluate_plan(plan, **options)
        _say(answer.warnings)
        return answer.verification

    def explain(
        self, plan: Plan, *, model: str | None, cluster: str | None, training: Training | None
    ) -> Explanation:
        """As ``planner.explain``; what the plan names is read here."""
        options: JudgeOptions = {}
        if plan.status not in (Status.INFEASIBLE, Status.UNKNOWN):
            options = _about(plan, model, cluster, training)
        with _library_errors():
            answer = self._client.explain_plan(plan, **options)
        _say(answer.warnings)
        return answer.explanation

    def simulate(
        self, question: SimulationQuestion, wanted: Sequence[TextKind], shown: Shown
    ) -> SimulatedThere:
        """Simulate, and make the texts that are wanted."""
        from planner.cli.simulated import may_color

        kinds = _renderings()
        options: SimulateOptions = {
            "renderings": [kinds[kind] for kind in wanted],
            "activation_limit": question.activation_limit,
            "freed_at_i": question.freed_at_i,
        }
        if "terminal" in wanted:
            options["text_width"] = line_width()
            options["timeline_width"] = shown.timeline_width or 0
            options["text_slots"] = shown.slots
            options["text_color"] = may_color()
        if question.plan is not None:
            about = _about(question.plan, question.model, question.cluster, question.training)
            options.update(about)  # type: ignore[typeddict-item]
        else:
            options.update(_without_plan(question))
        with _library_errors():
            answer = self._client.simulate_schedule(_subject(question), **options)
        _say(answer.warnings)
        return SimulatedThere(answer, kinds)

    def catalog(self) -> Mapping[str, Sequence[CatalogRow]]:
        """What comes with the server's planner."""
        found: dict[str, list[CatalogRow]] = {kind: [] for kind in _KINDS.values()}
        with _library_errors():
            for entry in self._client.catalog():
                found[_KINDS[entry.kind]].append(CatalogRow(entry.name, entry.description))
        return found

    def catalog_text(self, name: str) -> str:
        """The file of an entry of the server's catalog."""
        with _library_errors():
            entries = self._client.catalog(name)
        if not entries:
            raise NotInCatalogError("is not in the server's catalog", value=name)
        return entries[0].text

    def catalog_json(self, name: str) -> str:
        """An entry of the server's catalog as JSON."""
        with contextlib.suppress(InputError), _library_errors():
            entries = self._client.catalog(name)
            if entries and entries[0].spec_json:
                return entries[0].spec_json
        raise NotInCatalogError("is not in the server's catalog", value=name)


@dataclass(frozen=True)
class SimulatedThere:
    """What a server made of a simulation."""

    answer: SimulationAnswer
    kinds: Mapping[TextKind, Rendering]

    @property
    def fits(self) -> bool:
        """Whether no rank exceeds what it may hold."""
        return self.answer.fits

    def text(self, kind: TextKind) -> str:
        """One of the texts that were asked for."""
        return self.answer.texts[self.kinds[kind]]

    def show(self) -> None:
        """Print the terminal's text."""
        emit_shown(self.text("terminal"))


def _renderings() -> dict[TextKind, Rendering]:
    from planner.client import Rendering

    return {
        "svg": Rendering.SVG,
        "trace": Rendering.CHROME_TRACE,
        "csv": Rendering.TORCH_CSV,
        "json": Rendering.JSON,
        "operations": Rendering.OPERATIONS_JSON,
        "terminal": Rendering.TEXT,
    }


def _about(
    plan: Plan, model: str | None, cluster: str | None, training: Training | None
) -> JudgeOptions:
    """The specs that a plan is about, read from our files and names."""
    from planner.questions import specs_of_plan

    model_spec, cluster_spec = specs_of_plan(plan, model, cluster)
    return {"model": model_spec, "cluster": cluster_spec, "training": training}


def _subject(question: SimulationQuestion) -> Any:
    if question.plan is not None:
        return question.plan
    if question.order is not None or question.compared:
        return None
    return question.schedules[0]


def _without_plan(question: SimulationQuestion) -> SimulateOptions:
    found: dict[str, Any] = {"sends": question.sends}
    if question.order is not None:
        found["order_text"], found["order_name"] = question.order
    else:
        found |= {
            "stages": question.stages,
            "microbatches": question.microbatches,
            "chunks": question.chunks,
            "group_size": question.group_size,
            "aim": question.aim,
        }
        if question.compared:
            found["compare"] = question.schedules
    if question.times is not None:
        found |= vars(question.times)
    return found  # type: ignore[return-value]


@contextmanager
def _library_errors() -> Iterator[None]:
    """Input that the server refuses is refused in the library's own words."""
    from planner.client import MessageTooLargeError, RemoteInputError

    try:
        yield
    except MessageTooLargeError:
        raise
    except RemoteInputError as error:
        raise error.library_error() from None


def _say(warnings: Sequence[str]) -> None:
    for text in dict.fromkeys(warnings):
        warn(text)


def _token(path: str) -> str:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "is no text"
        raise InputError(f"the token cannot be read: {problem}", file=path) from None
    return text.strip()
