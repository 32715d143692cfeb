"""Least step time over all cuts under schedules that are simulated by their order.

One stage a rank: the stage terms of :mod:`~planner.schedules.general_bounds` give a proven bound
and, cut by cut in rising order of their bounds, every cut that could still win; simulating them
in that order proves the best, or leaves the smallest bound not yet simulated.

Several stages a rank: no table of stages prices a rank, so the cuts of a balanced chain are
improved by moving single blocks, and the bound is that of the totals.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from planner.cost.stage_table import ChainProblem
from planner.deadlines import NEVER, OutOfTimeError, late, poll, within
from planner.schedules.cut_batch import CutBatch, batch_of, takes_batches
from planner.schedules.general_bounds import (
    GeneralTerms,
    general_terms,
    grouped_least_value,
)
from planner.schedules.grouping import cannot_fit, held_counts
from planner.schedules.prices import UNREACHABLE
from planner.solvers.chain import solve_bottleneck
from planner.solvers.step_candidates import (
    Incumbent,
    StepSolution,
    cut_tuples,
    cuts_at_shares,
    even_cuts,
    is_cut,
    neighbours,
    no_solution,
    ramps,
    solution_of,
)

__all__ = ["balanced_cuts", "least_crowded", "solve_by_order"]

_BATCH = 64
_MOST_CLIMBS = 40
_MOST_OPERATIONS = 8_000_000
"""Operations x cuts that one round of local search may simulate."""
_MOST_FITTED = 12
"""Cuts that ``zb-auto`` fits an order to in one round."""
_NODES_PER_CUT = 8
"""Nodes of the node limit that one simulated cut stands for."""
_UNLIMITED_BYTES = 2**60
_WALKS, _MOST_STEPS, _FEW_STEPS, _NEIGHBOURS, _NEAR = 6, 150, 12, 400, 0.15
_POWERS = (0.25, 0.5, 0.75, 1.0)
"""Walks towards a cut that fits, steps of each, and cuts looked at in a step."""


def solve_by_order(
    problem: ChainProblem,
    seeds: Sequence[Sequence[int]] = (),
    upper_bound: int | None = None,
    node_limit: int = 20000,
    watch: Callable[[int, int], None] | None = None,
) -> StepSolution:
    """Minimise the step value over all cuts; arguments and answer of ``solve_step_time``.

    ``bound_kind`` is ``general_terms`` (the stage terms' bound, or enumeration on top of it) or
    ``totals``.
    """
    best = Incumbent(problem, upper_bound, watch)
    try:
        return _minimised(problem, best, seeds, node_limit)
    except OutOfTimeError:
        with within(NEVER):
            totals = grouped_least_value(problem)
        if best.bound > totals:
            return solution_of(best, best.bound, 0, "general_terms")
        return solution_of(best, totals, 0, "totals")


def _minimised(
    problem: ChainProblem, best: Incumbent, seeds: Sequence[Sequence[int]], node_limit: int
) -> StepSolution:
    shaped = [tuple(int(c) for c in seed) for seed in seeds]
    best.offer([cuts for cuts in shaped if is_cut(problem, cuts)])
    if problem.is_grouped:
        return _grouped(problem, best, node_limit)
    terms = general_terms(problem)
    if terms is None:
        best.offer([even_cuts(problem)])
        _climb(best, problem, node_limit)
        return solution_of(best, grouped_least_value(problem), 0, "totals")
    bound = terms.bound
    if bound is None:
        return no_solution(best)
    best.bound = bound
    first = terms.argmin()
    if first is not None and _open(best, bound) and not (best.key and late()):
        best.offer([first])
    if best.limit is None or not _open(best, bound) or node_limit <= 0 or late():
        return solution_of(best, bound, 0, "general_terms")
    if takes_batches(problem.schedule):
        best.offer([cuts for cuts in ramps(problem) if is_cut(problem, cuts)])
    _climb(best, problem, node_limit)
    if not _open(best, bound):
        return solution_of(best, bound, 0, "general_terms")
    proved, nodes = _enumerate(terms, best, node_limit)
    return solution_of(best, max(bound, proved), nodes, "general_terms")


def _open(best: Incumbent, bound: int) -> bool:
    return best.limit is None or bound < best.limit


def _climb(best: Incumbent, problem: ChainProblem, node_limit: int) -> None:
    """Move runs of cuts by one block while that helps."""
    operations = 3 * problem.num_stages * problem.num_microbatches
    most = min(400, max(2 * problem.num_stages, _MOST_OPERATIONS // operations))
    rounds = _MOST_CLIMBS
    if not takes_batches(problem.schedule):
        most, rounds = _MOST_FITTED, max(1, min(3, node_limit // 300))
    for _ in range(rounds if node_limit > 0 else 0):
        before = best.key
        if before is None or late():
            return
        best.offer(cut_tuples(neighbours(before[4], most=most)))
        if best.key is None or best.key[0] == before[0]:
            return


def _enumerate(terms: GeneralTerms, best: Incumbent, node_limit: int) -> tuple[int, int]:
    """Simulate cuts in rising order of their bounds; returns (proven bound, cuts looked at).

    A heap of prefixes by the least largest term of any completion: whatever is popped bounds
    everything that is left.
    """
    problem = terms.problem
    stages = problem.num_stages
    batch = _BATCH if takes_batches(problem.schedule) else 1
    budget = node_limit // _NODES_PER_CUT
    if not takes_batches(problem.schedule):
        budget = min(budget, _MOST_FITTED)
    heap: list[tuple[int, int, tuple[int, ...]]] = [(int(terms.least[0, 0]), 0, (0,))]
    waiting: list[tuple[int, ...]] = []
    lowest_waiting = UNREACHABLE
    looked = 0
    while heap or waiting:
        limit = best.limit
        assert limit is not None
        if waiting and (not heap or len(waiting) >= batch or heap[0][0] >= limit):
            best.offer(waiting)
            waiting, lowest_waiting = [], UNREACHABLE
            continue
        if not heap or heap[0][0] >= limit:
            break
        if looked >= budget or late() or len(heap) > 50_000:
            return min(heap[0][0], lowest_waiting, limit), looked
        bound, depth, cuts = heapq.heappop(heap)
        position = cuts[-1]
        stage = -depth
        ends = np.maximum(terms.term[stage, position], terms.least[stage + 1])
        ends = np.maximum(ends, bound)
        for end in np.flatnonzero(ends < limit).tolist():
            longer = (*cuts, end)
            if stage + 1 == stages:
                waiting.append(longer)
                lowest_waiting = min(lowest_waiting, int(ends[end]))
                looked += 1
            else:
                heapq.heappush(heap, (int(ends[end]), -(stage + 1), longer))
    limit = best.limit
    assert limit is not None
    return limit, looked


def _grouped(problem: ChainProblem, best: Incumbent, node_limit: int) -> StepSolution:
    """Balanced chunks first, then local search under the ranks' memory."""
    bound = grouped_least_value(problem)
    if problem.num_stages > problem.num_blocks:
        return no_solution(best)
    balanced = balanced_cuts(problem)
    if balanced is None:
        return no_solution(best)
    if best.key is None:
        best.offer([balanced])
    if node_limit > 0:
        best.offer([even_cuts(problem), *ramps(problem)])
    if best.key is None and not cannot_fit(problem):
        best.offer([least_crowded(problem, balanced, thorough=node_limit > 0)])
    if node_limit > 0:
        _climb(best, problem, node_limit)
    return solution_of(best, bound, 0, "totals")


def balanced_cuts(problem: ChainProblem) -> tuple[int, ...] | None:
    """The cut of the smallest bottleneck if memory were no limit and each rank held one stage.

    None where no cut into non-empty stages is allowed.
    """
    roomy = replace(
        problem,
        budget_bytes=np.full(problem.num_stages, _UNLIMITED_BYTES, np.int64),
        rank_stages=(),
        mirrored_tier=None,
    )
    found = solve_bottleneck(roomy)
    return None if found is None else found.cuts


def least_crowded(
    problem: ChainProblem, balanced: Sequence[int], *, thorough: bool = True
) -> tuple[int, ...]:
    """Cuts that lack the fewest bytes on any rank, as far as moving runs of cuts leads.

    For ranks that hold several stages; the walk starts at the balanced cuts and at cuts that fall
    or rise along the stages, and stops where everything fits. Not ``thorough``: a short walk of
    single cuts from the best start, if that is near to fitting.
    """
    batch = batch_of(problem)
    starts = [tuple(balanced), even_cuts(problem), *_by_memory(problem), *ramps(problem)]
    distinct = list(dict.fromkeys(starts))
    scores = _crowding(batch, distinct)
    ordered = sorted(range(len(distinct)), key=lambda k: (scores[k], distinct[k]))
    best, lowest = distinct[ordered[0]], scores[ordered[0]]
    if not thorough and lowest[0] > _NEAR * int(problem.budget_bytes[0]):
        return best
    for number in ordered[: _WALKS if thorough else 1]:
        cuts, score = distinct[number], scores[number]
        for _ in range(_MOST_STEPS if thorough else _FEW_STEPS):
            if score[0] <= 0:
                return cuts
            poll()
            longest = None if thorough else 1
            around = cut_tuples(neighbours(cuts, longest, _NEIGHBOURS))
            if not around:
                break
            found = _crowding(batch, around)
            least = min(range(len(around)), key=lambda k: (found[k], around[k]))
            if found[least] >= score:
                break
            cuts, score = around[least], found[least]
        if score < lowest:
            best, lowest = cuts, score
    return best


def _by_memory(problem: ChainProblem) -> list[tuple[int, ...]]:
    """Cuts whose stages hold less where more micro-batches of them are in flight.

    A stage's share of the kept bytes falls with a power of the most micro-batches it holds.
    """
    most = np.ones(problem.num_stages)
    for held, counts in zip(problem.rank_stages, held_counts(problem), strict=True):
        for place, stage in enumerate(held):
            most[stage] = max(most[stage], counts[:, place].max())
    each = problem.kept_bytes + problem.static_bytes / most.mean()
    return [cuts_at_shares(each, np.cumsum(most**-power)) for power in _POWERS]


def _crowding(batch: CutBatch, cuts: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
    """(bytes lacking on the worst rank, bytes lacking on all) of each cut."""
    lacks = batch.overflow(np.array(cuts, np.int64))
    return list(zip(lacks.max(1).tolist(), np.maximum(lacks, 0).sum(1).tolist(), strict=True))
