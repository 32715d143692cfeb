"""What one cut costs: the plain, slow and obvious evaluation that the judge uses.

value = max_r(finish_r + exposed reduction of rank r) + max_r optimizer time of rank r + fixed
tail, where finish_r is the simulated end of rank r's last operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from planner.cost.stage_table import ChainProblem, RecomputeChoice
from planner.errors import InputError
from planner.schedule_rules import RULES
from planner.schedules.grouping import RankMemory, grouped_choice
from planner.schedules.simulate import Timing
from planner.schedules.timing import StageCosts, timing_of
from planner.specs import Recompute, Schedule

__all__ = ["StepEvaluation", "evaluate_cuts", "stage_costs"]

_ALWAYS_ROOM = 2
"""``zb-auto`` asks for at most this many times P micro-batches a rank: more changes nothing."""


@dataclass(frozen=True)
class StepEvaluation:
    """One cut, fully priced. Times are quanta of the problem.

    Tuples hold one entry a rank; those of ``costs`` one a stage, which is the same but where a
    rank holds several stages.
    """

    cuts: tuple[int, ...]
    """0 = c_0 < c_1 < ... < c_S = N."""
    choices: tuple[RecomputeChoice, ...]
    """What each rank recomputes, and its memory."""
    costs: StageCosts
    load: tuple[int, ...]
    """F + B of a micro-batch; of one passing either stage in a two-way schedule, on average."""
    communication: tuple[int, ...]
    """What a rank sends and receives at its cuts for one micro-batch."""
    timing: Timing
    exposed_reduction: tuple[int, ...]
    optimizer: tuple[int, ...]
    in_flight: tuple[int, ...]
    """Micro-batches' activations held at the peak; chunks' where a rank holds several stages."""
    limits: tuple[int, ...] | None
    """Micro-batches each rank has memory for (``zb-auto``; None elsewhere)."""
    held: tuple[RankMemory, ...]
    """Memory of ranks that hold several stages; empty otherwise."""
    bottleneck: int
    """max over ranks of t + c."""
    value: int
    """The step value."""

    @property
    def makespan(self) -> int:
        """Simulated end of the last operation of any rank."""
        return self.timing.makespan

    @property
    def lightest_stage(self) -> int:
        """Smallest t of any rank (ties between cuts go to the largest)."""
        return min(self.load)

    @property
    def peak_bytes(self) -> int:
        """Largest memory of any rank."""
        return max(choice.memory_bytes for choice in self.choices)


def evaluate_cuts(
    problem: ChainProblem,
    cuts: Sequence[int],
    known: Sequence[RecomputeChoice] | None = None,
) -> StepEvaluation | None:
    """Price and simulate one cut; None when a stage is not allowed or does not fit.

    Parameters
    ----------
    problem
        The priced chain of N blocks.
    cuts
        S+1 positions from 0 to N, strictly increasing.
    known
        What each stage recomputes, where that was priced before.

    Raises
    ------
    InputError
        When ``cuts`` is not such a sequence.
    """
    positions = _positions(problem, cuts)
    intervals = list(pairwise(positions))
    if not all(problem.allowed(s, *interval) for s, interval in enumerate(intervals)):
        return None
    held: list[RankMemory] = []
    choices: list[RecomputeChoice] = []
    for rank in range(problem.num_ranks):
        if known is not None:
            choices.append(known[rank])
        elif problem.is_grouped:
            found = grouped_choice(problem, rank, positions)
            if found is None:
                return None
            choices.append(found[0])
            held.append(found[1])
        else:
            choice = problem.recompute_choice(rank, *intervals[rank])
            if choice is None:
                return None
            choices.append(choice)
    ranks = problem.rank_stages or tuple((stage,) for stage in range(problem.num_stages))
    costs = stage_costs(problem, positions, choices)
    limits = _activation_limits(problem, positions, choices)
    timing, really_held = timing_of(problem, costs, limits)
    in_flight = [int(count) for count in problem.in_flight]
    if held:
        in_flight = [sum(memory.counts) for memory in held]
    elif really_held is not None:
        in_flight = list(really_held)
        choices = [
            _with_in_flight(problem, rank, intervals[rank], choice, in_flight[rank])
            for rank, choice in enumerate(choices)
        ]
    edges = [problem.edges(s, *interval) for s, interval in enumerate(intervals)]
    stage_load = [f + b for f, b in zip(costs.forward, costs.backward, strict=True)]
    # A micro-batch passes one of the two stages that a rank of a two-way schedule holds.
    passes = 1 if problem.mirrored_tier is None else 2
    load = [-(-sum(stage_load[s] for s in stages) // passes) for stages in ranks]
    communication = [-(-sum(sum(edges[s]) for s in stages) // passes) for stages in ranks]
    pieces = [[intervals[s] for s in stages] for stages in ranks]
    exposed = [_exposed_reduction(problem, held_by_rank) for held_by_rank in pieces]
    optimizer = [
        sum(problem.optimizer_time(*interval) for interval in held_by_rank)
        for held_by_rank in pieces
    ]
    ends = [finish + tail for finish, tail in zip(timing.finish, exposed, strict=True)]
    return StepEvaluation(
        cuts=positions,
        choices=tuple(choices),
        costs=costs,
        load=tuple(load),
        communication=tuple(communication),
        timing=timing,
        exposed_reduction=tuple(exposed),
        optimizer=tuple(optimizer),
        in_flight=tuple(in_flight),
        limits=None if limits is None else tuple(limits),
        held=tuple(held),
        bottleneck=max(t + c for t, c in zip(load, communication, strict=True)),
        value=max(ends) + max(optimizer) + problem.fixed_tail,
    )


def stage_costs(
    problem: ChainProblem, cuts: Sequence[int], choices: Sequence[RecomputeChoice]
) -> StageCosts:
    """F, I (with recompute), W and edges of every stage of a cut.

    Where the backward is split, all of the first stage's is W: nobody waits for the gradient of
    the model's input, which torch therefore never computes (its I took 0.03 ms of 32 measured).
    """
    intervals = list(pairwise(cuts))
    sums = problem.prefix

    def total(name: str) -> list[int]:
        return [sums[name][end] - sums[name][start] for start, end in intervals]

    input_gradient = total("input_gradient")
    if problem.is_grouped:
        slowest = [0] * problem.num_stages
        for rank, stages in enumerate(problem.rank_stages):
            for s in stages:
                # A stage on two ranks recomputes as the more thrifty of them has to.
                added = _extra(problem, intervals[s], choices[rank].mode)
                slowest[s] = max(slowest[s], added)
        input_gradient = [i + extra for i, extra in zip(input_gradient, slowest, strict=True)]
    else:
        input_gradient = [i + c.extra for i, c in zip(input_gradient, choices, strict=True)]
    weight_gradient = total("weight_gradient")
    if RULES[problem.schedule].splits_backward:
        weight_gradient[0] += input_gradient[0]
        input_gradient[0] = 0
    edges = [problem.edges(s, *interval) for s, interval in enumerate(intervals)]
    mirrored: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    if problem.mirrored_tier is not None:
        borders = (problem.mirrored_tier, np.array(cuts[1:-1], np.int64))
        mirrored = (
            tuple(problem.edge_forward[borders].tolist()),
            tuple(problem.edge_backward[borders].tolist()),
        )
    return StageCosts(
        forward=tuple(total("forward")),
        input_gradient=tuple(input_gradient),
        weight_gradient=tuple(weight_gradient),
        edge_forward=tuple(edge[2] for edge in edges[:-1]),
        edge_backward=tuple(edge[3] for edge in edges[:-1]),
        mirrored_forward=mirrored and mirrored[0],
        mirrored_backward=mirrored and mirrored[1],
    )


def _extra(problem: ChainProblem, interval: tuple[int, int], mode: Recompute) -> int:
    if mode is Recompute.NONE:
        return 0
    able = int(problem.recomputable[slice(*interval)].sum()) if mode is Recompute.FULL else 0
    return problem.recompute_extra(*interval, mode, able)


def _activation_limits(
    problem: ChainProblem, cuts: Sequence[int], choices: Sequence[RecomputeChoice]
) -> list[int] | None:
    """Micro-batches each rank has memory for beside its states; None but for ``zb-auto``."""
    if problem.schedule is not Schedule.ZB_AUTO:
        return None
    most = min(problem.num_microbatches, _ALWAYS_ROOM * problem.num_ranks)
    limits = []
    for rank, choice in enumerate(choices):
        start, end = cuts[rank], cuts[rank + 1]
        terms = problem.memory_terms(rank, start, end, choice.mode, choice.layers)
        each = terms["activations"] // max(1, int(problem.in_flight[rank]))
        room = int(problem.budget_bytes[rank]) - (choice.memory_bytes - terms["activations"])
        limits.append(max(1, min(most, room // each)) if each else most)
    return limits


def _with_in_flight(
    problem: ChainProblem,
    rank: int,
    interval: tuple[int, int],
    choice: RecomputeChoice,
    in_flight: int,
) -> RecomputeChoice:
    terms = problem.memory_terms(rank, *interval, choice.mode, choice.layers)
    each = terms["activations"] // max(1, int(problem.in_flight[rank]))
    memory = choice.memory_bytes - terms["activations"] + in_flight * each
    return choice._replace(memory_bytes=memory)


def _exposed_reduction(problem: ChainProblem, pieces: Sequence[tuple[int, int]]) -> int:
    """Gradient reduction left after a rank's last backward, over all its stages.

    As :meth:`ChainProblem.exposed_reduction`: everything but the first block's own share hides
    under the backward of what the rank runs after it for the last micro-batch.
    """
    if len(pieces) == 1:
        return problem.exposed_reduction(*pieces[0])
    sums = problem.prefix
    total = sum(sums["reduction"][end] - sums["reduction"][start] for start, end in pieces)
    if total == 0:
        return 0
    if not problem.overlap_reduction:
        return problem.reduction_latency + total
    first = min(start for start, _ in pieces)
    hiding = sums[problem.hides_reduction]
    window = sum(hiding[end] - hiding[start] for start, end in pieces)
    window -= hiding[first + 1] - hiding[first]
    return problem.reduction_latency + max(int(problem.reduction[first]), total - window)


def _positions(problem: ChainProblem, cuts: Sequence[int]) -> tuple[int, ...]:
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
    return positions
