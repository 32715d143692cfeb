"""Shortest paths through the windows of a chain's cuts, as compiled loops.

The plain forms stand where they are used, in :class:`~planner.schedules.stage_terms.StageTerms`
and :mod:`~planner.schedules.prefix_walks`; ``reach`` comes with its first (or last) row filled.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

__all__ = [
    "alive_walks",
    "balanced",
    "compiled_path",
    "largest_after",
    "pays",
    "shortest_after",
    "shortest_before",
]


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


def balanced(cell: Any, cap: Any, load: Any, reach: Any, choice: Any) -> None:
    """Least sum of squares of ``load`` over stages i..P-1 with every cell <= ``cap``.

    ``reach`` (float64) comes filled with infinity but for its last entry, ``choice`` with zeros.
    """
    stages, width = cell.shape[0], cell.shape[1]
    for i in range(stages - 1, -1, -1):
        for x in range(width):
            best, at = math.inf, 0
            for y in range(width):
                if cell[i, x, y] <= cap:
                    found = load[i, x, y] * load[i, x, y] + reach[i + 1, y]
                    if found < best:
                        best, at = found, y
            reach[i, x], choice[i, x] = best, at


def alive_walks(
    alive: Any, forward: Any, backward: Any, before: Any, after: Any, both: Any,
    microbatches: Any, room: Any, unreachable: Any,
) -> None:  # fmt: skip
    """Clear the cells of ``alive`` that no walk below ``room`` passes
    (:func:`~planner.schedules.prefix_walks.surviving_stages`)."""
    stages, width = alive.shape[0], alive.shape[1]
    state = np.zeros((2, 4, width), np.int64)  # most f, most b, sent, tail
    state[0, 2, :] = -unreachable
    reached = np.zeros((2, width), np.bool_)
    reached[0, 0] = True
    for q in range(stages):
        now, then = q % 2, (q + 1) % 2
        state[then, :, :] = unreachable
        reached[then, :] = False
        later = stages - 1 - q
        few = min(later, microbatches - 1)
        for x in range(width):
            for y in range(width):
                if not alive[q, x, y]:
                    continue
                alive[q, x, y] = False
                if not reached[now, x]:
                    continue
                f, b, rest = forward[q, x, y], backward[q, x, y], after[q + 1, y]
                t = f + b
                f_max, b_max = max(state[now, 0, x], f), max(state[now, 1, x], b)
                first, last = max(rest, few * f_max), max(rest, few * b_max)
                behind = max(state[now, 3, x], (microbatches - 1) * b_max)
                if microbatches >= later + 2:
                    own = before[q, x] + (microbatches - later) * t + first
                    behind = max(behind, (microbatches - 1 - later) * t + last)
                else:
                    own = before[q, x] + t + few * f_max
                away = max(state[now, 2, x] + both[q, x] + t, own)
                if max(away + last, before[q, x] + t + first + behind) >= room:
                    continue
                alive[q, x, y] = True
                reached[then, y] = True
                state[then, 0, y] = min(state[then, 0, y], f_max)
                state[then, 1, y] = min(state[then, 1, y], b_max)
                state[then, 2, y] = min(state[then, 2, y], away)
                state[then, 3, y] = min(state[then, 3, y], behind)
    leads = np.zeros(width, np.bool_)
    leads[0] = True
    for q in range(stages - 1, -1, -1):
        kept = np.zeros(width, np.bool_)
        for x in range(width):
            for y in range(width):
                if alive[q, x, y]:
                    alive[q, x, y] = leads[y]
                    kept[x] |= leads[y]
        leads = kept


@cache
def compiled_path(path: Callable[..., None]) -> Callable[..., None]:
    """One of the loops compiled by numba, its machine code kept on disk where possible."""
    from numba import njit

    try:
        result: Callable[..., None] = njit(cache=True, nogil=True)(path)
    except RuntimeError:  # no writable cache directory
        result = njit(nogil=True)(path)
    return result
