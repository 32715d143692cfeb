"""Tensor, pipeline and data-parallel communication of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner import placement
from planner.assembly.priced import Priced, pieces
from planner.cost.stage_table import ChainProblem
from planner.plans import CollectiveGroup, Stage
from planner.schedule_rules import RULES
from planner.schedules.simulate import Timing
from planner.schedules.step import StepEvaluation
from planner.schedules.timing import automatic_order_of, order_timing, timing_of
from planner.specs import Schedule, Tier

__all__ = ["communication_groups"]


def communication_groups(
    priced: Priced,
    cuts: Sequence[int],
    evaluation: StepEvaluation,
    stages: Sequence[Stage],
    *,
    pipeline_alone: bool = False,
) -> tuple[CollectiveGroup, ...]:
    """Tensor, pipeline and data-parallel communication with hidden and exposed shares."""
    pricer, layout, problem = priced.pricer, priced.layout, priced.problem
    count = layout.num_microbatches
    ms = pricer.quantum.ms
    groups = []
    if layout.tp > 1 and pricer.fixed_link is None and not pipeline_alone:
        prices = pricer.layer_prices(layout.tp, layout.microbatch_size)
        per_block = [
            sum(prices[layer].tensor_parallel_bytes for layer in members)
            for members in pricer.chain.blocks
        ]
        groups.append(
            CollectiveGroup(
                kind="tensor",
                ranks=layout.tp,
                tier=placement.tensor_group(pricer.cluster, layout.tp).tier,
                bytes_per_step=count
                * max(
                    sum(sum(per_block[start:end]) for start, end in pieces(problem, r, cuts))
                    for r in range(layout.pp)
                ),
                exposed_ms=count * max(stage.tensor_parallel_ms for stage in stages),
            )
        )
    if layout.pp > 1:
        free = _without_edges(problem, evaluation)
        exposed = max(0, evaluation.makespan - free.makespan)
        busiest = sent = 0
        holder = {s: r for r, held in enumerate(problem.rank_stages) for s in held}
        for rank in range(layout.pp):
            crossing = problem.rank_stages[rank] if problem.is_grouped else (rank,)
            edges = [problem.edges(s, cuts[s], cuts[s + 1]) for s in crossing]
            busiest = max(busiest, count * sum(back + out for _, back, out, _ in edges))
            sent = max(sent, sum(_sent(priced, s, cuts, holder) for s in crossing))
        if RULES[layout.schedule].two_way:  # half of the micro-batches on each of its stages
            busiest, sent = busiest // 2, sent // 2
        tiers = list(Tier)
        groups.append(
            CollectiveGroup(
                kind="pipeline",
                ranks=layout.pp,
                tier=max(pricer.boundary_tiers(layout), key=tiers.index),
                bytes_per_step=count * sent,
                hidden_ms=ms(max(0, busiest - exposed)),
                exposed_ms=ms(exposed),
            )
        )
    if layout.dp > 1 and not pipeline_alone:
        states = priced.states
        groups.append(
            CollectiveGroup(
                kind="data",
                ranks=layout.dp,
                tier=placement.data_group(pricer.cluster, layout.dp, layout.tp).tier,
                bytes_per_step=max(
                    sum(
                        int(states.reduction_bytes[start:end].sum())
                        for start, end in pieces(problem, r, cuts)
                    )
                    for r in range(layout.pp)
                ),
                hidden_ms=max(stage.hidden_reduction_ms for stage in stages),
                exposed_ms=max(stage.exposed_reduction_ms for stage in stages),
            )
        )
    return tuple(groups)


def _without_edges(problem: ChainProblem, evaluation: StepEvaluation) -> Timing:
    """The same operations in the same order, with free transfers."""
    nothing = (0,) * (problem.num_stages - 1)
    costs = replace(
        evaluation.costs,
        edge_forward=nothing,
        edge_backward=nothing,
        mirrored_forward=None,
        mirrored_backward=None,
    )
    if problem.schedule is Schedule.ZB_AUTO:
        order = automatic_order_of(problem, evaluation.costs, evaluation.limits)
        return order_timing(problem, costs, order)
    return timing_of(problem, costs)[0]


def _sent(priced: Priced, stage: int, cuts: Sequence[int], holder: dict[int, int]) -> int:
    """Bytes a stage sends a micro-batch: gradients back and activations on, if to another rank."""
    problem, blocks = priced.problem, priced.blocks
    sent = 0
    for neighbour, sizes, cut in (
        (stage - 1, blocks.cut_backward_bytes, cuts[stage]),
        (stage + 1, blocks.cut_forward_bytes, cuts[stage + 1]),
    ):
        apart = RULES[problem.schedule].two_way or holder.get(neighbour, -1) != holder.get(stage)
        if 0 <= neighbour < problem.num_stages and (not problem.is_grouped or apart):
            sent += int(sizes[cut])
    return sent
