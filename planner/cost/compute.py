"""Compute time of a layer on one tensor-parallel rank, forward and backward.

A layer is matrix multiplications, an attention core and element-wise work, run one after the
other. The efficiency of a multiplication falls with the size of its per-rank shape, so that a
large tensor degree (narrow matrices) and a small micro-batch (few rows) really cost::

    GEMM        2 M K N / (peak x gemm_efficiency)
                  x (1 + gemm_half_width / min(K, N) + gemm_half_rows / M)
                or its bytes at the memory rate, whichever is longer (roofline, Williams et al.
                2009)
    attention   fused: 4 s^2 h b x 1/2 (causal) / (peak x attention_efficiency) forward, 2.5 times
                that backward (FlashAttention-2, Dao 2023, section 4.1: 3.5 passes in all);
                unfused: the full square at half the matrix rate, and its score traffic
    element     bytes / (memory bandwidth x memory_efficiency), twice as many backward
    a pass      (work^4 + floor^4)^(1/4), floor = layer_floor_ms: kernel launches and host; about
                the larger of the two, smooth so that it can be fitted

The parameters are ``planner.specs.Calibration``. The backward is split into I (gradient of the
input) and W (gradient of the weights): a multiplication costs its forward FLOPs in each; attention
and element-wise work have no weights, all of their backward is I.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from planner.cost.memory import element_bytes, optimizer_bytes_per_parameter
from planner.cost.network import Affine, all_gather
from planner.cost.shapes import (
    attention_widths,
    block_parameters,
    head_parameters,
    padded_vocabulary,
)
from planner.errors import ClusterError, InputError
from planner.placement import data_group
from planner.specs import (
    BlockShape,
    Cluster,
    Device,
    EmbeddingShape,
    HeadShape,
    Precision,
    Training,
)

__all__ = [
    "MOST_OF_A_LAYER",
    "OptimizerStep",
    "PassTimes",
    "Rates",
    "block_times",
    "device_rates",
    "embedding_times",
    "gemm_ms",
    "head_times",
    "optimizer_step",
    "optimizer_step_ms",
]

MOST_OF_A_LAYER = 2**50
"""Parameters of one layer and rank, and bytes that its forward moves for a micro-batch."""

_FLOOR_SHARE_EMBEDDING = 0.1
_FLOOR_SHARE_HEAD = 0.3
"""Kernels launched, relative to the about forty of a block and pass."""

_UNFUSED_BYTES_PER_SCORE = 8
"""Elements moved per attention score and forward pass: score written, scaled and masked, softmax
and dropout read and written, read again for the product with the values."""


class PassTimes(NamedTuple):
    """Compute of one layer and micro-batch on one rank, without communication."""

    forward_ms: float
    input_gradient_ms: float
    weight_gradient_ms: float
    core_forward_ms: float = 0.0
    """The attention core's part of the forward: what selective recompute runs again."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device reaches at one precision."""

    gemm_flops_per_ms: float
    attention_flops_per_ms: float
    memory_bytes_per_ms: float
    half_width: float
    half_rows: float
    floor_ms: float


def device_rates(device: Device, precision: Precision) -> Rates:
    """Reachable rates of a GPU.

    Attention runs in half precision under fp8 recipes, where the GPU has a half-precision peak.

    Raises
    ------
    ClusterError
        The GPU has no peak for this precision.
    """
    peak = device.peak(precision)
    if peak is None:
        known = ", ".join(sorted(name.value for name in device.peak_flops)) or "none"
        raise ClusterError(
            f"has no peak FLOP/s for {precision.value}",
            value=device.name,
            expected=f"one of its precisions: {known}",
        )
    calibration = device.calibration
    core_peak = peak
    if precision is Precision.FP8:
        core_peak = device.peak(Precision.BF16) or peak
    return Rates(
        gemm_flops_per_ms=peak * calibration.gemm_efficiency / 1e3,
        attention_flops_per_ms=core_peak * calibration.attention_efficiency / 1e3,
        memory_bytes_per_ms=device.memory_bandwidth_bytes_per_s
        * calibration.memory_efficiency
        / 1e3,
        half_width=calibration.gemm_half_width,
        half_rows=calibration.gemm_half_rows,
        floor_ms=calibration.layer_floor_ms,
    )


def gemm_ms(
    rates: Rates, rows: float, inner: int, outer: int, width: int, copies: int = 1
) -> float:
    """Time of (rows x inner) @ (inner x outer), ``copies`` of them with their own weights.

    Parameters
    ----------
    rates
        The device's rates.
    rows
        Tokens of the micro-batch (per copy).
    inner, outer
        K and N on this rank.
    width
        Bytes of one element.
    copies
        Equal multiplications run one after the other (experts).
    """
    if not (rows and inner and outer):
        return 0.0
    shape_cost = 1.0 + rates.half_width / min(inner, outer) + rates.half_rows / rows
    compute = 2.0 * rows * inner * outer / rates.gemm_flops_per_ms * shape_cost
    moved = width * (rows * inner + inner * outer + rows * outer) / rates.memory_bytes_per_ms
    return copies * (compute if compute > moved else moved)


def _with_floor(work_ms: float, floor_ms: float) -> float:
    """Fourth-power mean sum of work and launch floor: never below either."""
    if not floor_ms:
        return work_ms
    try:
        return float((work_ms**4 + floor_ms**4) ** 0.25)
    except OverflowError:  # the larger of the two, to the last digit; the time unit refuses it
        return max(work_ms, floor_ms)


def _passes(
    matrices: float, core: float, core_backward: float, element: float, floor_ms: float
) -> PassTimes:
    """Forward, I and W from the forward times of the three kinds of work."""
    forward = _with_floor(matrices + core + element, floor_ms)
    input_gradient = matrices + core_backward + 2.0 * element
    backward = input_gradient + matrices
    if backward == 0.0:
        return PassTimes(forward, floor_ms, 0.0, core)
    stretch = _with_floor(backward, floor_ms) / backward
    return PassTimes(forward, input_gradient * stretch, matrices * stretch, core)


def _attended_keys(seq: int, window: int | None) -> float:
    """Mean number of keys a query attends to under a causal mask and a sliding window."""
    if window is None or window >= seq:
        return seq / 2
    return window - window * window / (2 * seq)


def _refuse_huge(
    shape: BlockShape | EmbeddingShape | HeadShape, tokens: int, parameters: int, num_bytes: float
) -> None:
    """Refuse a layer whose sizes, times the bytes of its states, 64-bit arithmetic cannot hold.

    Parameters
    ----------
    parameters
        Of a rank.
    num_bytes
        Moved by its forward pass: what is kept for the backward is of the same order.

    Raises
    ------
    InputError
        Naming what is large about the layer.
    """
    if parameters <= MOST_OF_A_LAYER and num_bytes <= MOST_OF_A_LAYER:
        return
    sizes = f"hidden={shape.hidden}"
    if isinstance(shape, BlockShape):
        sizes += f", heads={shape.heads}, head_dim={shape.head_dim}, ffn_hidden={shape.ffn_hidden}"
        if shape.moe is not None:
            sizes += f", experts={shape.moe.experts} of {shape.moe.expert_ffn_hidden}"
    else:
        sizes += f", vocab={shape.vocab}"
    if parameters > MOST_OF_A_LAYER:
        raise InputError(
            f"the model's {shape.kind} with {sizes} has {float(parameters):.3g} parameters a rank",
            expected=f"at most 2^50 ({MOST_OF_A_LAYER:.3g})",
            fix="check the sizes of the model",
        )
    raise InputError(
        f"the model's {shape.kind} with {sizes} moves {num_bytes:.3g} bytes for a micro-batch of "
        f"{tokens} tokens",
        expected=f"at most 2^50 ({MOST_OF_A_LAYER:.3g})",
        fix="check the sizes of the model, the sequence length and the micro-batch size",
    )


def block_times(
    shape: BlockShape, rates: Rates, training: Training, tp: int, microbatch_size: int
) -> PassTimes:
    """Compute of a transformer block on one rank.

    Mixture of experts: every expert of this rank multiplies its share of the routed tokens
    (experts_per_token / experts of them each, evenly), so small micro-batches read all expert
    weights for few rows.
    """
    seq = training.sequence_length
    tokens = microbatch_size * seq
    width = element_bytes(training.precision)
    shards = tp if training.sequence_parallel else 1
    hidden = shape.hidden
    attention = attention_widths(shape, tp)

    if shape.mla is not None:
        mla = shape.mla
        if mla.q_lora_rank:
            matrices = gemm_ms(rates, tokens, hidden, mla.q_lora_rank, width)
            matrices += gemm_ms(rates, tokens, mla.q_lora_rank, attention.query, width)
        else:
            matrices = gemm_ms(rates, tokens, hidden, attention.query, width)
        latent = mla.kv_lora_rank + mla.qk_rope_head_dim
        up = attention.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        matrices += gemm_ms(rates, tokens, hidden, latent, width)
        matrices += gemm_ms(rates, tokens, mla.kv_lora_rank, up, width)
    else:
        projected = attention.query + attention.key + attention.value
        matrices = gemm_ms(rates, tokens, hidden, projected, width)
    matrices += gemm_ms(rates, tokens, attention.context, hidden, width)

    # Bytes moved per token: norms read and write, each residual addition reads two and writes
    # one, rotary embedding or q/k norms read and write q and k, the activation function reads
    # its inputs and writes its output.
    stream = (shape.norms * 2 + 2 * 3) * width * hidden + (2 * hidden if shape.dropout else 0)
    local = 2 * width * (attention.query + attention.key)
    if shape.qk_norm:
        local *= 2
    inputs = 2 if shape.gated else 1
    if shape.moe is None:
        ffn = -(-shape.ffn_hidden // tp)
        matrices += inputs * gemm_ms(rates, tokens, hidden, ffn, width)
        matrices += gemm_ms(rates, tokens, ffn, hidden, width)
        local += (inputs + 1) * width * ffn
    else:
        moe = shape.moe
        ffn = -(-moe.expert_ffn_hidden // tp)
        routed = tokens * moe.experts_per_token
        # With fewer routed tokens than experts, the idle experts' weights are not read.
        busy = min(moe.experts, routed)
        rows = routed / busy
        matrices += gemm_ms(rates, tokens, hidden, moe.experts, width)
        matrices += inputs * gemm_ms(rates, rows, hidden, ffn, width, busy)
        matrices += gemm_ms(rates, rows, ffn, hidden, width, busy)
        # Permute and un-permute read and write each routed copy.
        local += moe.experts_per_token * ((inputs + 1) * width * ffn + 4 * width * hidden)
        local += 3 * 4 * moe.experts
        if moe.shared_ffn_hidden:
            shared = -(-moe.shared_ffn_hidden // tp)
            matrices += inputs * gemm_ms(rates, tokens, hidden, shared, width)
            matrices += gemm_ms(rates, tokens, shared, hidden, width)
            local += (inputs + 1) * width * shared
    if shape.mtp:
        matrices += gemm_ms(rates, tokens, 2 * hidden, -(-hidden // tp), width)
        stream += 3 * 2 * width * hidden
    moved = tokens * (stream / shards + local)
    element = moved / rates.memory_bytes_per_ms

    products = attention.query + attention.context
    if training.flash_attention:
        flops = 2.0 * tokens * _attended_keys(seq, shape.window) * products
        core = flops / rates.attention_flops_per_ms
        core_backward = 2.5 * core
    else:
        # The whole square is computed, masked afterwards (a window saves nothing here).
        scores = float(tokens) * seq * attention.heads
        moved += _UNFUSED_BYTES_PER_SCORE * width * scores
        core = 2.0 * tokens * seq * products / (0.5 * rates.gemm_flops_per_ms)
        core += _UNFUSED_BYTES_PER_SCORE * width * scores / rates.memory_bytes_per_ms
        core_backward = 2.0 * core
    _refuse_huge(shape, tokens, block_parameters(shape, tp), moved)
    return _passes(matrices, core, core_backward, element, rates.floor_ms)


def embedding_times(
    shape: EmbeddingShape, rates: Rates, training: Training, microbatch_size: int
) -> PassTimes:
    """Compute of the embedding: a gather forward; a scatter-add into fp32 gradients, all W."""
    tokens = microbatch_size * training.sequence_length
    width = element_bytes(training.precision)
    lookups = 2 if shape.positions else 1
    forward_bytes = tokens * shape.hidden * (width * (lookups + 1) + (1 if shape.dropout else 0))
    backward_bytes = tokens * shape.hidden * (width + 8 * lookups)
    _refuse_huge(shape, tokens, shape.hidden * (shape.vocab + shape.positions), backward_bytes)
    floor = rates.floor_ms * _FLOOR_SHARE_EMBEDDING
    return PassTimes(
        _with_floor(forward_bytes / rates.memory_bytes_per_ms, floor),
        0.0,
        _with_floor(backward_bytes / rates.memory_bytes_per_ms, floor),
    )


def head_times(
    shape: HeadShape, rates: Rates, training: Training, tp: int, microbatch_size: int
) -> PassTimes:
    """Compute of the final norm, the output matrix and the cross-entropy loss."""
    tokens = microbatch_size * training.sequence_length
    width = element_bytes(training.precision)
    shards = tp if training.sequence_parallel else 1
    vocab = padded_vocabulary(shape.vocab, tp) // tp
    matrices = gemm_ms(rates, tokens, shape.hidden, vocab, width)
    # Logits are cast to fp32, and read for their maximum, the exponentials (written back) and the
    # sum: five fp32 passes and one read; the backward, twice as much here, needs less.
    per_token = 2 * width * shape.hidden / shards + vocab * (width + 4 + 4 + 8)
    _refuse_huge(shape, tokens, head_parameters(shape, tp), tokens * per_token)
    element = tokens * per_token / rates.memory_bytes_per_ms
    return _passes(matrices, 0.0, 0.0, element, rates.floor_ms * _FLOOR_SHARE_HEAD)


class OptimizerStep(NamedTuple):
    """Time of an optimizer step on one rank, linear in the trainable parameters."""

    update_ms_per_parameter: float
    all_gather: Affine
    """All-gather of the updated weights, in bytes of the rank's trainable weights; free where the
    optimizer is not sharded."""
    weight_bytes: int

    def update_ms(self, trainable_parameters: int) -> float:
        """Reading and writing the states at memory speed."""
        return trainable_parameters * self.update_ms_per_parameter

    def all_gather_ms(self, trainable_parameters: int) -> float:
        """Gathering the updated weights from the data-parallel ranks."""
        return self.all_gather.ms(trainable_parameters * self.weight_bytes)


def optimizer_step(training: Training, *, dp: int, tp: int, cluster: Cluster) -> OptimizerStep:
    """The optimizer step of a rank.

    Bytes moved per parameter: the fp32 gradient is read, every fp32 state (master weight, moments)
    read and written, the working weight written: 4 + 2 x 12 + 2 = 30 for mixed-precision Adam.
    Divided by dp where the optimizer is sharded, and then each rank gathers the others' weights
    (ZeRO stage 1, Rajbhandari et al. 2020, section 5).

    Raises
    ------
    ClusterError
        The cluster has no link that joins the data-parallel ranks.
    """
    weight_bytes = training.precision.weight_bytes
    if training.optimizer == "none":
        return OptimizerStep(0.0, Affine(0.0, 0.0), weight_bytes)
    states = optimizer_bytes_per_parameter(training)
    # In fp32 the weight is its own master: read and written.
    moved = 4 + 2 * states + (2 * 4 if weight_bytes == 4 else weight_bytes)
    rate = (
        cluster.gpu.memory_bandwidth_bytes_per_s * cluster.gpu.calibration.memory_efficiency / 1e3
    )
    if training.sharded_optimizer and dp > 1:
        gather = all_gather(data_group(cluster, dp, tp), cluster)
        return OptimizerStep(moved / dp / rate, gather, weight_bytes)
    return OptimizerStep(moved / rate, Affine(0.0, 0.0), weight_bytes)


def optimizer_step_ms(
    trainable_parameters: int, *, dp: int, tp: int, training: Training, cluster: Cluster
) -> float:
    """Additive part of a rank's optimizer step: update, and the bandwidth part of the all-gather.

    The all-gather's latency is paid once a step, not per layer: ``optimizer_step(...)
    .all_gather.latency_ms``.
    """
    step = optimizer_step(training, dp=dp, tp=tp, cluster=cluster)
    per_parameter = step.update_ms_per_parameter + step.weight_bytes * step.all_gather.ms_per_byte
    return trainable_parameters * per_parameter
