"""Exact bottleneck partition of a chain: min over cuts of max over stages of t + c.

Every stage holds at least one block, fits its budget in some allowed way to recompute, and
obeys pins and colocation. The answer is proven: nothing below it is reachable.
"""

from __future__ import annotations

import sys
from typing import Literal, NamedTuple

import numpy as np

from planner.cost.stage_table import ChainProblem
from planner.deadlines import poll
from planner.errors import InputError
from planner.solvers import chain_packed
from planner.solvers.chain_dense import least_bottleneck_within
from planner.solvers.chain_probes import GreedyOutcome, prober_of
from planner.solvers.chain_tables import INFINITE, ChainTables, CutWindows, tables_of
from planner.solvers.chain_ties import Shortfall, balanced_bottleneck, least_shortfall

__all__ = [
    "BottleneckSolution",
    "Kernel",
    "Shortfall",
    "balanced_bottleneck",
    "least_shortfall",
    "solve_bottleneck",
    "uses_numba",
]

Kernel = Literal["auto", "loaded", "python", "numba"]


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
) -> BottleneckSolution | None:
    """Cuts with the least largest stage cost, or None where no cuts are feasible.

    Parameters
    ----------
    kernel
        ``python`` never imports numba; ``numba`` always uses the compiled kernels; ``auto``
        uses them for large chains if numba is installed; ``loaded`` wherever this process has
        them at hand already. The value is the same.
    upper_bound
        Answers above it are not wanted: None is returned instead.

    Raises
    ------
    OutOfTimeError
        The deadline in force passed before the optimum was proven.
    InputError
        ``kernel`` is ``numba`` and numba is not installed.
    """
    tables = tables_of(problem)
    if tables.pinned is None:
        return None
    lower = tables.lower_bound
    upper = tables.ceiling if upper_bound is None else min(upper_bound, tables.ceiling)
    probes = states = 0
    compiled = uses_numba(tables, kernel)
    if tables.cuts_monotone and tables.inclusion_monotone:
        outcome = _greedy_compiled(tables, lower, upper) if compiled else None
        if outcome is None:
            outcome = prober_of(tables).bisect(lower, upper)
        cuts, value, bound, probes, states = outcome
        if cuts is not None:
            return BottleneckSolution(cuts, value, bound, True, probes, states)
        if bound > upper:
            return None
        lower = bound
    # Counts of work are part of an answer: they must not depend on what is loaded by chance.
    compiled = compiled and kernel != "loaded"
    if compiled and tables.inclusion_monotone:
        from planner.solvers import chain_kernels

        pack = chain_packed.packed(tables)
        room = np.zeros(tables.num_stages + 1, np.int64)
        value, tests, priced = chain_kernels.reachable_sets(*pack, room, lower, upper)
        if value >= INFINITE:
            return None
        cuts = tuple(room.tolist())
        return BottleneckSolution(cuts, value, value, True, probes + tests, states + priced)
    return _within_windows(problem, lower, upper, probes, states, compiled)


_NUMBA_PAYS = 20_000
"""N * P from which compiled kernels are worth loading numba (0.9 CPU s) for ``auto``."""


def uses_numba(tables: ChainTables, kernel: Kernel) -> bool:
    """Whether a call with this ``kernel`` runs the compiled programs."""
    if kernel == "loaded":
        return "planner.solvers.chain_kernels" in sys.modules
    if kernel == "auto":
        large = tables.num_blocks * tables.num_stages > _NUMBA_PAYS
        return large and chain_packed.numba_installed()
    if kernel == "numba" and not chain_packed.numba_installed():
        raise InputError(
            "needs numba, which is not installed",
            value="kernel=numba",
            fix="install stageplan[fast] or use kernel=python",
        )
    return kernel == "numba"


def _greedy_compiled(tables: ChainTables, lower: int, upper: int) -> GreedyOutcome:
    from planner.solvers import chain_kernels

    pack = chain_packed.packed(tables)
    room = np.zeros(tables.num_stages + 1, np.int64)
    value, bound, probes, states = chain_kernels.greedy(*pack, room, lower, upper)
    cuts = tuple(room.tolist()) if value < INFINITE else None
    return GreedyOutcome(cuts, value, bound, probes, states)


def _least_within(
    problem: ChainProblem, windows: CutWindows, limit: int, compiled: bool
) -> tuple[int, tuple[int, ...], int] | None:
    if not compiled:
        return least_bottleneck_within(problem, windows)
    from planner.solvers import chain_kernels

    pack = chain_packed.packed(tables_of(problem))
    low, high = np.array(windows.low, np.int64), np.array(windows.high, np.int64)
    room = np.zeros(len(low), np.int64)
    value, pairs = chain_kernels.least_bottleneck(*pack, room, low, high, limit)
    return None if value >= INFINITE else (value, tuple(room.tolist()), pairs)


def _within_windows(
    problem: ChainProblem,
    lower: int,
    upper: int,
    probes: int,
    states: int,
    compiled: bool,
) -> BottleneckSolution | None:
    """Gallop the limit up from a proven bound until its windows hold the optimum."""
    tables = tables_of(problem)
    limit, step = lower, max(1, lower >> 7)
    while True:
        poll()
        limit = min(limit, upper)
        windows = tables.windows(limit)
        probes += 1
        found = None
        if windows is not None:
            found = _least_within(problem, windows, limit, compiled)
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
