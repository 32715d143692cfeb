"""Three ways to split a list of weights into P consecutive parts, as others do it.

Each returns the cuts (P+1 positions) and the largest part. They know no cut prices and no
memory, except the dynamic program, which takes a largest part size per stage as well.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import Any

import numpy as np


def _extend(cuts: list[int], prefix: list[int], parts: int, limit: int) -> bool:
    """Fill ``cuts`` by farthest reach; whether the last part ends at the end."""
    start, count = 0, len(prefix) - 1
    del cuts[1:]
    for _ in range(parts):
        start = bisect_right(prefix, prefix[start] + limit, start, count + 1) - 1
        cuts.append(start)
    return start == count


def bisection_on_the_limit(weights: list[int], parts: int) -> tuple[list[int], int]:
    """Halve an interval of limits with linear-partition probes until one limit is left.

    The balancing of DeepSpeed's ``partition_balanced`` before it changed its objective: bisect
    the limit from mean to total, each probe filling parts greedily on prefix sums. Here the
    limits are integers, so the answer is exact.
    """
    prefix = [0, *accumulate(weights)]
    low, high = max(max(weights), -(-prefix[-1] // parts)), prefix[-1]
    cuts = [0]
    while low < high:
        middle = (low + high) // 2
        if _extend(cuts, prefix, parts, middle):
            high = middle
        else:
            low = middle + 1
    _extend(cuts, prefix, parts, low)
    return cuts, low


def bisection_with_bids(weights: list[int], parts: int) -> tuple[list[int], int, int]:
    """Exact bisection (Pinar and Aykanat 2004): every probe moves a bound to a real part sum.

    A failed probe raises the lower bound to the smallest part that would have been one weight
    longer (the bid); a successful one lowers the upper bound to its largest part. Also returns
    the number of probes.
    """
    prefix = [0, *accumulate(weights)]
    count, total = len(weights), prefix[-1]
    low, high = max(max(weights), -(-total // parts)), total
    best = [0] * parts + [count]
    probes = 0
    while low < high:
        middle = (low + high) // 2
        probes += 1
        start, largest, bid = 0, 0, total
        cuts = [0]
        for _ in range(parts - 1):
            spent = prefix[start]
            end = bisect_right(prefix, spent + middle, start, count + 1) - 1
            part = prefix[end] - spent
            if part > largest:
                largest = part
            if end < count and prefix[end + 1] - spent < bid:
                bid = prefix[end + 1] - spent
            cuts.append(end)
            start = end
        rest = total - prefix[start]
        if rest <= middle:
            high = max(largest, rest)
            best = [*cuts, count]
        else:
            low = min(bid, rest)
    if prefix[best[1]] == total and parts > 1:
        # Nothing succeeded before the bounds met: fill once at the limit.
        best = [0]
        _extend(best, prefix, parts, high)
    return best, high, probes


def compiled_program() -> Any:
    """The O(N^2 P) dynamic program of the textbook, compiled with numba.

    ``best[s][k] = min over j of max(best[s-1][j], W[k] - W[j])`` over exactly P non-empty
    parts, where part s on [j, k) must also hold ``S[k] - S[j] <= room[s]`` bytes; states and
    the smallest start that fits are all the pruning it has. Returns a function of
    (prefix, bytes a stage and position (P, N+1), room (P)).
    """
    from numba import njit

    @njit
    def program(prefix, held, room):
        parts, count = len(room), len(prefix) - 1
        best = np.full(count + 1, np.int64(1) << 62)
        best[0] = 0
        origin = np.zeros((parts, count + 1), np.int64)
        for part in range(parts):
            following = np.full(count + 1, np.int64(1) << 62)
            for end in range(part + 1, count + 1):
                for start in range(end - 1, part - 1, -1):
                    if held[part, end] - held[part, start] > room[part]:
                        break
                    value = max(best[start], prefix[end] - prefix[start])
                    if value < following[end]:
                        following[end] = value
                        origin[part, end] = start
            best = following
        cuts = np.zeros(parts + 1, np.int64)
        cuts[parts] = count
        for part in range(parts - 1, -1, -1):
            cuts[part] = origin[part, cuts[part + 1]]
        return best[count], cuts

    return program


def largest_part(weights: list[int], cuts: list[int]) -> int:
    """Largest part of some cuts; the check on all three."""
    prefix = [0, *accumulate(weights)]
    assert cuts[0] == 0
    assert cuts[-1] == len(weights)
    return max(prefix[b] - prefix[a] for a, b in pairwise(cuts))
