"""Longest paths through the words of a pipeline: when operations start, and what follows them.

The head of an operation is its start; its tail is the longest way from its end to the objective,
max over ranks of (finish - due). An operation is critical where head + duration + tail equals the
objective: the vocabulary of job shops (Balas and Vazacopoulos 1998, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.schedules.zero_bubble_problem import Problem, Words

__all__ = ["Heads", "Tails", "heads_of", "tails_of"]


@dataclass(frozen=True, eq=False)
class Heads:
    """A run of the words from time 0."""

    start: list[list[int]]
    """By rank and position."""
    finish: list[int]
    """By rank, its last blocking send included."""
    arrival: list[list[int]]
    """By x and number: when what the operation sends is there."""
    place: list[list[int]]
    """By x and number: its position in the rank's word."""
    pieces: list[tuple[int, int, int]]
    """(rank, first, last) stretches of the words in an order that respects all dependencies."""


@dataclass(frozen=True, eq=False)
class Tails:
    """What follows every operation."""

    tail: list[list[int]]
    """By rank and position."""
    from_start: list[list[int]]
    """By x and number: duration + tail."""


def heads_of(problem: Problem, words: Words) -> Heads | None:
    """Run the words; None where they deadlock."""
    ranks, codes = problem.num_ranks, problem.codes
    source, duration = problem.source, problem.duration
    travel, hold = problem.travel, problem.hold
    start: list[list[int]] = [[] for _ in range(ranks)]
    arrival: list[list[int]] = [[] for _ in range(ranks * codes)]
    place: list[list[int]] = [[] for _ in range(ranks * codes)]
    waiter = [-1] * (ranks * codes)
    position, free = [0] * ranks, [0] * ranks
    pieces = []
    ready = list(range(ranks - 1, -1, -1))
    left = sum(map(len, words))
    while ready:
        rank = ready.pop()
        word, base, starts = words[rank], rank * codes, start[rank]
        first = at = position[rank]
        now, last = free[rank], len(word)
        while at < last:
            x = base + word[at]
            places = place[x]
            wanted = source[x]
            if wanted >= 0:
                known = arrival[wanted]
                number = len(places)
                if number >= len(known):
                    waiter[wanted] = rank
                    break
                if known[number] > now:
                    now = known[number]
            places.append(at)
            starts.append(now)
            now += duration[x]
            arrival[x].append(now + travel[x])
            if waiter[x] >= 0:
                ready.append(waiter[x])
                waiter[x] = -1
            now += hold[x]
            at += 1
        if at > first:
            pieces.append((rank, first, at))
            left -= at - first
        position[rank], free[rank] = at, now
    if left:
        return None
    return Heads(start, free, arrival, place, pieces)


def tails_of(problem: Problem, words: Words, heads: Heads, due: list[int]) -> Tails:
    """Longest ways from every operation to the largest (finish - due) over the ranks."""
    ranks, codes = problem.num_ranks, problem.codes
    sink, duration, travel, hold = problem.sink, problem.duration, problem.travel, problem.hold
    tail = [[0] * len(word) for word in words]
    from_start = [[0] * problem.num_microbatches for _ in range(ranks * codes)]
    number = [problem.num_microbatches] * (ranks * codes)
    after = [-value for value in due]
    for rank, first, last in reversed(heads.pieces):
        word, base, tails = words[rank], rank * codes, tail[rank]
        way = after[rank]
        for at in range(last - 1, first - 1, -1):
            x = base + word[at]
            number[x] -= 1
            way += hold[x]
            goes_to = sink[x]
            if goes_to >= 0:
                other = from_start[goes_to][number[x]] + travel[x]
                if other > way:
                    way = other
            tails[at] = way
            way += duration[x]
            from_start[x][number[x]] = way
        after[rank] = way
    return Tails(tail, from_start)
