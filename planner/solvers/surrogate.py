"""Cuts with the least closed-form step time, sum + (M-1) max of the stage costs.

The closed form only ranks: it is no bound on the simulated step time (see the schedules), but
its optimum is a good first candidate. Recompute decouples: the quickest way that fits is best
for the sum and for the maximum, so a stage has one price. The optimum is found by a descending
chase over the largest stage: the least sum S(L) with all stages at most L bounds every
solution below L, and few limits L are left between the bottleneck and what can still win.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem
from planner.deadlines import poll
from planner.solvers import chain_packed
from planner.solvers.chain import BottleneckSolution, Kernel, uses_numba
from planner.solvers.chain_dense import stage_prices
from planner.solvers.chain_probes import prober_of
from planner.solvers.chain_tables import INFINITE, CutWindows, tables_of

__all__ = ["solve_surrogate", "surrogate_value"]

I64 = NDArray[np.int64]

_NEVER = INFINITE >> 1
"""Twice this is still an int64."""


def surrogate_value(problem: ChainProblem, cuts: tuple[int, ...]) -> int:
    """Sum + (M-1) max of the stage costs in quanta (the fill and the beat of 1F1B and GPipe).

    Raises
    ------
    ValueError
        A stage of ``cuts`` fits in no way.
    """
    prober = prober_of(tables_of(problem))
    costs = [prober.price(stage, *ends) for stage, ends in enumerate(pairwise(cuts))]
    if max(costs) >= INFINITE:
        raise ValueError(f"a stage of {cuts} does not fit")
    return sum(costs) + (problem.num_microbatches - 1) * max(costs)


def solve_surrogate(
    problem: ChainProblem, bottleneck: BottleneckSolution, *, kernel: Kernel = "python"
) -> tuple[int, ...]:
    """Cuts that minimise sum + (M-1) max over all feasible cuts, exactly.

    Parameters
    ----------
    bottleneck
        The proven answer of ``solve_bottleneck`` for the same problem: the chase ends there.

    Returns
    -------
    tuple of int
        P+1 positions; the cuts of ``bottleneck`` where nothing beats them.
    """
    tables = tables_of(problem)
    beats = problem.num_microbatches - 1
    best, cuts = surrogate_value(problem, bottleneck.cuts), bottleneck.cuts
    least = tables.compute[-1] + 2 * sum(tables.least_edge)
    program = _compiled_sums if uses_numba(tables, kernel) else _Sums(problem)
    limit = tables.ceiling
    while True:
        poll()
        if best <= least + beats * bottleneck.value:
            return cuts
        # A better solution has its largest stage below this.
        if beats:
            limit = min(limit, (best - 1 - least) // beats)
        if limit < bottleneck.value:
            return cuts
        found = program(problem, limit)
        if found is None:
            return cuts
        least, largest, candidate = found
        value = least + beats * largest
        if value < best:
            best, cuts = value, candidate
        # All with a largest stage in [largest, limit] cost at least as much.
        limit = largest - 1


def _compiled_sums(problem: ChainProblem, limit: int) -> tuple[int, int, tuple[int, ...]] | None:
    """Least sum with every stage at most ``limit``, its largest stage, and its cuts."""
    tables = tables_of(problem)
    windows = tables.windows(limit)
    if windows is None:
        return None
    from planner.solvers import chain_kernels

    pack = chain_packed.packed(tables)
    low, high = np.array(windows.low, np.int64), np.array(windows.high, np.int64)
    room = np.zeros(len(low), np.int64)
    total, largest, _ = chain_kernels.least_sum(*pack, room, low, high, limit)
    return None if total >= INFINITE else (total, largest, tuple(room.tolist()))


class _Sums:
    """The same program on numpy matrices, priced once for the first and widest limit."""

    def __init__(self, problem: ChainProblem) -> None:
        self.windows: CutWindows | None = None
        self.costs: list[I64] = []

    def __call__(
        self, problem: ChainProblem, limit: int
    ) -> tuple[int, int, tuple[int, ...]] | None:
        if self.windows is None:
            self.windows = tables_of(problem).windows(limit)
            if self.windows is None:
                return None
            spans = list(zip(*self.windows, strict=True))
            self.costs = [
                stage_prices(problem, stage, starts, ends).cost
                for stage, (starts, ends) in enumerate(pairwise(spans))
            ]
        total = np.zeros(1, np.int64)
        largest = np.zeros(1, np.int64)
        origins: list[I64] = []
        for cost in self.costs:
            poll()
            sums = total[:, None] + np.where(cost > limit, _NEVER, cost)
            least = np.minimum(sums.min(axis=0), _NEVER)
            # Among equal sums the smaller largest stage, then the later start.
            worst = np.where(sums == least[None, :], np.maximum(largest[:, None], cost), INFINITE)
            origin = len(worst) - 1 - worst[::-1].argmin(axis=0)
            origins.append(origin)
            total, largest = least, worst[origin, np.arange(worst.shape[1])]
        if int(total[0]) >= _NEVER:
            return None
        low, high = self.windows
        cuts = [high[-1]]
        for stage in range(len(origins) - 1, -1, -1):
            cuts.append(low[stage] + int(origins[stage][cuts[-1] - low[stage + 1]]))
        return int(total[0]), int(largest[0]), tuple(reversed(cuts))
