"""Proven lower bounds of the step value over all cuts, for solvers and for whoever checks them.

The proofs stand in :mod:`~planner.schedules.order_bounds` (one pipeline) and
:mod:`~planner.schedules.stage_terms` (all cuts of a chain).
"""

from __future__ import annotations

import numpy as np

from planner.cost.stage_table import ChainProblem
from planner.schedules.order_bounds import layout_bound, makespan_bound, span_bound
from planner.schedules.prices import prices_of
from planner.schedules.stage_terms import StageTerms

__all__ = ["StageTerms", "ceilings", "layout_bound", "makespan_bound", "root_bound", "span_bound"]


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
    is a deterministic function of the problem alone when ``upper_bound`` is not given.
    """
    if upper_bound is not None:
        found, cuts = StageTerms(problem, upper_bound - 1).bound()
        if found is None or found >= upper_bound:
            return upper_bound, cuts
        return found, cuts
    for ceiling in ceilings(problem):
        found, cuts = StageTerms(problem, ceiling).bound()
        # Cuts outside the windows are worth more than the ceiling.
        if found is not None and (ceiling is None or found <= ceiling + 1):
            return found, cuts
    return None, None


def ceilings(problem: ChainProblem) -> list[int | None]:
    """Growing guesses of the best value, ending with None (no limit)."""
    prices = prices_of(problem)
    total_f, total_b = int(prices.forward[-1]), int(prices.least_backward[-1])
    largest = int(np.diff(prices.forward + prices.least_backward).max())
    least = int(
        layout_bound(
            prices.schedule,
            prices.num_stages,
            prices.num_microbatches,
            total_f,
            total_b,
            max(largest, -(-(total_f + total_b) // prices.num_stages)),
            0,
        )[()]
    )
    least += prices.fixed_tail + prices.least_optimizer
    return [least + (least * share) // 64 + 1 for share in (2, 8, 32, 128)] + [None]
