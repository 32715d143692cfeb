"""Many cuts of one chain under any schedule, priced and timed at once.

Repeats :func:`~planner.schedules.step.evaluate_cuts` on arrays and is tested against it.
``zb-auto`` fits an order to every cut, so its cuts are priced one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem, RecomputeChoice
from planner.deadlines import poll
from planner.schedule_rules import RULES
from planner.schedules.grouping import (
    allowed_modes,
    held_counts,
    order_of_problem,
)
from planner.schedules.order_batch import BatchTimes, finishes_of_order
from planner.schedules.prices import UNREACHABLE, CutValues, StagePrices, prices_of
from planner.schedules.simulate import RECURRENT
from planner.schedules.step import StepEvaluation, evaluate_cuts
from planner.specs import Schedule, Sends

__all__ = ["CutBatch", "batch_of", "evaluate_fitting", "takes_batches"]

I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]


_MOST_CELLS = 4_000_000
"""Cuts x ranks x counts x stages that are multiplied at once."""


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
        """What each rank recomputes at cuts that fit; nothing where ranks hold several stages."""
        if self.problem.schedule in RECURRENT:
            return self.prices.choices(cuts)
        if self.problem.is_grouped:
            return ()  # evaluate_cuts says; a search of many layouts need not know
        if self.problem.schedule is not Schedule.ZB_AUTO:
            return self.prices.choices(cuts)
        found = evaluate_cuts(self.problem, cuts)
        return () if found is None else found.choices

    def _one_by_one(self, cuts: I64) -> CutValues:
        columns: list[tuple[int, ...]] = []
        for row in cuts.tolist():
            poll()
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
        totals, _ = self._rank_memory(cuts[:, :-1], cuts[:, 1:])
        lacks: I64 = np.minimum.reduce(totals) - self._rank_budgets
        return lacks

    def _grouped(self, start: I64, end: I64) -> tuple[I64, I64]:
        """(extra of every stage, memory of every rank): :func:`grouped_choice` on arrays."""
        held, budgets = self._held, self._rank_budgets
        shape = (len(start), self.problem.num_ranks)
        best, needed = np.full(shape, UNREACHABLE), np.full(shape, UNREACHABLE)
        chosen = np.full((*shape, held.shape[1]), UNREACHABLE)
        for total, extra in zip(*self._rank_memory(start, end), strict=True):
            adds = extra.sum(-1)
            better = (total <= budgets) & (adds < best)
            best = np.where(better, adds, best)
            needed = np.where(better, total, needed)
            chosen = np.where(better[..., None], extra, chosen)
        added = np.zeros_like(start)
        # The two halves of a two-way schedule hold the same stages; elsewhere each is on one rank.
        middle = (len(held) + 1) // 2 if self.problem.mirrored_tier is not None else len(held)
        for half in (slice(0, middle), slice(middle, None)):
            mine = held[half].ravel()
            added[:, mine] = np.maximum(added[:, mine], chosen[:, half].reshape(len(start), -1))
        return added, needed

    @cached_property
    def _held(self) -> I64:
        """Stages of every rank, shape (P, stages a rank)."""
        return np.array(self.problem.rank_stages, np.int64)

    @cached_property
    def _rank_budgets(self) -> I64:
        return self.problem.budget_bytes[self._held[:, 0]]

    @cached_property
    def _counts(self) -> I64:
        """What ranks can hold at one time, shape (P, C, stages a rank), filled up with zeros."""
        counts = held_counts(self.problem)
        filled = np.zeros((len(counts), max(map(len, counts)), self._held.shape[1]), np.int64)
        for rank, rows in enumerate(counts):
            filled[rank, : len(rows)] = rows
        return filled

    def _rank_memory(self, start: I64, end: I64) -> tuple[list[I64], list[I64]]:
        """By recompute mode: memory of every rank (K, P), and its stages' extra (K, P, V)."""
        problem, prices, held = self.problem, self.prices, self._held
        buffers = problem.buffer_bytes if problem.num_ranks > 1 else 0
        shared = np.zeros((len(start), problem.num_ranks), np.int64)
        for pair in problem.tied:
            first = (start <= pair.first) & (pair.first < end)
            second = (start <= pair.second) & (pair.second < end)
            shared += pair.shared_bytes * (first[:, held].any(-1) & second[:, held].any(-1))
        totals, extras = [], []
        for mode in allowed_modes(problem):
            extra, states, kept, workspace = prices.stage_parts(mode, start, end)
            fixed = states[:, held].sum(-1) - shared + workspace[:, held].max(-1) + buffers
            totals.append(fixed + self._peaks(kept[:, held]))
            extras.append(extra[:, held])
        return totals, extras

    def _peaks(self, kept: I64) -> I64:
        """Largest activations of every rank, from what one micro-batch keeps (K, P, V)."""
        counts = self._counts
        peaks = np.empty(kept.shape[:2], np.int64)
        at_once = max(1, _MOST_CELLS // counts.size)
        for first in range(0, len(kept), at_once):
            poll()
            some = kept[first : first + at_once]
            peaks[first : first + at_once] = np.einsum("krv,rcv->krc", some, counts).max(-1)
        return peaks


def evaluate_fitting(problem: ChainProblem, cuts: Sequence[int]) -> StepEvaluation | None:
    """:func:`~planner.schedules.step.evaluate_cuts` of cuts that were found to fit, quickly."""
    if problem.is_grouped:
        return evaluate_cuts(problem, cuts)
    known = prices_of(problem).choices(tuple(cuts))
    if any(choice.extra >= UNREACHABLE for choice in known):
        return None
    return evaluate_cuts(problem, cuts, known)


def batch_of(problem: ChainProblem) -> CutBatch:
    """The evaluator of a problem, made once and kept with it."""
    # On the problem, not in a table of weak keys: it refers to the problem, which would stay.
    found: CutBatch | None = problem.__dict__.get("_cut_batch")
    if found is None:
        found = problem.__dict__["_cut_batch"] = CutBatch(problem)
    return found
