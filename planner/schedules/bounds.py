"""Proven lower bounds of the step value over all cuts, for solvers and for whoever checks them.

The proofs stand in :mod:`~planner.schedules.order_bounds` (one pipeline),
:mod:`~planner.schedules.stage_terms` and :mod:`~planner.schedules.prefix_walks` (all cuts of a
chain).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import pairwise

from planner.cost.stage_table import ChainProblem
from planner.schedules.order_bounds import layout_bound, makespan_bound
from planner.schedules.prefix_walks import raised_bound, surviving_stages
from planner.schedules.prices import prices_of
from planner.schedules.stage_terms import StageTerms, affordable_terms

__all__ = [
    "StageTerms",
    "layout_bound",
    "least_value",
    "makespan_bound",
    "root_bound",
]


def root_bound(
    problem: ChainProblem, upper_bound: int | None = None
) -> tuple[int | None, tuple[int, ...] | None]:
    """Proven lower bound of the step value over all cuts, and cuts that attain the bound.

    Parameters
    ----------
    upper_bound
        A step value known to be reachable (or "nothing at or above this matters"): narrows the
        windows. The bound is then at most ``upper_bound`` and the cuts may be None, which says
        that nothing below it exists.

    Returns
    -------
    (None, None) without ``upper_bound`` when no cut fits; otherwise bound and cuts. The bound
    is a deterministic function of the problem alone when ``upper_bound`` is not given. Where a
    chain is too large for the table the bound is weaker and the cuts may be None.
    """
    least = least_value(problem)
    if upper_bound is not None:
        terms = affordable_terms(problem, upper_bound - 1, least)
        found, cuts = terms.bound()
        outside = upper_bound if terms.ceiling is None else min(upper_bound, terms.ceiling + 1)
        if found is None or found >= outside:
            return outside, cuts
        left = surviving_stages(terms, outside)
        found, cuts = (None, None) if left is None else left.bound()
        if left is None or found is None:
            return outside, cuts
        return raised_bound(left, min(found, outside), outside, least), cuts
    for share in (1, 4, 16, 64, None):
        ceiling = None if share is None else least + (least * share) // 64 + 1
        terms = affordable_terms(problem, ceiling, least)
        found, cuts = terms.bound()
        # Cuts outside the windows are worth more than the ceiling.
        if terms.ceiling is None:
            return found, cuts
        if found is not None and found <= terms.ceiling + 1:
            return found, cuts
        if terms.ceiling != ceiling:  # wider windows cannot be afforded
            return terms.ceiling + 1, cuts
    return None, None


def least_value(problem: ChainProblem) -> int:
    """A value that no cut undercuts, from totals and the best balance of the blocks."""
    prices = prices_of(problem)
    total_f, total_b = int(prices.forward[-1]), int(prices.least_backward[-1])
    sums = tuple((prices.forward + prices.least_backward).tolist())
    if prices.num_stages > prices.num_blocks:
        return 0
    least = layout_bound(
        prices.schedule,
        prices.num_stages,
        prices.num_microbatches,
        total_f,
        total_b,
        _least_largest_sum(sums, prices.num_stages),
        0,
    )
    return int(least[()]) + prices.fixed_tail + prices.least_optimizer


@lru_cache(maxsize=1024)
def _least_largest_sum(sums: tuple[int, ...], stages: int) -> int:
    """Least T such that P intervals of sum <= T cover the chain (prefix sums given)."""
    total, last = sums[-1], len(sums) - 1
    low = max(-(-total // stages), max(b - a for a, b in pairwise(sums)))
    high = total
    while low < high:
        middle = (low + high) // 2
        at = used = 0
        bid = total  # the least sum above the middle that would take some interval further
        for _ in range(stages):
            begin = sums[at]
            end = bisect_right(sums, begin + middle) - 1
            used = max(used, sums[end] - begin)
            at = end
            if end == last:
                break
            bid = min(bid, sums[end + 1] - begin)
        if at == last:
            high = used
        else:
            low = bid
    return low
