"""From a cut of a priced chain to the plan a reader sees: stages, step terms, groups, origins.

Nothing is decided here. Solvers hand in cuts, the judge hands in a plan's own cuts, and both get
the same figures from the same prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner import placement
from planner.cost.pricing import Pricer
from planner.cost.profile_rows import KNOWN_TYPES
from planner.cost.stage_table import ChainProblem
from planner.cost.tables import BlockTable, StateTable
from planner.errors import PlannerError
from planner.plans import (
    CollectiveGroup,
    Layout,
    Plan,
    Stage,
    Status,
    StepTerms,
    Verdict,
)
from planner.schedule_rules import RULES
from planner.schedules.simulate import bubble_fraction
from planner.schedules.step import StepEvaluation, activation_limits, evaluate_cuts
from planner.schedules.timing import timing_of
from planner.specs import Objective, Origin, Precision, Recompute, Schedule, Tier
from planner.units import format_ms, format_ranges

__all__ = [
    "UPPER_SHARE",
    "assemble_plan",
    "least_memory",
    "slowest_stage",
    "step_breakdown",
    "unfitting_plan",
]

UPPER_SHARE: dict[Origin, float] = {
    Origin.MEASURED: 0.05,
    Origin.INTERPOLATED: 0.08,
    Origin.CALIBRATED: 0.08,
    Origin.FORMULA: 0.10,
}
"""What the upper bound of a stage's memory adds to activations, workspace and buffers, by origin.

States are exact; activation formulas were 4 % off on average and 14 % at worst against measured
peaks (Zero Bubble paper, tables 4, 8 and 9, 29 runs), so 10 % separates fits from tight."""


@dataclass(frozen=True)
class _Priced:
    pricer: Pricer
    problem: ChainProblem
    layout: Layout
    blocks: BlockTable
    states: StateTable


def assemble_plan(
    pricer: Pricer,
    layout: Layout,
    cuts: Sequence[int],
    *,
    objective: Objective = Objective.STEP_TIME,
    problem: ChainProblem | None = None,
) -> Plan:
    """A plan (status ``feasible``, no bound yet) of cuts that fit.

    Raises
    ------
    PlannerError
        A stage is not allowed or does not fit its budget (``unfitting_plan`` shows such cuts).
    """
    problem = problem or pricer.problem(layout)
    evaluation = evaluate_cuts(problem, cuts)
    if evaluation is None:
        raise PlannerError(f"cuts {list(cuts)} do not fit {layout.short()}")
    priced = _Priced(
        pricer,
        problem,
        layout,
        pricer.block_table(layout.tp, layout.microbatch_size),
        pricer.state_table(layout.tp, layout.dp, layout.microbatch_size),
    )
    stages = tuple(_stage(priced, rank, evaluation) for rank in range(layout.pp))
    ms = pricer.quantum.ms
    step_ms = ms(evaluation.value)
    training, cluster = pricer.training, pricer.cluster
    tokens = training.global_batch_size * training.sequence_length
    tokens_per_s = tokens / (step_ms / 1e3) if step_ms and pricer.tail else None
    price = cluster.price_per_gpu_hour
    per_dollar = None
    if price and tokens_per_s is not None:
        per_dollar = tokens_per_s * 3600 / (price * layout.num_gpus)
    modes = {stage.recompute.value for stage in stages}
    return Plan(
        status=Status.FEASIBLE,
        objective=objective,
        model=pricer.model.name,
        cluster=cluster.name if pricer.fixed_link is None else None,
        layout=layout.model_copy(update={"recompute": modes.pop() if len(modes) == 1 else "mixed"}),
        stages=stages,
        sends=training.sends,
        bottleneck_ms=ms(evaluation.bottleneck),
        step_time_ms=step_ms,
        step_terms=_step_terms(priced, evaluation, stages),
        bubble_fraction=bubble_fraction(evaluation.timing, layout.pp),
        tokens_per_s=tokens_per_s,
        tokens_per_dollar=per_dollar,
        mfu=_mfu(priced, step_ms),
        num_gpus=layout.num_gpus,
        idle_gpus=max(0, cluster.num_gpus - layout.num_gpus) if pricer.fixed_link is None else 0,
        peak_memory_bytes=max(stage.memory_bytes for stage in stages),
        communication=_groups(priced, cuts, evaluation, stages),
        global_batch_size=training.global_batch_size,
        # A cut of a profile carries a length only so that formulas have one.
        sequence_length=training.sequence_length if _knows_length(pricer) else None,
        precision=training.precision,
        optimizer=training.optimizer,
        origins={origin.value: share for origin, share in priced.blocks.origin_share.items()},
        notes=_notes(priced, stages),
    )


def _knows_length(pricer: Pricer) -> bool:
    return pricer.tail or pricer.model.is_analytic


def unfitting_plan(pricer: Pricer, layout: Layout, cuts: Sequence[int]) -> tuple[Stage, ...]:
    """Stages of cuts whatever their memory: the most saving recompute where none fits."""
    problem = pricer.problem(layout)
    roomy = _with_budget(problem, cuts)
    plan = assemble_plan(pricer, layout, cuts, problem=roomy)
    budget = pricer.cluster.budget_bytes
    return tuple(
        stage.model_copy(
            update={
                "budget_bytes": budget,
                "verdict": _verdict(stage.memory_bytes, stage.memory_upper_bytes, budget),
            }
        )
        for stage in plan.stages
    )


def _with_budget(problem: ChainProblem, cuts: Sequence[int]) -> ChainProblem:
    """The same problem with each over-full stage's budget raised to its smallest need."""
    budgets = problem.budget_bytes.copy()
    for stage in range(problem.num_stages):
        start, end = cuts[stage], cuts[stage + 1]
        if problem.recompute_choice(stage, start, end) is None:
            budgets[stage] = least_memory(problem, stage, start, end)
    return replace(problem, budget_bytes=budgets)


def least_memory(problem: ChainProblem, stage: int, start: int, end: int) -> int:
    """Bytes of a stage under the allowed recompute that needs the fewest."""
    able = int(problem.recomputable[start:end].sum())
    counts = {Recompute.FULL: able, Recompute.LAYERS: able}
    modes = problem.recompute_modes or (Recompute.NONE,)
    return min(problem.stage_memory(stage, start, end, mode, counts.get(mode, 0)) for mode in modes)


def _stage(priced: _Priced, rank: int, evaluation: StepEvaluation) -> Stage:
    problem, pricer = priced.problem, priced.pricer
    pieces = _pieces(problem, rank, evaluation.cuts)
    choice = evaluation.choices[rank]
    ms = pricer.quantum.ms
    chunks = tuple(
        tuple(
            pricer.model.layers[layer].name
            for block in range(start, end)
            for layer in pricer.chain.blocks[block]
        )
        for start, end in pieces
    )
    memory = _memory_terms(priced, rank, evaluation)
    total = sum(memory.values())
    blocks = [block for start, end in pieces for block in range(start, end)]
    origin = max((priced.blocks.origins[block] for block in blocks), key=list(Origin).index)
    upper = total + int(
        UPPER_SHARE[origin]
        * sum(memory[term] for term in ("activations", "logits", "workspace", "buffers"))
    )
    budget = int(problem.budget_bytes[rank])
    held = problem.rank_stages[rank] if problem.is_grouped else (rank,)
    weight = sum(evaluation.costs.weight_gradient[s] for s in held)
    backward = sum(evaluation.costs.backward[s] for s in held)
    exposed = evaluation.exposed_reduction[rank]
    reduction = sum(int(problem.reduction[start:end].sum()) for start, end in pieces)
    reduction += problem.reduction_latency if reduction else 0
    tensor = 0
    if len(problem.tensor_parallel):
        tensor = sum(int(problem.tensor_parallel[start:end].sum()) for start, end in pieces)
    recomputed = choice.layers
    if choice.mode in (Recompute.FULL, Recompute.LAYERS):
        recomputed = sum(
            _recomputed_layers(priced, start, end, None if problem.is_grouped else choice.layers)
            for start, end in pieces
        )
    return Stage(
        rank=rank,
        layers=tuple(name for chunk in chunks for name in chunk),
        chunks=chunks,
        recompute=choice.mode,
        recomputed_layers=recomputed,
        forward_ms=ms(sum(evaluation.costs.forward[s] for s in held)),
        backward_ms=ms(backward),
        input_gradient_ms=ms(backward - weight),
        weight_gradient_ms=ms(weight),
        recompute_ms=ms(choice.extra),
        communication_ms=ms(evaluation.communication[rank]),
        tensor_parallel_ms=ms(tensor),
        in_flight=evaluation.in_flight[rank],
        memory_bytes=total,
        memory=memory,
        memory_upper_bytes=upper,
        budget_bytes=budget,
        verdict=_verdict(total, upper, budget),
        exposed_reduction_ms=ms(exposed),
        hidden_reduction_ms=ms(max(0, reduction - exposed)),
        optimizer_ms=ms(evaluation.optimizer[rank]),
        origin=origin,
    )


def _pieces(problem: ChainProblem, rank: int, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """The intervals of blocks that a rank holds."""
    held = problem.rank_stages[rank] if problem.is_grouped else (rank,)
    return [(cuts[stage], cuts[stage + 1]) for stage in held]


def _recomputed_layers(priced: _Priced, start: int, end: int, count: int | None) -> int:
    """Layers recomputed in full of an interval, of whose able blocks the first ``count`` are."""
    able = int(priced.problem.recomputable[start:end].sum())
    mask = priced.problem.recomputed_mask(start, end, able if count is None else count)
    blocks = priced.pricer.chain.blocks
    return sum(len(blocks[start + offset]) for offset, on in enumerate(mask) if on)


def _verdict(total: int, upper: int, budget: int) -> Verdict:
    if total > budget:
        return Verdict.OUT_OF_MEMORY
    return Verdict.FITS if upper <= budget else Verdict.TIGHT


def _memory_terms(priced: _Priced, rank: int, evaluation: StepEvaluation) -> dict[str, int]:
    """The rank's memory with states and activations taken apart; the terms add up the same."""
    problem, states = priced.problem, priced.states
    pieces = _pieces(problem, rank, evaluation.cuts)
    choice = evaluation.choices[rank]
    if evaluation.held:
        held = evaluation.held[rank]
        counts = held.counts
        terms = {
            "activations": held.activations,
            "workspace": held.workspace,
            "buffers": held.buffers,
        }
    else:
        start, end = pieces[0]
        terms = problem.memory_terms(rank, start, end, choice.mode, choice.layers)
        counts = (evaluation.in_flight[rank],)
        terms["activations"] += choice.memory_bytes - sum(terms.values())

    def total(values: NDArray[np.int64]) -> int:
        return sum(int(values[start:end].sum()) for start, end in pieces)

    parameters, gradients = total(states.parameter_bytes), total(states.gradient_bytes)
    optimizer = total(states.optimizer_bytes)
    homes = [block for start, end in pieces for block in range(start, end)]
    for pair, once in zip(states.tied, states.tied_states, strict=True):
        if pair.first in homes and pair.second in homes:
            parameters -= once.parameters
            gradients -= once.gradients
            optimizer -= once.optimizer
    logits = sum(
        count * int(priced.blocks.logits_bytes[start:end].sum())
        for count, (start, end) in zip(counts, pieces, strict=True)
    )
    found = {
        "parameters": parameters,
        "gradients": gradients,
        "optimizer": optimizer,
        "activations": terms["activations"] - logits,
        "logits": logits,
        "workspace": terms["workspace"],
        "buffers": terms["buffers"],
    }
    # Copies of the weights that asynchronous schedules keep: in the table they are part of what
    # a micro-batch in flight holds (PipeDream) or of the states (2BW).
    copies = total(states.parameter_bytes)
    if priced.layout.schedule is Schedule.PIPEDREAM:
        found["weight_versions"] = (counts[0] - 1) * copies
        found["activations"] -= counts[0] * copies
    elif priced.layout.schedule is Schedule.PIPEDREAM_2BW:
        found["weight_versions"] = choice.memory_bytes - sum(found.values())
    return found


def _step_terms(priced: _Priced, evaluation: StepEvaluation, stages: Sequence[Stage]) -> StepTerms:
    ms = priced.pricer.quantum.ms
    problem = priced.problem
    optimizer = max(evaluation.optimizer)
    reduced = evaluation.value - problem.fixed_tail - optimizer
    return StepTerms(
        makespan_ms=ms(evaluation.makespan),
        exposed_reduction_ms=ms(reduced - evaluation.makespan),
        optimizer_ms=ms(optimizer),
        fixed_ms=ms(problem.fixed_tail),
        hidden_reduction_ms=max(stage.hidden_reduction_ms for stage in stages),
    )


def _mfu(priced: _Priced, step_ms: float) -> float | None:
    """Model FLOPs of a step over what the GPUs could do at peak; None without FLOPs."""
    pricer, layout = priced.pricer, priced.layout
    peak = pricer.cluster.gpu.peak(pricer.training.precision)
    flops = priced.blocks.model_flops
    if not flops or not peak or not step_ms or not pricer.tail:
        return None
    total = flops * layout.num_microbatches * layout.dp
    return total / (step_ms / 1e3 * peak * layout.num_gpus)


def _groups(
    priced: _Priced, cuts: Sequence[int], evaluation: StepEvaluation, stages: Sequence[Stage]
) -> tuple[CollectiveGroup, ...]:
    """Tensor, pipeline and data-parallel communication with hidden and exposed shares."""
    pricer, layout, problem = priced.pricer, priced.layout, priced.problem
    count = layout.num_microbatches
    ms = pricer.quantum.ms
    groups = []
    if layout.tp > 1 and pricer.fixed_link is None:
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
                    sum(sum(per_block[start:end]) for start, end in _pieces(problem, r, cuts))
                    for r in range(layout.pp)
                ),
                exposed_ms=count * max(stage.tensor_parallel_ms for stage in stages),
            )
        )
    if layout.pp > 1:
        free, _ = timing_of(
            problem,
            replace(
                evaluation.costs,
                edge_forward=(0,) * (problem.num_stages - 1),
                edge_backward=(0,) * (problem.num_stages - 1),
                mirrored_forward=None,
                mirrored_backward=None,
            ),
            activation_limits(problem, cuts, evaluation.choices),
        )
        exposed = max(0, evaluation.makespan - free.makespan)
        busiest = sent = 0
        for rank in range(layout.pp):
            crossing = problem.rank_stages[rank] if problem.is_grouped else (rank,)
            edges = [problem.edges(s, cuts[s], cuts[s + 1]) for s in crossing]
            busiest = max(busiest, count * sum(back + out for _, back, out, _ in edges))
            sent = max(sent, sum(_sent(priced, s, cuts) for s in crossing))
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
    if layout.dp > 1:
        states = priced.states
        groups.append(
            CollectiveGroup(
                kind="data",
                ranks=layout.dp,
                tier=placement.data_group(pricer.cluster, layout.dp, layout.tp).tier,
                bytes_per_step=max(
                    sum(
                        int(states.reduction_bytes[start:end].sum())
                        for start, end in _pieces(problem, r, cuts)
                    )
                    for r in range(layout.pp)
                ),
                hidden_ms=max(stage.hidden_reduction_ms for stage in stages),
                exposed_ms=max(stage.exposed_reduction_ms for stage in stages),
            )
        )
    return tuple(groups)


def _sent(priced: _Priced, stage: int, cuts: Sequence[int]) -> int:
    """Bytes a stage sends a micro-batch: gradients back and activations on, if to another rank."""
    problem, blocks = priced.problem, priced.blocks
    holder = {s: r for r, held in enumerate(problem.rank_stages) for s in held}
    sent = 0
    for neighbour, sizes, cut in (
        (stage - 1, blocks.cut_backward_bytes, cuts[stage]),
        (stage + 1, blocks.cut_forward_bytes, cuts[stage + 1]),
    ):
        apart = RULES[problem.schedule].two_way or holder.get(neighbour, -1) != holder.get(stage)
        if 0 <= neighbour < problem.num_stages and (not problem.is_grouped or apart):
            sent += int(sizes[cut])
    return sent


def _notes(priced: _Priced, stages: Sequence[Stage]) -> tuple[str, ...]:
    """What a reader should know about this layout."""
    pricer, layout = priced.pricer, priced.layout
    notes = [*pricer.chain.notes, *_pricing_notes(pricer, layout)]
    if layout.schedule is Schedule.ONE_F_ONE_B and 1 < layout.num_microbatches <= layout.pp:
        alike = layout.pp - layout.num_microbatches + 1
        notes.append(
            f"with M={layout.num_microbatches} <= P={layout.pp}, 1f1b keeps all micro-batches on "
            f"the first {alike} stages and saves no memory there over gpipe"
        )
    tight = [stage.rank for stage in stages if stage.verdict is Verdict.TIGHT]
    if tight:
        notes.append(
            f"rank{'s' if len(tight) > 1 else ''} {format_ranges(tight)}: the estimate fits "
            "but its upper bound does not"
        )
    return tuple(notes)


def _pricing_notes(pricer: Pricer, layout: Layout) -> list[str]:
    """Prices that stand for something else: another precision's rate, collectives not profiled."""
    notes = []
    gpu, precision = pricer.cluster.gpu, pricer.training.precision
    by_rate = any(
        layer.shape is not None or any(row.forward_ms is None for row in layer.costs)
        for layer in pricer.model.layers
    )
    if by_rate and precision not in gpu.peak_flops:
        other = Precision.FP16 if precision is Precision.BF16 else Precision.BF16
        notes.append(
            f"{gpu.name} has no {precision.value} rate: priced at its {other.value} rate; "
            f"give --precision {other.value}"
        )
    prices = pricer.layer_prices(layout.tp, layout.microbatch_size)
    added = [price for price in prices if price.collectives_added]
    if added:
        added_ms = sum(price.tensor_parallel_ms for price in added)
        how = (
            f"{format_ms(added_ms)} a micro-batch was added by formula"
            if added_ms
            else "without a cluster they are free; give --cluster to price them"
        )
        notes.append(f"the profile's rows exclude collectives at tp={layout.tp}: {how}")
    unknown = {
        layer.type
        for layer in pricer.model.layers
        if layout.tp > 1 and layer.type not in KNOWN_TYPES
        for row in layer.costs
        if row.tp == layout.tp and not row.collectives_included
    }
    if unknown:
        notes.append(
            f"the profile's rows exclude collectives at tp={layout.tp}, and what layers of type "
            f"{', '.join(sorted(unknown))} exchange is not known: it is counted as free"
        )
    return notes


def slowest_stage(plan: Plan) -> Stage:
    """The stage with the most work a micro-batch, the first of equal ones."""
    return max(plan.stages, key=lambda stage: (stage.forward_ms + stage.backward_ms, -stage.rank))


def step_breakdown(plan: Plan) -> dict[str, float]:
    """Where the step time of a plan goes, in milliseconds; the parts add up to step_time_ms.

    ``compute``, ``recompute`` and ``tensor parallel`` are M times those of the slowest stage;
    ``pipeline bubble`` is the rest of the makespan, waiting for transfers included.
    """
    if plan.step_terms is None or not plan.stages:
        return {}
    count = plan.layout.num_microbatches
    slowest = slowest_stage(plan)
    load = slowest.forward_ms + slowest.backward_ms
    terms = plan.step_terms
    return {
        "compute": count * (load - slowest.recompute_ms - slowest.tensor_parallel_ms),
        "recompute": count * slowest.recompute_ms,
        "tensor parallel": count * slowest.tensor_parallel_ms,
        "pipeline bubble": terms.makespan_ms - count * load,
        "gradient reduction": terms.exposed_reduction_ms,
        "optimizer": terms.optimizer_ms,
        "fixed": terms.fixed_ms,
    }
