"""The plan of a cut, whether it fits or not, and where its step time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.assembly.communication import communication_groups
from planner.assembly.notes import plan_notes
from planner.assembly.priced import Priced
from planner.assembly.stages import assemble_stage, verdict_of
from planner.cost.pricing import Pricer
from planner.cost.stage_table import ChainProblem
from planner.errors import PlannerError
from planner.plans import Layout, Plan, Stage, Status, StepTerms
from planner.schedules.cut_batch import evaluate_fitting
from planner.schedules.grouping import grouped_choice, least_rank_memory
from planner.schedules.simulate import bubble_fraction
from planner.schedules.step import StepEvaluation, evaluate_cuts
from planner.specs import Objective, Recompute

__all__ = [
    "assemble_plan",
    "least_memory",
    "slowest_stage",
    "step_breakdown",
    "unfitting_plan",
]


def assemble_plan(
    pricer: Pricer,
    layout: Layout,
    cuts: Sequence[int],
    *,
    objective: Objective = Objective.STEP_TIME,
    problem: ChainProblem | None = None,
    fitting: bool = False,
    brief: bool = False,
) -> Plan:
    """A plan (status ``feasible``, no bound yet) of cuts that fit.

    Parameters
    ----------
    fitting
        Whether a solver found that the cuts fit: they are then priced together.
    brief
        Only what a comparison reads: of the stages the slowest, of the communication the
        pipeline's, and no notes.

    Raises
    ------
    PlannerError
        A stage is not allowed or does not fit its budget (``unfitting_plan`` shows such cuts).
    """
    problem = problem or pricer.problem(layout)
    evaluate = evaluate_fitting if fitting else evaluate_cuts
    evaluation = evaluate(problem, cuts)
    if evaluation is None:
        raise PlannerError(f"cuts {list(cuts)} do not fit {layout.short()}")
    priced = Priced(
        pricer,
        problem,
        layout,
        pricer.block_table(layout.tp, layout.microbatch_size),
        pricer.state_table(layout.tp, layout.dp, layout.microbatch_size),
    )
    ranks: Sequence[int] = range(layout.pp)
    if brief:
        ranks = [max(ranks, key=lambda rank: (evaluation.load[rank], -rank))]
    stages = tuple(assemble_stage(priced, rank, evaluation) for rank in ranks)
    ms = pricer.quantum.ms
    step_ms = ms(evaluation.value)
    training, cluster = pricer.training, pricer.cluster
    tokens = training.global_batch_size * training.sequence_length
    tokens_per_s = tokens / (step_ms / 1e3) if step_ms and pricer.tail else None
    price = cluster.price_per_gpu_hour
    per_dollar = None
    if price and tokens_per_s is not None:
        per_dollar = tokens_per_s * 3600 / (price * layout.num_gpus)
    modes = {choice.mode.value for choice in evaluation.choices}
    groups = communication_groups(priced, cuts, evaluation, stages, pipeline_alone=brief)
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
        peak_memory_bytes=evaluation.peak_bytes,
        communication=groups,
        global_batch_size=training.global_batch_size,
        # A cut of a profile carries a length only so that formulas have one.
        sequence_length=training.sequence_length if _knows_length(pricer) else None,
        precision=training.precision,
        optimizer=training.optimizer,
        origins={origin.value: share for origin, share in priced.blocks.origin_share.items()},
        notes=() if brief else plan_notes(priced, stages),
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
                "verdict": verdict_of(stage.memory_bytes, stage.memory_upper_bytes, budget),
            }
        )
        for stage in plan.stages
    )


def _with_budget(problem: ChainProblem, cuts: Sequence[int]) -> ChainProblem:
    """The same problem with each over-full stage's budget raised to its smallest need."""
    budgets = problem.budget_bytes.copy()
    if problem.is_grouped:
        for rank, held in enumerate(problem.rank_stages):
            if grouped_choice(problem, rank, cuts) is None:
                budgets[list(held)] = least_rank_memory(problem, rank, cuts)
        return replace(problem, budget_bytes=budgets)
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


def _step_terms(priced: Priced, evaluation: StepEvaluation, stages: Sequence[Stage]) -> StepTerms:
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


def _mfu(priced: Priced, step_ms: float) -> float | None:
    """Model FLOPs of a step over what the GPUs could do at peak; None without FLOPs."""
    pricer, layout = priced.pricer, priced.layout
    peak = pricer.cluster.gpu.peak(pricer.training.precision)
    flops = priced.blocks.model_flops
    if not flops or not peak or not step_ms or not pricer.tail:
        return None
    total = flops * layout.num_microbatches * layout.dp
    return total / (step_ms / 1e3 * peak * layout.num_gpus)


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
