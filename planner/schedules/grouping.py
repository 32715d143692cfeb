"""Memory of ranks that hold several stages: chunks of interleaved and V schedules, both directions.

What a rank holds at one time is a count of micro-batches per stage; which counts occur is a fact
of the order alone. A rank's activations peak at one of the counts that no other one exceeds in
every stage, so that a cut is priced by a few products.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem, RecomputeChoice
from planner.deadlines import poll
from planner.operations import Kind, Order
from planner.schedule_rules import default_group_size
from planner.schedules.memory_curve import held_by_operation
from planner.schedules.orders import fixed_order
from planner.specs import Recompute, Schedule

__all__ = [
    "RankMemory",
    "allowed_modes",
    "cannot_fit",
    "grouped_choice",
    "grouped_memory",
    "held_counts",
    "least_rank_memory",
    "order_of_problem",
]

I64 = NDArray[np.int64]

_MANY_ROWS = 256
_TURNS = 40

_MODES = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)


def order_of_problem(problem: ChainProblem) -> Order:
    """The order of a problem whose schedule is a fixed list (every one but ``zb-auto``)."""
    chunks = len(problem.rank_stages[0]) if problem.is_grouped else 1
    if problem.mirrored_tier is not None:
        chunks = 1
    group = None
    if problem.schedule in (Schedule.INTERLEAVED, Schedule.INTERLEAVED_ZB):
        group = default_group_size(problem.num_ranks, problem.num_microbatches)
    return fixed_order(problem.schedule, problem.num_ranks, problem.num_microbatches, chunks, group)


def held_counts(problem: ChainProblem) -> tuple[I64, ...]:
    """For each rank the counts of micro-batches in flight that occur and that nothing exceeds.

    Returns
    -------
    One array a rank, shape (K, stages of the rank), in the order of ``rank_stages``.
    """
    return _held_counts(order_of_problem(problem), problem.rank_stages)


@lru_cache(maxsize=64)
def _held_counts(order: Order, rank_stages: tuple[tuple[int, ...], ...]) -> tuple[I64, ...]:
    found = []
    for rank, stages in enumerate(rank_stages):
        poll()
        first, last = int(order.rank_start[rank]), int(order.rank_start[rank + 1])
        columns = []
        for stage in stages:
            weights = np.zeros(order.num_stages)
            weights[stage] = 1.0
            columns.append(held_by_operation(order, weights)[first:last])
        counts = np.rint(np.stack(columns, axis=1)).astype(np.int64)
        # Only what is held when the rank stops taking more can be a peak.
        grows = np.append(order.kind[first + 1 : last] == Kind.F, False)
        found.append(_undominated(np.unique(counts[~grows], axis=0)))
    return tuple(found)


def _undominated(counts: I64) -> I64:
    """Rows that no other row reaches in every column (rows are distinct)."""
    if len(counts) > _MANY_ROWS:  # halves first: most rows go early
        middle = len(counts) // 2
        counts = np.concatenate([_undominated(counts[:middle]), _undominated(counts[middle:])])
        if len(counts) > _MANY_ROWS:
            return counts  # more rows than needed cost time, nothing else
    reached = (counts[None, :, :] >= counts[:, None, :]).all(axis=2)
    kept: I64 = counts[reached.sum(axis=1) == 1]
    return kept


class RankMemory(NamedTuple):
    """Bytes of a rank that holds several stages."""

    states: int
    activations: int
    workspace: int
    buffers: int
    counts: tuple[int, ...]
    """Micro-batches in flight of each of its stages when its activations peak."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.states + self.activations + self.workspace + self.buffers


def grouped_memory(
    problem: ChainProblem, rank: int, cuts: Sequence[int], mode: Recompute
) -> RankMemory:
    """Peak memory of a rank under one way to recompute, the same on all its stages."""
    intervals = [(cuts[stage], cuts[stage + 1]) for stage in problem.rank_stages[rank]]
    states = workspace = 0
    kept = []
    for start, end in intervals:
        count = int(problem.recomputable[start:end].sum()) if mode is Recompute.FULL else 0
        terms = problem.memory_terms(0, start, end, mode, count)
        states += terms["states"]
        workspace = max(workspace, terms["workspace"])
        kept.append(terms["activations"] // int(problem.in_flight[0]))
    for pair in problem.tied:
        homes = [
            place
            for place, (start, end) in enumerate(intervals)
            for block in (pair.first, pair.second)
            if start <= block < end
        ]
        if len(homes) == 2 and homes[0] != homes[1]:  # both on this rank, on different stages
            states -= pair.shared_bytes
    counts = held_counts(problem)[rank]
    sums = counts @ np.array(kept, np.int64)
    worst = int(sums.argmax())
    return RankMemory(
        states=states,
        activations=int(sums[worst]),
        workspace=workspace,
        buffers=problem.buffer_bytes if problem.num_ranks > 1 else 0,
        counts=tuple(counts[worst].tolist()),
    )


def cannot_fit(problem: ChainProblem) -> bool:
    """Whether no cut fits the ranks together, whatever it is.

    Rank r with kept bytes k_q on its stages (K_r in all) holds at its peak at least the value of
    a game, v_r K_r: the largest, over mixtures of its counts, of the smallest count in the
    mixture. So K_r <= (room - states_r) / v_r, and over all ranks the kept bytes of the model are
    at most sum_r room / v_r - states / max_r v_r.
    """
    modes = allowed_modes(problem)
    kept_by_mode = {
        Recompute.NONE: problem.kept_bytes,
        Recompute.SELECTIVE: problem.kept_selective_bytes,
        Recompute.FULL: np.where(problem.recomputable, problem.kept_full_bytes, problem.kept_bytes),
    }
    kept = int(np.minimum.reduce([kept_by_mode[mode] for mode in modes]).sum())
    states = int(problem.static_bytes.sum()) - sum(pair.shared_bytes for pair in problem.tied)
    if problem.mirrored_tier is not None:
        kept, states = 2 * kept, 2 * states
    buffers = problem.buffer_bytes if problem.num_ranks > 1 else 0
    workspace = int(np.minimum(problem.transient_bytes, problem.transient_full_bytes).min())
    room = int(problem.budget_bytes[0]) - buffers - workspace
    depths = _least_depths(order_of_problem(problem), problem.rank_stages)
    return kept > sum(room / depth for depth in depths) - states / max(depths) + 1.0


@lru_cache(maxsize=64)
def _least_depths(order: Order, rank_stages: tuple[tuple[int, ...], ...]) -> tuple[float, ...]:
    """For each rank what its activations come to at least, in micro-batches of all its stages."""
    return tuple(_game_value(counts) for counts in _held_counts(order, rank_stages))


def _game_value(counts: I64) -> float:
    """max over mixtures of rows of the smallest column, by fictitious play: from below."""
    rows = counts.astype(np.float64)
    total = np.zeros(rows.shape[1])
    best = float(rows.min(axis=1).max())
    for turn in range(1, _TURNS + 1):
        against = np.zeros(rows.shape[1])
        against[int(total.argmin())] = 1.0
        total += rows[int((rows @ against).argmax())]
        best = max(best, float(total.min()) / turn)
    return max(best, 1.0)


def least_rank_memory(problem: ChainProblem, rank: int, cuts: Sequence[int]) -> int:
    """Bytes of a rank under the allowed recompute that needs the fewest."""
    return min(grouped_memory(problem, rank, cuts, mode).total for mode in allowed_modes(problem))


def allowed_modes(problem: ChainProblem) -> list[Recompute]:
    """What all stages of a rank may do alike; ``layers`` stands for none or full."""
    allowed = set(problem.recompute_modes) or {Recompute.NONE}
    if Recompute.LAYERS in allowed:
        allowed |= {Recompute.NONE, Recompute.FULL}
    return [mode for mode in _MODES if mode in allowed]


def grouped_choice(
    problem: ChainProblem, rank: int, cuts: Sequence[int]
) -> tuple[RecomputeChoice, RankMemory] | None:
    """The allowed way to recompute with the least extra time that fits the rank; None if none.

    All stages of a rank recompute alike. ``layers`` is not tried here: it acts as ``full``.
    """
    best: tuple[RecomputeChoice, RankMemory] | None = None
    for mode in allowed_modes(problem):
        held = grouped_memory(problem, rank, cuts, mode)
        if held.total > int(problem.budget_bytes[problem.rank_stages[rank][0]]):
            continue
        extra = layers = 0
        for stage in problem.rank_stages[rank]:
            start, end = cuts[stage], cuts[stage + 1]
            able = int(problem.recomputable[start:end].sum()) if mode is Recompute.FULL else 0
            if mode is not Recompute.NONE:
                extra += problem.recompute_extra(start, end, mode, able)
            layers += able
        if best is None or extra < best[0].extra:
            best = RecomputeChoice(mode, layers, extra, held.total), held
    return best
