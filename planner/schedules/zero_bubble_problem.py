"""What the automatic zero-bubble search works on: plain lists of one pipeline's operations.

A rank's list is a word over its codes: F, I, W for one chunk a rank; F, F', I, I', W, W' for a
folded pipeline, where a rank holds chunk r and (primed) chunk 2P-1-r. The n-th time a code stands
in a word it means micro-batch n: micro-batches are alike, so that exchanging them never helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import InputError
from planner.operations import Kind, Order, order_from_ranks
from planner.schedules.memory_curve import peak_by_rank
from planner.schedules.timeline import StageTimes, unit_times
from planner.specs import Sends

__all__ = ["EVENTS_A_POLL", "Problem", "Words", "make_problem", "order_of_words", "words_of_order"]

Words = list[list[int]]
"""One word a rank; code = kind * V + chunk of the rank, kinds F, I, W in this order."""

# Limits and shares are floats of a few digits; counts of micro-batches are far coarser.
_ROUNDING = 1e-9

EVENTS_A_POLL = 4096
"""Events of a simulation between two looks at the clock."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One pipeline; x = rank * codes + code numbers the (rank, code) pairs."""

    num_ranks: int
    num_microbatches: int
    num_chunks: int
    """V, chunks a rank holds: 1 or 2."""
    codes: int
    """3 V."""
    duration: list[int]
    """By x."""
    source: list[int]
    """x on another rank whose n-th operation the n-th of this one waits for; -1: none."""
    sink: list[int]
    """x on another rank that waits for this one; -1: none."""
    travel: list[int]
    """From the end of an operation to its arrival at the sink."""
    hold: list[int]
    """How long the rank itself is busy sending afterwards (blocking sends)."""
    after: list[int]
    """By code: the code whose n-th must stand earlier on the same rank; -1: none."""
    limit: list[float]
    """Chunk activations each rank may hold, with room for rounding."""
    residue: float
    """Share of an activation that stays from the end of I to the end of W."""
    first_start: list[int]
    """When each rank's first operation can start; it does in every order that matters."""

    @property
    def num_operations(self) -> int:
        """All operations of all ranks."""
        return self.num_ranks * self.codes * self.num_microbatches


def make_problem(
    num_ranks: int,
    num_microbatches: int,
    *,
    folded: bool,
    times: StageTimes | None,
    activation_limit: Sequence[float] | None,
    freed_at_i: float,
    sends: Sends,
) -> Problem:
    """Check the arguments and lay them out; see :func:`zero_bubble.automatic_order`.

    Raises
    ------
    InputError
        No ranks or micro-batches, a limit below one micro-batch, or times, limits or a share
        that do not fit the pipeline.
    """
    ranks, chunks = num_ranks, 2 if folded else 1
    stages = ranks * chunks
    if min(num_ranks, num_microbatches) < 1:
        raise InputError(
            "is no number of ranks or micro-batches",
            value=min(num_ranks, num_microbatches),
            expected="at least 1",
        )
    limits = _checked_limits(ranks, activation_limit)
    if not 0.0 <= freed_at_i <= 1.0:
        raise InputError("is no share", value=freed_at_i, expected="a number from 0 to 1")
    given = unit_times(stages) if times is None else times
    _check_times(given, stages)
    forward, i_time = given.forward.tolist(), given.input_gradient.tolist()
    w_time = given.weight_gradient.tolist()
    ahead, back = given.edge_forward.tolist(), given.edge_backward.tolist()
    codes = 3 * chunks
    size = ranks * codes
    duration, source, sink, travel = [0] * size, [-1] * size, [-1] * size, [0] * size
    for rank in range(ranks):
        for chunk in range(chunks):
            stage = rank if chunk == 0 else stages - 1 - rank
            at = rank * codes + chunk
            duration[at] = forward[stage]
            duration[at + chunks] = i_time[stage]
            duration[at + 2 * chunks] = w_time[stage]
            if stage + 1 < stages:
                other = _rank_of(stage + 1, ranks)
                if other != rank:
                    there = other * codes + chunk
                    sink[at], source[there], travel[at] = there, at, ahead[stage]
                    there, at = at + chunks, there + chunks
                    sink[at], source[there], travel[at] = there, at, back[stage]
    starts = [0] * ranks
    for rank in range(1, ranks):
        before = (rank - 1) * codes
        starts[rank] = starts[rank - 1] + duration[before] + travel[before]
    return Problem(
        num_ranks=ranks,
        num_microbatches=num_microbatches,
        num_chunks=chunks,
        codes=codes,
        duration=duration,
        source=source,
        sink=sink,
        travel=travel,
        hold=list(travel) if sends is Sends.BLOCKING else [0] * size,
        after=[-1, 0, 3, 1, 2, 3] if folded else [-1, 0, 1],
        limit=[min(limit, num_microbatches) * chunks + _ROUNDING for limit in limits],
        residue=1.0 - freed_at_i,
        first_start=starts,
    )


def _rank_of(stage: int, ranks: int) -> int:
    return stage if stage < ranks else 2 * ranks - 1 - stage


def _checked_limits(ranks: int, activation_limit: Sequence[float] | None) -> list[float]:
    if activation_limit is None:
        return [float(ranks)] * ranks
    limits = [float(limit) for limit in activation_limit]
    if len(limits) != ranks:
        raise InputError(
            "activation limits do not match the ranks",
            value=len(limits),
            expected=f"{ranks}, one a rank",
        )
    for rank, limit in enumerate(limits):
        if not limit >= 1.0 - _ROUNDING:
            raise InputError(
                f"micro-batches' activations are too few for rank {rank} to run anything",
                value=f"{limit:g}",
                expected="a limit >= 1",
                fix="allow each rank at least 1",
            )
    return limits


def _check_times(times: StageTimes, stages: int) -> None:
    rows = (
        ("forward times", times.forward, stages),
        ("input-gradient times", times.input_gradient, stages),
        ("weight-gradient times", times.weight_gradient, stages),
        ("forward edges", times.edge_forward, stages - 1),
        ("backward edges", times.edge_backward, stages - 1),
    )
    for name, values, wanted in rows:
        if len(values) != wanted:
            raise InputError(
                f"{name} do not match the pipeline", value=len(values), expected=str(wanted)
            )
        if wanted and int(values.min()) < 0:
            raise InputError(f"{name} are negative", value=int(values.min()), expected=">= 0")


def order_of_words(schedule: str, problem: Problem, words: Words) -> Order:
    """The order that the words stand for."""
    ranks, chunks = problem.num_ranks, problem.num_chunks
    stages = ranks * chunks
    kinds = np.array([Kind.F, Kind.I, Kind.W], np.int8)
    lists = []
    for rank, word in enumerate(words):
        code = np.array(word, np.int64)
        microbatch = np.empty(len(code), np.int64)
        for value in range(problem.codes):
            places = np.flatnonzero(code == value)
            microbatch[places] = np.arange(len(places))
        stage = np.where(code % chunks == 0, rank, stages - 1 - rank)
        lists.append((kinds[code // chunks], stage, microbatch))
    return order_from_ranks(
        schedule, lists, num_stages=stages, num_microbatches=problem.num_microbatches
    )


def words_of_order(problem: Problem, order: Order) -> Words | None:
    """The words of a fixed order, B split into I and W; None where it breaks a limit."""
    peaks = peak_by_rank(order, freed_at_i=1.0 - problem.residue)
    if (peaks > problem.limit).any():
        return None
    chunks = problem.num_chunks
    row = np.array([0, 1, 1, 2])[order.kind] * chunks
    codes = row + (order.stage != order.rank)
    words = []
    for rank in range(problem.num_ranks):
        here = slice(int(order.rank_start[rank]), int(order.rank_start[rank + 1]))
        word = codes[here]
        whole = np.flatnonzero(order.kind[here] == Kind.B)
        words.append(np.insert(word, whole + 1, word[whole] + chunks).tolist())
    return words
