"""What each schedule is and which shapes it accepts: the one table keyed by schedule.

P ranks, M micro-batches, V chunks a rank (vpp), G the group size of interleaved schedules (micro-
batches a chunk runs before the next chunk's turn).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.errors import ScheduleError
from planner.specs import Schedule

__all__ = [
    "AUTOMATIC",
    "RULES",
    "ScheduleRules",
    "check_shape",
    "default_chunks",
    "default_group_size",
    "legal_shapes",
    "searched_chunks",
    "shape_problem",
    "stages_of_rank",
]


I64 = NDArray[np.int64]


@dataclass(frozen=True)
class ScheduleRules:
    """Facts of one schedule; sources are in ``planner.schedules`` beside each order."""

    title: str
    chunks: int | None = 1
    """Chunks a rank holds; None: any number (the caller's vpp)."""
    splits_backward: bool = False
    """Runs I and W apart."""
    folded: bool = False
    """Chunk q sits on rank q, then back: rank 2P-1-q (V placement)."""
    two_way: bool = False
    """Stage s sits on ranks s and P-1-s: every rank holds two stages' parameters."""
    several_stages: bool = False
    """A rank may hold more than one stage (chunks, or both directions)."""
    asynchronous: bool = False
    """Never drains: weights are updated while micro-batches are in flight."""
    even_ranks: bool = False
    fewest_per_rank: int = 0
    """M >= this many times P."""
    conditions: str = "any P, M"


RULES: dict[Schedule, ScheduleRules] = {
    Schedule.NAIVE: ScheduleRules("naive (one batch)", conditions="any P, M = 1"),
    Schedule.GPIPE: ScheduleRules("GPipe"),
    Schedule.ONE_F_ONE_B: ScheduleRules("1F1B"),
    Schedule.EAGER_ONE_F_ONE_B: ScheduleRules("eager 1F1B"),
    Schedule.PIPEDREAM: ScheduleRules("PipeDream", asynchronous=True),
    Schedule.PIPEDREAM_2BW: ScheduleRules("PipeDream-2BW", asynchronous=True),
    Schedule.INTERLEAVED: ScheduleRules(
        "interleaved 1F1B",
        chunks=None,
        several_stages=True,
        conditions="min(P, M) <= G <= M, M mod G = 0 or >= P",
    ),
    Schedule.LOOPED_BFS: ScheduleRules("looped BFS", chunks=None, several_stages=True),
    Schedule.ZB_H1: ScheduleRules("ZB-H1", splits_backward=True),
    Schedule.ZB_H2: ScheduleRules("ZB-H2", splits_backward=True),
    Schedule.ZB_AUTO: ScheduleRules("automatic zero bubble", splits_backward=True),
    Schedule.INTERLEAVED_ZB: ScheduleRules(
        "interleaved zero bubble",
        chunks=None,
        several_stages=True,
        splits_backward=True,
        conditions="G >= min(P, M), M mod G = 0 or >= P",
    ),
    Schedule.ZB_V: ScheduleRules(
        "ZB-V", chunks=2, splits_backward=True, folded=True, several_stages=True
    ),
    Schedule.V_HALF: ScheduleRules(
        "V-Half", chunks=2, splits_backward=True, folded=True, several_stages=True
    ),
    Schedule.V_MIN: ScheduleRules(
        "V-Min", chunks=2, splits_backward=True, folded=True, several_stages=True
    ),
    Schedule.DUALPIPE: ScheduleRules(
        "DualPipe",
        splits_backward=True,
        two_way=True,
        several_stages=True,
        even_ranks=True,
        fewest_per_rank=2,
        conditions="P even, M even, M >= 2P",
    ),
    Schedule.DUALPIPE_V: ScheduleRules(
        "DualPipeV",
        chunks=2,
        splits_backward=True,
        folded=True,
        several_stages=True,
        fewest_per_rank=2,
        conditions="M >= 2P",
    ),
    Schedule.CHIMERA: ScheduleRules(
        "Chimera",
        two_way=True,
        several_stages=True,
        even_ranks=True,
        conditions="P even, M a multiple of P",
    ),
}

AUTOMATIC: tuple[Schedule, ...] = tuple(
    schedule
    for schedule, rules in RULES.items()
    if not rules.asynchronous and not rules.two_way and schedule is not Schedule.NAIVE
)
"""What ``auto`` may choose: synchronous schedules that store the parameters once."""


def default_chunks(schedule: Schedule) -> int:
    """Chunks a rank holds where nobody says: 2 for the V schedules, else 1."""
    return RULES[schedule].chunks or 1


def searched_chunks(schedule: Schedule) -> int:
    """Chunks a rank that a planner takes where nobody says: 2 where a schedule takes several.

    One chunk would make interleaved schedules the plain ones.
    """
    return RULES[schedule].chunks or 2


def default_group_size(num_ranks: int, num_microbatches: int) -> int:
    """Micro-batches of one interleaving group: M // max(1, M // P), torch's rounds.

    Examples
    --------
    >>> default_group_size(4, 8), default_group_size(4, 10), default_group_size(4, 3)
    (4, 5, 3)
    """
    return num_microbatches // max(1, num_microbatches // num_ranks)


def stages_of_rank(
    schedule: Schedule, num_ranks: int, num_chunks: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """The stages (chunks, in model order) whose parameters each rank holds.

    Looped: r, r+P, r+2P, ...; folded: r and 2P-1-r; two-way: r and P-1-r, each on two ranks.

    Examples
    --------
    >>> stages_of_rank(Schedule.INTERLEAVED, 2, 3)
    ((0, 2, 4), (1, 3, 5))
    >>> stages_of_rank(Schedule.ZB_V, 2), stages_of_rank(Schedule.CHIMERA, 2)
    (((0, 3), (1, 2)), ((0, 1), (0, 1)))
    """
    rules, p = RULES[schedule], num_ranks
    chunks = default_chunks(schedule) if num_chunks is None else num_chunks
    if rules.two_way:
        return tuple(tuple(sorted((rank, p - 1 - rank))) for rank in range(p))
    if rules.folded:
        return tuple((rank, 2 * p - 1 - rank) for rank in range(p))
    return tuple(tuple(rank + p * turn for turn in range(chunks)) for rank in range(p))


def check_shape(
    schedule: Schedule,
    num_ranks: int,
    num_microbatches: int,
    num_chunks: int | None = None,
    group_size: int | None = None,
) -> None:
    """Refuse what the schedule cannot run.

    Raises
    ------
    ScheduleError
        Names the schedule, the condition it breaks and the nearest legal values.

    Examples
    --------
    >>> check_shape(Schedule.DUALPIPE, 3, 8)
    Traceback (most recent call last):
    ...
    planner.errors.ScheduleError: DualPipe needs an even number of stages, not P=3; \
use --stages 2 or 4
    """
    problem = shape_problem(schedule, num_ranks, num_microbatches, num_chunks, group_size)
    if problem is not None:
        raise ScheduleError(problem[0], fix=problem[1])


def shape_problem(
    schedule: Schedule,
    num_ranks: int,
    num_microbatches: int,
    num_chunks: int | None = None,
    group_size: int | None = None,
) -> tuple[str, str] | None:
    """(what is wrong, nearest legal values), or None where the schedule runs this shape."""
    rules = RULES[schedule]
    p, m = num_ranks, num_microbatches
    v = default_chunks(schedule) if num_chunks is None else num_chunks
    if min(p, m, v) < 1:
        return "stages, micro-batches and chunks are numbers >= 1", "use at least 1"
    if rules.chunks is not None and v != rules.chunks:
        if rules.chunks == 1:
            several = "interleaved, looped-bfs or interleaved-zb"
            return f"{rules.title} has one chunk a rank, not V={v}", f"use 1 chunk, or {several}"
        return f"{rules.title} has {rules.chunks} chunks a rank, not V={v}", "use 2 chunks"
    if schedule is Schedule.NAIVE and m != 1:
        return f"naive runs the whole batch at once, not M={m}", "use --microbatches 1, or gpipe"
    if rules.even_ranks and p % 2:
        near = _either([p - 1, p + 1])
        return f"{rules.title} needs an even number of stages, not P={p}", f"use --stages {near}"
    if schedule is Schedule.CHIMERA and m % p:
        near = _either([m // p * p, (m // p + 1) * p])
        return (
            f"{rules.title} needs M to be a multiple of P={p}, not M={m}",
            f"use --microbatches {near}",
        )
    if m < rules.fewest_per_rank * p:
        least = rules.fewest_per_rank * p
        return (
            f"{rules.title} needs M >= {rules.fewest_per_rank}P = {least}, not M={m}",
            f"use --microbatches {least}, or fewer stages",
        )
    if schedule is Schedule.DUALPIPE and m % 2:
        return f"{rules.title} needs an even M, not M={m}", f"use --microbatches {m - 1} or {m + 1}"
    if group_size is not None and rules.chunks is not None:
        return f"{rules.title} has no group size", "leave --group-size out"
    if rules.chunks is None and schedule is not Schedule.LOOPED_BFS:
        return _group_problem(rules.title, p, m, group_size)
    return None


def legal_shapes(
    schedule: Schedule, num_ranks: I64, num_microbatches: I64, num_chunks: int
) -> NDArray[np.bool_]:
    """:func:`shape_problem` on arrays, with the default group size: True where it is None."""
    rules = RULES[schedule]
    p, m = num_ranks, num_microbatches
    legal: NDArray[np.bool_] = m >= rules.fewest_per_rank * p
    if rules.chunks is not None and num_chunks != rules.chunks:
        return np.zeros_like(legal)
    if schedule is Schedule.NAIVE:
        legal &= m == 1
    if rules.even_ranks:
        legal &= p % 2 == 0
    if schedule is Schedule.CHIMERA:
        legal &= m % p == 0
    if schedule is Schedule.DUALPIPE:
        legal &= m % 2 == 0
    if rules.chunks is None and schedule is not Schedule.LOOPED_BFS:
        last = m % (m // np.maximum(1, m // p))
        legal &= (last == 0) | (last >= p)
    return legal


def _group_problem(title: str, p: int, m: int, given: int | None) -> tuple[str, str] | None:
    """Whether micro-batches split into groups that keep every rank fed.

    Megatron-LM: P <= G <= M and the last group is whole or has at least P micro-batches (with
    fewer, a chunk's turn would come before its input). With M < P the one group is all of them.
    """
    group = default_group_size(p, m) if given is None else given
    if _group_fits(p, m, group):
        return None
    legal = [g for g in range(min(p, m), m + 1) if _group_fits(p, m, g)]
    nearest = min(legal, key=lambda g: (abs(g - group), g))
    fix = f"use a group size of {nearest}"
    if given is not None and not min(p, m) <= given <= m:
        return f"{title} needs min(P, M) <= G <= M, not G={given} with P={p}, M={m}", fix
    counts = [
        n
        for n in range(max(1, m - 2 * group), m + 2 * group + 1)
        if _group_fits(p, n, default_group_size(p, n) if given is None else given)
    ]
    below = [n for n in counts if n < m][-1:]
    above = [n for n in counts if n > m][:1]
    if below or above:
        fix = f"use --microbatches {_either([*below, *above])}, or a group size of {nearest}"
    return (
        f"{title}: M={m} leaves a last group of {m % group} micro-batches with G={group}, "
        f"fewer than P={p}",
        fix,
    )


def _group_fits(p: int, m: int, group: int) -> bool:
    return min(p, m) <= group <= m and (m % group == 0 or m % group >= p)


def _either(values: list[int]) -> str:
    return " or ".join(str(value) for value in values if value > 0)
