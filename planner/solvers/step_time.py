"""Least simulated step time over all cuts of a chain, proven where it can be.

1. Seeds (cuts that other solvers found) are simulated; the best is the incumbent.
2. The bound's own optimum over all cuts below the incumbent
   (:meth:`~planner.schedules.stage_terms.StageTerms.bound`) is found and simulated. Usually the
   two values meet: one simulation proves the plan. Where they do not, stages that no better cut
   can have are dropped (:mod:`~planner.schedules.prefix_walks`), often all of them.
3. Otherwise neighbours of the incumbent and evenly spread cuts are tried, then a branch and
   bound over prefixes of the cuts closes the gap or leaves it
   (:mod:`planner.solvers.step_search`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem, RecomputeChoice
from planner.errors import PlannerError
from planner.schedules.bounds import least_value, root_bound
from planner.schedules.prefix_walks import raised_bound, surviving_stages
from planner.schedules.prices import UNREACHABLE, CutValues, prices_of
from planner.schedules.stage_terms import StageTerms, affordable_terms
from planner.solvers.step_search import branch_and_bound, late

__all__ = ["StepSolution", "solve_step_time"]

I64 = NDArray[np.int64]

# Rounds of local search, and operations it may simulate in one round: few where the caller
# asks for few nodes.
_MAX_CLIMBS, _MAX_OPERATIONS, _OPERATIONS_PER_NODE = 20, 4_000_000, 1000


# How much lighter the last stage of a candidate is than its first, halved, and by what part of a
# block its cuts are moved.
_SLOPES = tuple(k / 40 for k in range(-4, 17, 2))
_SHIFTS = (-0.4, -0.2, 0.0, 0.2, 0.4)


@dataclass(frozen=True)
class StepSolution:
    """The best cut found and what is proved about all cuts. Times are quanta."""

    cuts: tuple[int, ...] | None
    """None when nothing was found (infeasible, or nothing below ``upper_bound``)."""
    choices: tuple[RecomputeChoice, ...]
    value: int | None
    makespan: int | None
    bottleneck: int | None
    bound: int
    """No cut has a smaller step value than this; at most ``value``."""
    proven: bool
    """``value == bound``."""
    infeasible: bool
    """No cut with P non-empty stages is allowed and fits."""
    simulations: int
    nodes: int
    bound_kind: str
    """``interval_dp``: ``root_bound(problem, upper_bound=witness["upper_bound"])`` is at least
    ``bound``. ``branch_and_bound``: enumeration on top of it. ``none``: infeasible."""
    witness: Mapping[str, int] = field(default_factory=dict)


class _Incumbent:
    """The best of the cuts met so far, ties broken in the project's order."""

    def __init__(self, problem: ChainProblem, upper_bound: int | None) -> None:
        self.prices = prices_of(problem)
        self.outside = upper_bound
        self.key: tuple[int, int, int, int, tuple[int, ...]] | None = None
        self.makespan = self.bottleneck = 0
        self.met: set[tuple[int, ...]] = set()
        self.simulations = 0

    @property
    def limit(self) -> int | None:
        """Values at or above this do not matter."""
        options = [x for x in (self.outside, self.key and self.key[0]) if x is not None]
        return min(options) if options else None

    @property
    def cuts(self) -> tuple[int, ...] | None:
        return self.key[4] if self.key else None

    def offer(self, candidates: Sequence[tuple[int, ...]]) -> int | None:
        """Simulate the candidates that were not met before; returns :attr:`limit`."""
        fresh = [cuts for cuts in dict.fromkeys(candidates) if cuts not in self.met]
        if fresh:
            self.met.update(fresh)
            self.simulations += len(fresh)
            self._take(self.prices.evaluate(np.array(fresh, np.int64)))
        return self.limit

    def _take(self, values: CutValues) -> None:
        real = values.value < UNREACHABLE
        if not real.any():
            return
        least = int(values.value[real].min())
        for k in np.flatnonzero(values.value == least).tolist():
            key = (
                least,
                int(values.bottleneck[k]),
                -int(values.lightest[k]),
                int(values.peak_bytes[k]),
                tuple(values.cuts[k].tolist()),
            )
            if self.key is None or key < self.key:
                self.key = key
                self.makespan = int(values.makespan[k])
                self.bottleneck = int(values.bottleneck[k])


def solve_step_time(
    problem: ChainProblem,
    *,
    seeds: Sequence[Sequence[int]] = (),
    upper_bound: int | None = None,
    node_limit: int = 20000,
    deadline: float | None = None,
) -> StepSolution:
    """Minimise the step value over all cuts with exactly P non-empty stages.

    Parameters
    ----------
    problem
        The priced chain.
    seeds
        Cut vectors (P+1 positions) worth simulating first; impossible ones are ignored.
    upper_bound
        Give up once the bound reaches it: better answers are known elsewhere.
    node_limit
        Nodes of the branch and bound; 0 leaves the gap of the root bound. The answer is a
        deterministic function of the problem, seeds, ``upper_bound`` and this limit.
    deadline
        Instant of ``time.monotonic()`` to stop at with what is proved by then.

    Returns
    -------
    The best cut met, and a bound that holds for every cut (or equals ``upper_bound`` when
    nothing below that exists).
    """
    best = _Incumbent(problem, upper_bound)
    shaped = [tuple(int(c) for c in seed) for seed in seeds]
    best.offer([cuts for cuts in shaped if _is_cut(problem, cuts)])
    if best.limit is None:
        found, cuts = root_bound(problem)
        if found is None:
            return _infeasible(best)
        if cuts is None:
            # The chain is too large for a table without a value to beat: even shares are one.
            best.offer([_even_cuts(problem)])
            if best.key is None:
                return _solution(best, found, 0, "interval_dp")
        else:
            best.offer([cuts])
        if best.key is not None and best.key[0] == found:
            return _solution(best, found, 0, "interval_dp")
    bound, terms = _root(problem, best, 0, walks=node_limit > 0)
    if not _open(best, bound) or node_limit <= 0 or late(deadline):
        return _solution(best, bound, 0, "interval_dp")
    if problem.num_stages * problem.num_microbatches > _MAX_OPERATIONS // 4:
        # A simulation of this size takes a second; thousands of them take the night.
        return _solution(best, bound, 0, "interval_dp")
    before = best.limit
    _climb(best, terms, node_limit, deadline)
    climbed = best.limit
    if best.offer(terms.below(_ramps(problem), best.limit)) != climbed:
        _climb(best, terms, node_limit, deadline)
    if best.limit != before:
        bound, terms = _root(problem, best, bound, walks=True)
    if not _open(best, bound):
        return _solution(best, bound, 0, "interval_dp")
    limit = best.limit
    if limit is None or terms.ceiling is None:
        raise PlannerError("the branch and bound needs a value to beat")
    limit = min(limit, terms.ceiling + 1)
    result = branch_and_bound(terms, limit, best.offer, node_limit, deadline)
    if _open(best, result.bound) and result.bound < limit and not late(deadline):
        bound = raised_bound(terms, bound, limit, least_value(problem))
    if result.bound <= bound:
        return _solution(best, bound, result.nodes, "interval_dp")
    return _solution(best, result.bound, result.nodes, "branch_and_bound")


def _is_cut(problem: ChainProblem, cuts: tuple[int, ...]) -> bool:
    return (
        len(cuts) == problem.num_stages + 1
        and cuts[0] == 0
        and cuts[-1] == problem.num_blocks
        and all(a < b for a, b in pairwise(cuts))
    )


def _even_cuts(problem: ChainProblem) -> tuple[int, ...]:
    """Cuts nearest behind equal shares of the time, every stage non-empty."""
    count, stages = problem.num_blocks, problem.num_stages
    sums = np.cumsum(problem.forward + problem.backward).tolist()
    cuts = [0]
    for i in range(1, stages):
        at = bisect_left(sums, sums[-1] * i // stages) + 1
        cuts.append(min(max(at, cuts[-1] + 1), count - stages + i))
    return (*cuts, count)


def _ramps(problem: ChainProblem) -> list[tuple[int, ...]]:
    """Cuts nearest to shares that fall or rise evenly along the ranks.

    Rounding spreads heavier stages between lighter ones. That is what edges ask for, since
    neighbours that are both heavy set the pace together with the edge between them
    (:mod:`~planner.schedules.order_bounds`, cycles), and what stage terms do not see.
    """
    count, stages = problem.num_blocks, problem.num_stages
    sums = np.concatenate(([0], np.cumsum(problem.forward + problem.backward)))
    middles = (sums[:-1] + sums[1:]) / 2
    rank = np.arange(stages + 1)
    typical = float(np.median(np.diff(sums)))
    found = []
    for slope in _SLOPES:
        share = np.cumsum(1 + slope * (1 - 2 * rank / max(1, stages - 1)))[:-1]
        for shift in _SHIFTS:
            ends = sums[-1] * share / share[-1] + shift * typical
            cuts = np.searchsorted(middles, ends)
            cuts[-1] = count
            # Every stage keeps a block: cuts rise by one at least, from both ends.
            rising = np.maximum.accumulate(cuts - rank[:-1]) + rank[:-1]
            rising = np.minimum(np.maximum(rising, rank[1:]), count - stages + rank[1:])
            found.append((0, *rising.tolist()))
    return found


def _open(best: _Incumbent, bound: int) -> bool:
    return best.limit is not None and bound < best.limit


def _root(
    problem: ChainProblem, best: _Incumbent, bound: int, *, walks: bool
) -> tuple[int, StageTerms]:
    """Bound over everything below the incumbent, meeting the bound's own optima on the way.

    With ``walks`` the terms come without the stages that no better cut can have.
    """
    while True:
        limit = best.limit
        if limit is None:
            raise PlannerError("the root bound needs a value to beat")
        terms = affordable_terms(problem, limit - 1, least_value(problem))
        outside = limit if terms.ceiling is None else min(limit, terms.ceiling + 1)
        found, _ = terms.bound(lambda cuts: best.offer([cuts]))
        bound = max(bound, outside if found is None else min(found, outside))
        if walks and best.limit == limit and bound < outside:
            left = surviving_stages(terms, outside)
            if left is None:
                bound = outside
            else:
                terms = left
                found, _ = terms.bound(lambda cuts: best.offer([cuts]))
                bound = max(bound, outside if found is None else min(found, outside))
        now = best.limit
        if now is None or now >= limit or bound >= now:
            return bound, terms


def _climb(best: _Incumbent, terms: StageTerms, node_limit: int, deadline: float | None) -> None:
    """Move single blocks between any two stages of the best while that helps."""
    operations = min(_MAX_OPERATIONS, _OPERATIONS_PER_NODE * node_limit)
    most = min(1000, max(2 * terms.stages, operations // (terms.stages * terms.microbatches)))
    for _ in range(_MAX_CLIMBS):
        before = best.key
        if before is None or late(deadline):
            break
        best.offer(terms.below(_neighbours(before[4]), best.limit)[:most])
        if best.key is None or best.key[0] == before[0]:
            break


def _neighbours(cuts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Cuts with a run of cuts i..j moved by one block, short runs first."""
    around = []
    inner = len(cuts) - 2
    for length in range(1, inner + 1):
        for i in range(1, inner - length + 2):
            j = i + length - 1
            if cuts[i - 1] < cuts[i] - 1:
                moved = [cut - 1 for cut in cuts[i : j + 1]]
                around.append((*cuts[:i], *moved, *cuts[j + 1 :]))
            if cuts[j] + 1 < cuts[j + 1]:
                moved = [cut + 1 for cut in cuts[i : j + 1]]
                around.append((*cuts[:i], *moved, *cuts[j + 1 :]))
    return around


def _infeasible(best: _Incumbent) -> StepSolution:
    return StepSolution(
        None, (), None, None, None, UNREACHABLE, False, True, best.simulations, 0, "none"
    )


def _solution(best: _Incumbent, bound: int, nodes: int, kind: str) -> StepSolution:
    if best.key is None:
        return StepSolution(
            None, (), None, None, None, bound, False, False, best.simulations, nodes, kind,
            {"upper_bound": bound},
        )  # fmt: skip
    value, cuts = best.key[0], best.key[4]
    bound = min(bound, value)
    limit = value if best.outside is None else min(value, best.outside)
    return StepSolution(
        cuts=cuts,
        choices=best.prices.choices(cuts),
        value=value,
        makespan=best.makespan,
        bottleneck=best.bottleneck,
        bound=bound,
        proven=bound == value,
        infeasible=False,
        simulations=best.simulations,
        nodes=nodes,
        bound_kind=kind,
        witness={"upper_bound": limit},
    )
