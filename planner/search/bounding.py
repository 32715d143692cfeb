"""What each layout of a space cannot beat, before any cut is looked at.

For every layout a proven lower bound of its simulated step time (``schedules.bounds``) plus a
lower bound of the tail, and a proof of misfit where the states and one micro-batch's smallest
activations exceed what all its ranks have together. All in quanta, vectorised over layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.cost.pricing import Pricer
from planner.cost.tables import BlockTable
from planner.deadlines import poll
from planner.schedule_rules import RULES
from planner.schedules.bounds import layout_bound
from planner.schedules.closed_forms import bubble_estimate
from planner.schedules.general_bounds import general_layout_bound
from planner.schedules.loads import least_largest_load
from planner.schedules.simulate import RECURRENT
from planner.search.space import LayoutSpace
from planner.specs import Recompute, Schedule, Tier

__all__ = ["SpaceBounds", "bound_layouts", "least_makespans", "no_bounds", "refine_bound"]

I64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SpaceBounds:
    """Per layout, shape (K,): everything known before solving."""

    step: I64
    """Lower bound of the step value."""
    largest_stage: I64
    """Lower bound of the largest stage time, without communication."""
    total_forward: I64
    total_backward: I64
    forward_share: NDArray[np.float64]
    """Smallest F / (F + B) of any block."""
    edge_roundtrip: I64
    """Lower bound of the summed edge costs over all boundaries, both ways."""
    tail: I64
    """Lower bound of what follows the makespan."""
    estimate: NDArray[np.float64]
    """What the step may come to by closed forms, and layouts that seem too large last: an order
    to look in, never a reason to leave a layout out."""
    memory_short: I64
    """Bytes that are missing over all ranks together; 0 where this proves nothing."""


def no_bounds(space: LayoutSpace) -> SpaceBounds:
    """Nothing is known of any layout."""
    zeros = np.zeros(len(space), np.int64)
    shares = np.zeros(len(space))
    return SpaceBounds(zeros, zeros, zeros, zeros, shares, zeros, zeros, shares, zeros)


class _Work(NamedTuple):
    """Per layout, shape (K,): times and bytes that follow from its (tp, micro-batch) alone."""

    forward: I64
    backward: I64
    largest: I64
    """Of some stage's or rank's time, at least."""
    shares: NDArray[np.float64]
    kept: I64
    """Bytes that all blocks keep of a micro-batch at least."""
    transient: I64
    buffers: I64


def bound_layouts(pricer: Pricer, space: LayoutSpace) -> SpaceBounds:
    """Bounds of every layout of a space."""
    size = len(space)
    recurrent, updated = _which(space, "recurrent"), _which(space, "updated")
    pp, budget = space.pp, pricer.cluster.budget_bytes
    work = _work_of(pricer, space)
    static, reduced, stepped, fixed = _states_and_tails(pricer, space)
    depth = np.where(space.schedule == _index(space, Schedule.GPIPE), space.num_microbatches, 1)
    room = pp * (budget - np.where(pp > 1, work.buffers, 0) - work.transient)
    crowded = np.zeros(size, np.bool_)
    if not recurrent.all():
        crowded = static + _usual_depth(space, np.arange(size)) * work.kept > room
    short = np.maximum(0, static + depth * work.kept - room)
    # Rank 0 ends last where backwards are whole; elsewhere another rank's W may.
    tail = np.where(recurrent, reduced, 0) + np.where(updated, 0, stepped) + fixed
    edges = _edge_roundtrips(pricer, space)
    estimate = np.zeros(size)
    for index, schedule in enumerate(space.schedules):
        members = np.flatnonzero(space.schedule == index)
        for chunks in np.unique(space.vpp[members]).tolist():
            some = members[space.vpp[members] == chunks]
            bubble = bubble_estimate(schedule, pp[some], space.num_microbatches[some], chunks)
            estimate[some] = (space.num_microbatches[some] + bubble) * work.largest[some]
    estimate = np.where(crowded, 1e30, 1.0) * (estimate + tail)
    step = _makespans(space, work, edges) + tail
    return SpaceBounds(
        step, work.largest, work.forward, work.backward, work.shares, edges, tail, estimate, short
    )


def least_makespans(pricer: Pricer, space: LayoutSpace) -> I64:
    """What no step of each layout undercuts, transfers and all that follows left out."""
    return _makespans(space, _work_of(pricer, space), np.zeros(len(space), np.int64))


def _work_of(pricer: Pricer, space: LayoutSpace) -> _Work:
    forward, backward, largest, kept, transient, buffers = np.zeros((6, len(space)), np.int64)
    shares = np.ones(len(space))
    several, two_way = _which(space, "several"), _which(space, "two_way")
    for (tp, microbatch_size), members in _groups(space.tp, space.microbatch_size):
        poll()
        table = pricer.block_table(tp, microbatch_size)
        forward[members], backward[members] = table.total_ms_quanta
        stages = space.pp[members]
        shares[members] = _forward_share(table)
        largest[members] = _largest_stage_by_count(table, stages)
        if several[members].any():
            loads = _largest_load(table, stages)
            grouped = np.where(two_way[members], loads[:, 1], loads[:, 0])
            largest[members] = np.where(several[members], grouped, largest[members])
        kept[members] = _least_kept(table, pricer).sum()
        transient[members] = np.minimum(table.transient_bytes, table.transient_full_bytes).min()
        buffers[members] = table.buffer_bytes
    return _Work(forward, backward, largest, shares, kept, transient, buffers)


def _makespans(space: LayoutSpace, work: _Work, edges: I64) -> I64:
    step = np.zeros(len(space), np.int64)
    for index, schedule in enumerate(space.schedules):
        members = np.flatnonzero(space.schedule == index)
        counts = space.pp[members], space.num_microbatches[members]
        totals = work.forward[members], work.backward[members]
        if _recurrent(schedule):
            step[members] = layout_bound(
                schedule, *counts, *totals, work.largest[members], edges[members]
            )
        elif len(members):
            step[members] = general_layout_bound(
                schedule, *counts, *totals, work.largest[members], work.shares[members]
            )
    return step


def refine_bound(bounds: SpaceBounds, space: LayoutSpace, index: int, largest_stage: int) -> int:
    """The bound of one layout given an exact lower bound of its largest stage time."""
    schedule = space.schedules[int(space.schedule[index])]
    one = slice(index, index + 1)
    counts = space.pp[one], space.num_microbatches[one]
    totals = bounds.total_forward[one], bounds.total_backward[one]
    if RULES[schedule].several_stages:
        return int(bounds.step[index])
    largest = np.maximum(bounds.largest_stage[one], largest_stage)
    if _recurrent(schedule):
        makespan = layout_bound(schedule, *counts, *totals, largest, bounds.edge_roundtrip[one])
    else:
        share = bounds.forward_share[one]
        makespan = general_layout_bound(schedule, *counts, *totals, largest, share)
    return max(int(bounds.step[index]), int(makespan[0]) + int(bounds.tail[index]))


def _recurrent(schedule: Schedule) -> bool:
    return schedule in RECURRENT or schedule is Schedule.NAIVE


def _which(space: LayoutSpace, kind: str) -> NDArray[np.bool_]:
    """Layouts by what their schedule is."""
    facts = {
        "recurrent": [_recurrent(s) for s in space.schedules],
        "two_way": [RULES[s].two_way for s in space.schedules],
        "several": [RULES[s].several_stages for s in space.schedules],
        "updated": [s is Schedule.PIPEDREAM for s in space.schedules],  # part of every micro-batch
    }
    return np.array(facts[kind], np.bool_)[space.schedule]


def _forward_share(table: BlockTable) -> float:
    """Smallest share of F in a block's time; 1 where every block is free."""
    load = table.forward + table.input_gradient + table.weight_gradient
    timed = load > 0
    return float((table.forward[timed] / load[timed]).min()) if timed.any() else 1.0


def _largest_load(table: BlockTable, ranks: I64) -> I64:
    """What some rank has to do for a micro-batch at least, if it may hold any blocks.

    Half of the ranks share the loads of a two-way schedule, at half of the micro-batches: no
    more than a pair's load, halved.
    """
    times = table.forward + table.input_gradient + table.weight_gradient
    found = {}
    for count in set(ranks.tolist()):
        paired = least_largest_load(times, max(1, count // 2)) // 2
        found[count] = (least_largest_load(times, count), paired)
    return np.array([found[count] for count in ranks.tolist()], np.int64).reshape(-1, 2)


def _usual_depth(space: LayoutSpace, members: I64) -> I64:
    """Micro-batches that a rank holds on average, roughly: what M, P and the schedule suggest."""
    p, m = space.pp[members], space.num_microbatches[members]
    held = {
        Schedule.GPIPE: m,
        Schedule.NAIVE: m,
        Schedule.LOOPED_BFS: m,
        Schedule.ZB_H1: p,
        Schedule.ZB_H2: 2 * p,
        Schedule.EAGER_ONE_F_ONE_B: p,
        Schedule.INTERLEAVED_ZB: p + p // 2,
        Schedule.INTERLEAVED: p,
        Schedule.ZB_V: p,
        Schedule.DUALPIPE_V: p,
        Schedule.DUALPIPE: p // 2,
        Schedule.V_MIN: p // 3,
    }
    depth = (p + 1) // 2
    for schedule, usual in held.items():
        depth = np.where(space.schedule[members] == _index(space, schedule), usual, depth)
    found: I64 = np.maximum(1, np.minimum(depth, m))
    return found


def _index(space: LayoutSpace, schedule: Schedule) -> int:
    return space.schedules.index(schedule) if schedule in space.schedules else -1


def _least_kept(table: BlockTable, pricer: Pricer) -> I64:
    """Smallest activations each block can keep per micro-batch under the allowed modes."""
    modes = pricer.training.recompute
    kept = table.kept_bytes
    if Recompute.SELECTIVE in modes:
        kept = np.minimum(kept, table.kept_selective_bytes)
    if Recompute.FULL in modes or Recompute.LAYERS in modes:
        kept = np.minimum(kept, table.kept_full_bytes)
    return kept


def _largest_stage_by_count(table: BlockTable, stages: I64) -> I64:
    return np.array([table.least_largest_stage(count) for count in stages.tolist()], np.int64)


def _groups(*columns: I64) -> Iterator[tuple[tuple[int, ...], I64]]:
    """Rows of equal values, and where they stand."""
    order = np.lexsort(columns)
    new = np.zeros(max(0, len(order) - 1), np.bool_)
    for column in columns:
        new |= np.diff(column[order]) != 0
    for members in np.split(order, np.flatnonzero(new) + 1):
        if len(members):
            yield tuple(int(column[members[0]]) for column in columns), members


def _states_and_tails(pricer: Pricer, space: LayoutSpace) -> tuple[I64, I64, I64, I64]:
    """Bytes of all states, and least reduction, optimizer and fixed times of each layout."""
    static, reduced, stepped, fixed = np.zeros((4, len(space)), np.int64)
    blocks = len(pricer.chain.blocks)
    for (tp, dp), members in _groups(space.tp, space.dp):
        poll()
        states = pricer.state_table(tp, dp, int(space.microbatch_size[members[0]]))
        pp = space.pp[members]
        # Tied weights are stored once where a stage can hold both owners.
        once = sum(
            pair.shared_bytes * (pair.second - pair.first + pp <= blocks) for pair in states.tied
        )
        static[members] = int(states.static_bytes.sum()) - once
        first, update = int(states.reduction[0]), states.update
        reduced[members] = states.reduction_latency + first if first else 0
        stepped[members] = np.maximum(-(-int(update.sum()) // pp), int(update.max()))
        # Weights tied over stages are reduced between the first and the last of them.
        alike = _groups(pp) if states.tied_states else [(0, np.arange(len(pp)))]
        for _, places in alike:
            some = members[places]
            fixed[some] = pricer.fixed_tail(space.layout(int(some[0])))
    return static, reduced, stepped, fixed


def _edge_roundtrips(pricer: Pricer, space: LayoutSpace) -> I64:
    """Least summed edges of each layout: its borders by tier, at the cheapest cut of the tier."""
    tiers = list(Tier)
    borders = np.zeros((len(space), len(tiers)), np.int64)
    cheapest = np.zeros_like(borders)
    for (pp, _, _), members in _groups(space.pp, space.tp, space.dp):
        if pp > 1:
            poll()
            found = pricer.boundary_tiers(space.layout(int(members[0])))
            borders[members] = [found.count(tier) for tier in tiers]
    columns = np.flatnonzero(borders.any(axis=0))
    used = tuple(tiers[column] for column in columns.tolist())
    for (tp, microbatch_size), members in _groups(space.tp, space.microbatch_size):
        least = pricer.cheapest_edges(tp, microbatch_size, used)
        cheapest[members[:, None], columns[None, :]] = least
    total: I64 = (borders * cheapest).sum(axis=1)
    return total
