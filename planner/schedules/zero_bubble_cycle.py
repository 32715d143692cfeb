"""List scheduling of a folded pipeline whose ranks repeat one cycle of F, F', I', I.

Greedy choices let the two chunks of a rank drift apart, and what one of them gains now the
pipeline loses in every later micro-batch. Ranks that wait for the next operation of a fixed cycle
fall into the steady rhythm of ZB-V (Qi et al. 2024, section 6) at any times and limits; W fills
the gaps, or makes room.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from planner.deadlines import poll
from planner.schedules.zero_bubble_problem import EVENTS_A_POLL, Problem, Words

__all__ = ["CycleRule", "cyclic_words"]

_NEVER = 1 << 62


@dataclass(frozen=True)
class CycleRule:
    """How a free rank chooses."""

    cycle: tuple[int, int, int, int]
    """Codes of F, F', I and I' in turn."""
    first_room: list[float]
    """Most activations of its first chunk a rank holds, shape (P,)."""
    weight_delay: float = 0.0
    """Part of a W's time by which it may delay an operation that is on its way."""


def cyclic_words(problem: Problem, rule: CycleRule) -> tuple[Words, list[int]] | None:
    """The words that a rule gives, and when each rank finishes (P,); None if ranks deadlock."""
    ranks, sink, duration = problem.num_ranks, problem.sink, problem.duration
    words: Words = [[] for _ in range(ranks)]
    arrivals: list[list[int]] = [[] for _ in range(ranks * 6)]
    count = [0] * (ranks * 6)
    turn, free = [0] * ranks, [0] * ranks
    left = problem.num_operations
    events: list[tuple[int, int]] = [(0, rank) for rank in range(ranks)]
    looked = 0
    while events:
        looked += 1
        if looked % EVENTS_A_POLL == 0:
            poll()
        now, rank = heappop(events)
        if now < free[rank]:
            continue
        step, soon, blocked = _next_in_cycle(problem, rule, rank, turn[rank], now, count, arrivals)
        base = rank * 6
        if step >= 0:
            chosen = rule.cycle[(turn[rank] + step) % 4]
            turn[rank] += step + 1
        else:
            chosen = _weight(count, base)
            if chosen >= 0 and not blocked:
                spent = duration[base + chosen]
                if now + spent > soon + rule.weight_delay * spent:
                    chosen = -1
        if chosen < 0:
            if soon < _NEVER:
                heappush(events, (soon, rank))
            continue
        x = base + chosen
        count[x] += 1
        left -= 1
        words[rank].append(chosen)
        end = now + duration[x]
        if sink[x] >= 0:
            arrival = end + problem.travel[x]
            arrivals[x].append(arrival)
            heappush(events, (arrival, sink[x] // 6))
        free[rank] = end + problem.hold[x]
        heappush(events, (free[rank], rank))
    return None if left else (words, free)


def _next_in_cycle(
    problem: Problem,
    rule: CycleRule,
    rank: int,
    turn: int,
    now: int,
    count: list[int],
    arrivals: list[list[int]],
) -> tuple[int, int, bool]:
    """(steps to the operation that runs now or -1, when it arrives, whether it lacks memory).

    Operations of the cycle that have not begun on this rank, are all done, or that the limit
    forbids even after every W, are passed over.
    """
    base, limit, residue = rank * 6, problem.limit[rank], problem.residue
    f, second_f, i, second_i, w, second_w = count[base : base + 6]
    held = f + second_f - i - second_i
    full = held + 1 + residue * (i + second_i - w - second_w) > limit
    for step in range(4):
        code = rule.cycle[(turn + step) % 4]
        x = base + code
        number = count[x]
        if number == problem.num_microbatches:
            continue
        blocked = False
        if code < 2:
            if held + 1 > limit:
                continue
            blocked = full
            if code == 0:
                room = rule.first_room[rank]
                if f + 2 - second_f > limit or f + 1 - i > room:
                    continue
                blocked = full or f + 1 - i + residue * (i - w) > room
        first, wanted = problem.after[code], problem.source[x]
        ready = first < 0 or count[base + first] > number
        if not ready or (wanted >= 0 and number >= len(arrivals[wanted])):
            if number == 0:
                continue
            return -1, _NEVER, False
        if wanted >= 0 and arrivals[wanted][number] > now:
            return -1, arrivals[wanted][number], blocked
        return (-1, _NEVER, True) if blocked else (step, now, False)
    return -1, _NEVER, False


def _weight(count: list[int], base: int) -> int:
    """The W to run next, of the chunk that is behind; -1: none."""
    i, second_i, w, second_w = count[base + 2 : base + 6]
    if i > w and (second_i <= second_w or w < second_w):
        return 4
    return 5 if second_i > second_w else -1
