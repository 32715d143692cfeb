"""Cuts worth trying for the step time, and the best of those that were tried."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem, RecomputeChoice
from planner.deadlines import NEVER, within
from planner.schedules.cut_batch import batch_of
from planner.schedules.prices import UNREACHABLE, CutValues

__all__ = [
    "Incumbent",
    "StepSolution",
    "cut_tuples",
    "cuts_at_shares",
    "even_cuts",
    "is_cut",
    "neighbours",
    "no_solution",
    "ramps",
    "solution_of",
]

I64 = NDArray[np.int64]

# How much lighter the last stage of a candidate is than its first, halved, and by what part of a
# block its cuts are moved.
_SLOPES = tuple(k / 40 for k in range(-4, 17, 2))
_SHIFTS = (-0.4, -0.2, 0.0, 0.2, 0.4)


@dataclass(frozen=True)
class StepSolution:
    """The best cut found and what is proved about all cuts. Times are quanta."""

    cuts: tuple[int, ...] | None
    """None when nothing was found (infeasible, or nothing below ``upper_bound``)."""
    choices: tuple[RecomputeChoice, ...]
    value: int | None
    makespan: int | None
    bottleneck: int | None
    bound: int
    """No cut has a smaller step value than this; at most ``value``."""
    proven: bool
    """``value == bound``."""
    infeasible: bool
    """No cut with P non-empty stages is allowed and fits."""
    simulations: int
    nodes: int
    bound_kind: str
    """``interval_dp``: ``root_bound(problem, upper_bound=witness["upper_bound"])`` is at least
    ``bound``. ``branch_and_bound``: enumeration on top of it. ``none``: infeasible."""
    witness: Mapping[str, int] = field(default_factory=dict)
    lightest: int = 0
    """Smallest load of any rank at ``cuts``."""
    peak_bytes: int = 0


class Incumbent:
    """The best of the cuts met so far, ties broken in the project's order."""

    def __init__(
        self,
        problem: ChainProblem,
        upper_bound: int | None,
        watch: Callable[[int, int], None] | None = None,
    ) -> None:
        self.watch = watch
        self.batch = batch_of(problem)
        self.outside = upper_bound
        self.key: tuple[int, int, int, int, tuple[int, ...]] | None = None
        self.makespan = self.bottleneck = 0
        self.met: set[tuple[int, ...]] = set()
        self.simulations = 0
        self.bound = 0
        """No cuts are below this or ``outside``, as far as is proved."""

    @property
    def limit(self) -> int | None:
        """Values at or above this do not matter."""
        options = [x for x in (self.outside, self.key and self.key[0]) if x is not None]
        return min(options) if options else None

    def choices(self) -> tuple[RecomputeChoice, ...]:
        """What each rank of the best cuts recomputes."""
        return () if self.key is None else self.batch.choices(self.key[4])

    @property
    def cuts(self) -> tuple[int, ...] | None:
        """The best cuts, if any."""
        return self.key[4] if self.key else None

    def offer(self, candidates: Sequence[tuple[int, ...]]) -> int | None:
        """Simulate the candidates that were not met before; returns :attr:`limit`."""
        fresh = [cuts for cuts in dict.fromkeys(candidates) if cuts not in self.met]
        if fresh:
            self.met.update(fresh)
            self.simulations += len(fresh)
            self._take(self.batch.evaluate(np.array(fresh, np.int64)))
            if self.watch is not None and self.key is not None:
                self.watch(self.key[0], self.bound)
        return self.limit

    def _take(self, values: CutValues) -> None:
        real = values.value < UNREACHABLE
        if not real.any():
            return
        least = int(values.value[real].min())
        for k in np.flatnonzero(values.value == least).tolist():
            key = (
                least,
                int(values.bottleneck[k]),
                -int(values.lightest[k]),
                int(values.peak_bytes[k]),
                tuple(values.cuts[k].tolist()),
            )
            if self.key is None or key < self.key:
                self.key = key
                self.makespan = int(values.makespan[k])
                self.bottleneck = int(values.bottleneck[k])


def is_cut(problem: ChainProblem, cuts: tuple[int, ...]) -> bool:
    """Whether these are S+1 rising positions from 0 to N."""
    return (
        len(cuts) == problem.num_stages + 1
        and cuts[0] == 0
        and cuts[-1] == problem.num_blocks
        and all(a < b for a, b in pairwise(cuts))
    )


def even_cuts(problem: ChainProblem) -> tuple[int, ...]:
    """Cuts nearest behind equal shares of the time, every stage non-empty."""
    count, stages = problem.num_blocks, problem.num_stages
    sums = np.cumsum(problem.forward + problem.backward).tolist()
    cuts = [0]
    for i in range(1, stages):
        at = bisect_left(sums, sums[-1] * i // stages) + 1
        cuts.append(min(max(at, cuts[-1] + 1), count - stages + i))
    return (*cuts, count)


def ramps(problem: ChainProblem) -> list[tuple[int, ...]]:
    """Cuts nearest to shares that fall or rise evenly along the ranks.

    Rounding spreads heavier stages between lighter ones. That is what edges ask for, since
    neighbours that are both heavy set the pace together with the edge between them
    (:mod:`~planner.schedules.order_bounds`, cycles), and what stage terms do not see.
    """
    stages = problem.num_stages
    times = problem.forward + problem.backward
    rank = np.arange(stages)
    typical = float(np.median(times))
    found = []
    for slope in _SLOPES:
        share = np.cumsum(1 + slope * (1 - 2 * rank / max(1, stages - 1)))
        found += [cuts_at_shares(times, share, shift * typical) for shift in _SHIFTS]
    return found


def cuts_at_shares(
    weights: NDArray[np.number], shares: NDArray[np.float64], shift: float = 0.0
) -> tuple[int, ...]:
    """Cuts nearest to rising shares of the weights, every stage non-empty.

    Parameters
    ----------
    weights
        Of each block, shape (N,).
    shares
        What the stages up to each one should hold together, shape (S,), in any unit.
    shift
        By how much weight every cut is moved to the right.

    Examples
    --------
    >>> cuts_at_shares(np.array([1, 1, 1, 1]), np.array([1.0, 4.0]))
    (0, 1, 4)
    """
    count, stages = len(weights), len(shares)
    sums = np.concatenate(([0], np.cumsum(weights)))
    middles = (sums[:-1] + sums[1:]) / 2
    cuts = np.searchsorted(middles, sums[-1] * shares / shares[-1] + shift)
    cuts[-1] = count
    # Every stage keeps a block: cuts rise by one at least, from both ends.
    stage = np.arange(stages)
    rising = np.maximum.accumulate(cuts - stage) + stage
    rising = np.minimum(np.maximum(rising, stage + 1), count - stages + stage + 1)
    return (0, *rising.tolist())


def neighbours(cuts: tuple[int, ...], longest: int | None = None, most: int | None = None) -> I64:
    """Cuts with a run of cuts i..j moved by one block, short runs first, shape (K, P+1).

    Runs of any length unless ``longest`` says, and no more than ``most`` of them all.

    Examples
    --------
    >>> neighbours((0, 2, 3, 5)).tolist()
    [[0, 1, 3, 5], [0, 2, 4, 5], [0, 1, 2, 5], [0, 3, 4, 5]]
    """
    inner = len(cuts) - 2
    lengths = np.arange(1, min(inner, longest or inner) + 1)
    count = inner - lengths + 1
    length = np.repeat(lengths, count)
    first = np.arange(len(length)) - np.repeat(np.cumsum(count) - count, count) + 1
    last = first + length - 1
    at = np.array(cuts, np.int64)
    possible = np.stack([at[first - 1] < at[first] - 1, at[last] + 1 < at[last + 1]], axis=1)
    run, up = np.nonzero(possible)
    run, up = run[:most], up[:most]
    position = np.arange(len(cuts))[None, :]
    moved = (first[run, None] <= position) & (position <= last[run, None])
    around: I64 = at + moved * (2 * up - 1)[:, None]
    return around


def cut_tuples(cuts: I64) -> list[tuple[int, ...]]:
    """Rows of cut vectors as the keys that an incumbent knows them by."""
    return [tuple(row) for row in cuts.tolist()]


def no_solution(best: Incumbent) -> StepSolution:
    """No cut fits."""
    return StepSolution(
        None, (), None, None, None, UNREACHABLE, False, True, best.simulations, 0, "none"
    )


def solution_of(best: Incumbent, bound: int, nodes: int, kind: str) -> StepSolution:
    """The best cut met with a proven bound (capped at its value)."""
    if best.key is None:
        return StepSolution(
            None, (), None, None, None, bound, False, False, best.simulations, nodes, kind,
            {"upper_bound": bound},
        )  # fmt: skip
    value, cuts = best.key[0], best.key[4]
    bound = min(bound, value)
    limit = value if best.outside is None else min(value, best.outside)
    with within(NEVER):  # what was found is told however late it is
        choices = best.choices()
    return StepSolution(
        cuts=cuts,
        choices=choices,
        lightest=-best.key[2],
        peak_bytes=best.key[3],
        value=value,
        makespan=best.makespan,
        bottleneck=best.bottleneck,
        bound=bound,
        proven=bound == value,
        infeasible=False,
        simulations=best.simulations,
        nodes=nodes,
        bound_kind=kind,
        witness={"upper_bound": limit},
    )
