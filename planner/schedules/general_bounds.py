"""Proven lower bounds of the step value under schedules that have no order-specific bound.

One stage a rank, any synchronous order in one direction without overlapped pairs. Stage j cannot
start before F of micro-batch 0 has passed the stages before it, then works M times:

- whole backwards: before micro-batch 0 comes F of the earlier stages, and after the last
  backward of stage j come the backwards of the earlier stages and the edges between, so that
  makespan >= sum_{i<j}(t_i + e_i^fwd + e_i^bwd) + M t_j;
- split backwards: W of other stages need not follow, so that
  makespan >= sum_{i<j}(F_i + e_i^fwd) + M t_j, and, with the last I of stage j on its way home,
  makespan >= sum_{i<j}(F_i + e_i^fwd + e_i^bwd) + M (F_j + I_j). The I of the stages between would
  add to it, but the first stage has none, and which blocks are on it is not known here.

Asynchronous schedules: a step is M periods, and no period is shorter than a stage's work.

Several stages a rank: a rank works M times what it holds, and on average over the ranks that is
M sum t / P; one-way placements put stage r on rank r first, whose start waits for r stages of at
least a block each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem
from planner.deadlines import poll
from planner.schedule_rules import RULES
from planner.schedules.loads import least_largest_load
from planner.schedules.prices import UNREACHABLE, StagePrices, prices_of
from planner.schedules.step import evaluate_cuts
from planner.specs import Schedule

__all__ = [
    "GeneralTerms",
    "general_layout_bound",
    "general_terms",
    "grouped_least_bottleneck",
    "grouped_least_value",
    "none_below",
]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

_MOST_CELLS = 3_000_000
"""Larger tables of stages are not made; the bound is then the totals' alone."""


class GeneralTerms:
    """A lower bound of the step value for every stage [start, end) at every rank.

    The value of a cut is at least the largest ``term`` of its stages. ``term`` has shape
    (P, N+1, N+1) and holds UNREACHABLE where a stage is impossible.
    """

    def __init__(self, problem: ChainProblem) -> None:
        self.problem = problem
        prices = prices_of(problem)
        stages, count = prices.num_stages, prices.num_blocks
        stage = np.arange(stages)[:, None, None]
        start = np.arange(count + 1)[None, :, None]
        end = np.arange(count + 1)[None, None, :]
        cells = (stages, count + 1, count + 1)
        possible = np.broadcast_to(prices.allowed(stage, start, end), cells)
        extra = np.zeros((1, 1, 1), np.int64)
        if not prices.memory_is_free:
            # Stage by stage, so that no table in between is large.
            extra = np.concatenate([prices.recompute(s, start, end)[0] for s in stage])
            possible = possible & (extra < UNREACHABLE)
            extra = np.where(possible, extra, 0)
        poll()
        self.term = np.where(possible, self._terms(prices, start, end, extra), UNREACHABLE)
        # least[s, x]: least largest term of stages s.. from position x to the end.
        self.least = np.full((stages + 1, count + 1), UNREACHABLE, np.int64)
        self.least[stages, count] = 0
        for s in range(stages - 1, -1, -1):
            poll()
            self.least[s] = np.maximum(self.term[s], self.least[s + 1][None, :]).min(1)

    def _terms(self, prices: StagePrices, start: I64, end: I64, extra: I64) -> I64:
        rules = RULES[prices.schedule]
        m = prices.num_microbatches
        forward = prices.forward[end] - prices.forward[start]
        backward = prices.backward[end] - prices.backward[start] + extra
        load = forward + backward
        tail = prices.exposed_reduction(start, end)
        if rules.asynchronous:
            found = m * load + tail
        else:
            poll()
            ahead, back = _least_edges(prices)
            before_f = (prices.forward[None, :] + ahead[:, None])[:-1, :, None]
            found = before_f + m * load + tail
            home = prices.least_backward
            work = load
            if rules.splits_backward:
                home = np.zeros_like(home)
                weight = prices.weight_gradient[end] - prices.weight_gradient[start]
                first = np.arange(prices.num_stages)[:, None, None] == 0
                work = np.where(first, forward, load - weight)
            poll()
            before = before_f + (home[None, :] + back[:, None])[:-1, :, None]
            found = np.maximum(found, before + m * work)
        least: I64 = found + prices.fixed_tail + prices.least_optimizer
        return least

    @property
    def bound(self) -> int | None:
        """No cut has a smaller step value; None where no cut fits."""
        found = int(self.least[0, 0])
        return None if found >= UNREACHABLE else found

    def argmin(self) -> tuple[int, ...] | None:
        """Cuts whose largest term is the bound; None where none fits."""
        bound = self.bound
        if bound is None:
            return None
        cuts = [0]
        for s in range(self.problem.num_stages):
            both = np.maximum(self.term[s, cuts[-1]], self.least[s + 1])
            cuts.append(int(np.flatnonzero(both <= bound)[0]))
        return tuple(cuts)


def _least_edges(prices: StagePrices) -> tuple[I64, I64]:
    """Least summed edges before each stage, forward and backward, shape (P+1,)."""
    found = []
    for edges in (prices.edge_forward, prices.edge_backward):
        least = np.zeros(prices.num_stages + 1, np.int64)
        if prices.num_stages > 1:
            least[1:-1] = np.cumsum(edges[1:-1, 1:-1].min(axis=1))
            least[-1] = least[-2]
        found.append(least)
    return found[0], found[1]


def general_terms(problem: ChainProblem) -> GeneralTerms | None:
    """The terms of a problem with one stage a rank; None where the table would be too large."""
    if problem.num_stages * (problem.num_blocks + 1) ** 2 > _MOST_CELLS:
        return None
    # On the problem, not in a table of weak keys: they refer to the problem, which would stay.
    found: GeneralTerms | None = problem.__dict__.get("_general_terms")
    if found is None:
        found = problem.__dict__["_general_terms"] = GeneralTerms(problem)
    return found


def grouped_least_value(problem: ChainProblem) -> int:
    """A step value that no cut undercuts, from totals; any schedule without a table of terms."""
    prices = prices_of(problem)
    rules, ranks = RULES[problem.schedule], problem.num_ranks
    m = problem.num_microbatches
    backward = prices.least_backward
    total = int(prices.forward[-1] + backward[-1])
    work = m * total
    if not rules.two_way and not rules.asynchronous and ranks <= prices.num_blocks:
        # Rank r starts behind r blocks at least; their backwards follow its own where whole.
        first = prices.forward[:ranks]
        if not rules.splits_backward:
            first = first + backward[:ranks]
        work += int(first.sum())
    copies = 2 if rules.two_way else 1
    least = max(-(-work // ranks), -(-m * _least_load(problem) // copies))
    update = int(prices.update[-1]) * copies
    optimizer = max(-(-update // ranks), int(prices.update_blocks.max()))
    return least + prices.fixed_tail + optimizer


def grouped_least_bottleneck(problem: ChainProblem) -> int:
    """A bottleneck that no cut undercuts where ranks hold several stages: the average load."""
    copies = 2 if RULES[problem.schedule].two_way else 1
    return -(-_least_load(problem) // copies)


def _least_load(problem: ChainProblem) -> int:
    """What some rank holds at least, of one micro-batch of each of its stages.

    Two ranks of a two-way schedule hold the same two stages, so that half as many loads share
    the model.
    """
    prices = prices_of(problem)
    times = np.diff(prices.forward + prices.least_backward)
    if RULES[problem.schedule].two_way:
        return least_largest_load(times, max(1, problem.num_ranks // 2))
    return least_largest_load(times, problem.num_ranks)


def none_below(problem: ChainProblem, limit: int, most_cuts: int) -> bool | None:
    """Whether no cut of a chain with one stage a rank has a step value below ``limit``.

    Every cut whose stage terms are all below the limit is priced by
    :func:`~planner.schedules.step.evaluate_cuts`; None where there are more than ``most_cuts``.
    """
    terms = general_terms(problem)
    if terms is None:
        return None
    if terms.bound is None or terms.bound >= limit:
        return True
    found, nodes = 0, 0
    stack: list[tuple[int, ...]] = [(0,)]
    while stack:
        cuts = stack.pop()
        stage = len(cuts) - 1
        if stage == problem.num_stages:
            found += 1
            if found > most_cuts:
                return None
            priced = evaluate_cuts(problem, cuts)
            if priced is not None and priced.value < limit:
                return False
            continue
        nodes += 1
        if nodes > 50 * most_cuts:
            return None
        ends = np.maximum(terms.term[stage, cuts[-1]], terms.least[stage + 1])
        stack += [(*cuts, end) for end in np.flatnonzero(ends < limit).tolist()]
    return True


def general_layout_bound(
    schedule: Schedule,
    num_ranks: I64,
    num_microbatches: I64,
    total_forward: I64,
    total_backward: I64,
    largest_stage: I64,
    forward_share: F64 | float,
) -> I64:
    """Lower bound of the makespan of every cut of a layout, from totals; broadcasts.

    Parameters
    ----------
    largest_stage
        A lower bound of the largest load of a rank over all cuts.
    forward_share
        The smallest F / (F + B) of any block: F_i >= share t_i for every stage.

    Notes
    -----
    With one stage a rank every stage has sum_{i<j} a t_i + M t_j <= C, where a = 1 for whole
    backwards and the forward share for split ones. Adding the inequalities with weights
    (1 - a/M)^(P-1-j) gives C >= a S / (1 - (1 - a/M)^P), the value at which all are equal.
    Several stages a rank: M S / P.
    """
    rules = RULES[schedule]
    p, m = np.asarray(num_ranks, np.int64), np.asarray(num_microbatches, np.int64)
    total = np.asarray(total_forward + total_backward, np.int64)
    spread = -(-m * total // p)
    if rules.several_stages or rules.asynchronous:
        loaded: I64 = np.maximum(spread, m * largest_stage)
        return loaded
    share = np.asarray(forward_share if rules.splits_backward else 1.0)
    result: I64 = np.maximum(np.maximum(spread, m * largest_stage), _geometric(total, share, p, m))
    return result


def _geometric(total: I64, share: F64, p: I64, m: I64) -> I64:
    """a S / (1 - (1 - a/M)^P), rounded down with room for the rounding of floats."""
    rate = np.clip(share / m, 1e-12, 1.0 - 1e-15)
    left = -np.expm1(p * np.log1p(-rate))
    found = np.floor(np.clip(share, 1e-12, 1.0) * total / left * (1.0 - 1e-9))
    return found.astype(np.int64)
