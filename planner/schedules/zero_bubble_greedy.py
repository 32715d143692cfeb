"""List scheduling of split backwards under a memory limit: one rule of thumb, one order.

Simulated time runs forward; whenever a rank is free it takes an operation that could start now,
or waits for one that is known to arrive soon. The choices follow the heuristic of the Zero
Bubble paper (Qi et al. 2024, section 3.1): fill the warm-up with forwards up to the memory limit,
then prefer I, keep F going, and fill gaps with W. What the paper leaves as binary options are the
fields of :class:`Rule` here.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from planner.deadlines import poll
from planner.schedules.zero_bubble_problem import EVENTS_A_POLL, Problem, Words

__all__ = ["Rule", "greedy_words"]

_NEVER = 1 << 62


@dataclass(frozen=True)
class Rule:
    """How a free rank chooses."""

    in_flight: list[int]
    """Chunk activations before their I that each rank aims at, shape (P,)."""
    eager: bool = True
    """Run an F of the first chunk beyond that aim rather than idle."""
    fill_first: bool = False
    """Below the aim an F goes before an I that is ready too."""
    forward_delay: float = 0.0
    """Part of an F's time by which it may delay an I that is on its way."""
    weight_delay: float = 0.0
    """Part of a W's time by which it may delay an operation that is on its way."""
    first_room: list[float] | None = None
    """Folded: most activations of its first chunk a rank holds, shape (P,); None: any."""
    prefer: tuple[int, ...] | None = None
    """Codes of F and I, first choice first; None: I, then F."""


def greedy_words(problem: Problem, rule: Rule) -> tuple[Words, list[int]]:
    """The words that a rule gives, and when each rank finishes (P,).

    No rule can deadlock: I and W always fit, and on a folded pipeline an F of the first chunk
    leaves room for the second chunk's F of the oldest micro-batch that still needs it.
    """
    ranks, codes, chunks = problem.num_ranks, problem.codes, problem.num_chunks
    total, residue, after = problem.num_microbatches, problem.residue, problem.after
    source, sink, duration = problem.source, problem.sink, problem.duration
    travel, hold, limits = problem.travel, problem.hold, problem.limit
    forward_delay, weight_delay = rule.forward_delay, rule.weight_delay
    steady, filling = _preferences(chunks, rule)
    words: Words = [[] for _ in range(ranks)]
    arrivals: list[list[int]] = [[] for _ in range(ranks * codes)]
    count = [0] * (ranks * codes)
    activations, residues, free = [0] * ranks, [0] * ranks, [0] * ranks
    # A rank is looked at when it becomes free and when something arrives; both may repeat.
    events: list[tuple[int, int]] = [(0, rank) for rank in range(ranks)]
    looked = 0
    while events:
        looked += 1
        if looked % EVENTS_A_POLL == 0:
            poll()
        now, rank = heappop(events)
        if now < free[rank]:
            continue
        base = rank * codes
        waiting = residues[rank]
        below = activations[rank] < rule.in_flight[rank]
        fits = activations[rank] + 1 + residue * waiting <= limits[rank]
        may_start = fits and (below or rule.eager)
        if may_start and chunks == 2:
            may_start = _leaves_room(problem, rule, rank, count)
        chosen = -1
        soon = soon_backward = _NEVER
        for code in filling if below else steady:
            if code < chunks and not (fits if code else may_start):
                continue
            x = base + code
            number = count[x]
            first = after[code]
            if number == total or (first >= 0 and count[base + first] <= number):
                continue
            wanted = source[x]
            if wanted >= 0:
                known = arrivals[wanted]
                if number >= len(known):
                    continue
                arrival = known[number]
                if arrival > now:
                    if arrival < soon:
                        soon = arrival
                    if code >= chunks and arrival < soon_backward:
                        soon_backward = arrival
                    continue
            if chosen < 0:
                chosen = code
        if 0 <= chosen < chunks:
            spent = duration[base + chosen]
            if now + spent > soon_backward + forward_delay * spent:
                chosen = -1
                soon = min(soon, soon_backward)
        if chosen < 0 and waiting:
            code = 2 if chunks == 1 else _oldest_weight(count, base)
            spent = duration[base + code]
            if now + spent <= soon + weight_delay * spent:
                chosen = code
        if chosen < 0:
            if soon < _NEVER:
                heappush(events, (soon, rank))
            continue
        x = base + chosen
        count[x] += 1
        if chosen < chunks:
            activations[rank] += 1
        elif chosen < 2 * chunks:
            activations[rank] -= 1
            residues[rank] += 1
        else:
            residues[rank] -= 1
        words[rank].append(chosen)
        end = now + duration[x]
        goes_to = sink[x]
        if goes_to >= 0:
            arrival = end + travel[x]
            arrivals[x].append(arrival)
            heappush(events, (arrival, goes_to // codes))
        free[rank] = end + hold[x]
        heappush(events, (free[rank], rank))
    return words, free


def _preferences(chunks: int, rule: Rule) -> tuple[list[int], list[int]]:
    """Codes of F and I in the order they are preferred: at the aim, and below it."""
    steady = list(rule.prefer or (*range(chunks, 2 * chunks), *reversed(range(chunks))))
    if not rule.fill_first:
        return steady, steady
    return steady, sorted(steady, key=lambda code: code >= chunks)


def _leaves_room(problem: Problem, rule: Rule, rank: int, count: list[int]) -> bool:
    """Whether one more F of a folded rank's first chunk keeps to its share of the memory."""
    base = rank * 6
    started, second, ended, weights = (count[base + code] for code in (0, 1, 2, 4))
    # All but those F once every W is done, and one of the second chunk.
    if started + 2 - second > problem.limit[rank]:
        return False
    if rule.first_room is None:
        return True
    held = started + 1 - ended + problem.residue * (ended - weights)
    return held <= rule.first_room[rank]


def _oldest_weight(count: list[int], base: int) -> int:
    """W of the folded rank's chunk that is behind, if it has any to do; else the other one's."""
    first, second = count[base + 4], count[base + 5]
    if count[base + 2] <= first or (count[base + 3] > second and second <= first):
        return 5
    return 4
