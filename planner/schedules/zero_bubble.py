"""Automatic zero bubble: an order fitted to uneven stages under a memory limit a rank.

ZB-1p and ZB-2p of the Zero Bubble paper (Qi et al. 2024, section 3) are the limits P and 2P. Many
rules of thumb are run (:mod:`planner.schedules.zero_bubble_greedy`), together with the fixed
orders that keep the limits; the best of them are improved by moving operations out of the
critical path (:mod:`planner.schedules.zero_bubble_search`), until a proven bound is reached or
the work is spent. Work is counted in operations, so that the same question has the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from planner.deadlines import poll
from planner.operations import Order
from planner.schedules import folded_orders, one_way_orders
from planner.schedules.timeline import StageTimes
from planner.schedules.zero_bubble_bounds import span_bounds
from planner.schedules.zero_bubble_cycle import CycleRule, cyclic_words
from planner.schedules.zero_bubble_greedy import Rule, greedy_words
from planner.schedules.zero_bubble_paths import heads_of
from planner.schedules.zero_bubble_problem import (
    Problem,
    Words,
    make_problem,
    order_of_words,
    words_of_order,
)
from planner.schedules.zero_bubble_search import improve
from planner.specs import Schedule, Sends

__all__ = ["automatic_order"]

Effort = Literal["quick", "full"]
Cost = tuple[int, int]

# (aim of the activations in flight, eager, fill first, forward delay, weight delay). Most useful
# first: on random uneven pipelines each rule added the most to those before it.
_CHAIN_RULES = (
    ("double", True, True, 0.5, 1.0),
    ("single", False, True, 1.0, 0.0),
    ("double", False, True, 1.0, 1.0),
    ("double", False, True, 1.0, 0.5),
    ("beats", False, True, 1.0, 0.5),
    ("single", True, False, 0.5, 0.0),
    ("single", True, True, 0.5, 1.0),
    ("middle", False, True, 1.0, 0.5),
    ("early", False, False, 0.5, 0.5),
    ("early", True, True, 1.0, 1.0),
    ("single", True, True, 0.5, 0.0),
    ("beats", False, True, 1.0, 0.0),
    ("single", False, False, 0.5, 0.0),
    ("single", True, False, 0.0, 1.0),
    ("double", True, True, 0.0, 1.0),
    ("single", False, True, 0.5, 0.5),
)
# (room of the first chunk, fill first, forward delay, weight delay, preference); the codes of the
# preference are F, F', I, I'.
_FOLDED_RULES = (
    ("half", False, 1.0, 0.5, (1, 3, 2, 0)),
    ("share", True, 1.0, 0.0, (1, 3, 2, 0)),
    ("more", True, 0.5, 1.0, (1, 3, 2, 0)),
    ("more", True, 1.0, 0.0, (1, 2, 3, 0)),
    ("most", True, 1.0, 0.5, (1, 3, 2, 0)),
    ("share", False, 1.0, 1.0, (2, 1, 3, 0)),
    ("share", False, 0.5, 0.5, (3, 2, 1, 0)),
    ("most", False, 1.0, 0.0, (1, 3, 2, 0)),
    ("share", False, 1.0, 0.5, (3, 2, 1, 0)),
    ("most", False, 1.0, 0.5, (2, 1, 3, 0)),
    ("half", False, 1.0, 1.0, (3, 1, 2, 0)),
    ("half", True, 0.0, 0.0, (1, 2, 3, 0)),
    ("share", True, 1.0, 1.0, (1, 3, 2, 0)),
    ("more", False, 0.0, 0.0, (2, 3, 1, 0)),
)
# (room of the first chunk, cycle, weight delay).
_CYCLES = (
    ("share", (0, 1, 3, 2), 0.5),
    ("share", (0, 1, 3, 2), 0.0),
    ("more", (0, 2, 1, 3), 0.5),
    ("more", (0, 1, 2, 3), 0.0),
    ("half", (0, 1, 2, 3), 0.0),
    ("half", (0, 2, 1, 3), 0.0),
    ("more", (0, 3, 2, 1), 0.0),
    ("more", (0, 3, 1, 2), 0.0),
    ("share", (0, 1, 3, 2), 1.0),
)


@dataclass(frozen=True)
class _Work:
    """How much is tried; counted, so that no clock decides. Measured in operations of a run."""

    rules: int
    starts: int
    """Words that are improved."""
    moves: int
    """Moves of them all."""
    every_order: bool
    """Fixed orders that take longer to build, too."""


def _work(effort: Effort, operations: int) -> _Work:
    """Enough for short pipelines, less of it where every run is long."""
    if effort == "quick":
        rules = max(2, min(6, 150_000 // operations))
        return _Work(rules, 1, min(30, 24_000 // operations), False)
    moves = max(8, min(600, 90 + 200_000 // operations, 2_200_000 // operations))
    starts = max(4, min(10, 3_000 // operations))
    return _Work(max(4, 1_000_000 // operations), starts, moves, True)


def automatic_order(
    num_ranks: int,
    num_microbatches: int,
    *,
    folded: bool = False,
    times: StageTimes | None = None,
    activation_limit: Sequence[float] | None = None,
    freed_at_i: float = 0.0,
    aim: Literal["span", "makespan"] = "span",
    sends: Sends = Sends.OVERLAPPED,
    effort: Effort = "full",
) -> Order:
    """A short order of F, I and W that keeps every rank within its memory.

    Parameters
    ----------
    num_ranks, num_microbatches
        P and M, at least 1.
    folded
        Rank r holds chunks r and 2P-1-r instead of stage r.
    times
        Quanta of one micro-batch by stage (chunk); None: 1 for each of F, I and W, free edges.
    activation_limit
        Micro-batches' activations each rank may hold, shape (P,), any number >= 1; of a folded
        rank a chunk's activation is half of one. None: P on every rank.
    freed_at_i
        Share of an activation freed when I ends; the rest is freed when W ends.
    aim
        What is made small first: the longest own span of a rank, or the makespan.
    effort
        ``quick``: a few rules and moves. ``full``: an order of magnitude more.

    Raises
    ------
    InputError
        A limit below 1 (names the rank), or times, limits or a share that do not fit.

    Examples
    --------
    >>> automatic_order(2, 2).rank_lists()
    [['0F0', '0F1', '0I0', '0W0', '0I1', '0W1'], ['1F0', '1I0', '1F1', '1I1', '1W0', '1W1']]
    """
    problem = make_problem(
        num_ranks,
        num_microbatches,
        folded=folded,
        times=times,
        activation_limit=activation_limit,
        freed_at_i=freed_at_i,
        sends=sends,
    )
    words = _searched(problem, aim == "span", effort)
    poll()
    schedule = Schedule.ZB_V if folded else Schedule.ZB_AUTO
    return order_of_words(schedule.value, problem, words)


def _searched(problem: Problem, span_first: bool, effort: Effort) -> Words:
    """The words of least cost that were found."""
    starts = problem.first_start

    def cost_of(finish: list[int]) -> Cost:
        span = max(end - begin for end, begin in zip(finish, starts, strict=True))
        return (span, max(finish)) if span_first else (max(finish), span)

    bounds = span_bounds(problem)
    least = cost_of([begin + bound for begin, bound in zip(starts, bounds, strict=True)])
    work = _work(effort, problem.num_operations)
    met: list[tuple[Cost, str, Words]] = []
    for family, words, finish in _first_words(problem, work):
        poll()
        met.append((cost_of(finish), family, words))
        if met[-1][0] == least:
            return words
    met.sort(key=lambda found: found[0])
    best, _, best_words = met[0]
    # The best of every family comes first: what looks poor may be easy to mend.
    leaders = {family: words for _, family, words in reversed(met)}
    firsts = [words for _, family, words in met if words is leaders[family]]
    moves = work.moves
    due = starts if span_first else [0] * problem.num_ranks
    tried: list[Words] = []
    for words in [*firsts, *(words for _, _, words in met)]:
        if best[0] == least[0] or moves == 0 or len(tried) == work.starts:
            break
        if words in tried:
            continue
        tried.append(words)
        found, made = improve(problem, words, due, goal=least[0], most_moves=moves)
        moves -= made
        cost = cost_of(found.finish)
        if cost < best:
            best, best_words = cost, found.words
    if effort == "quick":
        return best_words
    # The second aim, while the first one stays as it is.
    moves = max(moves, work.moves // 3)
    while best[1] > least[1] and moves > 0:
        most_span, most = (best[0], best[1] - 1) if span_first else (best[1] - 1, best[0])
        due = [min(begin + most_span, most) for begin in starts]
        found, made = improve(problem, best_words, due, most_moves=moves)
        moves -= made
        if found.late > 0:
            break
        best, best_words = cost_of(found.finish), found.words
    return best_words


def _first_words(problem: Problem, work: _Work) -> Iterator[tuple[str, Words, list[int]]]:
    """(Family, words, when their ranks finish) to choose from."""
    for order in _fixed_orders(problem, work.every_order):
        words = words_of_order(problem, order)
        heads = None if words is None else heads_of(problem, words)
        if words is not None and heads is not None:
            yield "fixed", words, heads.finish
    if problem.num_chunks == 1:
        aims = _aims_in_flight(problem)
        for name, eager, fill, forward_delay, weight_delay in _CHAIN_RULES[: work.rules]:
            rule = Rule(aims[name], eager, fill, forward_delay, weight_delay)
            yield "greedy", *greedy_words(problem, rule)
        return
    rooms = _rooms(problem)
    for name, cycle, weight_delay in _CYCLES[: work.rules // 4]:
        found = cyclic_words(problem, CycleRule(cycle, rooms[name], weight_delay))
        if found is not None:
            yield "cyclic", *found
    for name, fill, forward_delay, weight_delay, prefer in _FOLDED_RULES[: work.rules]:
        aim = [2 * problem.num_microbatches if fill else 0] * problem.num_ranks
        rule = Rule(aim, True, fill, forward_delay, weight_delay, rooms[name], prefer)
        yield "greedy", *greedy_words(problem, rule)


def _fixed_orders(problem: Problem, every: bool) -> list[Order]:
    """Orders known by name; they are used where they keep the limits."""
    if problem.num_chunks == 1:
        builders = [one_way_orders.one_f_one_b, one_way_orders.zb_h1]
        slower = [one_way_orders.zb_h2]
    else:
        builders = [folded_orders.zb_v]
        slower = [folded_orders.v_half, folded_orders.v_min]
    builders += slower if every else []
    return [build(problem.num_ranks, problem.num_microbatches) for build in builders]


def _aims_in_flight(problem: Problem) -> dict[str, list[int]]:
    """How many micro-batches the ranks of a chain aim to have in flight before their I.

    1F1B has one for each rank from here to the last (``single``), ZB-H2 about two. Enough is what
    covers the way to the last rank and back at the pace of the slowest rank: its whole work
    (``beats``), or its F and I alone while W can wait (``early``).
    """
    ranks, travel, hold = problem.num_ranks, problem.travel, problem.hold
    forward, backward, weight = (problem.duration[code::3] for code in range(3))
    both = [f + i for f, i in zip(forward, backward, strict=True)]
    sending = [hold[3 * r] + hold[3 * r + 1] for r in range(ranks)]
    beat = max(1, *(both[r] + weight[r] + sending[r] for r in range(ranks)))
    early = max(1, *(both[r] + sending[r] for r in range(ranks)))
    away = [0] * ranks
    for r in range(ranks - 2, -1, -1):
        away[r] = travel[3 * r] + both[r + 1] + travel[3 * r + 4] + away[r + 1]
    later = [ranks - r for r in range(ranks)]
    return {
        "single": later,
        "middle": [3 * n // 2 for n in later],
        "double": [2 * n - 1 for n in later],
        # A rank whose F and I take no time still has to start them.
        "beats": [max(1, -(-(both[r] + away[r]) // beat)) for r in range(ranks)],
        "early": [max(1, -(-(both[r] + away[r]) // early)) for r in range(ranks)],
    }


def _rooms(problem: Problem) -> dict[str, list[float]]:
    """Activations of its first chunk that each folded rank may hold at most.

    ZB-V's share: of its limit of 2P chunks, 2P-1-r of the first chunk wait for the way to the
    last chunk and back, and 1+r of the second one.
    """
    ranks, limits = problem.num_ranks, problem.limit
    shares = [limits[r] * (2 * ranks - 1 - r) / (2 * ranks) for r in range(ranks)]
    rooms = {
        "share": shares,
        "more": [share + 1 for share in shares],
        "half": [limit / 2 + 1 for limit in limits],
        "most": [limit - 1 for limit in limits],
    }
    return {name: [max(1.0, room) for room in each] for name, each in rooms.items()}
