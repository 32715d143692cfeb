"""Where each cut may lie in a cut vector whose step value is at most a ceiling.

A stage j from position x may reach y only while its simplest bounds stay below the ceiling.
With X, Y, Z the prefix sums of the least t, f and b, S the total of t, E the least edges and C
the ceiling without the least tail:

- any order: X_x + M (X_y - X_x) <= C (the work before and on the stage);
- 1F1B, M >= w+2: 2 S + E - X_x + (M-w-2)(X_y - X_x) <= C, because the two waits are at least
  2 R - w t together;
- 1F1B, fewer: S + E + (M-1) f <= C and the same with b (order_bounds);
- GPipe: S + E + (M-1)(X_y - X_x) <= C.

The farthest y never falls as x grows, so greedy walks from both ends give windows that hold
every such cut vector.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from planner.schedules.prices import StagePrices
from planner.specs import Schedule

__all__ = ["cut_windows"]

I64 = NDArray[np.int64]


class _Reach:
    """Farthest end of a stage from a position, at most N."""

    def __init__(self, prices: StagePrices, ceiling: int) -> None:
        self.stages, self.m_all = prices.num_stages, prices.num_microbatches
        self.gpipe = prices.schedule is Schedule.GPIPE
        self.sums: list[int] = (prices.forward + prices.least_backward).tolist()
        self.forward: list[int] = prices.forward.tolist()
        self.backward: list[int] = prices.least_backward.tolist()
        self.room = ceiling - prices.fixed_tail - prices.least_optimizer
        edges = 0
        if self.stages > 1:
            interior = prices.edge_forward[1:-1, 1:-1] + prices.edge_backward[1:-1, 1:-1]
            edges = int(interior.min(axis=1).sum())
        self.idle = self.room - self.sums[-1] - edges
        """What the ceiling leaves above one pass through all stages."""

    def __call__(self, stage: int, position: int) -> int:
        sums, m_all = self.sums, self.m_all
        at = sums[position]
        if m_all == 1:
            return len(sums) - 1
        if self.gpipe:
            return bisect_right(sums, at + self.idle // (m_all - 1)) - 1
        far = at + (self.room - at) // m_all
        spare = m_all - 2 - (self.stages - 1 - stage)
        if spare >= 0:
            left = self.idle - sums[-1] + at
            if left < 0:
                return -1
            if spare:
                far = min(far, at + left // spare)
            return bisect_right(sums, far) - 1
        pace = self.idle // (m_all - 1)
        return min(
            bisect_right(sums, far) - 1,
            bisect_right(self.forward, self.forward[position] + pace) - 1,
            bisect_right(self.backward, self.backward[position] + pace) - 1,
        )

    def first_start(self, stage: int, end: int) -> int:
        """First position from which the stage gets to ``end``."""
        # Stages hold few blocks: look near the end first, then ever farther back.
        right, step = end, 1
        while self(stage, right) < end and right < len(self.sums) - 1:
            right += 1
        while right > 0 and self(stage, max(0, right - step)) >= end:
            right = max(0, right - step)
            step *= 2
        left = max(0, right - step + 1)
        while left < right:
            middle = (left + right) // 2
            if self(stage, middle) >= end:
                right = middle
            else:
                left = middle + 1
        return left


def cut_windows(prices: StagePrices, ceiling: int | None) -> tuple[I64, I64] | None:
    """``low[i] <= cut_i <= high[i]``, i = 0 .. P, for every cut of value <= ceiling.

    ``ceiling`` None sets no limit. None when no cut can be that good, or P > N.
    """
    count, stages = prices.num_blocks, prices.num_stages
    if stages > count:
        return None
    low = [*range(stages), count]
    high = [0, *range(count - stages + 1, count + 1)]
    if ceiling is not None:
        reach = _Reach(prices, ceiling)
        if reach.idle < 0:
            return None
        for i in range(1, stages + 1):
            high[i] = min(high[i], reach(i - 1, high[i - 1]))
            if high[i] < low[i]:
                return None
        for i in range(stages - 1, -1, -1):
            low[i] = max(low[i], reach.first_start(i, low[i + 1]))
            if low[i] > high[i]:
                return None
    return np.array(low, np.int64), np.array(high, np.int64)
