"""Prices of many stages at once, for bounds and solvers (numpy).

Everything here repeats a definition of :class:`~planner.cost.stage_table.ChainProblem` on
arrays of (stage, start, end) and is tested against its methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem, RecomputeChoice
from planner.deadlines import poll
from planner.schedules import recompute_kernel
from planner.schedules.recompute_kernel import ModeRows
from planner.schedules.simulate import finishes
from planner.specs import Recompute

__all__ = ["UNREACHABLE", "CutValues", "StagePrices", "prices_of"]

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

UNREACHABLE = 1 << 60
"""Larger than any time; two of them still add up without overflow."""


@dataclass(frozen=True)
class CutValues:
    """K evaluated cut vectors; ``value`` is :data:`UNREACHABLE` where a stage is impossible."""

    cuts: I64
    value: I64
    makespan: I64
    bottleneck: I64
    lightest: I64
    peak_bytes: I64


class _RangeMaximum:
    """Largest entry of any interval [start, end) of an array, by doubling."""

    def __init__(self, values: I64) -> None:
        self.constant = int(values[0]) if (values == values[0]).all() else None
        self.levels = [values]
        width = 1
        while 2 * width <= len(values) and self.constant is None:
            last = self.levels[-1]
            self.levels.append(np.maximum(last[:-width], last[width:]))
            width *= 2

    def __call__(self, start: I64, end: I64) -> I64:
        """Zero where the interval is empty."""
        length = end - start
        if self.constant is not None:
            return np.where(length > 0, self.constant, 0)
        level = np.frexp(np.maximum(length, 1).astype(np.float64))[1] - 1
        result = np.zeros(np.broadcast(start, end).shape, np.int64)
        start, end = np.broadcast_arrays(start, end)
        for step in np.unique(level[length > 0]) if (length > 0).any() else ():
            poll()
            chosen = (level == step) & (length > 0)
            row = self.levels[int(step)]
            result[chosen] = np.maximum(row[start[chosen]], row[end[chosen] - (1 << int(step))])
        return result

    def table(self, levels: int) -> I64:
        """Largest of 2**level entries from each place, zeros where there are fewer."""
        rows = np.zeros((levels, len(self.levels[0])), np.int64)
        for level in range(levels):
            row = self.levels[0] if self.constant is not None else self.levels[level]
            rows[level, : len(row)] = row
        return rows


def _sums(values: I64) -> I64:
    total = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=total[1:])
    return total


class StagePrices:
    """Prefix arrays of one problem (see :func:`prices_of`)."""

    def __init__(self, problem: ChainProblem) -> None:
        self.problem_budget = problem.budget_bytes
        self.num_blocks, self.num_stages = problem.num_blocks, problem.num_stages
        self.schedule, self.sends = problem.schedule, problem.sends
        self.num_microbatches = problem.num_microbatches
        self.forward = _sums(problem.forward)
        self.backward = _sums(problem.backward)
        self.weight_gradient = _sums(problem.weight_gradient)
        self._hiding = _sums(getattr(problem, problem.hides_reduction))
        self.update = _sums(problem.update)
        self.modes = tuple(problem.recompute_modes) or (Recompute.NONE,)
        self.fixed_tail = problem.fixed_tail
        self.update_blocks = problem.update
        self._reduction_blocks = problem.reduction
        self._reduction = _sums(problem.reduction)
        self._reduces = bool(problem.reduction.any())
        self._latency = problem.reduction_latency
        self._overlap = problem.overlap_reduction
        self._legal = problem.legal_cut
        self._tied = problem.tied
        self._buffers = problem.buffer_bytes if problem.num_stages > 1 else 0
        self._in_flight = problem.in_flight
        self._static = _sums(problem.static_bytes)
        able = problem.recomputable
        self._kept = _sums(problem.kept_bytes)
        self._kept_selective = _sums(problem.kept_selective_bytes)
        self._kept_full = _sums(np.where(able, problem.kept_full_bytes, problem.kept_bytes))
        self._selective_extra = _sums(problem.selective_extra)
        self._full_extra = _sums(np.where(able, problem.full_extra, 0))
        transient_full = np.where(able, problem.transient_full_bytes, problem.transient_bytes)
        self._workspace = _RangeMaximum(problem.transient_bytes)
        self._workspace_full = _RangeMaximum(transient_full)
        self._able_before = _sums(able.astype(np.int64))
        self._able_at = np.append(np.flatnonzero(able), 0)
        # Rows 0..P: edges of cut i; cuts 0 and P are the ends of the chain and free.
        self.edge_forward = np.zeros((self.num_stages + 1, self.num_blocks + 1), np.int64)
        self.edge_backward = np.zeros_like(self.edge_forward)
        if self.num_stages > 1:
            self.edge_forward[1:-1] = problem.edge_forward[problem.boundary_tier]
            self.edge_backward[1:-1] = problem.edge_backward[problem.boundary_tier]
        wrong = (problem.stage_low[None, :] > np.arange(self.num_stages)[:, None]) | (
            problem.stage_high[None, :] < np.arange(self.num_stages)[:, None]
        )
        self._misplaced: I64 | None = None
        if wrong.any():
            self._misplaced = np.zeros((self.num_stages, self.num_blocks + 1), np.int64)
            np.cumsum(wrong, axis=1, out=self._misplaced[:, 1:])
        self._all_legal = bool(problem.legal_cut.all())

    @cached_property
    def least_backward(self) -> I64:
        """Prefix sums of the backward with the extra that no allowed mode avoids."""
        if Recompute.NONE in self.modes or Recompute.LAYERS in self.modes:
            return self.backward
        options = []
        if Recompute.SELECTIVE in self.modes:
            options.append(np.diff(self._selective_extra))
        if Recompute.FULL in self.modes:
            options.append(np.diff(self._full_extra))
        return self.backward + _sums(np.minimum.reduce(options))

    @cached_property
    def memory_is_free(self) -> bool:
        """Whether every stage fits without recompute, which is allowed: no extra anywhere."""
        if Recompute.NONE not in self.modes and Recompute.LAYERS not in self.modes:
            return False
        blocks = self._workspace.levels[0]
        largest = int(blocks.max())
        most = int(self._static[-1]) + self._in_flight * int(self._kept[-1]) + largest
        return bool((most + self._buffers <= self.problem_budget).all())

    def allowed(self, stage: I64, start: I64, end: I64) -> Mask:
        """:meth:`ChainProblem.allowed` on arrays."""
        mask: Mask = start < end
        if not self._all_legal:
            mask = mask & self._legal[start] & self._legal[end]
        if self._misplaced is not None:
            mask = mask & (self._misplaced[stage, end] == self._misplaced[stage, start])
        return mask

    def recompute(self, stage: I64, start: I64, end: I64) -> tuple[I64, I64]:
        """(extra, memory) of :meth:`ChainProblem.recompute_choice`; UNREACHABLE if none fits."""
        extra, memory, _, _ = self._recompute(stage, start, end)
        return extra, memory

    def choices(self, cuts: tuple[int, ...]) -> tuple[RecomputeChoice, ...]:
        """:meth:`ChainProblem.recompute_choice` of every stage of a cut that fits."""
        positions = np.array(cuts, np.int64)
        stage = np.arange(self.num_stages)
        found = self._recompute(stage, positions[:-1], positions[1:])
        modes = list(Recompute)
        return tuple(
            RecomputeChoice(modes[mode], count, extra, memory)
            for extra, memory, mode, count in zip(*(x.tolist() for x in found), strict=True)
        )

    def _recompute(self, stage: I64, start: I64, end: I64) -> tuple[I64, I64, I64, I64]:
        """(extra, memory, index of the mode, layers recomputed in full)."""
        if recompute_kernel.pays() and Recompute.LAYERS not in self.modes:
            return self._recompute_compiled(stage, start, end)
        stage, start, end = np.broadcast_arrays(stage, start, end)
        budget = self.problem_budget[stage]
        flight = self._in_flight[stage]
        fixed = self._static[end] - self._static[start] + self._buffers
        for pair in self._tied:
            both = (start <= pair.first) & (pair.second < end)
            fixed = fixed - np.where(both, pair.shared_bytes, 0)
        extra = np.full(stage.shape, UNREACHABLE, np.int64)
        memory = np.full(stage.shape, UNREACHABLE, np.int64)
        chosen, layers = np.zeros_like(extra), np.zeros_like(extra)
        table = self._by_mode
        for index, mode in enumerate(Recompute):
            if mode not in self.modes:
                continue
            poll()
            if mode is Recompute.LAYERS:
                before = extra.copy()
                self._layers(start, end, flight, fixed, budget, (extra, memory, layers))
                chosen = np.where(extra < before, index, chosen)
                continue
            kept, workspace, added = table[mode]
            bytes_needed = fixed + flight * (kept[end] - kept[start]) + workspace(start, end)
            adds = added[end] - added[start]
            better = (bytes_needed <= budget) & (adds < extra)
            extra = np.where(better, adds, extra)
            memory = np.where(better, bytes_needed, memory)
            chosen = np.where(better, index, chosen)
            if mode is Recompute.FULL:
                able = self._able_before[end] - self._able_before[start]
                layers = np.where(better, able, layers)
        return extra, memory, chosen, layers

    @cached_property
    def _by_mode(self) -> dict[Recompute, tuple[I64, _RangeMaximum, I64]]:
        """(kept bytes, workspace, extra) of the modes that are sums over blocks."""
        plain, full = self._workspace, self._workspace_full
        return {
            Recompute.NONE: (self._kept, plain, np.zeros_like(self._kept)),
            Recompute.SELECTIVE: (self._kept_selective, plain, self._selective_extra),
            Recompute.FULL: (self._kept_full, full, self._full_extra),
        }

    @cached_property
    def _mode_rows(self) -> ModeRows:
        rows = [(index, *self._by_mode[m]) for index, m in enumerate(Recompute) if m in self.modes]
        lengths = np.arange(self.num_blocks + 1)
        log = np.frexp(np.maximum(lengths, 1).astype(np.float64))[1] - 1
        levels = int(log[-1]) + 1
        return ModeRows(
            np.array([index for index, _, _, _ in rows], np.int64),
            np.array([kept for _, kept, _, _ in rows]),
            np.array([added for _, _, _, added in rows]),
            np.array([workspace.table(levels) for _, _, workspace, _ in rows]),
            log.astype(np.int64),
        )

    def _recompute_compiled(self, stage: I64, start: I64, end: I64) -> tuple[I64, I64, I64, I64]:
        shape = np.broadcast(stage, start, end).shape
        cells = np.empty((3, *shape), np.int64)
        cells[0], cells[1], cells[2] = stage, start, end
        found = np.full((3, *shape), UNREACHABLE)
        found[2] = 0
        poll()
        recompute_kernel.compiled_choose()(
            cells.reshape(3, -1), self.problem_budget, self._in_flight, self._static,
            self._buffers, np.array(self._tied, np.int64).reshape(-1, 3), *self._mode_rows,
            found.reshape(3, -1),
        )  # fmt: skip
        poll()
        layers = np.zeros(shape, np.int64)
        redone = found[2] == list(Recompute).index(Recompute.FULL)
        if Recompute.FULL in self.modes:
            able = self._able_before
            layers = np.where(redone & (found[0] < UNREACHABLE), able[end] - able[start], 0)
        return found[0], found[1], found[2], layers

    def _layers(
        self,
        start: I64,
        end: I64,
        flight: I64,
        fixed: I64,
        budget: I64,
        best: tuple[I64, I64, I64],
    ) -> None:
        """Fewest leading blocks recomputed in full that fit.

        Updates extra, memory and layers (``best``) in place where that is cheaper.
        """
        extra, memory, layers = best
        cells = np.flatnonzero((start < end) & (extra > 0))
        start, end = start.ravel()[cells], end.ravel()[cells]
        flight, fixed, budget = (x.ravel()[cells] for x in (flight, fixed, budget))
        flat_extra, flat_memory, flat_layers = (x.reshape(-1) for x in (extra, memory, layers))
        count = 0
        while len(cells):
            poll()
            behind = start
            if count:
                behind = self._able_at[self._able_before[start] + count - 1] + 1
            kept = self._kept_full[behind] - self._kept_full[start]
            kept = kept + self._kept[end] - self._kept[behind]
            workspace = np.maximum(
                self._workspace_full(start, behind), self._workspace(behind, end)
            )
            needed = fixed + flight * kept + workspace
            adds = self._full_extra[behind] - self._full_extra[start]
            fits = needed <= budget
            better = fits & (adds < flat_extra[cells])
            flat_extra[cells[better]] = adds[better]
            flat_memory[cells[better]] = needed[better]
            flat_layers[cells[better]] = count
            count += 1
            left = ~fits & (self._able_before[end] - self._able_before[start] >= count)
            cells, start, end = cells[left], start[left], end[left]
            flight, fixed, budget = flight[left], fixed[left], budget[left]

    def stage_parts(self, mode: Recompute, start: I64, end: I64) -> tuple[I64, I64, I64, I64]:
        """(extra, states, kept bytes a micro-batch, workspace) of intervals, tied weights apart."""
        kept, workspace, added = self._kept, self._workspace, None
        if mode is Recompute.SELECTIVE:
            kept, added = self._kept_selective, self._selective_extra
        elif mode is Recompute.FULL:
            kept, workspace, added = self._kept_full, self._workspace_full, self._full_extra
        extra = np.zeros_like(end - start) if added is None else added[end] - added[start]
        states = self._static[end] - self._static[start]
        return extra, states, kept[end] - kept[start], workspace(start, end)

    def exposed_reduction_of_group(self, start: I64, end: I64) -> I64:
        """Exposed reduction of ranks that hold several stages; the last axis is theirs."""
        if start.shape[-1] == 1:
            return self.exposed_reduction(start[..., 0], end[..., 0])
        total = (self._reduction[end] - self._reduction[start]).sum(-1)
        if not self._reduces:
            return np.zeros_like(total)
        left = total
        if self._overlap:
            first = start.min(-1)
            window = (self._hiding[end] - self._hiding[start]).sum(-1)
            window = window - (self._hiding[first + 1] - self._hiding[first])
            left = np.maximum(self._reduction_blocks[first], total - window)
        return np.where(total == 0, 0, self._latency + left)

    def exposed_reduction(self, start: I64, end: I64) -> I64:
        """:meth:`ChainProblem.exposed_reduction` on arrays (start < end; elsewhere anything)."""
        total = self._reduction[end] - self._reduction[start]
        if not self._reduces:
            return np.zeros_like(total)
        left = total
        if self._overlap:
            after = np.minimum(start + 1, self.num_blocks)
            first = np.minimum(start, self.num_blocks - 1)
            window = self._hiding[end] - self._hiding[after]
            left = np.maximum(self._reduction_blocks[first], total - window)
        return np.where(total == 0, 0, self._latency + left)

    @cached_property
    def least_optimizer(self) -> int:
        """Lower bound of the largest optimizer time over stages: mean and largest block."""
        total = int(self.update[-1])
        return max(-(-total // self.num_stages), int(self.update_blocks.max()))

    def evaluate(self, cuts: I64) -> CutValues:
        """:func:`~planner.schedules.step.evaluate_cuts` for (K, P+1) cut vectors."""
        stage = np.arange(self.num_stages)[None, :]
        start, end = cuts[:, :-1], cuts[:, 1:]
        extra, memory = self.recompute(stage, start, end)
        possible: Mask = np.all(self.allowed(stage, start, end) & (extra < UNREACHABLE), axis=1)
        f = self.forward[end] - self.forward[start]
        b = self.backward[end] - self.backward[start] + np.where(possible[:, None], extra, 0)
        cut = np.arange(self.num_stages + 1)[None, :]
        ef, eb = self.edge_forward[cut, cuts], self.edge_backward[cut, cuts]
        inner = (ef[:, 1:-1], eb[:, 1:-1])
        finish = finishes(self.schedule, f, b, *inner, self.num_microbatches, self.sends)
        ends = (finish + self.exposed_reduction(start, end)).max(1)
        value = ends + (self.update[end] - self.update[start]).max(1) + self.fixed_tail
        both = ef + eb
        return CutValues(
            cuts,
            np.where(possible, value, UNREACHABLE),
            finish.max(1),
            (f + b + both[:, :-1] + both[:, 1:]).max(1),
            (f + b).min(1),
            memory.max(1),
        )


_CACHE: WeakKeyDictionary[ChainProblem, StagePrices] = WeakKeyDictionary()


def prices_of(problem: ChainProblem) -> StagePrices:
    """The arrays of a problem, made once and kept as long as the problem lives."""
    prices = _CACHE.get(problem)
    if prices is None:
        prices = _CACHE[problem] = StagePrices(problem)
    return prices
