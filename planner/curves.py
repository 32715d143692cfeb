"""Scaling curves: how fast a job trains on each of many allocations. Frozen, JSON-ready."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from planner.plans import Layout, Termination
from planner.specs import Count, Frozen, Positive, Recompute, Tier

__all__ = [
    "Allocation",
    "CurvePoint",
    "EnvelopePoint",
    "Placement",
    "PlacementGroup",
    "PointStatus",
    "ScalingCurve",
    "SizeRange",
    "StageMemory",
    "Transition",
    "TransitionKind",
]


class PointStatus(StrEnum):
    """What is known of an allocation."""

    FEASIBLE = "feasible"
    INFEASIBLE_MEMORY = "infeasible_memory"
    """Proven: no layout holds the model."""
    INFEASIBLE_DIVISIBILITY = "infeasible_divisibility"
    """No legal degrees use that many GPUs."""
    INFEASIBLE_BATCH = "infeasible_batch"
    """Only the global batch rules them out."""
    DEADLINE = "deadline"
    """Time ran out before the point was found, or it is not proven that nothing fits."""
    UNPROFILED = "unprofiled"
    """The profile has no rows for that GPU or degree."""


class TransitionKind(StrEnum):
    """What changes between two plans."""

    NONE = "none"
    DATA_PARALLEL_ONLY = "data_parallel_only"
    """Replicas come or go; stages and shards stay."""
    REPARTITION = "repartition"
    """State moves between ranks."""


class Allocation(Frozen):
    """GPUs that a scheduler might grant."""

    gpu_type: str = ""
    """Key of the clusters asked about; empty where there is one."""
    node_count: Positive
    gpus_per_node: Count = 0
    """0: whole nodes."""
    excluded_nodes: tuple[str, ...] = ()
    """Nodes that must not be used; not counted in ``node_count``."""


class SizeRange(Frozen):
    """All sizes between two, in GPUs."""

    min_gpu_count: Positive
    max_gpu_count: Positive
    step_gpu_count: Count = 0
    """GPUs between two sizes; 0: double from the smallest."""
    gpu_type: str = ""


class StageMemory(Frozen):
    """What a rank holds against what it may hold."""

    rank: int
    memory_bytes: int
    limit_bytes: int


class Transition(Frozen):
    """What it takes to get there from the current plan."""

    kind: TransitionKind
    bytes_moved: int = 0
    seconds: float = 0.0
    exceeds_max_restart: bool = False


class PlacementGroup(Frozen):
    """Ranks that should be near each other."""

    kind: str
    """tensor, pipeline or data."""
    size: int
    """GPUs of a group."""
    count: int
    level: Tier
    required: bool
    """Otherwise preferred."""


class Placement(Frozen):
    """How to place a point's GPUs, in general and in schedulers' own words."""

    groups: tuple[PlacementGroup, ...] = ()
    nodes: int
    gpus_per_node: int
    gpus_used: int
    kueue: dict[str, str] = {}
    """Annotations of a pod template."""
    slurm: tuple[str, ...] = ()
    """Arguments of sbatch."""
    volcano: dict[str, str] = {}
    """Fields of a job's networkTopology."""


class CurvePoint(Frozen):
    """One allocation."""

    allocation: Allocation
    num_gpus: int
    gpus_used: int = 0
    status: PointStatus
    message: str = ""
    """Why, where it is not feasible."""
    global_batch_size: int = 0
    step_time_ms: float | None = None
    samples_per_s: float | None = None
    samples_per_s_low: float | None = None
    samples_per_s_high: float | None = None
    tokens_per_s: float | None = None
    marginal_samples_per_s_per_gpu: float | None = None
    """Against the next smaller feasible point of the same GPU type."""
    plan_id: str = ""
    layout: Layout | None = None
    stage_layer_counts: tuple[int, ...] = ()
    recompute: tuple[Recompute, ...] = ()
    stage_memory: tuple[StageMemory, ...] = ()
    measured_fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the stage time that was measured."""
    proven: bool = False
    bound_ms: float | None = None
    gap: float | None = None
    binding_constraint: str = ""
    transition: Transition | None = None
    placement: Placement | None = None


class EnvelopePoint(Frozen):
    """The best that at most so many GPUs can do."""

    num_gpus: int
    gpus_used: int
    samples_per_s: float
    plan_id: str


class ScalingCurve(Frozen):
    """All points of a question, in the order of the allocations."""

    points: tuple[CurvePoint, ...]
    envelope: tuple[EnvelopePoint, ...] = ()
    recommended_sizes: tuple[int, ...] = ()
    minimum_gpus: int | None = None
    minimum_proven: bool = False
    """Every smaller size asked about is proven not to hold the model."""
    model_revision: str = ""
    calibration_revision: str = ""
    planner_version: str = ""
    valid_until: str = ""
    notes: tuple[str, ...] = ()
    termination: Termination = Termination(reason="proven")
