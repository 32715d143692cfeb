"""The loop of the simulator: plain Python on lists, or compiled on arrays by the same source."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["compiled_walk", "walk"]


def walk(
    rank_start: Any,
    need: Any,
    lag: Any,
    durations: Any,
    hold: Any,
    joined: Any,
    position: Any,
    waiter: Any,
    start: Any,
    end: Any,
) -> int:
    """Run every rank as far as it goes, waking the rank that waits for what has just ended.

    ``position``, ``waiter``, ``start`` and ``end`` are filled in place (-1: not yet); ``hold``
    and ``joined`` may be empty. Returns how many operations ran: fewer than all is a deadlock.
    An operation has at most one waiter, the same micro-batch on the neighbouring stage, so every
    operation is looked at a constant number of times.
    """
    ranks = len(rank_start) - 1
    holds, pairs = len(hold) > 0, len(joined) > 0
    free = [0] * ranks
    ready = list(range(ranks))
    done = 0
    while len(ready) > 0:
        rank = ready.pop()
        at, last = position[rank], rank_start[rank + 1]
        begin = free[rank]
        while at < last:
            wanted = need[at]
            if wanted >= 0:
                if end[wanted] < 0:
                    waiter[wanted] = rank
                    break
                arrival = end[wanted] + lag[at]
                if arrival > begin:
                    begin = arrival
            width = 1
            if pairs and joined[at]:
                width = 2
                wanted = need[at + 1]
                if wanted >= 0:
                    if end[wanted] < 0:
                        waiter[wanted] = rank
                        break
                    arrival = end[wanted] + lag[at + 1]
                    if arrival > begin:
                        begin = arrival
            finish = begin + durations[at]
            for operation in range(at, at + width):
                start[operation] = begin
                end[operation] = finish
                if waiter[operation] >= 0:
                    ready.append(waiter[operation])
            begin = finish
            if holds:
                # The two sends of a pair run side by side, as they arrive.
                longest = hold[at]
                if width == 2 and hold[at + 1] > longest:
                    longest = hold[at + 1]
                begin += longest
            at += width
            done += width
            free[rank] = begin
        position[rank] = at
    return done


@cache
def compiled_walk() -> Callable[..., int]:
    """:func:`walk` compiled by numba, its machine code kept on disk where that is writable."""
    from numba import njit

    try:
        result: Callable[..., int] = njit(cache=True, nogil=True)(walk)
    except RuntimeError:  # no writable cache directory
        result = njit(nogil=True)(walk)
    return result
