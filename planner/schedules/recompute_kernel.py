"""What many stages recompute, as one compiled loop; the plain form is in :mod:`.prices`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ModeRows", "choose", "compiled_choose", "pays"]

I64 = NDArray[np.int64]


def pays() -> bool:
    """Whether the loop is compiled, or soon read from disk."""
    return "numba" in sys.modules


class ModeRows(NamedTuple):
    """The allowed modes whose times and bytes are sums over blocks, in the order that wins ties."""

    mode: I64
    """Place of the mode among all modes (R)."""
    kept: I64
    """Prefix sums of kept bytes (R, N+1)."""
    added: I64
    """Prefix sums of extra time (R, N+1)."""
    workspace: I64
    """Largest workspace of 2**level blocks from each block (R, levels, N)."""
    log: I64
    """floor(log2) of a number of blocks (N+1)."""


def choose(
    cells: Any, budget: Any, flight: Any, static: Any, buffers: Any, tied: Any,
    index: Any, kept: Any, added: Any, workspace: Any, log: Any, found: Any,
) -> None:  # fmt: skip
    """Fill ``found`` (3, K): extra, memory and mode of the cheapest way that fits.

    ``cells`` holds stage, start and end (3, K); ``found`` comes filled with what stands where
    nothing fits.
    """
    for cell in range(cells.shape[1]):
        stage, start, end = cells[0, cell], cells[1, cell], cells[2, cell]
        fixed = static[end] - static[start] + buffers
        for pair in range(tied.shape[0]):
            if start <= tied[pair, 0] and tied[pair, 1] < end:
                fixed -= tied[pair, 2]
        for row in range(index.shape[0]):
            extra = added[row, end] - added[row, start]
            if extra >= found[0, cell]:
                continue
            needed = fixed + flight[stage] * (kept[row, end] - kept[row, start])
            if end > start:
                level = log[end - start]
                needed += max(
                    workspace[row, level, start], workspace[row, level, end - (1 << level)]
                )
            if needed <= budget[stage]:
                found[0, cell] = extra
                found[1, cell] = needed
                found[2, cell] = index[row]


@cache
def compiled_choose() -> Callable[..., None]:
    """:func:`choose` compiled by numba, its machine code kept on disk where possible."""
    from numba import njit

    try:
        result: Callable[..., None] = njit(cache=True, nogil=True)(choose)
    except RuntimeError:  # no writable cache directory
        result = njit(nogil=True)(choose)
    return result
