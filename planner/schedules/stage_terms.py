"""Lower-bound terms of the stages of all cuts of a chain, and the chain problems over them.

What other stages and edges add to a term of :mod:`~planner.schedules.order_bounds` is minimised
over all legal cuts by a shortest path, so that a term depends on (stage, start, end) alone, and
the least largest term over all cuts is a chain bottleneck problem.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem
from planner.deadlines import poll
from planner.schedules import path_kernels
from planner.schedules.cut_windows import cut_windows
from planner.schedules.order_bounds import span_bound
from planner.schedules.prices import UNREACHABLE, prices_of
from planner.specs import Schedule, Sends

__all__ = ["StageTerms", "affordable_terms"]

I64 = NDArray[np.int64]

# Steps of the staircase over two maxima before it settles for a weaker bound: each costs a few
# passes over the table, so fewer on large ones.
_MAX_STAIRS, _FEW_STAIRS, _LARGE_TABLE = 64, 8, 100_000

# Cells of a table that still fit in memory and a fraction of a second.
_MAX_CELLS = 1_500_000


class StageTerms:
    """The stages of every cut whose step value may be at most ``ceiling``, and their terms.

    Cut i lies in ``low[i] .. high[i]``; cell [j, x, y] is stage j from position low[j] + x to
    low[j+1] + y. Any cut outside these windows has a value above ``ceiling`` (None: no limit,
    all cuts inside). For every cut inside, value >= max_j primary_j + max_j secondary_j:

    - 1F1B: primary = fixed tail + stage term with the reduction that follows, secondary =
      optimizer time;
    - GPipe: primary = sums + (M-1) b_j + tails, secondary = (M-1) f_j; and, as a second pair
      (``also``), the optimizer time as secondary beside (M-1)(f_j + b_j).

    Cells that are impossible hold UNREACHABLE. ``empty``: no cut can be inside, or the table
    would be ``too_large`` and was not made.
    """

    def __init__(self, problem: ChainProblem, ceiling: int | None = None) -> None:
        self.prices = prices = prices_of(problem)
        self.ceiling = ceiling
        self.stages = prices.num_stages
        self.microbatches = problem.num_microbatches
        windows = cut_windows(prices, ceiling)
        self.empty = windows is None
        self.too_large = False
        self.also: tuple[I64, I64] | None = None
        if windows is None:
            return
        self.low, self.high = windows
        width = int((self.high - self.low).max()) + 1
        self.too_large = self.stages * width * width > _MAX_CELLS
        self.empty = self.too_large
        if not self.too_large:
            self._cells(width)

    def _cells(self, width: int) -> None:
        prices, stages = self.prices, self.stages
        raw = self.low[:, None] + np.arange(width)[None, :]
        inside = raw <= self.high[:, None]
        self.position = np.minimum(raw, self.high[:, None])
        start, end = self.position[:-1, :, None], self.position[1:, None, :]
        stage = np.arange(stages)[:, None, None]
        possible = inside[:-1, :, None] & inside[1:, None, :] & prices.allowed(stage, start, end)
        extra: I64 | None = None
        if not prices.memory_is_free:
            extra, _ = prices.recompute(stage, start, end)
            possible &= extra < UNREACHABLE
        self.possible = possible
        poll()
        f = prices.forward[end] - prices.forward[start]
        b = prices.backward[end] - prices.backward[start]
        if extra is not None:
            b = b + np.where(possible, extra, 0)
        cut = np.arange(stages + 1)[:, None]
        ef, eb = prices.edge_forward[cut, self.position], prices.edge_backward[cut, self.position]
        if prices.sends is Sends.BLOCKING:
            f = f + ef[1:, None, :]
            b = b + eb[:-1, :, None]
            ef, eb = np.zeros_like(ef), np.zeros_like(eb)
        self.forward, self.backward = f, b
        self.edge_forward, self.edge_backward = ef, eb
        poll()
        self.optimizer = prices.update[end] - prices.update[start]
        self.reduction = prices.exposed_reduction(start, end)
        self._terms(stage)

    def restricted(self, possible: NDArray[np.bool_]) -> StageTerms:
        """The same windows with fewer stages: a mask of cells that are all possible here."""
        fewer = copy(self)
        fewer.possible = possible
        fewer._terms(np.arange(self.stages)[:, None, None])
        return fewer

    def _terms(self, stage: I64) -> None:
        f, b = self.forward, self.backward
        t = f + b
        both = self.edge_forward + self.edge_backward
        # Least pre_j and R_j by position of the cut, with the edge of the cut itself.
        self.before, self.after = self.shortest_before(t, both), self.shortest_after(t, both)
        poll()
        before, after = self.before[:-1, :, None], self.after[1:, None, :]
        forward_before = self.shortest_before(f, self.edge_forward)[:-1, :, None]
        first = self.possible[0]
        if not first.any():
            self.primary = self.secondary = np.full(t.shape, UNREACHABLE, np.int64)
            return
        # Rank 0 finishes last up to its own reduction, whose least share is known.
        least_reduction = int(self.reduction[0][first].min())
        fixed = self.prices.fixed_tail
        possible = self.possible & (before < UNREACHABLE) & (after < UNREACHABLE)
        before, forward_before, after = (
            np.where(x < UNREACHABLE, x, 0) for x in (before, forward_before, after)
        )
        if self.prices.schedule is Schedule.GPIPE:
            rounds = self.microbatches - 1
            least_b = self._least_largest_backward()
            ends = before + t + after + rounds * np.maximum(b, least_b) + least_reduction
            own = forward_before + t + after + rounds * b + self.reduction
            optimizer = np.maximum(self.optimizer, self.prices.least_optimizer)
            primary = np.maximum(ends, own) + optimizer
            secondary = rounds * f
            if self.prices.update[-1]:
                # Where one stage has the largest f and the largest b, this pair is the tight one.
                pace = rounds * np.maximum(f + b, np.maximum(b, least_b) + self._least_forward())
                whole = before + t + after + least_reduction + pace
                whole = np.maximum(whole, own + rounds * f) + fixed
                self.also = (
                    np.where(possible, whole, UNREACHABLE),
                    np.where(possible, self.optimizer, UNREACHABLE),
                )
        else:
            poll()
            later = self.stages - 1 - stage
            span = span_bound(self.microbatches, later, f, b, before, after, stage)
            primary = np.maximum(
                before + span + least_reduction, forward_before + span + self.reduction
            )
            secondary = self.optimizer
        self.primary = np.where(possible, primary + fixed, UNREACHABLE)
        self.secondary = np.where(possible, secondary, UNREACHABLE)

    def _least_forward(self) -> int:
        total = int(self.prices.forward[-1])
        return max(-(-total // self.stages), int(np.diff(self.prices.forward).max()))

    def _least_largest_backward(self) -> int:
        total = int(self.prices.least_backward[-1])
        largest = int(np.diff(self.prices.least_backward).max())
        return max(-(-total // self.stages), largest)

    # --- paths through the windows ------------------------------------------------------------

    def shortest_before(self, cost: I64, edge: I64) -> I64:
        """Least sum of cost and edges over stages 0..i-1 that end at each position of cut i."""
        reach = np.full(self.position.shape, UNREACHABLE, np.int64)
        reach[0] = np.where(np.arange(reach.shape[1]) == 0, 0, UNREACHABLE)
        if self._compiled(path_kernels.shortest_before, cost, edge, reach):
            return reach
        masked = np.where(self.possible, cost, UNREACHABLE)
        for i in range(self.stages):
            arrive = (masked[i] + reach[i][:, None]).min(0) + edge[i + 1]
            reach[i + 1] = np.minimum(arrive, UNREACHABLE)
        return reach

    def shortest_after(self, cost: I64, edge: I64) -> I64:
        """Least sum of cost and edges over stages i..P-1 that start at each position of cut i.

        The edge of cut i itself is included.
        """
        reach = np.full(self.position.shape, UNREACHABLE, np.int64)
        reach[-1] = np.where(np.arange(reach.shape[1]) == 0, 0, UNREACHABLE)
        if self._compiled(path_kernels.shortest_after, cost, edge, reach):
            return reach
        masked = np.where(self.possible, cost, UNREACHABLE)
        for i in range(self.stages - 1, -1, -1):
            leave = (masked[i] + reach[i + 1][None, :]).min(1) + edge[i]
            reach[i] = np.minimum(leave, UNREACHABLE)
        return reach

    def largest_after(self, cell: I64) -> I64:
        """Least largest cell over stages i..P-1 that start at each position of cut i."""
        reach = np.full(self.position.shape, UNREACHABLE, np.int64)
        reach[-1] = np.where(np.arange(reach.shape[1]) == 0, 0, UNREACHABLE)
        poll()
        if self._compiled(path_kernels.largest_after, cell, self.edge_forward, reach):
            return reach
        for i in range(self.stages - 1, -1, -1):
            reach[i] = np.maximum(cell[i], reach[i + 1][None, :]).min(1)
        return reach

    def _compiled(self, path: Callable[..., None], cost: I64, edge: I64, reach: I64) -> bool:
        """Fill ``reach`` by a compiled loop, where there is one."""
        if not path_kernels.pays():
            return False
        path_kernels.compiled_path(path)(cost, self.possible, edge, reach, UNREACHABLE)
        return True

    def least_largest(self, cell: I64) -> int | None:
        """Least over all cuts of the largest cell; None where no cut is possible."""
        value = int(self.largest_after(cell)[0, 0])
        return value if value < UNREACHABLE else None

    def balanced_path(self, cell: I64, cap: int) -> tuple[int, ...]:
        """Cuts with every cell <= cap and the least sum of t^2, so that no stage stands out."""
        t = (self.forward + self.backward).astype(np.float64)
        reach = np.full(self.position.shape, np.inf)
        reach[-1, 0] = 0.0
        choice = np.zeros(self.position.shape, np.int64)
        if path_kernels.pays():
            path_kernels.compiled_path(path_kernels.balanced)(cell, cap, t, reach, choice)
        else:
            masked = np.where(cell <= cap, t * t, np.inf)
            for i in range(self.stages - 1, -1, -1):
                sums = masked[i] + reach[i + 1][None, :]
                choice[i] = sums.argmin(1)
                reach[i] = sums.min(1)
        cuts, x = [0], 0
        for i in range(self.stages):
            x = int(choice[i, x])
            cuts.append(int(self.position[i + 1, x]))
        return tuple(cuts)

    def below(self, cuts: I64, limit: int | None) -> I64:
        """The cut vectors inside the windows whose terms do not reach ``limit``."""
        if self.empty or not len(cuts):
            return cuts[:0]
        inside = np.all((self.low <= cuts) & (cuts <= self.high), axis=1)
        offset = np.clip(cuts - self.low, 0, self.position.shape[1] - 1)
        stage = np.arange(self.stages)[None, :]
        primary = self.primary[stage, offset[:, :-1], offset[:, 1:]].max(1)
        total = primary + self.secondary[stage, offset[:, :-1], offset[:, 1:]].max(1)
        good: I64 = cuts[inside & (total < (UNREACHABLE if limit is None else limit))]
        return good

    def bound(
        self, meet: Callable[[tuple[int, ...]], int | None] | None = None
    ) -> tuple[int | None, tuple[int, ...] | None]:
        """Least of max primary + max secondary over the cuts inside, and cuts that attain it.

        Walks the staircase of the two maxima: the least primary under a cap on the secondary,
        then the least secondary at that primary, then a smaller cap. ``meet`` is told of every
        corner and may return the best value known so far, above which nothing matters.
        (None, None) when no cut is inside.
        """
        if self.empty:
            return None, None
        best, cuts = self._staircase(self.primary, self.secondary, meet)
        if best is not None and self.also is not None:
            other, other_cuts = self._staircase(*self.also, meet)
            if other is not None and other > best:
                return other, other_cuts
        return best, cuts

    def _staircase(
        self,
        primary: I64,
        secondary: I64,
        meet: Callable[[tuple[int, ...]], int | None] | None,
    ) -> tuple[int | None, tuple[int, ...] | None]:
        best: int | None = None
        best_cuts: tuple[int, ...] | None = None
        floor = self.least_largest(secondary)
        if floor is None:
            return None, None
        known: int | None = None
        for _ in range(_MAX_STAIRS if primary.size <= _LARGE_TABLE else _FEW_STAIRS):
            least = self.least_largest(primary)
            if least is None or (best is not None and least + floor >= best):
                return best, best_cuts
            if known is not None and least + floor >= known:
                return (known if best is None else min(best, known)), best_cuts
            poll()
            capped = np.where(primary <= least, secondary, UNREACHABLE)
            beside = self.least_largest(capped)
            if beside is None:  # cannot be: the path of `least` is inside
                return best, best_cuts
            cell = np.where(capped <= beside, primary, UNREACHABLE)
            cuts = self.balanced_path(cell, least)
            if best is None or least + beside < best:
                best, best_cuts = least + beside, cuts
            if meet is not None:
                known = meet(cuts)
            if beside <= floor:
                return best, best_cuts
            primary = np.where(secondary < beside, primary, UNREACHABLE)
        least = self.least_largest(primary)
        if least is not None and best is not None:
            best = min(best, least + floor)
        return best, best_cuts


def affordable_terms(problem: ChainProblem, ceiling: int | None, least: int) -> StageTerms:
    """Terms under ``ceiling``, or under the largest smaller one tried whose table is affordable.

    ``least`` is a value that no cut undercuts. Read the ceiling used from the result; every cut
    outside its windows is worth more than that.
    """
    terms = StageTerms(problem, ceiling)
    if terms.too_large and ceiling is None:
        ceiling = 2 * least + 1
        terms = StageTerms(problem, ceiling)
    while terms.too_large and ceiling is not None and ceiling > least:
        ceiling = (ceiling + least) // 2 if ceiling - least > 1 else least
        terms = StageTerms(problem, ceiling)
    if terms.too_large:
        terms = StageTerms(problem, least - 1)
        terms.empty = True
    return terms
