"""Plain enumeration: does any cut of a chain beat a value? Evidence that shares no solver code.

Cuts are built stage by stage. Every stage is priced by the methods of
:class:`~planner.cost.stage_table.ChainProblem`; a prefix is dropped once a proven bound of one
pipeline (:mod:`~planner.schedules.order_bounds`) says that each of its completions is worth the
limit or more; complete cuts are simulated.

Bounds of a prefix of d stages, in the words of that module. A prefix rank j has its span term
with R_j taken from the prefix and the blocks behind it. The later ranks are a pipeline of their
own: GPipe and 1F1B give them the order they would have alone, its first F waits for the forward
of the prefix, and after its last B rank 0 still has the backward of the prefix to come.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem
from planner.schedules.order_bounds import layout_bound, span_bound
from planner.schedules.step import evaluate_cuts
from planner.specs import Schedule, Sends

__all__ = ["nothing_below"]

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class _Priced:
    """One stage as an operation of the timeline (blocking sends are part of it)."""

    forward: int
    backward: int
    edge_forward: int
    """Out of the stage, to the next one."""
    edge_backward: int
    reduction: int
    optimizer: int


def nothing_below(problem: ChainProblem, limit: int, max_nodes: int = 20_000) -> bool | None:
    """Whether no cut of the chain has a step value below ``limit``.

    Parameters
    ----------
    limit
        Step value in quanta of the problem.
    max_nodes
        Stages to price and prefixes to bound at most.

    Returns
    -------
    True where every allowed and fitting cut into P non-empty stages is worth at least ``limit``,
    False where one is worth less, None where ``max_nodes`` ran out before either was known.
    """
    if problem.num_stages > problem.num_blocks:
        return True
    try:
        return not _Enumeration(problem, limit, max_nodes).finds_less((0,))
    except _OutOfNodesError:
        return None


class _OutOfNodesError(Exception):
    """The node limit was reached."""


class _Enumeration:
    def __init__(self, problem: ChainProblem, limit: int, max_nodes: int) -> None:
        self.problem = problem
        self.limit = limit
        self.nodes_left = max_nodes
        sums = problem.prefix
        self.forward, self.backward = sums["forward"], sums["backward"]
        self.times = [f + b for f, b in zip(self.forward, self.backward, strict=True)]
        updates = sums["update"]
        self.least_optimizer = max(
            -(-updates[-1] // problem.num_stages), int(problem.update.max(initial=0))
        )
        self.priced: dict[tuple[int, int, int], _Priced | None] = {}
        self.rests: dict[tuple[int, int], int] = {}

    def finds_less(self, prefix: tuple[int, ...]) -> bool:
        """Whether some completion of the prefix is worth less than the limit."""
        stages, count = self.problem.num_stages, self.problem.num_blocks
        stage = len(prefix) - 1
        if stage == stages:
            evaluation = evaluate_cuts(self.problem, prefix)
            return evaluation is not None and evaluation.value < self.limit
        last = stage == stages - 1
        ends = (count,) if last else range(prefix[-1] + 1, count - (stages - stage - 1) + 1)
        for end in ends:
            work = self.times[end] - self.times[prefix[-1]]
            if self.problem.num_microbatches * work >= self.limit:
                break  # longer stages work longer
            self._count()
            if self._price(stage, prefix[-1], end) is None:
                continue
            longer = (*prefix, end)
            if self._bound(longer) < self.limit and self.finds_less(longer):
                return True
        return False

    def _count(self) -> None:
        self.nodes_left -= 1
        if self.nodes_left < 0:
            raise _OutOfNodesError

    def _price(self, stage: int, start: int, end: int) -> _Priced | None:
        key = (stage, start, end)
        if key not in self.priced:
            self.priced[key] = self._priced_stage(stage, start, end)
        return self.priced[key]

    def _priced_stage(self, stage: int, start: int, end: int) -> _Priced | None:
        problem = self.problem
        if not problem.allowed(stage, start, end):
            return None
        choice = problem.recompute_choice(stage, start, end)
        if choice is None:
            return None
        _, in_backward, out_forward, out_backward = problem.edges(stage, start, end)
        forward = self.forward[end] - self.forward[start]
        backward = self.backward[end] - self.backward[start] + choice.extra
        if problem.sends is Sends.BLOCKING:
            forward, backward = forward + out_forward, backward + in_backward
            out_forward = out_backward = 0
        return _Priced(
            forward,
            backward,
            out_forward,
            out_backward,
            problem.exposed_reduction(start, end),
            problem.optimizer_time(start, end),
        )

    def _bound(self, cuts: tuple[int, ...]) -> int:
        """Least step value of all completions of a prefix of one stage or more."""
        problem = self.problem
        known, m_all = len(cuts) - 1, problem.num_microbatches
        rows = [self.priced[s, start, end] for s, (start, end) in enumerate(pairwise(cuts))]
        stages = [row for row in rows if row is not None]
        f = np.array([s.forward for s in stages], np.int64)
        b = np.array([s.backward for s in stages], np.int64)
        ef = np.array([s.edge_forward for s in stages], np.int64)
        eb = np.array([s.edge_backward for s in stages], np.int64)
        t = f + b
        behind = self.times[-1] - self.times[cuts[-1]]
        forward_before = np.cumsum(f + ef) - f - ef
        before = np.cumsum(t + ef + eb) - t - ef - eb
        through = int(before[-1] + t[-1] + ef[-1] + eb[-1])
        after = through + behind - before - t
        reduction = np.array([s.reduction for s in stages], np.int64)
        if problem.schedule is Schedule.GPIPE:
            # Exact for whole cuts: all times and edges + (M-1)(max f + max b).
            most_f = max(int(f.max()), self._least(self.forward, cuts[-1]))
            most_b = max(int(b.max()), self._least(self.backward, cuts[-1]))
            pace = (m_all - 1) * (most_f + most_b)
            finish_first = through + behind + pace
            ends = finish_first + int(reduction[0])
            own = forward_before + t + after + (m_all - 1) * (most_f + b)
            ends = max(ends, int((own + reduction).max()))
        else:
            rank = np.arange(known, dtype=np.int64)
            later = problem.num_stages - 1 - rank
            span = span_bound(m_all, later, f, b, before, after, rank)
            ends = int((before + span).max()) + int(reduction[0])
            ends = max(ends, int((forward_before + span + reduction).max()))
        left = problem.num_stages - known
        if left:
            ends = max(ends, through + self._rest(cuts[-1], left) + int(reduction[0]))
        optimizer = max(self.least_optimizer, max(s.optimizer for s in stages))
        return ends + optimizer + problem.fixed_tail

    @staticmethod
    def _least(sums: list[int], start: int) -> int:
        """A value that the largest later stage cannot undercut; 0 behind the last block."""
        return max((b - a for a, b in pairwise(sums[start:])), default=0)

    def _rest(self, start: int, stages: int) -> int:
        """Least makespan of the blocks from ``start`` on, cut into ``stages``."""
        key = (start, stages)
        found = self.rests.get(key)
        if found is None:
            whole = layout_bound(
                self.problem.schedule,
                stages,
                self.problem.num_microbatches,
                self.forward[-1] - self.forward[start],
                self.backward[-1] - self.backward[start],
                self._least_largest_time(start, stages),
                0,
            )
            found = self.rests[key] = int(whole[()])
        return found

    def _least_largest_time(self, start: int, stages: int) -> int:
        """Least T such that ``stages`` intervals of total time <= T cover the rest."""
        sums = self.times
        total = sums[-1] - sums[start]
        low = max(-(-total // stages), max(b - a for a, b in pairwise(sums[start:])))
        high = total
        while low < high:
            middle = (low + high) // 2
            at = start
            for _ in range(stages):
                at = bisect_right(sums, sums[at] + middle) - 1
            if at == len(sums) - 1:
                high = middle
            else:
                low = middle + 1
        return low
