"""Improve words by moving operations out of critical blocks: tabu search as for job shops.

The longest path that sets the objective runs along ranks in blocks: operations back to back,
entered and left by a dependency. Only a change at the borders of a block can shorten it (Grabowski
et al. 1986; Nowicki and Smutnicki 1996): its last operation sooner, its first one later, others
moved behind the last or before the first, and W moved into idle time. A move is judged by the
heads before it and the tails behind it (Balas and Vazacopoulos 1998), the best one is made, and
its inverse is forbidden for a while.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from planner.deadlines import poll
from planner.schedules.zero_bubble_paths import Heads, Tails, heads_of, tails_of
from planner.schedules.zero_bubble_problem import Problem, Words

__all__ = ["Found", "improve"]

_REACH = 10
"""How far from the border of a block an operation may be moved within it."""
_GAPS = 4
"""How many idle times before and behind a block W are offered to."""
_PATIENCE = 40
"""Moves without a new best after which the search ends."""


@dataclass(frozen=True, eq=False)
class Found:
    """The best words met."""

    words: Words
    finish: list[int]
    late: int
    """Largest (finish - due)."""


class _Dice:
    """Reproducible numbers that break ties (Lehmer's generator)."""

    def __init__(self) -> None:
        self.state = 1

    def below(self, bound: int) -> int:
        self.state = self.state * 48271 % 2147483647
        return self.state % bound


def improve(
    problem: Problem,
    words: Words,
    due: list[int],
    *,
    goal: int = 0,
    most_moves: int = 200,
) -> tuple[Found, int]:
    """Search for words whose largest (finish - due) is at most the goal.

    Parameters
    ----------
    words
        Words that run and keep the limits; they are not changed.
    due
        By rank.
    goal
        Stop as soon as this is reached.
    most_moves
        Number of moves after which the search ends.

    Returns
    -------
    The best words met, and the number of moves made.

    Raises
    ------
    ValueError
        The words deadlock.
    """
    words = [list(word) for word in words]
    dice = _Dice()
    forbidden: dict[tuple[int, int, tuple[int, ...]], int] = {}
    heads = heads_of(problem, words)
    if heads is None:
        raise ValueError("these words deadlock")
    best: Found | None = None
    since = moves = 0
    while True:
        late = max(finish - latest for finish, latest in zip(heads.finish, due, strict=True))
        if best is None or late < best.late:
            best = Found([list(word) for word in words], list(heads.finish), late)
            since = moves
        if best.late <= goal or moves >= most_moves or moves - since > _PATIENCE:
            break
        poll()
        tails = tails_of(problem, words, heads, due)
        judged = []
        for rank, first, last in _critical_blocks(problem, words, heads, due, late, dice):
            for low, segment in _moves(problem, words[rank], heads, rank, first, last):
                estimate = _estimate(problem, words[rank], heads, tails, due, rank, low, segment)
                if estimate is not None:
                    judged.append((estimate, dice.below(1 << 20), rank, low, segment))
        judged.sort()
        moved = None
        for estimate, _, rank, low, segment in judged:
            if forbidden.get((rank, low, tuple(segment)), -1) >= moves and estimate >= best.late:
                continue
            high = low + len(segment)
            previous = words[rank][low:high]
            words[rank][low:high] = segment
            moved = heads_of(problem, words)
            if moved is None:
                words[rank][low:high] = previous
                continue
            forbidden[rank, low, tuple(previous)] = moves + 3 + dice.below(20)
            break
        if moved is None:
            break
        heads = moved
        moves += 1
    return best, moves


def _critical_blocks(
    problem: Problem, words: Words, heads: Heads, due: list[int], late: int, dice: _Dice
) -> list[tuple[int, int, int]]:
    """(rank, first, last) blocks of one longest path, last to first; ties by the dice."""
    codes, start = problem.codes, heads.start
    latest = [r for r, value in enumerate(heads.finish) if value - due[r] == late]
    rank = latest[dice.below(len(latest))]
    at = last = len(words[rank]) - 1
    blocks = []
    while True:
        word, starts = words[rank], start[rank]
        begin = starts[at]
        x = rank * codes + word[at]
        wanted = problem.source[x]
        place = -1
        if wanted >= 0:
            number = bisect_left(heads.place[x], at)
            if heads.arrival[wanted][number] == begin:
                place = heads.place[wanted][number]
        before = rank * codes + word[at - 1]
        busy_before = (
            at > 0 and starts[at - 1] + problem.duration[before] + problem.hold[before] == begin
        )
        if busy_before and (place < 0 or dice.below(2)):
            at -= 1
            continue
        blocks.append((rank, at, last))
        if place < 0:
            return blocks
        rank, at = wanted // codes, place
        last = at


def _moves(
    problem: Problem, word: list[int], heads: Heads, rank: int, first: int, last: int
) -> Iterator[tuple[int, list[int]]]:
    """(position, new content from there) of every move of the block first .. last."""
    moves: set[tuple[int, int]] = set()
    seen = {word[last]}
    for at in range(last - 1, max(first, last - _REACH) - 1, -1):
        if word[at] not in seen:
            seen.add(word[at])
            moves.add((at, last))
    for at in range(last - 1, max(first, last - _REACH) - 1, -1):
        if word[at] == word[last]:
            break
        moves.add((last, at))
    if first > 0:
        seen = {word[first]}
        for at in range(first + 1, min(last, first + _REACH) + 1):
            if word[at] not in seen:
                seen.add(word[at])
                moves.add((at, first))
        for at in range(first + 1, min(last, first + _REACH) + 1):
            if word[at] == word[first]:
                break
            moves.add((first, at))
    least_w = 2 * problem.num_chunks
    weights = [at for at in range(first, last + 1) if word[at] >= least_w]
    if weights:
        starts, base = heads.start[rank], rank * problem.codes
        gaps = 0
        for at in range(first, 0, -1):
            x = base + word[at - 1]
            if starts[at] > starts[at - 1] + problem.duration[x] + problem.hold[x]:
                moves.add((weights[0], at))
                gaps += 1
                if gaps == _GAPS:
                    break
        gaps = 0
        for at in range(last + 1, len(word)):
            x = base + word[at - 1]
            if starts[at] > starts[at - 1] + problem.duration[x] + problem.hold[x]:
                moves.add((weights[-1], at - 1))
                gaps += 1
                if gaps == _GAPS:
                    break
        moves.add((weights[-1], len(word) - 1))
    for origin, target in sorted(moves):
        if origin < target:
            yield origin, [*word[origin + 1 : target + 1], word[origin]]
        elif target < origin:
            yield target, [word[origin], *word[target:origin]]


def _estimate(
    problem: Problem,
    word: list[int],
    heads: Heads,
    tails: Tails,
    due: list[int],
    rank: int,
    low: int,
    segment: list[int],
) -> int | None:
    """Longest path through the segment once it stands at ``low``; None: not allowed.

    Exact but for paths that leave the segment and come back to it.
    """
    base, chunks, residue = rank * problem.codes, problem.num_chunks, problem.residue
    duration, hold, source, after = problem.duration, problem.hold, problem.source, problem.after
    limit = problem.limit[rank]
    count = [bisect_left(heads.place[x], low) for x in range(base, base + problem.codes)]
    if chunks == 1:
        open_now, left_over = count[0] - count[1], count[1] - count[2]
    else:
        open_now = count[0] + count[1] - count[2] - count[3]
        left_over = count[2] + count[3] - count[4] - count[5]
    now = 0
    if low:
        x = base + word[low - 1]
        now = heads.start[rank][low - 1] + duration[x] + hold[x]
    starts, numbers = [], []
    for code in segment:
        number = count[code]
        first = after[code]
        if first >= 0 and count[first] <= number:
            return None
        count[code] = number + 1
        if code < chunks:
            open_now += 1
            if open_now + residue * left_over > limit:
                return None
        elif code < 2 * chunks:
            open_now -= 1
            left_over += 1
        else:
            left_over -= 1
        x = base + code
        wanted = source[x]
        if wanted >= 0:
            arrival = heads.arrival[wanted][number]
            if arrival > now:
                now = arrival
        numbers.append(number)
        starts.append(now)
        now += duration[x] + hold[x]
    high = low + len(segment)
    way = -due[rank]
    if high < len(word):
        way = duration[base + word[high]] + tails.tail[rank][high]
    longest: int | None = None
    for at in range(len(segment) - 1, -1, -1):
        x = base + segment[at]
        way += hold[x]
        goes_to = problem.sink[x]
        if goes_to >= 0:
            other = tails.from_start[goes_to][numbers[at]] + problem.travel[x]
            if other > way:
                way = other
        way += duration[x]
        through = starts[at] + way
        if longest is None or through > longest:
            longest = through
    return longest
