"""``planner evaluate`` and ``planner explain``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import typer

from planner.cli.options import Format
from planner.cli.output import print_view, write_text
from planner.plans import Plan, Status

if TYPE_CHECKING:
    from planner.specs import Training

__all__ = ["evaluate_command", "explain_command"]


def _read(source: str) -> Plan:
    from planner.formats.plan_file import read_plan

    return read_plan(source, stdin=sys.stdin)


def _training(plan: Plan, global_batch: int | None, seq_len: int | None) -> Training | None:
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
    if global_batch is None and seq_len is None:
        return None
    layout = plan.layout
    batch = global_batch or layout.dp * layout.num_microbatches * layout.microbatch_size
    length = seq_len
    if length is None:
        from planner import api

        length = api.load_model(plan.inputs.get("model") or plan.model).sequence_length or 1
    return Training(global_batch_size=batch, sequence_length=length)


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
    from planner import api

    plan = _read(source)
    training = _training(plan, global_batch, seq_len)
    verification = api.evaluate(plan, model=model, cluster=cluster, training=training)
    violations = verification.violations
    document = {
        "ok": verification.ok,
        "violations": [violation.model_dump(mode="json") for violation in violations],
        "bound_recomputed": verification.bound_recomputed,
        "plan": verification.plan.model_dump(mode="json") if verification.plan else None,
    }
    text = json.dumps(document, indent=2) + "\n"
    if output is not None and output != "-":
        write_text(output, text)
    if format is Format.JSON or output == "-":
        sys.stdout.write(text)
    else:
        from planner.report.tables import plan_view, violations_view

        if verification.plan is not None:
            print_view(plan_view(verification.plan))
        print_view(violations_view(violations))
    if any(violation.code == "OUT_OF_MEMORY" for violation in violations):
        raise typer.Exit(3)
    if verification.plan is not None and verification.plan.status is Status.INFEASIBLE:
        raise typer.Exit(3)
    if violations:
        raise typer.Exit(2)


def explain_command(
    source: str,
    model: str | None,
    cluster: str | None,
    global_batch: int | None,
    seq_len: int | None,
    format: Format,
) -> None:
    """Explain a plan file."""
    from planner import api

    plan = _read(source)
    training = _training(plan, global_batch, seq_len)
    explanation = api.explain(plan, model=model, cluster=cluster, training=training)
    if format is Format.JSON:
        sys.stdout.write(explanation.model_dump_json(indent=2) + "\n")
        return
    from planner.report.tables import explanation_view

    print_view(explanation_view(explanation))
