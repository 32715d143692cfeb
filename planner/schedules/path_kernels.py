"""Shortest paths through the windows of a chain's cuts, as compiled loops.

The plain forms are the methods of :class:`~planner.schedules.stage_terms.StageTerms` that use
them; ``reach`` comes with its first (or last) row filled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["compiled_path", "largest_after", "pays", "shortest_after", "shortest_before"]


def pays() -> bool:
    """Whether the loops are compiled, or soon read from disk."""
    return "numba" in sys.modules


def largest_after(cell: Any, possible: Any, edge: Any, reach: Any, unreachable: Any) -> None:
    """Least largest cell of stages i..P-1; ``possible`` and ``edge`` are not looked at."""
    stages, width = cell.shape[0], cell.shape[1]
    for i in range(stages - 1, -1, -1):
        for x in range(width):
            best = max(cell[i, x, 0], reach[i + 1, 0])
            for y in range(1, width):
                best = min(best, max(cell[i, x, y], reach[i + 1, y]))
            reach[i, x] = best


def shortest_after(cost: Any, possible: Any, edge: Any, reach: Any, unreachable: Any) -> None:
    """Least sum of cost and edges of stages i..P-1, the edge of cut i included."""
    stages, width = cost.shape[0], cost.shape[1]
    for i in range(stages - 1, -1, -1):
        for x in range(width):
            best = unreachable
            for y in range(width):
                if possible[i, x, y]:
                    best = min(best, cost[i, x, y] + reach[i + 1, y])
            reach[i, x] = min(best + edge[i, x], unreachable)


def shortest_before(cost: Any, possible: Any, edge: Any, reach: Any, unreachable: Any) -> None:
    """Least sum of cost and edges of stages 0..i-1, the edge of cut i included."""
    stages, width = cost.shape[0], cost.shape[1]
    for i in range(stages):
        for y in range(width):
            best = unreachable
            for x in range(width):
                if possible[i, x, y]:
                    best = min(best, cost[i, x, y] + reach[i, x])
            reach[i + 1, y] = min(best + edge[i + 1, y], unreachable)


@cache
def compiled_path(path: Callable[..., None]) -> Callable[..., None]:
    """One of the loops compiled by numba, its machine code kept on disk where possible."""
    from numba import njit

    try:
        result: Callable[..., None] = njit(cache=True, nogil=True)(path)
    except RuntimeError:  # no writable cache directory
        result = njit(nogil=True)(path)
    return result
