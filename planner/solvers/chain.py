"""Exact bottleneck partition of a chain: min over cuts of max over stages of t + c.

Every stage holds at least one block, fits its budget in some allowed way to recompute, and
obeys pins and colocation. The answer is proven: nothing below it is reachable.
"""

from __future__ import annotations

import time
from typing import Literal, NamedTuple

from planner.cost.stage_table import ChainProblem
from planner.solvers.chain_dense import least_bottleneck_within
from planner.solvers.chain_probes import prober_of
from planner.solvers.chain_tables import tables_of

__all__ = ["BottleneckSolution", "Kernel", "solve_bottleneck"]

Kernel = Literal["auto", "python", "numba"]


class BottleneckSolution(NamedTuple):
    """Cuts with the least largest stage."""

    cuts: tuple[int, ...]
    """P+1 positions from 0 to N."""
    value: int
    """Quanta of the largest stage cost, realised by ``cuts``."""
    bound: int
    """No cuts have a smaller largest stage than this; equals ``value`` when proven."""
    proven: bool
    probes: int
    """Feasibility tests or dynamic programs run."""
    states: int
    """Stages or (start, end) pairs priced."""


def solve_bottleneck(
    problem: ChainProblem,
    *,
    kernel: Kernel = "python",
    upper_bound: int | None = None,
    deadline: float | None = None,
) -> BottleneckSolution | None:
    """Cuts with the least largest stage cost, or None where no cuts are feasible.

    Parameters
    ----------
    kernel
        ``python`` never imports numba; ``numba`` always uses the compiled kernels; ``auto``
        uses them for large chains if numba is installed. The value is the same.
    upper_bound
        Answers above it are not wanted: None is returned instead.
    deadline
        ``time.monotonic()`` after which the search stops.

    Raises
    ------
    TimeoutError
        The deadline passed before the optimum was proven.
    """
    tables = tables_of(problem)
    if tables.pinned is None:
        return None
    lower = tables.lower_bound
    upper = tables.ceiling if upper_bound is None else min(upper_bound, tables.ceiling)
    probes = states = 0
    if tables.cuts_monotone and tables.inclusion_monotone:
        outcome = prober_of(tables).bisect(lower, upper)
        probes, states = outcome.probes, outcome.states
        if outcome.cuts is not None:
            return BottleneckSolution(
                outcome.cuts, outcome.value, outcome.bound, True, probes, states
            )
        if outcome.bound > upper:
            return None
        lower = outcome.bound
    return _dense(problem, lower, upper, probes, states, deadline)


def _dense(
    problem: ChainProblem, lower: int, upper: int, probes: int, states: int, deadline: float | None
) -> BottleneckSolution | None:
    """Gallop the limit up from a proven bound until its windows hold the optimum."""
    tables = tables_of(problem)
    limit, step = lower, max(1, lower >> 6)
    while True:
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError("the deadline passed before the chain was solved")
        limit = min(limit, upper)
        windows = tables.windows(limit)
        probes += 1
        found = least_bottleneck_within(problem, windows) if windows is not None else None
        if found is not None:
            value, cuts, pairs = found
            states += pairs
            if value <= limit:
                # All cuts up to the limit lie inside the windows: this is the least of all.
                return BottleneckSolution(cuts, value, value, True, probes, states)
            upper = min(upper, value)
        if limit >= upper:
            return None
        limit += step
        step *= 2
