"""How much the closest cut of a question that does not fit still lacks."""

from __future__ import annotations

from dataclasses import replace

from planner.assembly import least_memory
from planner.cost.stage_table import ChainProblem
from planner.deadlines import OutOfTimeError, late
from planner.schedules.grouping import least_rank_memory
from planner.solvers.chain import Shortfall, least_shortfall, solve_bottleneck
from planner.solvers.order_time import balanced_cuts, least_crowded

__all__ = ["grouped_shortfall", "shortfall_of"]

_LARGE_CHAIN = 200_000
"""Blocks times stages beyond which the exact least shortfall takes too long."""


def shortfall_of(problem: ChainProblem) -> Shortfall | None:
    """What the closest cut lacks; None where no cut is allowed, or time ran out."""
    try:
        if problem.is_grouped:
            return grouped_shortfall(problem)
        if problem.num_blocks * problem.num_stages <= _LARGE_CHAIN:
            return least_shortfall(problem)
        return _bisected_shortfall(problem)
    except OutOfTimeError:
        return None


def _bisected_shortfall(problem: ChainProblem) -> Shortfall | None:
    """``least_shortfall`` of very large chains by bisecting the budget that fits, to the MiB.

    Budgets are equal on all ranks here, so the least budget that any cut fits is what the
    closest cut needs.
    """
    budget = int(problem.budget_bytes[0])

    def cuts_within(extra: int) -> tuple[int, ...] | None:
        roomy = replace(problem, budget_bytes=problem.budget_bytes + extra)
        found = solve_bottleneck(roomy, kernel="auto")
        return None if found is None else found.cuts

    short, enough = 0, 2**20
    cuts = cuts_within(enough)
    while cuts is None:
        if budget + enough > 2**59:
            return None
        short, enough = enough, 2 * enough
        cuts = cuts_within(enough)
    while enough - short > 2**20 and not late():
        middle = (short + enough) // 2
        found = cuts_within(middle)
        if found is None:
            short = middle
        else:
            enough, cuts = middle, found
    needs = [
        least_memory(problem, rank, cuts[rank], cuts[rank + 1]) - budget
        for rank in range(problem.num_stages)
    ]
    worst = max(range(len(needs)), key=lambda rank: (needs[rank], -rank))
    return Shortfall(needs[worst], worst, cuts[worst], cuts[worst + 1], cuts)


def grouped_shortfall(problem: ChainProblem, *, thorough: bool = True) -> Shortfall | None:
    """What the ranks lack at the least crowded cuts that were found; others may lack less."""
    balanced = balanced_cuts(problem)
    if balanced is None:
        return None
    cuts = least_crowded(problem, balanced, thorough=thorough)
    needs = [least_rank_memory(problem, rank, cuts) for rank in range(problem.num_ranks)]
    worst = max(range(len(needs)), key=lambda rank: (needs[rank], -rank))
    stage = problem.rank_stages[worst][0]
    short = needs[worst] - int(problem.budget_bytes[stage])
    return Shortfall(short, worst, cuts[stage], cuts[stage + 1], cuts)
