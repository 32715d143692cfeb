"""The exact timeline of any order: when every operation starts and ends.

A rank runs its list in order. An operation starts when its rank is free and what it waits for has
arrived (:mod:`planner.schedules.validate` has the dependencies). Overlapped sends make an edge
pure latency; a blocking send keeps its rank busy for the edge's cost after the operation, while
the receiver only waits. Edges between stages on one rank cost nothing.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.operations import Kind, Order
from planner.schedules.validate import deadlock_error, links_of
from planner.specs import Sends

__all__ = ["StageTimes", "Timeline", "run_order", "unit_times"]

I64 = NDArray[np.int64]

# Operations from which the compiled loop is worth loading numba (0.9 CPU s).
_WORTH_COMPILING = 200_000


@dataclass(frozen=True, eq=False)
class StageTimes:
    """Times of one micro-batch in whole quanta, by stage (chunk) of the model; S stages.

    ``edge_forward[q]`` and ``edge_backward[q]`` are the one-way costs between stages q and q+1.
    Micro-batches of a two-way schedule that enter at the last rank use the mirrored edges where
    those are given.
    """

    forward: I64
    """Shape (S,)."""
    input_gradient: I64
    weight_gradient: I64
    edge_forward: I64
    """Shape (S-1,)."""
    edge_backward: I64
    mirrored_forward: I64 | None = None
    mirrored_backward: I64 | None = None
    pair: int | None = None
    """Time of an overlapped pair; None: the sum of its two operations."""
    reduction: I64 | None = None
    """Gradient reduction that follows a rank's last operation, shape (P,)."""
    optimizer: I64 | None = None
    """Optimizer step of each rank; starts when every rank has reduced (P,)."""


def unit_times(num_stages: int, forward: int = 1, backward: int = 2, weight: int = 1) -> StageTimes:
    """The same times on every stage and free edges."""
    return StageTimes(
        forward=np.full(num_stages, forward, np.int64),
        input_gradient=np.full(num_stages, backward - weight, np.int64),
        weight_gradient=np.full(num_stages, weight, np.int64),
        edge_forward=np.zeros(num_stages - 1, np.int64),
        edge_backward=np.zeros(num_stages - 1, np.int64),
    )


@dataclass(frozen=True, eq=False)
class Timeline:
    """Start and end of every operation, in quanta; shapes (n,)."""

    order: Order
    times: StageTimes
    sends: Sends
    start: I64
    end: I64
    hold: I64
    """How long the rank is busy sending after the operation (blocking sends)."""
    lag: I64
    """How long after its end what the operation waits for arrives."""
    need: I64 = field(repr=False)

    @cached_property
    def finish(self) -> I64:
        """End of each rank's last operation, its blocking send included (P,)."""
        return _last_of_rank(self.order, self.end + self.hold)

    @cached_property
    def rank_begin(self) -> I64:
        """Start of each rank's first operation (P,)."""
        first = self.order.rank_start[:-1]
        empty = first == self.order.rank_start[1:]
        begin: I64 = np.where(empty, 0, self.start[np.minimum(first, len(self.start) - 1)])
        return begin

    @cached_property
    def makespan(self) -> int:
        """Largest finish."""
        return int(self.finish.max())

    @cached_property
    def busy(self) -> I64:
        """Time each rank spends in operations and blocking sends (P,)."""
        spent = self.end - self.start + self.hold
        if self.order.joined is not None:
            # The two of a pair share their time, and their sends run side by side.
            first = np.flatnonzero(self.order.joined)
            shared = np.minimum(self.hold[first], self.hold[first + 1])
            spent[first] -= self.end[first] - self.start[first] + shared
        sums = np.concatenate(([0], np.cumsum(spent)))
        busy: I64 = sums[self.order.rank_start[1:]] - sums[self.order.rank_start[:-1]]
        return busy

    @property
    def idle(self) -> I64:
        """Makespan less busy, by rank (P,)."""
        return self.makespan - self.busy

    @cached_property
    def span(self) -> int:
        """Longest time from a rank's own first start to its own last end, in quanta.

        The Zero Bubble paper's cost (Qi et al. 2024, section 5.2): what a step takes once the
        optimizer needs no barrier across ranks.
        """
        return int((self.finish - self.rank_begin).max())

    @property
    def bubble_fraction(self) -> float:
        """Idle share of the makespan over all ranks."""
        return _share(self.makespan - self.busy.mean(), self.makespan)

    @property
    def bubble_of_ideal(self) -> float:
        """Idle time over the mean busy time (Narayanan et al. 2021, section 2.2)."""
        return _share(self.makespan - self.busy.mean(), float(self.busy.mean()))

    @property
    def span_bubble(self) -> float:
        """Share of the longest own span that is not work, 1 - mean busy / span."""
        return _share(self.span - self.busy.mean(), self.span)

    @cached_property
    def step(self) -> int:
        """Makespan with the tail: reductions after each rank's end, then the optimizer."""
        reduction = self.times.reduction
        ends = self.finish if reduction is None else self.finish + reduction
        optimizer = self.times.optimizer
        return int(ends.max()) + (0 if optimizer is None else int(optimizer.max()))

    def critical_path(self) -> list[int]:
        """Operations that set the makespan, first to last; each waits for the one before.

        Where an operation waits for both its rank and another one, the dependency is named.
        """
        ends = self.end + self.hold
        at = int(ends.argmax())
        joined, first = self.order.joined, self.order.rank_start[self.order.rank].tolist()
        path = [at]
        while True:
            before = self._binding(at, joined, first[at])
            if before is None:
                break
            at = before
            path.append(at)
        return path[::-1]

    def _binding(self, at: int, joined: NDArray[np.bool_] | None, first: int) -> int | None:
        slot = [at]
        if joined is not None:
            if joined[at]:
                slot.append(at + 1)
            elif at > first and joined[at - 1]:
                slot = [at - 1, at]
        begin = int(self.start[at])
        for operation in slot:
            wanted = int(self.need[operation])
            if wanted >= 0 and int(self.end[wanted] + self.lag[operation]) == begin:
                return wanted
        previous = slot[0] - 1
        if previous < first:
            return None
        return previous


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _last_of_rank(order: Order, ends: I64) -> I64:
    last = order.rank_start[1:] - 1
    empty = order.rank_start[1:] == order.rank_start[:-1]
    found = ends[last]
    if order.joined is not None:
        # Both of a pair end together; the sends of the first one may last longer.
        paired = (last > order.rank_start[:-1]) & order.joined[last - 1]
        found = np.where(paired, np.maximum(found, ends[last - 1]), found)
    finish: I64 = np.where(empty, 0, found)
    return finish


def run_order(order: Order, times: StageTimes, sends: Sends = Sends.OVERLAPPED) -> Timeline:
    """Simulate an order.

    Parameters
    ----------
    order
        Any order; it is validated first.
    times
        Non-negative quanta, one entry a stage of the order.

    Raises
    ------
    OrderError
        The order is incomplete, misplaced or deadlocks; the message names the operations.
    InputError
        The times do not match the order's stages, or are negative.

    Examples
    --------
    >>> from planner.operations import order_from_lists
    >>> ranks = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1"]]
    >>> order = order_from_lists("gpipe", ranks)
    >>> timeline = run_order(order, unit_times(2))
    >>> timeline.makespan, [order.name(i) for i in timeline.critical_path()]
    (9, ['0F0', '0F1', '1F1', '1B0', '1B1', '0B1'])
    """
    _check_times(order, times)
    links = links_of(order)
    durations = _durations(order, times)
    edge_of_need = _edges(order, times, links.need, links.mirrored)
    if sends is Sends.BLOCKING:
        hold = np.zeros(order.num_operations, np.int64)
        waiting = links.need >= 0
        hold[links.need[waiting]] = edge_of_need[waiting]
    else:
        hold = np.zeros(0, np.int64)
    start, end, stuck = _run(order, links.need, edge_of_need, durations, hold)
    if stuck is not None:
        raise deadlock_error(order, links.need, stuck, (end >= 0).tolist())
    return Timeline(
        order=order,
        times=times,
        sends=sends,
        start=start,
        end=end,
        hold=hold if len(hold) else np.zeros(order.num_operations, np.int64),
        lag=edge_of_need,
        need=links.need,
    )


def _check_times(order: Order, times: StageTimes) -> None:
    stages = order.num_stages
    for name in ("forward", "input_gradient", "weight_gradient"):
        values = getattr(times, name)
        if len(values) != stages:
            raise InputError(
                f"{name} times do not match the order",
                value=len(values),
                expected=f"{stages}, one a stage",
            )
        if (values < 0).any():
            raise InputError(f"{name} times are negative", value=int(values.min()))
    for name in ("edge_forward", "edge_backward"):
        values = getattr(times, name)
        if len(values) != stages - 1:
            raise InputError(
                f"{name} costs do not match the order",
                value=len(values),
                expected=f"{stages - 1}, one a border of two stages",
            )
        if (values < 0).any():
            raise InputError(f"{name} costs are negative", value=int(values.min()))


def _durations(order: Order, times: StageTimes) -> I64:
    """Time of every operation; both of a pair carry the pair's."""
    by_kind = np.stack(
        [
            times.forward,
            times.input_gradient + times.weight_gradient,
            times.input_gradient,
            times.weight_gradient,
        ]
    )
    durations: I64 = by_kind[order.kind, order.stage]
    if order.joined is not None:
        first = np.flatnonzero(order.joined)
        both = durations[first] + durations[first + 1] if times.pair is None else times.pair
        durations[first] = both
        durations[first + 1] = both
    return durations


def _edges(order: Order, times: StageTimes, need: I64, mirrored: NDArray[np.bool_]) -> I64:
    """What each operation's input travels; 0 where it waits for nobody else."""
    edges = np.zeros(order.num_operations, np.int64)
    is_forward = order.kind == Kind.F
    plain = (times.edge_forward, times.edge_backward)
    mirror = (
        plain[0] if times.mirrored_forward is None else times.mirrored_forward,
        plain[1] if times.mirrored_backward is None else times.mirrored_backward,
    )
    waits = need >= 0
    for side, rows in ((plain, waits & ~mirrored), (mirror, waits & mirrored)):
        ahead = np.flatnonzero(rows & is_forward)
        back = np.flatnonzero(rows & ~is_forward)
        edges[ahead] = side[0][order.stage[ahead] - 1]
        edges[back] = side[1][order.stage[back]]
    return edges


def _run(
    order: Order, need: I64, lag: I64, durations: I64, hold: I64
) -> tuple[I64, I64, list[int] | None]:
    """Starts, ends (-1 where never reached), and where each rank stands if some are stuck."""
    count = order.num_operations
    joined = order.joined if order.joined is not None else np.zeros(0, np.bool_)
    compiled = "numba" in sys.modules or (
        count >= _WORTH_COMPILING and find_spec("numba") is not None
    )
    if compiled:
        from planner.schedules.timeline_kernel import compiled_walk

        start, end = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        waiter = np.full(count, -1, np.int32)
        position = order.rank_start[:-1].copy()
        done = compiled_walk()(
            order.rank_start, need, lag, durations, hold, joined, position, waiter, start, end
        )
        return start, end, None if done == count else position.tolist()
    from planner.schedules.timeline_kernel import walk

    starts, ends, waiters = [-1] * count, [-1] * count, [-1] * count
    positions = order.rank_start[:-1].tolist()
    done = walk(
        order.rank_start.tolist(), need.tolist(), lag.tolist(), durations.tolist(), hold.tolist(),
        joined.tolist(), positions, waiters, starts, ends,
    )  # fmt: skip
    stuck = None if done == count else positions
    return np.array(starts, np.int64), np.array(ends, np.int64), stuck
