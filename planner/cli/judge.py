"""``planner evaluate`` and ``planner explain``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from planner.cli.backend import backend
from planner.cli.options import Format
from planner.cli.output import (
    check_output,
    emit_text,
    print_view,
    warnings_on_stderr,
    write_text,
)
from planner.errors import FileFormatError, LayoutError, NotInCatalogError, PlanFileError
from planner.plans import Plan, Status

if TYPE_CHECKING:
    from planner.check import Verification
    from planner.specs import Training

__all__ = [
    "evaluate_command",
    "explain_command",
    "naming_plan",
    "read_subject",
    "training_of",
]


def read_subject(source: str, model: str | None, global_batch: int | None) -> Plan:
    """A plan file or a sketch, whose micro-batches may follow from the global batch."""
    from planner.formats.plan_file import complete_sketch, read_plan

    plan = read_plan(source, stdin=sys.stdin)
    named = model or plan.model
    if plan.inputs or not named or plan.status in (Status.INFEASIBLE, Status.UNKNOWN):
        return plan
    try:
        return complete_sketch(plan, global_batch)
    except (LayoutError, PlanFileError) as error:
        raise type(error)(
            error.problem,
            file="<stdin>" if source == "-" else source,
            expected=error.expected,
            fix=error.fix,
        ) from None


@contextmanager
def naming_plan(source: str, plan: Plan, model: str | None, cluster: str | None) -> Iterator[None]:
    """What a plan file refers to may be broken or gone; the errors then name the plan file."""
    from pydantic import ValidationError

    from planner.formats.plan_file import plain_problem

    file = "<stdin>" if source == "-" else source
    try:
        with warnings_on_stderr():
            yield
    except ValidationError as error:
        raise PlanFileError(
            f"what it was asked cannot be read: {plain_problem(error)}",
            file=file,
            key=f"inputs ({error.title})",
        ) from None
    except (FileFormatError, NotInCatalogError) as error:
        known = plan.inputs.get("model") or plan.model
        missing = type(error) in (FileFormatError, NotInCatalogError)
        if model is not None or not missing or error.value not in (None, known):
            raise
        raise PlanFileError(
            f"was made from the model {known}, which is not found from here",
            file=file,
            fix="give it with --model",
        ) from None
    except PlanFileError as error:
        if error.file is not None:
            raise
        raise PlanFileError(error.problem, file=file, value=error.value, fix=error.fix) from None


def training_of(
    plan: Plan, model: str | None, global_batch: int | None, seq_len: int | None
) -> Training | None:
    """A training set-up for a sketch, or the plan's own with a field replaced."""
    from planner.specs import Training

    own = plan.inputs.get("training")
    if own is not None:
        training = Training.model_validate_json(own)
        changes: dict[str, int] = {}
        if global_batch is not None:
            changes["global_batch_size"] = global_batch
        if seq_len is not None:
            changes["sequence_length"] = seq_len
        return training.model_copy(update=changes) if changes else None
    named = model or plan.inputs.get("model") or plan.model
    unasked = global_batch is None and seq_len is None
    if not named or (unasked and plan.inputs.get("question") == "partition"):
        return None
    layout = plan.layout
    batch = global_batch or layout.dp * layout.num_microbatches * layout.microbatch_size
    length = seq_len
    if length is None:
        from planner import api

        length = api.load_model(named).sequence_length
        if length is None:
            raise PlanFileError("the sequence length is not known", fix="give it with --seq-len")
    return Training(global_batch_size=batch, sequence_length=length, schedules=(layout.schedule,))


def evaluate_command(
    source: str,
    model: str | None,
    cluster: str | None,
    global_batch: int | None,
    seq_len: int | None,
    format: Format,
    output: str | None,
) -> None:
    """Judge a plan file; exit status 3 where it does not fit, 2 where it says what is not so."""
    check_output(output, inputs=(source, model, cluster))
    plan = read_subject(source, model, global_batch)
    with naming_plan(source, plan, model, cluster):
        training = training_of(plan, model, global_batch, seq_len)
        verification = backend().evaluate(plan, model=model, cluster=cluster, training=training)
    violations = verification.violations
    document = {
        "ok": verification.ok,
        "violations": [violation.model_dump(mode="json") for violation in violations],
        "bound_recomputed": verification.bound_recomputed,
        "layout_bound_checked": verification.layout_bound_checked,
        "plan": verification.plan.model_dump(mode="json") if verification.plan else None,
    }
    text = json.dumps(document, indent=2) + "\n"
    if output is not None and output != "-":
        write_text(output, text)
    if format is Format.JSON or output == "-":
        emit_text(text)
    else:
        _print_verdict(plan, verification)
    if any(violation.code == "OUT_OF_MEMORY" for violation in violations):
        raise typer.Exit(3)
    if violations:
        raise typer.Exit(2)
    if plan.status is Status.INFEASIBLE or verification.plan is None:
        raise typer.Exit(3 if plan.status is not Status.UNKNOWN else 4)


def _print_verdict(plan: Plan, verification: Verification) -> None:
    from planner.report.tables import plan_view, violations_view

    priced = verification.plan
    if plan.status in (Status.INFEASIBLE, Status.UNKNOWN):
        print_view(lambda width: plan_view(plan, width))
        return
    if priced is not None:
        print_view(lambda width: plan_view(priced, width, judged=True))
    elif not verification.violations:
        from rich.text import Text

        print_view(Text(f"no cut of {plan.layout.short()} fits"))
        return
    if verification.bound_recomputed:
        bound = "the bound was recomputed and holds"
    elif verification.layout_bound_checked:
        bound = "no cut of this layout beats the bound; other layouts were not searched again"
    else:
        bound = "the bound was not recomputed"
    print_view(lambda width: violations_view(verification.violations, plan, width, bound=bound))


def explain_command(
    source: str,
    model: str | None,
    cluster: str | None,
    global_batch: int | None,
    seq_len: int | None,
    format: Format,
) -> None:
    """Explain a plan file."""
    plan = read_subject(source, model, global_batch)
    with naming_plan(source, plan, model, cluster):
        training = training_of(plan, model, global_batch, seq_len)
        explanation = backend().explain(plan, model=model, cluster=cluster, training=training)
    if format is Format.JSON:
        emit_text(explanation.model_dump_json(indent=2) + "\n")
        return
    from planner.report.tables import explanation_view

    print_view(lambda width: explanation_view(explanation, width))
