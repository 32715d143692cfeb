"""What one cut costs: the plain, slow and obvious evaluation that the judge uses.

value = max_s(finish_s + exposed reduction of stage s) + max_s optimizer time of stage s + fixed
tail, where finish_s is the simulated end of rank s's last operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from planner.cost.stage_table import ChainProblem, RecomputeChoice
from planner.errors import InputError
from planner.schedules.simulate import Timing, simulate

__all__ = ["StepEvaluation", "evaluate_cuts"]


@dataclass(frozen=True)
class StepEvaluation:
    """One cut, fully priced. Times are quanta of the problem; tuples hold one entry a stage."""

    cuts: tuple[int, ...]
    """0 = c_0 < c_1 < ... < c_P = N."""
    choices: tuple[RecomputeChoice, ...]
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    """Full backward of a micro-batch with what recompute adds."""
    edge_forward: tuple[int, ...]
    """One-way forward cost of the boundary after stage s, s = 0 .. P-2."""
    edge_backward: tuple[int, ...]
    timing: Timing
    exposed_reduction: tuple[int, ...]
    optimizer: tuple[int, ...]
    bottleneck: int
    """max over stages of t + c."""
    value: int
    """The step value."""

    @property
    def makespan(self) -> int:
        """Simulated end of the last operation of any rank."""
        return self.timing.makespan

    @property
    def lightest_stage(self) -> int:
        """Smallest t of any stage (ties between cuts go to the largest)."""
        return min(f + b for f, b in zip(self.forward, self.backward, strict=True))

    @property
    def peak_bytes(self) -> int:
        """Largest memory of any stage."""
        return max(choice.memory_bytes for choice in self.choices)


def evaluate_cuts(problem: ChainProblem, cuts: Sequence[int]) -> StepEvaluation | None:
    """Price and simulate one cut; None when a stage is not allowed or does not fit.

    Parameters
    ----------
    problem
        The priced chain of N blocks.
    cuts
        P+1 positions from 0 to N, strictly increasing.

    Raises
    ------
    InputError
        When ``cuts`` is not such a sequence.
    """
    stages = problem.num_stages
    positions = tuple(int(cut) for cut in cuts)
    if (
        len(positions) != stages + 1
        or positions[0] != 0
        or positions[-1] != problem.num_blocks
        or any(a >= b for a, b in pairwise(positions))
    ):
        raise InputError(
            "is no cut of the chain",
            value=list(positions),
            expected=f"{stages + 1} increasing positions from 0 to {problem.num_blocks}",
        )
    bounds = list(enumerate(pairwise(positions)))
    choices = []
    for s, (start, end) in bounds:
        if not problem.allowed(s, start, end):
            return None
        choice = problem.recompute_choice(s, start, end)
        if choice is None:
            return None
        choices.append(choice)
    sums = problem.prefix
    forward = [sums["forward"][end] - sums["forward"][start] for _, (start, end) in bounds]
    backward = [
        sums["backward"][end] - sums["backward"][start] + choices[s].extra
        for s, (start, end) in bounds
    ]
    edges = [problem.edges(s, start, end) for s, (start, end) in bounds]
    edge_forward = [edges[s][2] for s in range(stages - 1)]
    edge_backward = [edges[s][3] for s in range(stages - 1)]
    timing = simulate(
        problem.schedule,
        forward,
        backward,
        edge_forward,
        edge_backward,
        problem.num_microbatches,
        problem.sends,
    )
    exposed = [problem.exposed_reduction(start, end) for _, (start, end) in bounds]
    optimizer = [problem.optimizer_time(start, end) for _, (start, end) in bounds]
    ends = [finish + tail for finish, tail in zip(timing.finish, exposed, strict=True)]
    return StepEvaluation(
        cuts=positions,
        choices=tuple(choices),
        forward=tuple(forward),
        backward=tuple(backward),
        edge_forward=tuple(edge_forward),
        edge_backward=tuple(edge_backward),
        timing=timing,
        exposed_reduction=tuple(exposed),
        optimizer=tuple(optimizer),
        bottleneck=max(
            f + b + sum(edges[s]) for s, (f, b) in enumerate(zip(forward, backward, strict=True))
        ),
        value=max(ends) + max(optimizer) + problem.fixed_tail,
    )
