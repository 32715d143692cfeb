"""``planner.simulate``: one step of any schedule, plan or foreign order, simulated exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Literal

import numpy as np

from planner.cost.weight_versions import staleness, weight_versions
from planner.errors import InputError, OrderError, ScheduleError
from planner.formats.spelling import nearest
from planner.formats.torch_schedule import MOST_OPERATIONS, MOST_RANKS, OrderFile, read_order
from planner.operations import Order, order_from_lists
from planner.plans import Plan
from planner.schedule_rules import RULES, check_shape, default_chunks, default_group_size
from planner.schedules.closed_forms import steady_period
from planner.schedules.orders import build_order
from planner.schedules.simulate import effective_times
from planner.schedules.timeline import StageTimes, run_order
from planner.specs import Cluster, Model, Schedule, Sends, Training
from planner.studies.simulation_result import Simulation, limits_of, share_of, title_of
from planner.studies.simulation_times import Milliseconds, Placement, TimeOptions, stage_times

__all__ = ["per_chunk", "schedule_of", "simulate", "simulate_order", "simulate_schedule"]

MOST_MICROBATCHES = 100_000

_SHAPE = ("stages", "microbatches", "chunks", "group_size")


def simulate(
    schedule: Schedule | Plan | str | Path | None = None,
    *,
    stages: int | None = None,
    microbatches: int | None = None,
    chunks: int | None = None,
    group_size: int | None = None,
    forward_ms: Milliseconds | None = None,
    backward_ms: Milliseconds | None = None,
    wgrad_ms: Milliseconds | None = None,
    comm_ms: Milliseconds | None = None,
    pair_ms: float | None = None,
    activation_limit: float | Sequence[float] | None = None,
    freed_at_i: float = 0.0,
    sends: Sends | str | None = None,
    aim: str = "span",
    reduction_ms: Milliseconds | None = None,
    optimizer_ms: Milliseconds | None = None,
    order: Order | OrderFile | Sequence[Sequence[str]] | str | Path | None = None,
    model: Model | str | None = None,
    cluster: Cluster | str | None = None,
    training: Training | None = None,
) -> Simulation:
    """The exact timeline of one step.

    Parameters
    ----------
    schedule
        Name of a schedule, or a plan or plan file, whose stages are priced again and simulated.
    stages, microbatches
        P and M.
    chunks, group_size
        V, 2 for the V schedules and else 1; micro-batches of an interleaving group, by default
        M // max(1, M // P).
    forward_ms, backward_ms, wgrad_ms
        Time of F, of the whole backward I + W (twice F's 1) and of W (half of the backward):
        one value, or one a stage; with chunks one a chunk in chunk order (P V).
    comm_ms
        One-way cost of an edge: one value, P-1 (between neighbouring ranks; other ones cost the
        largest), or P V - 1 (between chunks).
    pair_ms
        Time of an overlapped pair; None: the sum of its two operations.
    activation_limit
        Micro-batches' activations a rank may hold, one value or one a rank. ``zb-auto`` and
        ``zb-v`` are scheduled under it; others are checked against it (``fits``).
    freed_at_i
        Share of an activation freed when I ends, the rest at W.
    sends
        ``overlapped`` (the default), or ``blocking``: a send keeps its rank busy.
    aim
        What ``zb-auto`` and a fitted ``zb-v`` make small first: ``span``, the paper's cost, or
        ``makespan``.
    reduction_ms, optimizer_ms
        Tail of a step, one value or one a rank.
    order
        A foreign order instead of a schedule: an order, lists in the grammar, or a file (torch's
        schedule CSV, or JSON).
    model, cluster, training
        Of a plan, replace what its ``inputs`` name.

    Raises
    ------
    ScheduleError
        No such schedule, or a shape it does not run; the message names the nearest one.
    OrderError
        An order that is incomplete, misplaced or deadlocks.
    InputError
        Times that are negative or of the wrong number, sizes out of range, options that
        contradict each other.

    Examples
    --------
    >>> found = simulate("1f1b", stages=4, microbatches=8)
    >>> found.makespan_ms, found.in_flight
    (33.0, (4, 3, 2, 1))
    >>> simulate("gpipe", stages=2, microbatches=2, forward_ms=[1, 1], backward_ms=[1, 3]).span_ms
    10.0
    """
    times = TimeOptions(
        forward_ms, backward_ms, wgrad_ms, comm_ms, pair_ms, reduction_ms, optimizer_ms
    )
    how = None if sends is None else _sends_of(sends)
    shape = dict(zip(_SHAPE, (stages, microbatches, chunks, group_size), strict=True))
    stated = [name for name, value in shape.items() if value is not None]
    if order is not None:
        if schedule is not None:
            raise InputError(
                "is contradicted by an order", file="schedule", value=schedule, fix="give one"
            )
        _refuse_beside("an order", stated)
        return simulate_order(
            order,
            times=times,
            activation_limit=activation_limit,
            freed_at_i=freed_at_i,
            sends=how or Sends.OVERLAPPED,
        )
    plan = _plan_of(schedule)
    if plan is not None:
        from planner.studies.plan_simulation import simulate_plan

        _refuse_beside("a plan", [*stated, *times.given, *(["sends"] if how else [])])
        return simulate_plan(
            plan,
            model=model,
            cluster=cluster,
            training=training,
            activation_limit=activation_limit,
            freed_at_i=freed_at_i,
        )
    if not (model is None and cluster is None and training is None):
        raise InputError("model, cluster and training are those of a plan", fix="leave them out")
    return simulate_schedule(
        schedule_of(schedule),
        _count("stages", stages),
        _count("microbatches", microbatches),
        chunks=None if chunks is None else _count("chunks", chunks),
        group_size=None if group_size is None else _count("group_size", group_size),
        times=times,
        activation_limit=activation_limit,
        freed_at_i=freed_at_i,
        sends=how or Sends.OVERLAPPED,
        aim=_aim_of(aim),
    )


def _aim_of(aim: str) -> Literal["span", "makespan"]:
    if aim == "span":
        return "span"
    if aim == "makespan":
        return "makespan"
    raise InputError("is no aim", file="aim", value=aim, expected="span or makespan")


def simulate_schedule(
    schedule: Schedule,
    num_ranks: int,
    num_microbatches: int,
    *,
    chunks: int | None = None,
    group_size: int | None = None,
    times: TimeOptions | None = None,
    activation_limit: float | Sequence[float] | None = None,
    freed_at_i: float = 0.0,
    sends: Sends = Sends.OVERLAPPED,
    aim: Literal["span", "makespan"] = "span",
    fitted: bool | None = None,
) -> Simulation:
    """:func:`simulate` for a schedule by name.

    ``fitted`` says whether ``zb-v`` is fitted to the times; None: where any is given, or a limit.
    """
    options = times or TimeOptions()
    share = share_of(freed_at_i)
    _check_counts(num_ranks, num_microbatches)
    check_shape(schedule, num_ranks, num_microbatches, chunks, group_size)
    rules = RULES[schedule]
    held = default_chunks(schedule) if chunks is None else chunks
    _check_size(num_ranks * held, num_microbatches, 3 if rules.splits_backward else 2)
    limit = limits_of(activation_limit, num_ranks)
    group = None
    if rules.chunks is None and schedule is not Schedule.LOOPED_BFS:
        group = group_size or default_group_size(num_ranks, num_microbatches)
    placement = Placement.of_schedule(schedule, num_ranks, held)
    prices, quantum = stage_times(options, placement, num_microbatches)
    if fitted is None:
        fitted = bool(options.given or limit)
    fits_itself = schedule is Schedule.ZB_AUTO or (schedule is Schedule.ZB_V and fitted)
    if fits_itself and limit is None:
        limit = (float(num_ranks),) * num_ranks
    order = build_order(
        schedule,
        num_ranks,
        num_microbatches,
        num_chunks=chunks,
        group_size=group,
        times=prices if fits_itself else None,
        activation_limit=limit if fits_itself else None,
        freed_at_i=share,
        sends=sends,
        aim=aim,
    )
    period = _period(prices, sends) if rules.asynchronous else None
    return Simulation(
        schedule=schedule.value,
        title=title_of(rules.title, num_ranks, num_microbatches, held if held > 1 else None),
        order=order,
        timeline=run_order(order, prices, sends),
        quantum=quantum,
        chunks=held,
        group_size=group,
        freed_at_i=share,
        activation_limit=limit,
        weight_versions=tuple(weight_versions(schedule, num_ranks, num_microbatches).tolist()),
        staleness=tuple(staleness(schedule, num_ranks, num_microbatches).tolist()),
        parameter_copies=2 if rules.two_way else 1,
        period=period,
        notes=tuple(_notes(schedule, order, options, share, held, aim)),
    )


def per_chunk(found: Simulation) -> str:
    """The note that a simulation of several chunks a rank carries."""
    return _per_chunk(found.chunks)


def _per_chunk(chunks: int) -> str:
    return f"times are those of a chunk: a rank spends {chunks} times as much on a micro-batch"


def _period(prices: StageTimes, sends: Sends) -> Fraction:
    """Steady period of 1F1B with one stage a rank."""
    backward = prices.input_gradient + prices.weight_gradient
    rows = (prices.forward, backward, prices.edge_forward, prices.edge_backward)
    f, b, ahead, back = (row.tolist() for row in rows)
    f, b, ahead, back = effective_times(f, b, ahead, back, sends)
    return steady_period([x + y for x, y in zip(f, b, strict=True)], ahead, back)


def _notes(
    schedule: Schedule, order: Order, options: TimeOptions, share: float, chunks: int, aim: str
) -> Iterator[str]:
    """What was given to no effect, and what a reader should know of the figures."""
    rules = RULES[schedule]
    if options.pair_ms is not None and not order.has_pairs:
        yield f"{rules.title} has no overlapped pairs: the pair's time is not used"
    if share and not order.splits_backward:
        yield f"{rules.title} does not split its backward: nothing is freed at I"
    if rules.asynchronous:
        yield (
            f"{rules.title} never drains: shown are {order.num_microbatches} micro-batches from "
            "an empty pipeline to its end; in the long run a micro-batch takes the steady period"
        )
    if chunks > 1:
        yield _per_chunk(chunks)
    elif schedule in (Schedule.INTERLEAVED, Schedule.INTERLEAVED_ZB, Schedule.LOOPED_BFS):
        alone = {
            Schedule.INTERLEAVED: "eager 1F1B",
            Schedule.INTERLEAVED_ZB: "ZB-H1",
            Schedule.LOOPED_BFS: "GPipe",
        }
        yield f"with one chunk a rank this is {alone[schedule]}; --chunks 2 interleaves"
    if schedule is Schedule.ZB_AUTO:
        other = "makespan" if aim == "span" else "span"
        yield (
            f"fitted for the smallest {aim}, then the smallest {other} (--aim {other}: the other "
            "way round)"
        )


def simulate_order(
    order: Order | OrderFile | Sequence[Sequence[str]] | str | Path,
    *,
    times: TimeOptions | None = None,
    activation_limit: float | Sequence[float] | None = None,
    freed_at_i: float = 0.0,
    sends: Sends = Sends.OVERLAPPED,
) -> Simulation:
    """:func:`simulate` for a foreign order; it is validated first.

    Who is told to whom follows from the operations. Weights are taken to be updated once all
    micro-batches have run, as no order says when.
    """
    found, file = _order_of(order)
    share = share_of(freed_at_i)
    if not file:
        _check_order_size(found)
    try:
        placement = Placement.of_order(found)
        prices, quantum = stage_times(times or TimeOptions(), placement, found.num_microbatches)
        timeline = run_order(found, prices, sends)
    except OrderError as error:
        raise (error if file is None else file.located(error)) from None
    ranks = found.num_ranks
    return Simulation(
        schedule=found.schedule,
        title=title_of(
            f"order of {Path(file.file).name}" if file else found.schedule,
            ranks,
            found.num_microbatches,
            placement.chunks if placement.chunks > 1 else None,
        ),
        order=found,
        timeline=timeline,
        quantum=quantum,
        chunks=placement.chunks,
        freed_at_i=share,
        activation_limit=limits_of(activation_limit, ranks),
        weight_versions=(1,) * ranks,
        staleness=(0,) * ranks,
        parameter_copies=2 if bool((placement.home != placement.home[:, :1]).any()) else 1,
        notes=file.notes if file else (),
    )


# --- what is asked -----------------------------------------------------------------------------


def schedule_of(name: Schedule | str | Path | Plan | None) -> Schedule:
    """A schedule by name.

    Raises
    ------
    ScheduleError
        No such schedule, with the nearest name; or none given.
    """
    known = ", ".join(member.value for member in Schedule)
    if name is None:
        raise ScheduleError("no schedule is given", expected=f"one of {known}")
    word = str(name).strip().lower()
    try:
        return Schedule(word)
    except ValueError:
        pass
    if word == "auto":
        raise ScheduleError("is a choice among schedules, not one", value=name, expected="a name")
    near = nearest(word, [member.value for member in Schedule])
    raise ScheduleError(
        "is no schedule",
        value=name,
        expected=None if near else f"one of {known}",
        fix=f"did you mean {near}?" if near else None,
    )


def _plan_of(given: Schedule | Plan | str | Path | None) -> Plan | None:
    """A plan where a plan or a file is given instead of the name of a schedule."""
    if isinstance(given, Plan):
        return given
    if given is None or isinstance(given, Schedule):
        return None
    text = str(given)
    known = text.strip().lower() in set(Schedule)
    if known or not (isinstance(given, Path) or text.endswith(".json") or _is_file(text)):
        return None
    from planner.formats.plan_file import read_plan

    return read_plan(text)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def _order_of(
    given: Order | OrderFile | Sequence[Sequence[str]] | str | Path,
) -> tuple[Order, OrderFile | None]:
    if isinstance(given, str | Path):
        given = read_order(str(given))
    if isinstance(given, OrderFile):
        return given.order, given
    if isinstance(given, Order):
        return given, None
    for rank, cells in enumerate(given):
        if isinstance(cells, str) or not all(isinstance(cell, str) for cell in cells):
            raise OrderError(
                "is no list of operations", file=f"rank {rank}", value=cells,
                expected='a list of text, as ["0F0", "0B0"]',
            )  # fmt: skip
    return order_from_lists("order", given), None


def _sends_of(given: Sends | str) -> Sends:
    try:
        return Sends(given)
    except ValueError:
        known = " or ".join(member.value for member in Sends)
        raise InputError("is unknown", file="sends", value=given, expected=known) from None


def _refuse_beside(what: str, stated: Sequence[str]) -> None:
    if stated:
        raise InputError(
            f"is contradicted by {what}, which says it itself", file=stated[0], fix="leave it out"
        )


def _count(name: str, given: int | None) -> int:
    if given is None:
        raise InputError("is not given", file=name, expected="a whole number >= 1")
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 1:
        raise InputError("is no count", file=name, value=given, expected="a whole number >= 1")
    return int(given)


def _check_counts(num_ranks: int, num_microbatches: int) -> None:
    for name, value, most in (
        ("stages", num_ranks, MOST_RANKS),
        ("microbatches", num_microbatches, MOST_MICROBATCHES),
    ):
        if value > most:
            raise InputError("is too large", file=name, value=value, expected=f"at most {most:,}")


def _check_size(num_stages: int, num_microbatches: int, kinds: int) -> None:
    count = num_stages * num_microbatches * kinds
    if count > MOST_OPERATIONS:
        raise InputError(
            f"{count:,} operations, of {num_stages:,} chunks in all, are too many to simulate",
            expected=f"at most {MOST_OPERATIONS:,}",
            fix=f"use fewer than {num_microbatches:,} micro-batches or {num_stages:,} chunks",
        )


def _check_order_size(order: Order) -> None:
    if order.num_operations > MOST_OPERATIONS or order.num_ranks > MOST_RANKS:
        raise OrderError(
            f"{order.num_ranks:,} ranks with {order.num_operations:,} operations are too many",
            expected=f"at most {MOST_RANKS:,} ranks and {MOST_OPERATIONS:,} operations",
        )
    idle = np.flatnonzero(np.diff(order.rank_start) == 0)
    if len(idle):
        raise OrderError(f"rank {idle[0]} has no operation", expected="a list of operations a rank")
