"""One order, many sets of times at once: the ends of every rank's work (numpy).

With unit times and free edges an operation starts one slot after everything it waits for, so the
operations of one slot are independent of each other whatever the real times are. Slot by slot,
all of them and all candidates are one array operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from planner.deadlines import poll
from planner.operations import Kind, Order
from planner.schedules.timeline import run_order, unit_times
from planner.schedules.validate import links_of
from planner.specs import Sends

__all__ = ["BatchTimes", "finishes_of_order"]

I64 = NDArray[np.int64]

# Cells of the table of ends (operations x candidates) that are worked on at once.
_MOST_CELLS = 4_000_000

# Slots of a simulation between two looks at the clock.
_LEVELS_A_POLL = 64


@dataclass(frozen=True, eq=False)
class BatchTimes:
    """Times of K candidates in quanta; shapes (K, S), edges (K, S-1)."""

    forward: I64
    input_gradient: I64
    weight_gradient: I64
    edge_forward: I64
    edge_backward: I64
    mirrored_forward: I64 | None = None
    mirrored_backward: I64 | None = None

    def part(self, rows: slice) -> BatchTimes:
        """Some of the candidates."""
        cut = [None if x is None else x[rows] for x in vars(self).values()]
        return BatchTimes(*cut)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class _Slots:
    """The plan of one order; n operations and a last row that is always 0."""

    levels: tuple[I64, ...]
    """First operations of the slots that start together."""
    previous: I64
    """Operation before the slot on the same rank (its last one), n where none."""
    need: I64
    """n where nothing is waited for."""
    second: I64
    """Second operation of an overlapped pair, n where alone."""
    time_row: I64
    """Row of the table of times: kind * S + stage (n,)."""
    edge_row: I64
    """Row of the table of edges; the last row is 0."""
    send_row: I64
    """Row of the edge that a blocking send of this operation pays."""
    last: I64
    """Last operation of each rank (P)."""


_CACHE: WeakKeyDictionary[Order, _Slots] = WeakKeyDictionary()


def _slots_of(order: Order) -> _Slots:
    found = _CACHE.get(order)
    if found is None:
        found = _CACHE[order] = _plan(order)
    return found


def _plan(order: Order) -> _Slots:
    count, stages = order.num_operations, order.num_stages
    links = links_of(order)
    units = unit_times(stages, 1, 2, 1)
    start = run_order(order, units).start
    joined = order.joined if order.joined is not None else np.zeros(count, np.bool_)
    is_second = np.concatenate(([False], joined[:-1]))
    heads = np.flatnonzero(~is_second)
    by_start = heads[np.argsort(start[heads], kind="stable")]
    borders = np.flatnonzero(np.diff(start[by_start])) + 1
    previous = np.arange(count) - 1
    previous[order.rank_start[:-1][np.diff(order.rank_start) > 0]] = count
    need = np.where(links.need < 0, count, links.need)
    second = np.where(joined, np.arange(count) + 1, count)
    borders_of_stages = stages - 1
    none = 4 * borders_of_stages
    edge_row = np.full(count, none, np.int64)
    waits = links.need >= 0
    forward = order.kind == Kind.F
    offset = np.where(links.mirrored, 2 * borders_of_stages, 0)
    ahead = waits & forward
    edge_row[ahead] = (offset + order.stage - 1)[ahead]
    back = waits & ~forward
    edge_row[back] = (offset + borders_of_stages + order.stage)[back]
    send_row = np.full(count, none, np.int64)
    send_row[links.need[waits]] = edge_row[waits]
    return _Slots(
        levels=tuple(np.split(by_start, borders)),
        previous=previous,
        need=need,
        second=second,
        time_row=order.kind.astype(np.int64) * stages + order.stage,
        edge_row=edge_row,
        send_row=send_row,
        last=order.rank_start[1:] - 1,
    )


def finishes_of_order(order: Order, times: BatchTimes, sends: Sends = Sends.OVERLAPPED) -> I64:
    """End of every rank's last operation (its blocking send included), shape (K, P)."""
    plan = _slots_of(order)
    count = len(times.forward)
    at_once = max(1, _MOST_CELLS // (order.num_operations + 1))
    parts = [
        _finishes(order, plan, times.part(slice(first, first + at_once)), sends)
        for first in range(0, count, at_once)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, order.num_ranks), np.int64)


def _finishes(order: Order, plan: _Slots, times: BatchTimes, sends: Sends) -> I64:
    count = order.num_operations
    candidates = len(times.forward)
    backward = times.input_gradient + times.weight_gradient
    table = np.concatenate(
        [times.forward, backward, times.input_gradient, times.weight_gradient], axis=1
    ).T  # rows kind * S + stage
    mirrored = (
        times.edge_forward if times.mirrored_forward is None else times.mirrored_forward,
        times.edge_backward if times.mirrored_backward is None else times.mirrored_backward,
    )
    nothing = np.zeros((candidates, 1), np.int64)
    edges = np.concatenate([times.edge_forward, times.edge_backward, *mirrored, nothing], axis=1).T
    table, edges = np.ascontiguousarray(table), np.ascontiguousarray(edges)
    blocking = sends is Sends.BLOCKING
    end = np.zeros((count + 1, candidates), np.int64)
    free = np.zeros_like(end) if blocking else end
    pairs = order.has_pairs
    for number, heads in enumerate(plan.levels):
        if number % _LEVELS_A_POLL == 0:
            poll()
        begin = np.maximum(
            free[plan.previous[heads]], end[plan.need[heads]] + edges[plan.edge_row[heads]]
        )
        finish = table[plan.time_row[heads]]
        if not pairs:
            finish = finish + begin
            end[heads] = finish
        else:
            second = plan.second[heads]
            both = second < count
            followers = second[both]
            begin[both] = np.maximum(
                begin[both], end[plan.need[followers]] + edges[plan.edge_row[followers]]
            )
            finish = finish.copy()
            finish[both] += table[plan.time_row[followers]]
            finish += begin
            end[heads] = finish
            end[followers] = finish[both]
        if blocking:
            sending = edges[plan.send_row[heads]]
            if pairs:  # the two sends of a pair run side by side
                sending[both] = np.maximum(sending[both], edges[plan.send_row[followers]])
            after = finish + sending
            if pairs:
                free[followers] = after[both]
            free[heads] = after
    finishes: I64 = np.ascontiguousarray(free[plan.last].T)
    return finishes
