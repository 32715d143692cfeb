"""How evenly blocks can be shared by ranks at best, whatever their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["least_largest_load"]

I64 = NDArray[np.int64]


def least_largest_load(times: I64 | Sequence[int], ranks: int) -> int:
    """A load that some rank reaches however the blocks are dealt out (a lower bound).

    The average and the largest block; and, with a the commonest block time, n its count and h
    any other block: a load L lets a rank hold floor(L / a) of the common ones, so that all ranks
    together must hold n, and the rank of h, which holds at least what the others cannot, must
    hold h beside them.

    Examples
    --------
    96 equal blocks on 16 ranks are 6 each; one more block of half the size makes it 6.5 somewhere.

    >>> least_largest_load([10] * 96, 16), least_largest_load([10] * 96 + [5], 16)
    (60, 65)
    >>> least_largest_load([10] * 97, 16)
    70
    """
    values, counts = np.unique(np.asarray(times, np.int64), return_counts=True)
    total, largest = int((values * counts).sum()), int(values[-1])
    common = int(values[counts.argmax()])
    count = int(counts.max())
    low = max(-(-total // ranks), largest)
    if common == 0:
        return low
    others = values[values != common].tolist()

    def possible(load: int) -> bool:
        each = load // common
        if ranks * each < count:
            return False
        left = max(0, count - (ranks - 1) * each)
        return all(other + left * common <= load for other in others)

    high = max(low, total)
    while low < high:
        middle = (low + high) // 2
        if possible(middle):
            high = middle
        else:
            low = middle + 1
    return low
