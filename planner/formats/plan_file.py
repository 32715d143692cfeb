"""Plan files: read back what ``planner plan -o`` wrote, or a sketch (layout and layers alone)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from planner.errors import LayoutError, PlanFileError
from planner.formats.documents import refuse_duplicates
from planner.formats.spelling import did_you_mean
from planner.formats.text_files import read_stream, read_text
from planner.plans import Layout, Plan, Stage
from planner.schedule_rules import RULES

__all__ = ["check_layout", "complete_sketch", "plain_problem", "read_plan"]

_TWO_WAY = {schedule.value for schedule, rules in RULES.items() if rules.two_way}
_SKETCH = (
    'a JSON object with a "layout", as {"layout": {"dp": 2, "pp": 2, "num_microbatches": 8}, '
    '"stages": [["l0", "l1"], ["l2"]]}'
)
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "string": "text",
    "bool": "true or false",
    "tuple": "a list",
    "list": "a list",
    "dict": "a JSON object",
    "model": "a JSON object",
}
"""What a kind of validation error, by its first word, says that should have stood there."""


_DEGREES = ("dp", "pp", "tp", "cp", "ep", "vpp", "microbatch_size", "num_microbatches")
_LARGEST_DEGREE = 10**9
"""As in every other input: more is a typing error, and overflows 64 bits."""


def read_plan(source: str, *, stdin: TextIO | None = None) -> Plan:
    """A plan from a JSON file (``-`` reads ``stdin``), as written by ``-o`` or a sketch.

    In a sketch a stage is a list of layer names, a list of such lists where a rank holds several
    chunks, or an object with ``layers``; ranks, ``pp`` and ``vpp`` follow from the order and number
    of stages and chunks where they are not given.

    Raises
    ------
    FileFormatError
        No such file, or no text.
    PlanFileError
        No JSON, or not a plan; the message names the field.
    LayoutError
        A degree of the layout is below 1.
    """
    name = source
    if source == "-" and stdin is not None:
        text, name = read_stream(stdin), "<stdin>"
    else:
        text = read_text(Path(source))
    document = _parse(text, name)
    if not isinstance(document, dict) or "layout" not in document:
        raise PlanFileError("is no plan", file=name, expected=_SKETCH)
    try:
        plan = Plan.model_validate(_with_ranks(document, name))
    except ValidationError as error:
        problem, key, value, expected, fix = _worded(error)
        raise PlanFileError(
            problem, file=name, key=key, value=value, expected=expected, fix=fix
        ) from None
    except RecursionError:
        raise PlanFileError("is nested too deeply", file=name) from None
    check_layout(plan, file=name)
    return plan


def check_layout(plan: Plan, *, file: str | None = None) -> None:
    """Refuse a plan whose layout has a degree that no layout can have.

    Raises
    ------
    LayoutError
        Naming the field.

    Examples
    --------
    >>> check_layout(Plan(layout=Layout(dp=-1)), file="plan.json")
    Traceback (most recent call last):
        ...
    planner.errors.LayoutError: plan.json: layout.dp is -1; expected 1 to 1000000000
    """
    for name in _DEGREES:
        degree = getattr(plan.layout, name)
        if not 1 <= degree <= _LARGEST_DEGREE:
            raise LayoutError(
                f"layout.{name} is {degree}", file=file, expected=f"1 to {_LARGEST_DEGREE}"
            )


def _parse(text: str, file: str) -> Any:
    """What a JSON text holds; a key given twice is refused."""
    try:
        return json.loads(text, object_pairs_hook=refuse_duplicates(file, PlanFileError))
    except json.JSONDecodeError as error:
        raise PlanFileError(f"is not JSON: {error.msg}", file=file, line=error.lineno) from None
    except RecursionError:
        raise PlanFileError("is nested too deeply", file=file) from None
    except ValueError:  # an integer of thousands of digits
        raise PlanFileError("holds a number that is too long", file=file) from None


def _with_ranks(document: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The document with every stage an object with its rank, and with as many stages as pp."""
    given = document.get("stages")
    if not isinstance(given, list):
        return dict(document)
    stages: list[Any] = []
    for index, stage in enumerate(given):
        if isinstance(stage, list) and stage and all(isinstance(part, list) for part in stage):
            layers = [name for chunk in stage for name in chunk]
            stages.append({"rank": index, "layers": layers, "chunks": stage})
        elif isinstance(stage, list):
            stages.append({"rank": index, "layers": stage})
        elif not isinstance(stage, dict):
            raise PlanFileError(
                "is no stage", file=file, key=f"stages.{index}", value=stage,
                expected='a list of layer names, or an object with "layers"',
            )  # fmt: skip
        else:
            stages.append({"rank": index, **stage})
            if "rank" in stage and isinstance(stage["rank"], int) and stage["rank"] != index:
                raise PlanFileError(
                    "is out of order", file=file, key=f"stages.{index}.rank",
                    value=stage["rank"], expected=f"{index}",
                    fix="list the stages in the order of their ranks, from 0",
                )  # fmt: skip
    layout = document["layout"]
    if isinstance(layout, dict) and stages and "pp" not in layout:
        layout = {**layout, "pp": len(stages)}
    if isinstance(layout, dict) and "vpp" not in layout:
        chunks = {len(stage["chunks"]) for stage in stages if isinstance(stage.get("chunks"), list)}
        two_way = layout.get("schedule") in _TWO_WAY
        if len(chunks) == 1 and not two_way:
            layout = {**layout, "vpp": chunks.pop()}
    return {**document, "stages": stages, "layout": layout}


def complete_sketch(plan: Plan, global_batch_size: int | None) -> Plan:
    """A sketch whose layout gives no ``num_microbatches``, with those of a global batch.

    Parameters
    ----------
    plan
        As read; a plan that states ``num_microbatches`` is returned as it is.
    global_batch_size
        Samples of a step: M = global batch / (dp x m).

    Raises
    ------
    LayoutError
        dp x microbatch_size does not divide the global batch, or a degree is below 1.
    PlanFileError
        No global batch either.
    """
    layout = plan.layout
    if "num_microbatches" in layout.model_fields_set or "layout" not in plan.model_fields_set:
        return plan
    if global_batch_size is None:
        raise PlanFileError(
            "does not say how many micro-batches a step has",
            fix="give layout.num_microbatches, or --global-batch",
        )
    for name in ("dp", "microbatch_size"):
        if getattr(layout, name) < 1:
            raise LayoutError(f"layout.{name} is {getattr(layout, name)}", expected="at least 1")
    samples = layout.dp * layout.microbatch_size
    if global_batch_size % samples:
        low = global_batch_size // samples * samples
        near = ", ".join(str(batch) for batch in (low, low + samples) if batch > 0)
        raise LayoutError(
            f"global batch {global_batch_size} is no multiple of dp={layout.dp} x "
            f"microbatch_size={layout.microbatch_size}",
            expected=f"a multiple, as {near}",
        )
    counted = layout.model_copy(update={"num_microbatches": global_batch_size // samples})
    return plan.model_copy(update={"layout": counted})


def plain_problem(error: ValidationError) -> str:
    """The first problem of a validation error in plain words, with its key.

    Examples
    --------
    >>> try:
    ...     Layout.model_validate({"dp": "many"})
    ... except ValidationError as error:
    ...     print(plain_problem(error))
    dp: "many" is not usable; expected a whole number
    """
    problem, key, value, expected, fix = _worded(error)
    text = str(PlanFileError(problem, value=value, expected=expected, fix=fix))
    return f"{key}: {text}" if key else text


def _worded(error: ValidationError) -> tuple[str, str | None, str | None, str | None, str | None]:
    """Problem, key, value, expectation and fix of the first problem."""
    first = error.errors(include_url=False)[0]
    kind, place = first["type"], [str(part) for part in first["loc"]]
    key = ".".join(place) or None
    given, details = first.get("input"), first.get("ctx", {})
    value = str(given) if isinstance(given, str | int | float) else None
    if kind == "missing":
        return "is missing", key, None, None, None
    if kind == "extra_forbidden":
        names = list(Plan.model_fields)
        if len(place) > 1:
            inner = {"layout": Layout.model_fields, "stages": Stage.model_fields}
            names = list(inner.get(place[0], {}))
        return "is not known here", key, None, None, did_you_mean(place[-1], names)
    if kind == "enum":
        return "is not known", key, value, str(details.get("expected")).replace("'", ""), None
    if kind == "json_invalid":
        return "is not JSON", key, None, None, None
    bounds = {"greater_than_equal": ("ge", ">="), "greater_than": ("gt", ">"),
              "less_than_equal": ("le", "<="), "less_than": ("lt", "<")}  # fmt: skip
    if kind in bounds:
        name, sign = bounds[kind]
        return "is out of range", key, value, f"a value {sign} {details[name]}", None
    expected = _EXPECTED.get(kind.split("_")[0])
    if expected is not None:
        return "is not usable", key, value, expected, None
    words = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"is not usable ({words})", key, value, None, None
