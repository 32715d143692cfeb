"""``planner simulate``: a schedule, a plan or a foreign order, simulated and drawn."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any

import typer

from planner.cli.backend import (
    OrderText,
    Shown,
    Simulated,
    SimulationQuestion,
    TextKind,
    backend,
)
from planner.cli.options import MOST_SAMPLES, Format, FormatOption
from planner.cli.output import emit_text
from planner.cli.progress import Progress
from planner.errors import InputError
from planner.specs import Schedule, Sends

__all__ = ["simulate"]

Aim = StrEnum("Aim", {"SPAN": "span", "MAKESPAN": "makespan"})

_TIMES, _FILES, _PLANS = "Times", "Pictures and files", "Pricing a plan"
_OPTIONS = (
    "schedule", "stages", "microbatches", "chunks", "group_size", "forward_ms", "backward_ms",
    "wgrad_ms", "comm_ms", "pair_ms", "reduction_ms", "optimizer_ms", "activation_limit",
    "freed_at_i", "sends", "aim",
)  # fmt: skip


def _times_option(help: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        metavar="MS[,MS..]", help=help, rich_help_panel=_TIMES
    )
    return option


def _file_option(help: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        metavar="FILE", help=help, rich_help_panel=_FILES
    )
    return option


def simulate(
    plan: Annotated[
        str | None,
        typer.Argument(metavar="PLAN", help="A plan file (JSON), or -: its stages and schedule."),
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(metavar="NAME", help="A schedule by name, as 1f1b or zb-h1.")
    ] = None,
    stages: Annotated[int | None, typer.Option(min=1, help="Pipeline ranks, P.")] = None,
    microbatches: Annotated[int | None, typer.Option(min=1, help="Micro-batches, M.")] = None,
    chunks: Annotated[
        int | None, typer.Option(min=1, help="Chunks a rank, V; default 1, or 2 for V schedules.")
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(min=1, help="Micro-batches of an interleaving group; default M // (M // P)."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A foreign order: torch's schedule CSV, JSON lists, or -."
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Comma list of schedules, on one time scale."),
    ] = None,
    forward_ms: Annotated[
        str | None,
        _times_option("F: one value, or one a stage, with chunks one a chunk; default 1."),
    ] = None,
    backward_ms: Annotated[
        str | None, _times_option("The whole backward, I + W; default 2.")
    ] = None,
    wgrad_ms: Annotated[
        str | None, _times_option("W, part of the backward; default half of it.")
    ] = None,
    comm_ms: Annotated[
        str | None,
        _times_option("One way: one value, P-1 (by edge of ranks) or PV-1 (of chunks); default 0."),
    ] = None,
    pair_ms: Annotated[
        str | None, _times_option("An overlapped pair; default the sum of its two.")
    ] = None,
    reduction_ms: Annotated[
        str | None, _times_option("Gradient reduction after a rank's last operation.")
    ] = None,
    optimizer_ms: Annotated[
        str | None, _times_option("Optimizer, once all ranks have reduced.")
    ] = None,
    sends: Annotated[
        Sends | None,
        typer.Option(
            help="Do sends run beside compute (the default) or keep their rank busy?",
            rich_help_panel=_TIMES,
        ),
    ] = None,
    activation_limit: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N..]",
            help="Activations of so many micro-batches a rank may hold; zb-auto (P unless given) "
            "and zb-v are made to fit, others are checked.",
        ),
    ] = None,
    aim: Annotated[
        Aim | None,
        typer.Option(
            help="What zb-auto and a fitted zb-v make small first: the span of a rank (the "
            "default) or the makespan."
        ),
    ] = None,
    freed_at_i: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Of an activation, freed when I ends, not W; default 0."
        ),
    ] = None,
    slots: Annotated[
        bool,
        typer.Option(
            "--slots", help="One cell an operation, not true to scale.", rich_help_panel=_FILES
        ),
    ] = False,
    width: Annotated[
        int | None,
        typer.Option(min=40, max=1000, help="Characters of the timeline.", rich_help_panel=_FILES),
    ] = None,
    operations: Annotated[
        bool,
        typer.Option("--operations", help="JSON with every start and end.", rich_help_panel=_FILES),
    ] = False,
    svg: Annotated[str | None, _file_option("Draw it, as SVG.")] = None,
    trace: Annotated[str | None, _file_option("Chrome trace JSON, for Perfetto.")] = None,
    csv: Annotated[str | None, _file_option("Write the order as torch's schedule CSV.")] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Also write the JSON.", rich_help_panel=_FILES
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Instead of the plan's model.", rich_help_panel=_PLANS),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Instead of the plan's cluster.", rich_help_panel=_PLANS),
    ] = None,
    global_batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_SAMPLES,
            help="Of a sketch without a training set-up.",
            rich_help_panel=_PLANS,
        ),
    ] = None,
    seq_len: Annotated[
        int | None, typer.Option(min=1, max=MOST_SAMPLES, rich_help_panel=_PLANS)
    ] = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """Simulate a schedule, a plan's schedule or a foreign order exactly, and draw it."""
    from planner.studies.simulation_times import TimeOptions

    _one_source(plan, schedule, order, compare)
    files = {"--svg": svg, "--trace": trace, "--csv": csv, "--output": output}
    _check_files(files, (plan, order, model, cluster))
    shape = {
        "stages": stages, "microbatches": microbatches, "chunks": chunks, "group_size": group_size,
    }  # fmt: skip
    times = {
        "forward_ms": forward_ms, "backward_ms": backward_ms, "wgrad_ms": wgrad_ms,
        "comm_ms": comm_ms, "pair_ms": pair_ms, "reduction_ms": reduction_ms,
        "optimizer_ms": optimizer_ms,
    }  # fmt: skip
    pricing = {
        "model": model, "cluster": cluster, "global_batch": global_batch, "seq_len": seq_len,
    }  # fmt: skip
    if compare is not None:
        _refuse({"trace": trace, "csv": csv}, "is of one schedule, not of --compare")
    if plan is None:
        _refuse(pricing, "is about a plan, and none is given")
    else:
        said = {**shape, **times, "sends": sends, "aim": aim}
        _refuse(said, "is contradicted by a plan, which says it itself")
    if order is not None:
        fixed = {**shape, "aim": aim}
        _refuse(fixed, "is contradicted by an order, which says it itself")
    wanted = _wanted(files, operations, format)
    shown = Shown(slots=slots, timeline_width=width)
    with _flags_named():
        limit = _numbers("activation_limit", activation_limit)
        share = 0.0 if freed_at_i is None else freed_at_i
        if plan is not None:
            answer = _of_plan(
                plan, format, limit, share, model, cluster, global_batch, seq_len, wanted, shown
            )
        else:
            numbers = {name: _numbers(name, text) for name, text in times.items()}
            question = SimulationQuestion(
                compared=compare is not None,
                chunks=chunks,
                group_size=group_size,
                times=TimeOptions(**numbers),  # type: ignore[arg-type]
                sends=sends,
                aim="makespan" if aim is Aim.MAKESPAN else "span",
                activation_limit=limit,
                freed_at_i=share,
            )
            question = _named(question, schedule, order, compare, stages, microbatches)
            with Progress("simulating"):
                answer = backend().simulate(question, wanted, shown)
    texts = {
        flag: answer.text(_kind(flag, operations))
        for flag, path in files.items()
        if path is not None
    }
    if not _write(files, texts):
        if format is Format.JSON:
            emit_text(answer.text(_kind("--output", operations)))
        else:
            answer.show()
    if not answer.fits:
        raise typer.Exit(3)


_KINDS: dict[str, TextKind] = {"--svg": "svg", "--trace": "trace", "--csv": "csv"}


def _kind(flag: str, operations: bool) -> TextKind:
    return _KINDS.get(flag, "operations" if operations else "json")


def _wanted(files: dict[str, str | None], operations: bool, format: Format) -> list[TextKind]:
    """The texts that are written or printed."""
    found = [_kind(flag, operations) for flag, path in files.items() if path is not None]
    if "-" not in files.values():
        found.append(_kind("--output", operations) if format is Format.JSON else "terminal")
    return list(dict.fromkeys(found))


# --- what is simulated -------------------------------------------------------------------------


def _one_source(
    plan: str | None, schedule: str | None, order: str | None, compare: str | None
) -> None:
    """Exactly one of a plan, --schedule, --order and --compare."""
    given = {"PLAN": plan, "--schedule": schedule, "--order": order, "--compare": compare}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise InputError(
            f"contradicts {named[0]}", file=named[1], expected="one of the two",
        )  # fmt: skip
    if not named:
        raise InputError(
            "nothing to simulate is given",
            expected="--schedule NAME --stages P --microbatches M, a plan file, --order FILE or "
            "--compare NAMES",
        )
    if plan is not None and plan.lower() in set(Schedule):
        raise InputError("is a schedule, not a plan file", value=plan, fix=f"use --schedule {plan}")


def _of_plan(
    plan: str,
    format: Format,
    limit: float | Sequence[float] | None,
    share: float,
    model: str | None,
    cluster: str | None,
    global_batch: int | None,
    seq_len: int | None,
    wanted: list[TextKind],
    shown: Shown,
) -> Simulated:
    from planner.cli.judge import naming_plan, read_subject, training_of
    from planner.cli.output import finish
    from planner.plans import Status

    subject = read_subject(plan, model, global_batch)
    if subject.status in (Status.INFEASIBLE, Status.UNKNOWN):
        finish(subject, format, None)  # says why, and leaves with the status that means it
    with naming_plan(plan, subject, model, cluster), Progress("simulating"):
        question = SimulationQuestion(
            plan=subject,
            model=model,
            cluster=cluster,
            training=training_of(subject, model, global_batch, seq_len),
            activation_limit=limit,
            freed_at_i=share,
        )
        return backend().simulate(question, wanted, shown)


def _named(
    question: SimulationQuestion,
    schedule: str | None,
    order: str | None,
    compare: str | None,
    stages: int | None,
    microbatches: int | None,
) -> SimulationQuestion:
    """The question with the order, or the schedules and their shape."""
    from planner.formats.torch_schedule import read_order_text
    from planner.studies.simulation import schedule_of

    if order is not None:
        return replace(question, order=OrderText(*read_order_text(order, stdin=sys.stdin)))
    names = [schedule] if compare is None else compare.split(",")
    wanted = tuple(schedule_of(name) for name in names)
    for name, count in (("stages", stages), ("microbatches", microbatches)):
        if count is None:
            raise InputError("is not given", file=_flag(name), expected="a whole number >= 1")
    return replace(question, schedules=wanted, stages=stages or 0, microbatches=microbatches or 0)


# --- flags and files ---------------------------------------------------------------------------


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@contextmanager
def _flags_named() -> Iterator[None]:
    """Errors of the library about an option name the flag."""
    try:
        yield
    except InputError as error:
        name, space, rest = (error.file or "").partition(" ")
        if name not in _OPTIONS:
            raise
        raise type(error)(
            error.problem,
            file=_flag(name) + space + rest,
            value=error.value,
            expected=error.expected,
            fix=error.fix,
        ) from None


def _refuse(given: dict[str, Any], problem: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(problem, file=_flag(name), fix="leave it out")


def _numbers(name: str, text: str | None) -> float | list[float] | None:
    """A number, or the numbers of a comma list."""
    if text is None:
        return None
    words = text.split(",")
    numbers = []
    for index, word in enumerate(words):
        try:
            if not word.isascii() or "_" in word:
                raise ValueError
            numbers.append(float(word))
        except ValueError:
            place = name if len(words) == 1 else f"{name} entry {index}"
            raise InputError(
                "is no number", file=place, value=word, expected="numbers, as 1.5 or 1,2,1"
            ) from None
    return numbers[0] if len(numbers) == 1 else numbers


def _check_files(files: dict[str, str | None], inputs: Sequence[str | None]) -> None:
    """Refuse files that cannot be written, before anything is simulated."""
    from planner.cli.output import check_output

    seen: set[str] = set()
    for path in files.values():
        if path is None:
            continue
        check_output(path, inputs=inputs)
        target = path if path == "-" else os.path.realpath(path)
        if target in seen and target != os.devnull:
            raise InputError("is to hold two things", file=path, fix="give each its own file")
        seen.add(target)


def _write(files: dict[str, str | None], texts: dict[str, str]) -> bool:
    """Write what was asked for; whether one of it is all that standard output holds."""
    from planner.cli.output import emit_text, write_text

    printed = False
    for flag, text in texts.items():
        path = files[flag]
        if path == "-":
            emit_text(text)
            printed = True
        elif path is not None:
            write_text(path, text)
    return printed
