"""Which of several optimal cuts to take, and how far off an impossible chain is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem
from planner.deadlines import poll
from planner.solvers.chain_dense import StagePrices, least_memory, stage_prices
from planner.solvers.chain_tables import INFINITE, CutWindows, tables_of

__all__ = ["Shortfall", "balanced_bottleneck", "least_shortfall"]

I64 = NDArray[np.int64]

_KEPT_PAIRS = 10_000_000
"""Price matrices up to this many pairs are kept between passes (about 160 MB)."""


class Shortfall(NamedTuple):
    """The stage that lacks memory where the lack is smallest."""

    short_bytes: int
    """Bytes missing on the worst rank of the best cuts; zero or less if the chain fits."""
    stage: int
    start: int
    end: int
    """The worst stage holds blocks start .. end-1."""
    cuts: tuple[int, ...]


def balanced_bottleneck(problem: ChainProblem, value: int) -> tuple[int, ...]:
    """Among all cuts with largest stage cost <= ``value``: the most even, smallest, first.

    In this order: the largest smallest stage time (compute with recompute, communication
    apart), the fewest bytes on the fullest rank, the lexicographically smallest cuts; exact.
    A stage's memory is that of its least-extra way to recompute.

    Raises
    ------
    ValueError
        No cuts are within ``value``.
    """
    tables = tables_of(problem)
    windows = tables.windows(value)
    if windows is None:
        raise ValueError(f"no cuts have a bottleneck of {value} or less")
    low, high = windows
    stages = tables.num_stages
    pairs = sum((high[s] - low[s] + 1) * (high[s + 1] - low[s + 1] + 1) for s in range(stages))
    kept: dict[int, tuple[I64, I64]] = {}

    def priced(stage: int) -> tuple[I64, I64]:
        """Stage times (-1 where over the limit) and memory (INFINITE there)."""
        if stage not in kept:
            poll()
            prices: StagePrices = stage_prices(
                problem, stage, (low[stage], high[stage]), (low[stage + 1], high[stage + 1])
            )
            over = prices.cost > value
            result = np.where(over, -1, prices.compute), np.where(over, INFINITE, prices.memory)
            if pairs > _KEPT_PAIRS:
                return result
            kept[stage] = result
        return kept[stage]

    smallest = np.array([INFINITE], np.int64)
    for stage in range(stages - 1, -1, -1):
        smallest = np.minimum(priced(stage)[0], smallest[None, :]).max(axis=1)
    evenness = int(smallest[0])
    if evenness < 0:
        raise ValueError(f"no cuts have a bottleneck of {value} or less")

    peak = np.zeros(1, np.int64)
    for stage in range(stages - 1, -1, -1):
        times, memory = priced(stage)
        peak = np.maximum(np.where(times >= evenness, memory, INFINITE), peak[None, :]).min(axis=1)
    fewest = int(peak[0])

    # able[j]: stages s .. P-1 can be completed from cut s at position low[s] + j.
    able: NDArray[np.bool_] = np.ones(1, bool)
    allowed: list[NDArray[np.bool_]] = []
    for stage in range(stages - 1, -1, -1):
        times, memory = priced(stage)
        fine = (times >= evenness) & (memory <= fewest) & able[None, :]
        allowed.append(fine)
        able = np.asarray(fine.any(axis=1), bool)
    cuts = [0]
    for stage, fine in enumerate(reversed(allowed)):
        cuts.append(low[stage + 1] + int(fine[cuts[-1] - low[stage]].argmax()))
    return tuple(cuts)


def least_shortfall(problem: ChainProblem) -> Shortfall | None:
    """The least possible lack of memory: min over cuts of max over ranks of need - budget.

    Each stage recomputes the way that saves most. None when pins, colocation or the number of
    stages leave no cuts at all, whatever the memory.
    """
    tables = tables_of(problem)
    if tables.pinned is None:
        return None
    # On average over ranks at least this much is missing: the fewest bytes of all blocks.
    fewest = tables.static[-1] + min(tables.in_flight) * tables.least_kept[-1]
    fewest -= sum(pair.shared_bytes for pair in tables.tied)
    spare = -(-(fewest - sum(tables.room)) // tables.num_stages)
    step = max(1, fewest // tables.num_stages >> 6)
    while True:
        # With enough to spare the windows hold every cut vector that lacks less.
        windows = tables.windows(tables.ceiling, spare_bytes=spare)
        found = _least_lack(problem, windows, least_memory) if windows is not None else None
        if found is not None and found.short_bytes <= spare:
            return found
        spare += step
        step *= 2


def _least_lack(
    problem: ChainProblem,
    windows: CutWindows,
    memory_of: Callable[[ChainProblem, int, tuple[int, int], tuple[int, int]], I64],
) -> Shortfall | None:
    low, high = windows
    stages = len(low) - 1
    best = np.array([-INFINITE], np.int64)
    origins: list[I64] = []
    for stage in range(stages):
        poll()
        memory = memory_of(
            problem, stage, (low[stage], high[stage]), (low[stage + 1], high[stage + 1])
        )
        budget = int(problem.budget_bytes[stage])
        lack = np.where(memory >= INFINITE, INFINITE, memory - budget)
        worst = np.maximum(best[:, None], lack)
        origin = worst.argmin(axis=0)
        origins.append(origin)
        best = worst[origin, np.arange(worst.shape[1])]
    if int(best[0]) >= INFINITE:
        return None
    cuts = [high[stages]]
    for stage in range(stages - 1, -1, -1):
        cuts.append(low[stage] + int(origins[stage][cuts[-1] - low[stage + 1]]))
    cuts.reverse()
    lacks = []
    for stage in range(stages):
        start, end = cuts[stage], cuts[stage + 1]
        need = int(memory_of(problem, stage, (start, start), (end, end))[0, 0])
        lacks.append(need - int(problem.budget_bytes[stage]))
    stage = lacks.index(max(lacks))
    return Shortfall(lacks[stage], stage, cuts[stage], cuts[stage + 1], tuple(cuts))
