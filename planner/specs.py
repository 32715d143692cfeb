"""What a caller gives: a model, a cluster, a training set-up, limits. Frozen, validated, hashable.

Units are in the names. Values of a profile are per rank, at the tensor degree and micro-batch
size of their row.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from planner.ranges import (
    MOST_MICROBATCHES,
    Amount,
    Bytes,
    Count,
    Efficiency,
    Factor,
    Milliseconds,
    PeakFlops,
    Positive,
    PositiveBytes,
    Price,
    Rate,
    StatedRate,
)

__all__ = [
    "MOST_MICROBATCHES",
    "BlockShape",
    "Calibration",
    "Cluster",
    "Count",
    "Device",
    "EmbeddingShape",
    "HeadShape",
    "Layer",
    "LayerCost",
    "LayerShape",
    "Limits",
    "Link",
    "MlaShape",
    "Model",
    "MoeShape",
    "Objective",
    "Origin",
    "PartitionSetup",
    "Pins",
    "Positive",
    "Precision",
    "Recompute",
    "Schedule",
    "Sends",
    "Tier",
    "Training",
]


class Frozen(BaseModel):
    """Base of every spec and plan type: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null")


class Precision(StrEnum):
    """Number format of weights and matrix multiplications."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"

    @property
    def weight_bytes(self) -> int:
        """Bytes of one stored weight (fp8 recipes keep bf16 weights)."""
        return 4 if self in (Precision.FP32, Precision.TF32) else 2


class Recompute(StrEnum):
    """What a stage recomputes in the backward pass instead of keeping it.

    ``none`` keeps all activations; ``selective`` recomputes the attention core; ``full`` keeps
    only each layer's input; ``layers`` is full recompute of the first layers of the stage, as
    few as memory demands (Megatron's block method).
    """

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"
    LAYERS = "layers"


class Schedule(StrEnum):
    """Order in which a rank runs its micro-batches; facts in :mod:`planner.schedule_rules`."""

    NAIVE = "naive"
    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    EAGER_ONE_F_ONE_B = "1f1b-eager"
    PIPEDREAM = "pipedream"
    PIPEDREAM_2BW = "pipedream-2bw"
    INTERLEAVED = "interleaved"
    LOOPED_BFS = "looped-bfs"
    ZB_H1 = "zb-h1"
    ZB_H2 = "zb-h2"
    ZB_AUTO = "zb-auto"
    INTERLEAVED_ZB = "interleaved-zb"
    ZB_V = "zb-v"
    V_HALF = "v-half"
    V_MIN = "v-min"
    DUALPIPE = "dualpipe"
    DUALPIPE_V = "dualpipe-v"
    CHIMERA = "chimera"


class Sends(StrEnum):
    """Whether a pipeline send runs beside compute or occupies the sending rank."""

    OVERLAPPED = "overlapped"
    BLOCKING = "blocking"


class Objective(StrEnum):
    """What a plan minimises (``tokens-per-dollar`` is maximised)."""

    STEP_TIME = "step-time"
    BOTTLENECK = "bottleneck"
    TOKENS_PER_DOLLAR = "tokens-per-dollar"
    FEWEST_GPUS = "fewest-gpus"


class Origin(StrEnum):
    """Where a number comes from, best first."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    CALIBRATED = "calibrated"
    FORMULA = "formula"


class Tier(StrEnum):
    """Which wires a group of ranks talks over, fastest first."""

    LOCAL = "local"
    DOMAIN = "domain"
    NODE = "node"
    RACK = "rack"
    CLUSTER = "cluster"


# --- the model -------------------------------------------------------------------------------


class LayerCost(Frozen):
    """One profile row: what a layer costs a rank at one tensor degree and micro-batch size."""

    tp: Positive = 1
    microbatch_size: Positive = 1
    sequence_length: Positive | None = None
    device: str | None = None
    forward_ms: Amount | None = None
    backward_ms: Amount | None = None
    weight_gradient_ms: Amount | None = None
    forward_flops: Amount | None = None
    backward_flops: Amount | None = None
    parameter_bytes: Bytes = 0
    activation_bytes: Bytes = 0
    output_bytes: Bytes = 0
    gradient_bytes: Bytes | None = None
    checkpoint_bytes: Bytes | None = None
    workspace_bytes: Bytes = 0
    collectives_included: bool = False
    origin: Origin = Origin.MEASURED
    """Where the row's figures come from; rows that formulas wrote say so."""

    @property
    def sent_back_bytes(self) -> int:
        """Bytes sent back over a cut after this layer (``gradient_bytes``, else output_bytes)."""
        return self.output_bytes if self.gradient_bytes is None else self.gradient_bytes


class MoeShape(Frozen):
    """Mixture-of-experts feed-forward: routed and shared experts."""

    experts: Positive
    experts_per_token: Positive
    expert_ffn_hidden: Positive
    shared_experts: Count = 0
    shared_ffn_hidden: Count = 0
    """Total hidden size of the shared experts together."""


class MlaShape(Frozen):
    """Multi-head latent attention (DeepSeek-V2 paper, section 2.1)."""

    q_lora_rank: Count
    kv_lora_rank: Positive
    qk_nope_head_dim: Positive
    qk_rope_head_dim: Positive
    v_head_dim: Positive


class BlockShape(Frozen):
    """One transformer block: attention and feed-forward."""

    kind: Literal["block"] = "block"
    hidden: Positive
    heads: Positive
    kv_heads: Positive
    head_dim: Positive
    ffn_hidden: Positive
    gated: bool
    """Three feed-forward matrices (SwiGLU, GeGLU) instead of two."""
    linear_bias: bool = False
    qkv_bias: bool = False
    norm_bias: bool = False
    norms: Positive = 2
    """Normalisation layers of one block (Gemma 2 and 3 have four)."""
    qk_norm: bool = False
    moe: MoeShape | None = None
    mla: MlaShape | None = None
    window: Positive | None = None
    """Sliding attention window in tokens, if any."""
    dropout: bool = False
    """Dropout masks are kept (GPT-2 and GPT-3 training)."""
    mtp: bool = False
    """A multi-token-prediction module: the block with its two-to-one projection and norms."""


class EmbeddingShape(Frozen):
    """Token embedding, with learned positions where the model has them."""

    kind: Literal["embedding"] = "embedding"
    vocab: Positive
    hidden: Positive
    positions: Count = 0
    dropout: bool = False


class HeadShape(Frozen):
    """Final norm, language-model head and loss."""

    kind: Literal["head"] = "head"
    vocab: Positive
    hidden: Positive
    norm_bias: bool = False
    tied: bool = False
    """The matrix is the token embedding's; under pipelining it is stored on both ends."""


LayerShape = Annotated[BlockShape | EmbeddingShape | HeadShape, Field(discriminator="kind")]


class Layer(Frozen):
    """The smallest unit of a profile, never split over stages.

    A layer is priced from its measured ``costs`` or from its ``shape``; it has one of the two.
    """

    name: Annotated[str, Field(min_length=1)]
    type: str = "layer"
    inputs: tuple[str, ...] = ()
    trainable: bool = True
    tied_to: str | None = None
    pin_stage: int | None = None
    colocate_with: str | None = None
    costs: tuple[LayerCost, ...] = ()
    shape: LayerShape | None = None

    @model_validator(mode="after")
    def _one_source_of_prices(self) -> Layer:
        if bool(self.costs) == (self.shape is not None):
            raise ValueError(f"layer {self.name}: give either costs or a shape")
        return self


class Model(Frozen):
    """Layers in topological order."""

    name: str
    layers: Annotated[tuple[Layer, ...], Field(min_length=1)]
    precision: Precision = Precision.BF16
    """Format of the weights as profiled; parameters = parameter_bytes / its weight_bytes."""
    sequence_length: Positive | None = None
    """Sequence length of the profile, or the model's context length; a default, not a limit."""
    source: str = ""
    """Where the figures come from, printed with every plan."""

    @property
    def is_analytic(self) -> bool:
        """Whether every layer is priced from its shape."""
        return all(layer.shape is not None for layer in self.layers)

    def digest(self) -> str:
        """Content hash (SHA-256, 16 hexadecimal digits) of the layers and precision."""
        text = self.model_dump_json(exclude={"name", "source"})
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- the cluster -----------------------------------------------------------------------------


class Calibration(Frozen):
    """Parameters of a GPU under a software stack, each dimensionless unless the name says.

    The functional form is ``planner.cost.compute`` and ``planner.cost.network``; COST formulas
    there name these fields.
    """

    gemm_efficiency: Efficiency = 0.80
    """Share of peak reached by a large matrix multiplication."""
    gemm_half_width: Factor = 450.0
    """min(K, N) per rank at which the time per FLOP has doubled (small shards are slow)."""
    gemm_half_rows: Factor = 30.0
    """Rows (tokens of the micro-batch) at which the time per FLOP has doubled."""
    attention_efficiency: Efficiency = 0.35
    """Share of peak reached by fused causal attention."""
    memory_efficiency: Efficiency = 0.80
    """Share of memory bandwidth reached by element-wise work."""
    layer_floor_ms: Milliseconds = 0.8
    """Least time of one layer and pass, forward or backward: kernel launches and host."""
    domain_efficiency: Efficiency = 0.80
    """Share of the link rate reached inside the nvlink domain."""
    network_efficiency: Efficiency = 0.70
    """Share of the link rate reached between nodes."""
    collective_latency_ms: Milliseconds = 0.02
    """Launch cost of one collective."""
    step_overhead_ms: Milliseconds = 5.0
    """Fixed cost of one optimizer step: clipping, logging, data loading."""
    activation_factor: Annotated[float, Field(ge=1e-3, le=1e3)] = 1.0
    """Measured over formula activation bytes."""
    origin: Origin = Origin.FORMULA
    source: str = "typical values; no run of this GPU was fitted"


class Device(Frozen):
    """One GPU type."""

    name: str
    memory_bytes: PositiveBytes
    peak_flops: dict[Precision, PeakFlops]
    """Dense peak FLOP/s per precision (no structured sparsity)."""
    memory_bandwidth_bytes_per_s: Rate
    calibration: Calibration = Calibration()
    sources: dict[str, str] = {}

    def peak(self, precision: Precision) -> float | None:
        """Peak FLOP/s, fp16 and bf16 standing for each other; None where the GPU has none."""
        found = self.peak_flops.get(precision)
        if found is None and precision in (Precision.BF16, Precision.FP16):
            other = Precision.FP16 if precision is Precision.BF16 else Precision.BF16
            found = self.peak_flops.get(other)
        return found


class Link(Frozen):
    """Wires of one tier, as one GPU sees them."""

    tier: Tier
    bandwidth_bytes_per_s: Rate
    """Per GPU and direction."""
    latency_s: Annotated[float, Field(ge=0, le=1e3)] = 0.0
    oversubscription: Annotated[float, Field(ge=1, le=1e6)] = 1.0


class Cluster(Frozen):
    """Equal nodes of equal GPUs."""

    name: str
    nodes: Positive
    gpus_per_node: Positive
    nvlink_domain: Positive
    """GPUs that reach each other at domain speed: a node, or a rack for NVL72."""
    nodes_per_rack: Positive | None = None
    gpu: Device
    links: tuple[Link, ...]
    reserved_bytes: Bytes = 0
    """Memory of each GPU kept free for context, communicators and fragmentation."""
    price_per_gpu_hour: Price | None = None
    sources: dict[str, str] = {}

    @property
    def num_gpus(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node

    @property
    def budget_bytes(self) -> int:
        """What a rank may use: GPU memory less the reserved part."""
        return self.gpu.memory_bytes - self.reserved_bytes

    def link(self, tier: Tier) -> Link:
        """The link of a tier, or of the next slower one described (KeyError where none is)."""
        reached = False
        for candidate in Tier:
            reached = reached or candidate is tier
            if reached:
                for link in self.links:
                    if link.tier is candidate:
                        return link
        raise KeyError(tier)

    def digest(self) -> str:
        """Content hash (SHA-256, 16 hexadecimal digits)."""
        text = self.model_dump_json(exclude={"name", "sources"})
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- the training set-up ---------------------------------------------------------------------


def _one_or_more(value: object) -> object:
    """Let one choice, or a comma list in a string, stand for a tuple of choices."""
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


_Recomputes = Annotated[tuple[Recompute, ...], Field(min_length=1), BeforeValidator(_one_or_more)]


class Pins(Frozen):
    """Degrees fixed by the caller; None is searched."""

    dp: Positive | None = None
    pp: Positive | None = None
    tp: Positive | None = None
    vpp: Positive | None = None
    microbatch_size: Positive | None = None


class Training(Frozen):
    """What one optimizer step is to do, and what the planner may choose."""

    global_batch_size: Annotated[int, Field(ge=1, le=10**6)]
    sequence_length: Positive
    precision: Precision = Precision.BF16
    optimizer: Literal["adam", "sgd", "none"] = "adam"
    sharded_optimizer: bool = True
    """Shard optimizer state over data-parallel ranks (ZeRO-1); no effect at dp = 1."""
    sequence_parallel: bool = True
    """Shard the non-tensor-parallel activations over tensor-parallel ranks; needs tp > 1."""
    flash_attention: bool = True
    overlap_gradient_reduction: bool = True
    schedules: Annotated[
        tuple[Schedule, ...], Field(min_length=1), BeforeValidator(_one_or_more)
    ] = (
        Schedule.ONE_F_ONE_B,
        Schedule.GPIPE,
    )
    recompute: _Recomputes = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    """Modes each stage may choose from."""
    sends: Sends = Sends.OVERLAPPED
    pins: Pins = Pins()
    allow_fewer: bool = False
    """Layouts that leave GPUs idle are candidates too."""
    allow_cross_domain: bool = False
    """Tensor-parallel groups may leave the nvlink domain."""
    max_microbatch_size: Positive = 64


class PartitionSetup(Frozen):
    """What ``partition`` is asked: one chain, P stages, M micro-batches, a memory budget."""

    num_stages: Positive
    num_microbatches: Annotated[int, Field(ge=1, le=MOST_MICROBATCHES)] = 1
    schedule: Schedule = Schedule.ONE_F_ONE_B
    vpp: Positive | None = None
    """Chunks a rank; None: 2 for the V schedules and interleaved ones, else 1."""
    memory_bytes: PositiveBytes | None = None
    """The budget itself, nothing reserved; None is no limit."""
    bandwidth_bytes_per_s: StatedRate | None = None
    """None: cuts cost the latency alone."""
    latency_ms: Milliseconds = 0.0
    tp: Positive = 1
    microbatch_size: Positive | None = None
    """None: the smallest profiled one (1 for a model without a profile)."""
    sequence_length: Positive | None = None
    device: str | None = None
    """Which of a profile's devices; needed only where it holds several."""
    precision: Precision | None = None
    """None: the profile's own."""
    optimizer: Literal["adam", "sgd", "none"] = "adam"
    sequence_parallel: bool = True
    recompute: _Recomputes = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    sends: Sends = Sends.OVERLAPPED
    cut_inside_blocks: bool = False
    """Cut a graph in the order of its file, also inside blocks of parallel branches."""


class Limits(Frozen):
    """What a solve may use."""

    work: Positive | None = None
    """Deterministic work units: simulations and branch-and-bound nodes per cut problem."""
    wall_s: Annotated[float, Field(gt=0)] | None = None
