"""The 1F1B recurrence of :mod:`~planner.schedules.simulate`, one compiled loop for candidates."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["compiled_recurrence", "pays", "recurrence"]

I64 = NDArray[np.int64]

_MOST_OPERATIONS = 20_000_000
"""What is run without a look at the deadline (some 40 ms); longer timelines jump over periods."""


def pays(ranks: int, steps: int, candidates: int) -> bool:
    """Whether the loop is compiled, or soon read from disk, and short."""
    return "numba" in sys.modules and ranks * steps * candidates <= _MOST_OPERATIONS


def recurrence(
    f: Any, b: Any, ef: Any, eb: Any, microbatches: Any, later: Any, turnaround: Any, finish: Any
) -> None:
    """Fill ``finish`` (P, K) with the ends of the last operations; shapes as of ``f``, (P, K).

    ``later`` ranks follow the known ones; B comes back to the last known rank ``turnaround`` (K)
    after its F left there.
    """
    ranks, candidates = f.shape
    depth, slots = ranks + later, later + 1
    f_end = np.zeros(ranks, np.int64)
    free = np.zeros(ranks, np.int64)
    history = np.zeros(slots, np.int64)
    for k in range(candidates):
        f_end[:] = 0
        free[:] = 0
        history[:] = 0
        for step in range(microbatches + depth - 1):
            first = max(0, step - microbatches + 1)
            top = min(step, ranks - 1)
            for s in range(top, first - 1, -1):
                begin = free[s]
                if s > 0 and f_end[s - 1] + ef[s - 1, k] > begin:
                    begin = f_end[s - 1] + ef[s - 1, k]
                free[s] = begin + f[s, k]
                f_end[s] = free[s]
            if first <= top and top == ranks - 1:
                history[step % slots] = f_end[top]
            if step >= depth - 1:
                arrival = history[(step - later) % slots] + turnaround[k]
                for s in range(ranks - 1, -1, -1):
                    if s < ranks - 1:
                        arrival += eb[s, k]
                    if free[s] > arrival:
                        arrival = free[s]
                    arrival += b[s, k]
                    free[s] = arrival
        finish[:, k] = free


@cache
def compiled_recurrence() -> Callable[..., None]:
    """:func:`recurrence` compiled by numba, its machine code kept on disk where possible."""
    from numba import njit

    try:
        result: Callable[..., None] = njit(cache=True, nogil=True)(recurrence)
    except RuntimeError:  # no writable cache directory
        result = njit(nogil=True)(recurrence)
    return result
