"""How fast a job trains on each of many allocations, and how to place it. Frozen, JSON-ready.

What ``planner.scaling_curve`` is asked and answers. The JSON keys are a contract, as those of
:mod:`planner.plans`: fields are added, never renamed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

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


def _by_key(texts: dict[str, str]) -> dict[str, str]:
    return dict(sorted(texts.items()))


Texts = Annotated[dict[str, str], AfterValidator(_by_key)]
"""In the order of the keys, which messages do not keep: equal curves are equal bytes of JSON."""


class PointStatus(StrEnum):
    """What is known about training on an allocation, with all of its GPUs."""

    FEASIBLE = "feasible"
    INFEASIBLE_MEMORY = "infeasible_memory"
    """Proven: no layout that uses all GPUs holds the model."""
    INFEASIBLE_DIVISIBILITY = "infeasible_divisibility"
    """No legal degrees use that many GPUs, whatever the batch."""
    INFEASIBLE_BATCH = "infeasible_batch"
    """Legal degrees exist; the global batch alone rules them out."""
    DEADLINE = "deadline"
    """Time ran out before a layout was found, or it is not proven that nothing fits."""
    UNPROFILED = "unprofiled"
    """The profile has no rows for that GPU type or degree."""


class TransitionKind(StrEnum):
    """What changes between the current plan and a point."""

    NONE = "none"
    """Every rank keeps its layers and shards."""
    DATA_PARALLEL_ONLY = "data_parallel_only"
    """Replicas come or go; stages and tensor shards stay."""
    REPARTITION = "repartition"
    """State moves between ranks."""


class Allocation(Frozen):
    """GPUs that a scheduler might grant."""

    gpu_type: str | None = None
    """A key of the clusters that were given; None where there is one."""
    nodes: Positive
    gpus_per_node: Count = 0
    """GPUs used of each node, at most the cluster's; 0: whole nodes (points say how many)."""
    excluded_nodes: tuple[str, ...] = ()
    """Names of nodes that must not be used; they are passed on to the placement."""

    @property
    def num_gpus(self) -> int:
        """All GPUs of the allocation; 0 where it says whole nodes."""
        return self.nodes * self.gpus_per_node


class SizeRange(Frozen):
    """All sizes between two.

    With a step: ``min_gpus``, ``min_gpus + step``, ... up to ``max_gpus``. Without: doubled from
    ``min_gpus``, and ``max_gpus`` itself last.

    Examples
    --------
    >>> SizeRange(min_gpus=8, max_gpus=48).sizes()
    (8, 16, 32, 48)
    >>> SizeRange(min_gpus=8, max_gpus=48, step=16).sizes()
    (8, 24, 40)
    """

    min_gpus: Positive
    max_gpus: Positive
    step: Positive | None = None
    """GPUs between two sizes; None doubles."""
    gpu_type: str | None = None

    def sizes(self) -> tuple[int, ...]:
        """The GPU counts, ascending; empty where ``min_gpus`` exceeds ``max_gpus``."""
        if self.step is not None:
            return tuple(range(self.min_gpus, self.max_gpus + 1, self.step))
        found, size = [], self.min_gpus
        while size < self.max_gpus:
            found.append(size)
            size *= 2
        return (*found, self.max_gpus) if self.min_gpus <= self.max_gpus else ()


class StageMemory(Frozen):
    """What a rank of a stage holds at its peak, against what it may hold."""

    rank: int
    memory_bytes: int
    limit_bytes: int


class Transition(Frozen):
    """What it takes to get from the current plan to a point."""

    kind: TransitionKind
    bytes_moved: int = 0
    """Over all ranks: states that a rank needs and that its GPU does not hold yet."""
    seconds: float = 0.0
    """Slowest rank's bytes over its link, and a constant to restart."""
    exceeds_max_restart: bool = False


class PlacementGroup(Frozen):
    """Ranks that talk to each other and how near they have to be."""

    kind: str
    """tensor, pipeline or data."""
    size: int
    """GPUs of a group."""
    count: int
    """Groups of this kind."""
    level: Tier
    """Slowest wires that the prices assume between its ranks."""
    required: bool = False
    """Whether the plan is not what was priced unless a group shares that level."""


class Placement(Frozen):
    """Where a point's ranks should go, also in the words of three schedulers."""

    groups: tuple[PlacementGroup, ...] = ()
    nodes: int
    gpus_per_node: int
    gpus_used: int
    kueue: Texts = {}
    """Annotations of the pod template, one pod a node."""
    slurm: tuple[str, ...] = ()
    """Arguments of sbatch."""
    volcano: Texts = {}
    """Fields of a job's networkTopology."""


class CurvePoint(Frozen):
    """One allocation's answer. Figures are None, and sequences empty, where it is not feasible."""

    allocation: Allocation
    num_gpus: int
    gpus_used: int = 0
    """All of ``num_gpus`` at a feasible point: fewer may be faster, see the envelope."""
    status: PointStatus
    message: str = ""
    """Why, where it is not feasible."""
    global_batch_size: int
    """The one asked for; of a range, the one with the most samples/s."""
    step_time_ms: float | None = None
    samples_per_s: float | None = None
    samples_per_s_low: float | None = None
    samples_per_s_high: float | None = None
    tokens_per_s: float | None = None
    marginal_samples_per_s_per_gpu: float | None = None
    """What each GPU more than the next smaller feasible point of the type adds; None at the
    smallest."""
    plan_id: str = ""
    """Hash of question, layout and cuts; equal ids are equal plans."""
    layout: Layout | None = None
    cuts: tuple[int, ...] = ()
    """0 = c_0 < ... < c_S = N over the blocks of the model's chain."""
    stage_layer_counts: tuple[int, ...] = ()
    """Layers of each rank."""
    recompute: tuple[Recompute, ...] = ()
    """Of each rank."""
    stage_memory: tuple[StageMemory, ...] = ()
    measured_fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of a micro-batch's time that stands in the profile as measured."""
    proven: bool = False
    """No layout and cut on all GPUs of this allocation beats it."""
    bound_ms: float | None = None
    """No step on all GPUs of this allocation is shorter than this."""
    gap: float | None = None
    """(step_time_ms - bound_ms) / step_time_ms."""
    binding_constraint: str = ""
    """What limits it, in words."""
    transition: Transition | None = None
    """None where no current plan was given."""
    placement: Placement | None = None


class EnvelopePoint(Frozen):
    """The best that at most ``num_gpus`` GPUs of a type can do among the plans at hand."""

    num_gpus: int
    gpus_used: int
    samples_per_s: float
    plan_id: str
    """Of a point, or of a plan in ``spare``."""
    gpu_type: str | None = None


class ScalingCurve(Frozen):
    """The answer of ``planner.scaling_curve``."""

    points: tuple[CurvePoint, ...]
    """In the order of the allocations."""
    spare: tuple[CurvePoint, ...] = ()
    """Plans with idle GPUs that the envelope names: of sizes whose own GPUs cannot all be used."""
    envelope: tuple[EnvelopePoint, ...] = ()
    """By GPU type, then by size; samples/s never fall."""
    recommended_sizes: tuple[int, ...] = ()
    """Sizes worth offering to the job."""
    minimum_gpus: int | None = None
    """Fewest GPUs of those asked about that hold the model, some of them idle perhaps."""
    minimum_proven: bool = False
    """Whether every smaller size that was asked about is proven not to, with idle GPUs either."""
    model: str = ""
    model_revision: str = ""
    calibration_revision: str = ""
    planner_version: str = ""
    valid_until: str | None = None
    """As the caller said (RFC 3339)."""
    notes: tuple[str, ...] = ()
    termination: Termination = Termination(reason="proven")
    """proven, work_limit, time_limit or stopped."""
    inputs: Texts = {}
    """What was asked: model, hash, clusters, training, planner version."""

    def to_json(self, indent: int | None = 2) -> str:
        """Canonical JSON: same curve, same bytes."""
        return self.model_dump_json(indent=indent) + "\n"
