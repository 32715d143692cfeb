"""Many cuts of one chain under any schedule, priced and timed at once.

Repeats :func:`~planner.schedules.step.evaluate_cuts` on arrays and is tested against it.
``zb-auto`` fits an order to every cut, so its cuts are priced one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem, RecomputeChoice
from planner.schedule_rules import RULES
from planner.schedules.grouping import (
    allowed_modes,
    grouped_choice,
    held_counts,
    order_of_problem,
)
from planner.schedules.order_batch import BatchTimes, finishes_of_order
from planner.schedules.prices import UNREACHABLE, CutValues, StagePrices, prices_of
from planner.schedules.simulate import RECURRENT
from planner.schedules.step import evaluate_cuts
from planner.specs import Schedule, Sends

__all__ = ["CutBatch", "batch_of", "takes_batches"]

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


def takes_batches(schedule: Schedule) -> bool:
    """Whether many cuts cost little more than one (not where each needs an order of its own)."""
    return schedule is not Schedule.ZB_AUTO


class CutBatch:
    """Evaluates cuts of one problem (see :func:`batch_of`)."""

    def __init__(self, problem: ChainProblem) -> None:
        self.problem = problem
        self.prices: StagePrices = prices_of(problem)

    def evaluate(self, cuts: I64) -> CutValues:
        """Values of (K, S+1) cut vectors; UNREACHABLE where one is impossible."""
        schedule = self.problem.schedule
        if schedule in RECURRENT:
            return self.prices.evaluate(cuts)
        if not takes_batches(schedule):
            return self._one_by_one(cuts)
        return self._together(cuts)

    def choices(self, cuts: tuple[int, ...]) -> tuple[RecomputeChoice, ...]:
        """What each rank recomputes at cuts that fit."""
        if self.problem.schedule in RECURRENT:
            return self.prices.choices(cuts)
        if self.problem.is_grouped:
            chosen = [
                grouped_choice(self.problem, rank, cuts) for rank in range(self.problem.num_ranks)
            ]
            return tuple(found[0] for found in chosen if found is not None)
        if self.problem.schedule is not Schedule.ZB_AUTO:
            return self.prices.choices(cuts)
        found = evaluate_cuts(self.problem, cuts)
        return () if found is None else found.choices

    def _one_by_one(self, cuts: I64) -> CutValues:
        columns: list[tuple[int, ...]] = []
        for row in cuts.tolist():
            found = evaluate_cuts(self.problem, row)
            if found is None:
                columns.append((UNREACHABLE, 0, 0, 0, 0))
            else:
                columns.append(
                    (
                        found.value,
                        found.makespan,
                        found.bottleneck,
                        found.lightest_stage,
                        found.peak_bytes,
                    )
                )
        table = np.array(columns, np.int64).reshape(len(cuts), 5)
        return CutValues(cuts, *table.T)

    def _together(self, cuts: I64) -> CutValues:
        problem, prices = self.problem, self.prices
        stages = problem.num_stages
        stage = np.arange(stages)[None, :]
        start, end = cuts[:, :-1], cuts[:, 1:]
        possible: Mask = np.all(prices.allowed(stage, start, end), axis=1)
        if problem.is_grouped:
            extra, memory = self._grouped(start, end)
        else:
            extra, memory = prices.recompute(stage, start, end)
        possible &= np.all(extra < UNREACHABLE, axis=1)
        extra = np.where(possible[:, None], extra, 0)
        forward = prices.forward[end] - prices.forward[start]
        weight = prices.weight_gradient[end] - prices.weight_gradient[start]
        backward = prices.backward[end] - prices.backward[start] + extra
        if RULES[problem.schedule].splits_backward:  # the first stage has no I
            weight[:, 0] = backward[:, 0]
        edges = self._edges(cuts)
        finish = self._finish(forward, backward - weight, weight, edges)
        ranks = problem.rank_stages or tuple((s,) for s in range(stages))
        inner = edges[0] + edges[1]
        both = np.zeros((len(cuts), stages + 1), np.int64)
        both[:, 1:-1] = inner
        stage_load = forward + backward
        passes = 1 if problem.mirrored_tier is None else 2
        update = prices.update[end] - prices.update[start]
        load, beat, tail, optimizer = (
            np.empty((len(cuts), len(ranks)), np.int64) for _ in range(4)
        )
        for rank, held in enumerate(ranks):
            mine = list(held)
            sent = (both[:, mine] + both[:, [s + 1 for s in mine]]).sum(1)
            load[:, rank] = -(-stage_load[:, mine].sum(1) // passes)
            beat[:, rank] = load[:, rank] + -(-sent // passes)
            tail[:, rank] = prices.exposed_reduction_of_group(start[:, mine], end[:, mine])
            optimizer[:, rank] = update[:, mine].sum(1)
        value = (finish + tail).max(1) + optimizer.max(1) + prices.fixed_tail
        return CutValues(
            cuts,
            np.where(possible, value, UNREACHABLE),
            finish.max(1),
            beat.max(1),
            load.min(1),
            memory.max(1),
        )

    def _edges(self, cuts: I64) -> tuple[I64, I64, I64 | None, I64 | None]:
        problem, inner = self.problem, cuts[:, 1:-1]
        rows = problem.boundary_tier[None, :]
        plain = (problem.edge_forward[rows, inner], problem.edge_backward[rows, inner])
        if problem.mirrored_tier is None:
            return (*plain, None, None)
        rows = problem.mirrored_tier[None, :]
        return (*plain, problem.edge_forward[rows, inner], problem.edge_backward[rows, inner])

    def _finish(
        self,
        forward: I64,
        input_gradient: I64,
        weight: I64,
        edges: tuple[I64, I64, I64 | None, I64 | None],
    ) -> I64:
        problem = self.problem
        if RULES[problem.schedule].asynchronous:
            whole = self._steady(forward, input_gradient + weight, edges[0], edges[1])
            return np.repeat(whole[:, None], problem.num_stages, axis=1)
        times = BatchTimes(forward, input_gradient, weight, *edges)
        return finishes_of_order(order_of_problem(problem), times, problem.sends)

    def _steady(self, forward: I64, backward: I64, ahead: I64, back: I64) -> I64:
        """M times the steady period, rounded up (K): the largest mean of a window of stages."""
        count, stages = self.problem.num_microbatches, self.problem.num_stages
        loads, inner = forward + backward, ahead + back
        if self.problem.sends is Sends.BLOCKING:
            loads = loads.copy()
            loads[:, :-1] += ahead
            loads[:, 1:] += back
            inner = np.zeros_like(inner)
        best = np.zeros(len(forward), np.int64)
        for first in range(stages):
            inside = np.zeros(len(forward), np.int64)
            for last in range(first, stages):
                inside = inside + loads[:, last]
                if last > first:
                    inside = inside + inner[:, last - 1]
                best = np.maximum(best, -(-(inside * count) // (last - first + 1)))
        return best

    def overflow(self, cuts: I64) -> I64:
        """Bytes each rank lacks under its most saving recompute, shape (K, P); negative is room.

        For ranks that hold several stages.
        """
        start, end = cuts[:, :-1], cuts[:, 1:]
        lacks = np.empty((len(cuts), self.problem.num_ranks), np.int64)
        for rank, (mine, totals, _) in enumerate(self._ranks(start, end)):
            budget = int(self.problem.budget_bytes[mine[0]])
            lacks[:, rank] = np.minimum.reduce(totals) - budget
        return lacks

    def _grouped(self, start: I64, end: I64) -> tuple[I64, I64]:
        """(extra of every stage, memory of every rank): :func:`grouped_choice` on arrays."""
        added = np.zeros_like(start)
        memory = np.empty((len(start), self.problem.num_ranks), np.int64)
        for rank, (mine, totals, extras) in enumerate(self._ranks(start, end)):
            budget = int(self.problem.budget_bytes[mine[0]])
            best = np.full(len(start), UNREACHABLE, np.int64)
            needed = np.full(len(start), UNREACHABLE, np.int64)
            chosen = np.full((len(start), len(mine)), UNREACHABLE, np.int64)
            for total, extra in zip(totals, extras, strict=True):
                adds = extra.sum(1)
                better = (total <= budget) & (adds < best)
                best = np.where(better, adds, best)
                needed = np.where(better, total, needed)
                chosen = np.where(better[:, None], extra, chosen)
            memory[:, rank] = needed
            added[:, mine] = np.maximum(added[:, mine], chosen)
        return added, memory

    def _ranks(self, start: I64, end: I64) -> Iterator[tuple[list[int], list[I64], list[I64]]]:
        """Of every rank its stages and, by recompute mode, its memory and its stages' extra."""
        problem, prices = self.problem, self.prices
        parts = [prices.stage_parts(mode, start, end) for mode in allowed_modes(problem)]
        buffers = problem.buffer_bytes if problem.num_ranks > 1 else 0
        for held, counts in zip(problem.rank_stages, held_counts(problem), strict=True):
            mine = list(held)
            shared = np.zeros(len(start), np.int64)
            for pair in problem.tied:
                first = (start[:, mine] <= pair.first) & (pair.first < end[:, mine])
                second = (start[:, mine] <= pair.second) & (pair.second < end[:, mine])
                shared += pair.shared_bytes * (first.any(1) & second.any(1))
            totals, extras = [], []
            for extra, states, kept, workspace in parts:
                peak = (kept[:, mine] @ counts.T).max(1)
                total = states[:, mine].sum(1) - shared + peak + workspace[:, mine].max(1)
                totals.append(total + buffers)
                extras.append(extra[:, mine])
            yield mine, totals, extras


_CACHE: WeakKeyDictionary[ChainProblem, CutBatch] = WeakKeyDictionary()


def batch_of(problem: ChainProblem) -> CutBatch:
    """The evaluator of a problem, made once and kept as long as the problem lives."""
    found = _CACHE.get(problem)
    if found is None:
        found = _CACHE[problem] = CutBatch(problem)
    return found
