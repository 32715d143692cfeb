"""Exact bottleneck partition of a chain: min over cuts of max over stages of t + c.

Every stage holds at least one block, fits its budget in some allowed way to recompute, and
obeys pins and colocation. The answer is proven: nothing below it is reachable.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from planner.cost.stage_table import ChainProblem
from planner.solvers.chain_dense import least_bottleneck_within
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
    """Cuts with the least largest stage cost, or None where no cuts are feasible."""
    tables = tables_of(problem)
    if tables.pinned is None:
        return None
    limit = tables.lower_bound
    step = max(1, limit // 64)
    ceiling = tables.ceiling
    probes = states = 0
    while True:
        limit = min(limit, ceiling)
        windows = tables.windows(limit)
        probes += 1
        found = least_bottleneck_within(problem, windows) if windows is not None else None
        if found is not None:
            value, cuts, pairs = found
            states += pairs
            if value <= limit:
                return BottleneckSolution(cuts, value, value, True, probes, states)
            # Windows hold all cuts up to the limit only; what was found caps the rest.
            ceiling = min(ceiling, value)
        elif limit >= ceiling:
            return None
        limit += step
        step *= 2
