"""What the chain solvers read of a problem, arranged once for speed.

``tables_of(problem)`` is cached with the problem; everything in it follows from the
definitions of :class:`~planner.cost.stage_table.ChainProblem` and is tested against them.
Cut i lies between stages i-1 and i; its price depends on i through the link tier alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem
from planner.specs import Recompute

__all__ = ["INFINITE", "ChainTables", "CutWindows", "ModeTable", "tables_of"]

I64 = NDArray[np.int64]

INFINITE = 1 << 62
"""Larger than any price; the price of a stage that may not be."""


class ModeTable(NamedTuple):
    """One way to recompute whose times and kept bytes are sums over blocks."""

    mode: Recompute
    extra: list[int]
    """Prefix sums (N+1) of the quanta added."""
    kept: list[int]
    """Prefix sums (N+1) of activation bytes kept per micro-batch."""
    transient: list[int]
    """Workspace of each block (N)."""
    largest_transient: int


class CutWindows(NamedTuple):
    """Where each cut may lie: ``low[i] <= cut_i <= high[i]`` for i = 0 .. P, both legal."""

    low: list[int]
    high: list[int]


def _sums(values: I64) -> list[int]:
    sums: list[int] = np.concatenate(([0], np.cumsum(values))).tolist()
    return sums


class ChainTables:
    """Prefix lists and windows of one problem (see :func:`tables_of`)."""

    def __init__(self, problem: ChainProblem) -> None:
        self.num_blocks = count = problem.num_blocks
        self.num_stages = stages = problem.num_stages
        sums = problem.prefix
        self.compute = _sums(problem.forward + problem.backward)
        self.static = sums["static_bytes"]
        self.in_flight: list[int] = problem.in_flight.tolist()
        buffers = problem.buffer_bytes if stages > 1 else 0
        self.room: list[int] = [budget - buffers for budget in problem.budget_bytes.tolist()]
        self.buffers = buffers
        self.tied = problem.tied
        self.allowed_modes = tuple(problem.recompute_modes) or (Recompute.NONE,)
        self.layers = Recompute.LAYERS in self.allowed_modes
        self._stage_low: list[int] = problem.stage_low.tolist()
        self._stage_high: list[int] = problem.stage_high.tolist()
        self.modes = [
            self._mode_table(problem, mode)
            for mode in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
            if mode in self.allowed_modes or (self.layers and mode is not Recompute.SELECTIVE)
        ]
        total = problem.edge_forward + problem.edge_backward
        self.tiers: list[int] = problem.boundary_tier.tolist()
        self.edge_rows: list[list[int]] = total.tolist()
        self.edges = total
        legal = problem.legal_cut
        self.recomputable: list[bool] = problem.recomputable.tolist()
        self.all_legal = bool(legal.all())
        if self.all_legal:
            self.legal_before = self.legal_after = list(range(count + 1))
        else:
            positions = np.arange(count + 1)
            self.legal_before = np.maximum.accumulate(np.where(legal, positions, 0)).tolist()
            ahead = np.where(legal, positions, count)[::-1]
            self.legal_after = np.minimum.accumulate(ahead)[::-1].tolist()

    @staticmethod
    def _mode_table(problem: ChainProblem, mode: Recompute) -> ModeTable:
        sums = problem.prefix
        able = problem.recomputable
        transient = problem.transient_bytes
        if mode is Recompute.NONE:
            extra, kept = [0] * (problem.num_blocks + 1), sums["kept_bytes"]
        elif mode is Recompute.SELECTIVE:
            extra, kept = sums["selective_extra"], sums["kept_selective_bytes"]
        else:
            extra = _sums(np.where(able, problem.full_extra, 0))
            kept = _sums(np.where(able, problem.kept_full_bytes, problem.kept_bytes))
            transient = np.where(able, problem.transient_full_bytes, transient)
        workspace = transient.tolist()
        return ModeTable(mode, extra, kept, workspace, max(workspace))

    # --- facts about the whole chain ----------------------------------------------------------

    @cached_property
    def inclusion_monotone(self) -> bool:
        """Whether a stage without its cuts never costs less when it grows.

        Every term is a sum or a maximum of non-negative numbers; only tied weights subtract,
        which is harmless while no block gives back more than it holds.
        """
        shared: dict[int, int] = {}
        for pair in self.tied:
            for block in (pair.first, pair.second):
                shared[block] = shared.get(block, 0) + pair.shared_bytes
        return all(
            self.static[block + 1] - self.static[block] >= size for block, size in shared.items()
        )

    @cached_property
    def cuts_monotone(self) -> bool:
        """Whether moving one end of a stage outward never makes it cheaper (SOLVERS fact F2).

        True when X + c and X - c do not fall over the interior legal cuts, X being the prefix
        sums of the stage times and c the price of a cut, in every tier.
        """
        legal = [p for p in range(1, self.num_blocks) if self.legal_before[p] == p]
        if len(legal) < 2 or not self.tiers:
            return True
        steps = np.diff(np.array(self.compute, np.int64)[legal])
        used = self.edges[sorted(set(self.tiers))][:, legal]
        return bool((np.abs(np.diff(used, axis=1)) <= steps).all())

    @cached_property
    def least_edge(self) -> list[int]:
        """Cheapest legal interior cut of each boundary (P-1)."""
        legal = [p for p in range(1, self.num_blocks) if self.legal_before[p] == p]
        if not legal:
            return [0] * len(self.tiers)
        cheapest = self.edges[:, legal].min(axis=1).tolist()
        return [cheapest[tier] for tier in self.tiers]

    @cached_property
    def lower_bound(self) -> int:
        """A bottleneck below which no cut can be: mean load and largest block."""
        edges = self.least_edge
        mean = -(-(self.compute[-1] + 2 * sum(edges)) // self.num_stages)
        largest = max(b - a for a, b in zip(self.compute, self.compute[1:], strict=False))
        return max(mean, largest)

    @cached_property
    def ceiling(self) -> int:
        """No feasible stage costs more than this."""
        extra = max(mode.extra[-1] for mode in self.modes)
        dearest = int(self.edges.max()) if self.edges.size else 0
        return self.compute[-1] + extra + 2 * dearest

    @cached_property
    def pinned(self) -> CutWindows | None:
        """Windows of the cuts from pins, colocation and "no empty stage"; None if impossible.

        A block on stage s or later keeps every cut i <= s at or before it; on stage s or
        earlier, every cut i > s behind it.
        """
        count, stages = self.num_blocks, self.num_stages
        low = list(range(stages + 1))
        high = [count - stages + i for i in range(stages + 1)]
        low[stages], high[0] = count, 0
        if any(self._stage_low) or min(self._stage_high) < stages - 1:
            pairs = zip(self._stage_low, self._stage_high, strict=True)
            for block, (first, last) in enumerate(pairs):
                first, last = max(first, 0), min(last, stages - 1)
                if first > last:
                    return None
                high[first] = min(high[first], block)
                low[last + 1] = max(low[last + 1], block + 1)
        return self._settled(low, high)

    def _settled(self, low: list[int], high: list[int]) -> CutWindows | None:
        """Windows tightened until neighbours leave each other a block; None if one is empty."""
        stages = self.num_stages
        for i in range(stages - 1, -1, -1):
            high[i] = self.legal_before[max(0, min(high[i], high[i + 1] - 1))]
        for i in range(1, stages + 1):
            low[i] = self.legal_after[min(self.num_blocks, max(low[i], low[i - 1] + 1))]
        if any(a > b for a, b in zip(low, high, strict=True)):
            return None
        return CutWindows(low, high)

    @cached_property
    def least_kept(self) -> list[int]:
        """Prefix sums of the fewest bytes any mode keeps of each block."""
        rows = np.array([np.diff(mode.kept) for mode in self.modes], np.int64)
        return _sums(rows.min(axis=0))

    @cached_property
    def memory_can_bind(self) -> list[bool]:
        """Whether some interval could overflow a stage in its largest mode (P)."""
        kept = max(mode.kept[-1] for mode in self.modes)
        workspace = max(mode.largest_transient for mode in self.modes)
        return [
            self.static[-1] + flight * kept + workspace > room
            for flight, room in zip(self.in_flight, self.room, strict=True)
        ]

    def _held_to(self, flight: int) -> Callable[[int], int]:
        """Least bytes held up to a position with ``flight`` micro-batches (a bisection key)."""
        static, kept = self.static, self.least_kept
        return lambda position: static[position] + flight * kept[position]

    def windows(self, limit: int, spare_bytes: int = 0) -> CutWindows | None:
        """Windows that hold every cut vector whose bottleneck is at most ``limit``.

        Forward and backward greedy over a relaxed price (compute and the cheapest cuts, the
        fewest kept bytes, all tied weights shared): necessary, not sufficient. None if empty.
        ``spare_bytes`` is added to every budget.
        """
        pinned = self.pinned
        if pinned is None:
            return None
        low, high = list(pinned.low), list(pinned.high)
        stages, compute = self.num_stages, self.compute
        edges = [0, *self.least_edge, 0]
        shared = spare_bytes + sum(pair.shared_bytes for pair in self.tied)
        static, kept = self.static, self.least_kept
        for i in range(1, stages + 1):
            start, stage = high[i - 1], i - 1
            allowance = limit - edges[i - 1] - edges[i]
            reach = min(high[i], bisect_right(compute, compute[start] + allowance) - 1)
            if self.memory_can_bind[stage] and reach > start:
                flight = self.in_flight[stage]
                room = static[start] + flight * kept[start] + self.room[stage] + shared
                if static[reach] + flight * kept[reach] > room:
                    span = range(start, reach)
                    reach = start + bisect_right(span, room, key=self._held_to(flight)) - 1
            if reach < low[i]:
                return None
            high[i] = self.legal_before[reach]
            if high[i] < low[i]:
                return None
        for i in range(stages - 1, -1, -1):
            end, stage = low[i + 1], i
            allowance = limit - edges[i] - edges[i + 1]
            reach = max(low[i], bisect_left(compute, compute[end] - allowance))
            if self.memory_can_bind[stage] and reach < end:
                flight = self.in_flight[stage]
                room = static[end] + flight * kept[end] - self.room[stage] - shared
                if static[reach] + flight * kept[reach] < room:
                    span = range(reach, end + 1)
                    reach += bisect_left(span, room, key=self._held_to(flight))
            if reach > high[i]:
                return None
            low[i] = self.legal_after[reach]
            if low[i] > high[i]:
                return None
        return self._settled(low, high)


_CACHE: WeakKeyDictionary[ChainProblem, ChainTables] = WeakKeyDictionary()


def tables_of(problem: ChainProblem) -> ChainTables:
    """The tables of a problem, made once and kept as long as the problem."""
    tables = _CACHE.get(problem)
    if tables is None:
        tables = _CACHE[problem] = ChainTables(problem)
    return tables
