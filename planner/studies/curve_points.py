"""From what a search found for a size to a point of the curve."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from planner.cost.pricing import Pricer
from planner.curves import Allocation, CurvePoint, PointStatus, StageMemory, Transition
from planner.plans import Layout
from planner.schedule_rules import RULES, stages_of_rank
from planner.search.curve_search import SizeResult
from planner.specs import Cluster, Origin, Recompute, Training
from planner.studies.curve_placement import placement_of

__all__ = ["BAND", "PointQuestion", "band_of", "missing_point", "point_of"]

BAND: dict[Origin, tuple[float, float]] = {
    Origin.MEASURED: (0.90, 1.00),
    Origin.INTERPOLATED: (0.88, 1.05),
    Origin.CALIBRATED: (0.84, 1.16),
    Origin.FORMULA: (0.74, 1.26),
}
"""Lowest and highest true samples/s, as a multiple of the predicted ones, by where times are from.

Measured: with the passes of the Zero Bubble paper as profiled, the 1F1B step was on average 7.6 %
and at most 10.2 % longer than predicted in 12 runs, never shorter (table 4). Interpolated: as that,
and a few per cent for the interpolation (judgement). Calibrated: 15.7 % mean error over seven
sources of A100 runs, each held out of the fit. Formula: 25.7 % on H100 runs of LLM Foundry that
nothing was fitted on."""

_MUCH_BUBBLE = 0.15
"""Share of the step from which waiting, not work, is named as what limits it."""
_NEARLY_FULL = 0.97


@dataclass(frozen=True)
class PointQuestion:
    """What all points of one GPU type share."""

    pricer: Pricer
    """Of these wires; its cluster may be of another size."""
    model_digest: str
    wires: str
    """Hash of GPU, links and calibration."""
    question: str
    """Canonical training set-up without the batch."""


def missing_point(
    allocation: Allocation, result: SizeResult, batch: int, cluster: Cluster
) -> CurvePoint:
    """A point where nothing was found, with why."""
    gpus = allocation.num_gpus
    status, message, binding = PointStatus.INFEASIBLE_MEMORY, "", ""
    if result.refusal is not None and result.has_layouts:
        status, message = PointStatus.UNPROFILED, result.refusal
    elif not result.has_degrees:
        status, binding = PointStatus.INFEASIBLE_DIVISIBILITY, "divisibility"
        message = result.refusal or f"no legal tp x pp x dp uses exactly {gpus} GPUs"
    elif not result.has_layouts:
        status, binding = PointStatus.INFEASIBLE_BATCH, "batch"
        message = result.refusal or (
            f"global batch {batch} is not divisible by dp x micro-batch size for any layout that "
            f"uses exactly {gpus} GPUs"
        )
    elif result.interrupted is not None:
        status = PointStatus.DEADLINE
        message = "time ran out before a layout was found or all were refuted"
        if result.interrupted == "work_limit":
            message = "the work limit was reached before a layout was found"
    else:
        binding = "memory"
        message = (
            f"no layout that uses exactly {gpus} GPUs holds the model: every one lacks memory "
            f"under any allowed recompute (budget {cluster.budget_bytes} bytes a GPU)"
        )
    return CurvePoint(
        allocation=allocation,
        num_gpus=gpus,
        status=status,
        message=message,
        global_batch_size=batch,
        binding_constraint=binding,
    )


def point_of(
    question: PointQuestion,
    allocation: Allocation,
    cluster: Cluster,
    training: Training,
    result: SizeResult,
    transition: Transition | None,
) -> CurvePoint:
    """A point where a layout was found."""
    assert result.layout is not None
    pricer, batch = question.pricer, training.global_batch_size
    modes = set(result.recompute)
    layout = result.layout.model_copy(
        update={"recompute": next(iter(modes)).value if len(modes) == 1 else "mixed"}
    )
    step_ms = pricer.quantum.ms(result.value)
    samples = batch / (step_ms / 1e3) if step_ms else None
    shares = _origins(pricer, layout)
    low, high = band_of(shares)
    limit = cluster.budget_bytes
    return CurvePoint(
        allocation=allocation,
        num_gpus=allocation.num_gpus,
        gpus_used=layout.num_gpus,
        status=PointStatus.FEASIBLE,
        global_batch_size=batch,
        step_time_ms=step_ms,
        samples_per_s=samples,
        samples_per_s_low=None if samples is None else samples * low,
        samples_per_s_high=None if samples is None else samples * high,
        tokens_per_s=None if samples is None else samples * training.sequence_length,
        plan_id=_plan_id(question, cluster, batch, layout, result.cuts),
        layout=layout,
        cuts=result.cuts,
        stage_layer_counts=_layer_counts(pricer, layout, result.cuts),
        recompute=result.recompute,
        stage_memory=tuple(
            StageMemory(rank=rank, memory_bytes=memory, limit_bytes=limit)
            for rank, memory in enumerate(result.memory_bytes)
        ),
        measured_fraction=min(1.0, shares.get(Origin.MEASURED, 0.0)),
        proven=result.bound >= result.value,
        bound_ms=pricer.quantum.ms(result.bound),
        gap=(result.value - result.bound) / result.value if result.value else 0.0,
        binding_constraint=_binding(result, layout, limit),
        transition=transition,
        placement=placement_of(cluster, allocation, layout),
    )


def band_of(shares: dict[Origin, float]) -> tuple[float, float]:
    """The band of times of mixed origins, weighted by their shares.

    Examples
    --------
    >>> band_of({Origin.MEASURED: 1.0})
    (0.9, 1.0)
    """
    low = sum(BAND[origin][0] * share for origin, share in shares.items())
    high = sum(BAND[origin][1] * share for origin, share in shares.items())
    return low, high


def _origins(pricer: Pricer, layout: Layout) -> dict[Origin, float]:
    if pricer.model.is_analytic:
        return {pricer.cluster.gpu.calibration.origin: 1.0}
    return pricer.block_table(layout.tp, layout.microbatch_size).origin_share


def _layer_counts(pricer: Pricer, layout: Layout, cuts: tuple[int, ...]) -> tuple[int, ...]:
    sizes = [len(block) for block in pricer.chain.blocks]
    before = [0]
    for size in sizes:
        before.append(before[-1] + size)
    stages = [before[cuts[i + 1]] - before[cuts[i]] for i in range(len(cuts) - 1)]
    if RULES[layout.schedule].several_stages:
        held = stages_of_rank(layout.schedule, layout.pp, layout.vpp)
        return tuple(sum(stages[s] for s in mine) for mine in held)
    return tuple(stages)


def _binding(result: SizeResult, layout: Layout, limit: int) -> str:
    """What limits a point, in words.

    Where some rank recomputes, memory made it (the rank whose load stands out most, else the one
    with the least room); else waiting, where that is much of the step; else the slowest stage.
    """
    slowest = max(range(len(result.loads)), key=lambda rank: (result.loads[rank], -rank))
    fullest = max(range(layout.pp), key=lambda rank: (result.memory_bytes[rank], -rank))
    recomputing = [r for r, mode in enumerate(result.recompute) if mode is not Recompute.NONE]
    if recomputing:
        rank = slowest if slowest in recomputing else recomputing[0]
        return f"memory of rank {rank}"
    idle = 1 - layout.num_microbatches * result.loads[slowest] / max(1, result.value)
    if idle > _MUCH_BUBBLE and layout.pp > 1:
        return "bubble"
    if result.memory_bytes[fullest] > _NEARLY_FULL * limit:
        return f"memory of rank {fullest}"
    return f"compute of stage {slowest}"


def _plan_id(
    question: PointQuestion, cluster: Cluster, batch: int, layout: Layout, cuts: tuple[int, ...]
) -> str:
    """Hash of everything that makes the plan: equal ids are equal plans."""
    text = json.dumps(
        [
            question.model_digest,
            question.wires,
            cluster.nodes,
            cluster.gpus_per_node,
            cluster.nvlink_domain,
            question.question,
            batch,
            [
                layout.dp, layout.pp, layout.tp, layout.vpp, layout.microbatch_size,
                layout.num_microbatches, layout.schedule.value,
            ],
            cuts,
        ],
        separators=(",", ":"),
    )  # fmt: skip
    return hashlib.sha256(text.encode()).hexdigest()[:32]
