"""Least simulated step time over all cuts of a chain, proven where it can be.

1. Seeds (cuts that other solvers found) are simulated; the best is the incumbent.
2. The bound's own optimum over all cuts below the incumbent
   (:meth:`~planner.schedules.stage_terms.StageTerms.bound`) is found and simulated. Usually the
   two values meet: one simulation proves the plan. Where they do not, stages that no better cut
   can have are dropped (:mod:`~planner.schedules.prefix_walks`), often all of them.
3. Otherwise neighbours of the incumbent and evenly spread cuts are tried, then a branch and
   bound over prefixes of the cuts closes the gap or leaves it
   (:mod:`planner.solvers.step_search`).

This is GPipe and 1F1B, whose timelines are recurrences with bounds of their own; other schedules
go to :mod:`planner.solvers.order_time`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem
from planner.deadlines import NEVER, OutOfTimeError, late, within
from planner.errors import PlannerError
from planner.schedules.bounds import least_value, root_bound
from planner.schedules.prefix_walks import raised_bound, surviving_stages
from planner.schedules.simulate import RECURRENT
from planner.schedules.stage_terms import StageTerms, affordable_terms
from planner.solvers.order_time import solve_by_order
from planner.solvers.step_candidates import (
    Incumbent,
    StepSolution,
    cut_tuples,
    even_cuts,
    is_cut,
    neighbours,
    no_solution,
    ramps,
    solution_of,
)
from planner.solvers.step_search import branch_and_bound

__all__ = ["StepSolution", "solve_step_time"]

I64 = NDArray[np.int64]

# Rounds of local search, and operations it may simulate in one round: few where the caller
# asks for few nodes.
_MAX_CLIMBS, _MAX_OPERATIONS, _OPERATIONS_PER_NODE = 20, 4_000_000, 1000


def solve_step_time(
    problem: ChainProblem,
    *,
    seeds: Sequence[Sequence[int]] = (),
    upper_bound: int | None = None,
    node_limit: int = 20000,
    watch: Callable[[int, int], None] | None = None,
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
    watch
        Told of the best value and the best bound so far, each time cuts were tried.

    Returns
    -------
    The best cut met, and a bound that holds for every cut (or equals ``upper_bound`` when
    nothing below that exists). Where the deadline in force passes first, with what is proved by
    then.
    """
    if problem.schedule not in RECURRENT:
        return solve_by_order(problem, seeds, upper_bound, node_limit, watch)
    best = Incumbent(problem, upper_bound, watch)
    try:
        return _minimised(problem, best, seeds, node_limit)
    except OutOfTimeError:
        with within(NEVER):
            least = least_value(problem)
        return solution_of(best, max(best.bound, least), 0, "interval_dp")


def _minimised(
    problem: ChainProblem, best: Incumbent, seeds: Sequence[Sequence[int]], node_limit: int
) -> StepSolution:
    """The steps of the module's docstring, one after the other, until the proof is complete."""
    shaped = [tuple(int(c) for c in seed) for seed in seeds]
    best.offer([cuts for cuts in shaped if is_cut(problem, cuts)])
    if best.limit is None:
        found, cuts = root_bound(problem)
        if found is None:
            return no_solution(best)
        if cuts is None:
            # The chain is too large for a table without a value to beat: even shares are one.
            best.offer([even_cuts(problem)])
            if best.key is None:
                return solution_of(best, found, 0, "interval_dp")
        else:
            best.offer([cuts])
        if best.key is not None and best.key[0] == found:
            return solution_of(best, found, 0, "interval_dp")
    bound, terms = _root(problem, best, 0, walks=node_limit > 0)
    if not _open(best, bound) or node_limit <= 0 or late():
        return solution_of(best, bound, 0, "interval_dp")
    if problem.num_stages * problem.num_microbatches > _MAX_OPERATIONS // 4:
        # A simulation of this size takes a second; thousands of them take the night.
        return solution_of(best, bound, 0, "interval_dp")
    before = best.limit
    _climb(best, terms, node_limit)
    climbed = best.limit
    ramped = np.array(ramps(problem), np.int64)
    if best.offer(cut_tuples(terms.below(ramped, best.limit))) != climbed:
        _climb(best, terms, node_limit)
    if best.limit != before:
        bound, terms = _root(problem, best, bound, walks=True)
    if not _open(best, bound):
        return solution_of(best, bound, 0, "interval_dp")
    limit = best.limit
    if limit is None or terms.ceiling is None:
        raise PlannerError("the branch and bound needs a value to beat")
    limit = min(limit, terms.ceiling + 1)
    result = branch_and_bound(terms, limit, best.offer, node_limit)
    best.bound = max(best.bound, bound, result.bound)
    if _open(best, result.bound) and result.bound < limit and not late():
        bound = raised_bound(terms, bound, limit, least_value(problem))
    if result.bound <= bound:
        return solution_of(best, bound, result.nodes, "interval_dp")
    return solution_of(best, result.bound, result.nodes, "branch_and_bound")


def _open(best: Incumbent, bound: int) -> bool:
    return best.limit is not None and bound < best.limit


def _root(
    problem: ChainProblem, best: Incumbent, bound: int, *, walks: bool
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
        bound = best.bound = max(bound, outside if found is None else min(found, outside))
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


def _climb(best: Incumbent, terms: StageTerms, node_limit: int) -> None:
    """Move single blocks between any two stages of the best while that helps."""
    operations = min(_MAX_OPERATIONS, _OPERATIONS_PER_NODE * node_limit)
    most = min(1000, max(2 * terms.stages, operations // (terms.stages * terms.microbatches)))
    for _ in range(_MAX_CLIMBS):
        before = best.key
        if before is None or late():
            break
        best.offer(cut_tuples(terms.below(neighbours(before[4]), best.limit)[:most]))
        if best.key is None or best.key[0] == before[0]:
            break
