"""Everything a layer costs a rank at one tensor degree and micro-batch size.

Shapes are priced by the formulas beside this module; profile rows by ``profile_rows``. Tensor-
parallel collectives are never overlapped with compute: two all-reduces of the residual stream per
block forward and two backward (Shoeybi et al. 2019, section 3), or, with sequence parallelism, an
all-gather and a reduce-scatter of the same volume for each (Korthikanti et al. 2022, section 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from planner.cost.compute import (
    block_times,
    device_rates,
    embedding_times,
    head_times,
)
from planner.cost.memory import (
    block_activations,
    boundary_bytes,
    element_bytes,
    embedding_activations,
    head_activations,
)
from planner.cost.network import all_gather, all_reduce, all_reduce_bytes_sent
from planner.cost.shapes import (
    block_parameters,
    embedding_parameters,
    head_parameters,
    layer_model_flops,
    padded_vocabulary,
)
from planner.placement import tensor_group
from planner.specs import Cluster, Layer, Origin, Precision, Training

__all__ = ["LayerPrice", "price_layer", "weakest"]


def weakest(*origins: Origin) -> Origin:
    """The least certain of several origins.

    Examples
    --------
    >>> weakest(Origin.MEASURED, Origin.FORMULA, Origin.CALIBRATED).value
    'formula'
    """
    return max(origins, key=list(Origin).index)


@dataclass(frozen=True, slots=True)
class LayerPrice:
    """A layer on one rank, per micro-batch."""

    forward_ms: float
    input_gradient_ms: float
    weight_gradient_ms: float
    selective_extra_ms: float
    """Added to the backward when the attention core is recomputed."""
    full_extra_ms: float
    """Added to the backward when the layer is recomputed in full, collectives included."""
    tensor_parallel_ms: float
    """Exposed tensor-parallel collectives contained in F + I + W."""
    tensor_parallel_bytes: int
    """Bytes one rank sends in them."""
    recomputable: bool
    kept_bytes: int
    kept_selective_bytes: int
    kept_full_bytes: int
    transient_bytes: int
    transient_full_bytes: int
    logits_bytes: int
    """Part of ``kept_bytes`` that is logits."""
    parameters: int
    trainable_parameters: int
    embedding_parameters: int
    """Part of ``parameters`` that a layer tied to this one can share."""
    output_bytes: int
    """Sent over a cut after this layer, by one rank."""
    gradient_bytes: int
    """Sent back over it."""
    model_flops: float
    """Model FLOPs of the whole micro-batch, forward and backward, over all tensor ranks; 0 where
    unknown (a profile with times alone)."""
    buffer_bytes: int
    """Send and receive buffers a cut after this layer needs."""
    origin: Origin
    """The weakest source of the times without ``tensor_parallel_ms``."""
    collectives_origin: Origin
    """Source of ``tensor_parallel_ms``."""
    collectives_added: bool = False
    """Collectives were added to the times of profile rows, which exclude them."""

    @property
    def weakest_origin(self) -> Origin:
        """The weakest source of any time in here."""
        if not self.tensor_parallel_ms:
            return self.origin
        return weakest(self.origin, self.collectives_origin)


class Collectives(NamedTuple):
    """Tensor-parallel communication of a layer."""

    forward_ms: float
    backward_ms: float
    bytes_sent: int


def tensor_collectives(
    num_bytes: int,
    forward: float,
    backward: float,
    *,
    cluster: Cluster,
    training: Training,
    tp: int,
) -> Collectives:
    """Time of all-reduces of a tensor, each an all-gather and a reduce-scatter under SP.

    Parameters
    ----------
    num_bytes
        Size of the whole tensor.
    forward, backward
        All-reduces per pass; a half is one all-gather or one reduce-scatter.
    """
    if tp == 1 or not num_bytes:
        return Collectives(0.0, 0.0, 0)
    group = tensor_group(cluster, tp)
    if training.sequence_parallel:
        each = 2 * all_gather(group, cluster).ms(num_bytes)
    else:
        each = all_reduce(group, cluster).ms(num_bytes)
    sent = all_reduce_bytes_sent(num_bytes, tp)
    return Collectives(forward * each, backward * each, round((forward + backward) * sent))


def price_layer(
    layer: Layer,
    *,
    cluster: Cluster,
    training: Training,
    tp: int,
    microbatch_size: int,
    profile_precision: Precision = Precision.BF16,
) -> LayerPrice:
    """Price one layer on one rank.

    Parameters
    ----------
    layer
        A shape or profile rows.
    cluster, training
        Where and how it runs.
    tp, microbatch_size
        Tensor degree and samples of a micro-batch.
    profile_precision
        Format of the weights in profile rows (``Model.precision``).

    Raises
    ------
    ProfileError
        No row of the profile can stand for this device, degree or sequence length.
    ClusterError
        The GPU lacks the precision, or the cluster a link.
    """
    if layer.shape is None:
        # profile_rows builds LayerPrice, so it imports this module.
        from planner.cost.profile_rows import price_rows

        return price_rows(
            layer,
            cluster=cluster,
            training=training,
            tp=tp,
            microbatch_size=microbatch_size,
            profile_precision=profile_precision,
        )
    shape = layer.shape
    rates = device_rates(cluster.gpu, training.precision)
    calibration = cluster.gpu.calibration
    tokens = microbatch_size * training.sequence_length
    stream_bytes = element_bytes(training.precision) * tokens * shape.hidden
    shared = 0
    recomputable = False
    if shape.kind == "block":
        times = block_times(shape, rates, training, tp, microbatch_size)
        activations = block_activations(shape, training, tp, microbatch_size)
        parameters = block_parameters(shape, tp)
        # The projection of a multi-token-prediction module gathers its output once more.
        passes = (2.5, 2.5) if shape.mtp else (2.0, 2.0)
        recomputable = True
    elif shape.kind == "embedding":
        times = embedding_times(shape, rates, training, microbatch_size)
        activations = embedding_activations(shape, training, tp, microbatch_size)
        parameters = embedding_parameters(shape, tp)
        shared = padded_vocabulary(shape.vocab, tp) // tp * shape.hidden
        # Partial rows are summed; sharded over the sequence, that is one reduce-scatter, and one
        # all-gather of the gradient.
        passes = (0.5, 0.5) if training.sequence_parallel else (1.0, 0.0)
    else:
        times = head_times(shape, rates, training, tp, microbatch_size)
        activations = head_activations(shape, training, tp, microbatch_size)
        parameters = head_parameters(shape, tp)
        if shape.tied:
            shared = padded_vocabulary(shape.vocab, tp) // tp * shape.hidden
        # The loss itself exchanges a few scalars a token, which is left out.
        passes = (0.5, 0.5) if training.sequence_parallel else (0.0, 1.0)
    collectives = tensor_collectives(
        stream_bytes, *passes, cluster=cluster, training=training, tp=tp
    )

    factor = calibration.activation_factor

    def measured(num_bytes: int) -> int:
        return num_bytes if factor == 1.0 else round(num_bytes * factor)

    forward = times.forward_ms + collectives.forward_ms
    model_flops = layer_model_flops(shape, training.sequence_length, microbatch_size)
    input_gradient = times.input_gradient_ms
    weight_gradient = times.weight_gradient_ms
    backward_collectives = collectives.backward_ms
    if shape.kind == "embedding":
        # Nothing lies before the embedding: its gather serves W, and without W it does not run.
        weight_gradient += backward_collectives if layer.trainable else 0.0
        backward_collectives = backward_collectives if layer.trainable else 0.0
    else:
        input_gradient += backward_collectives
    if not layer.trainable:
        weight_gradient = 0.0
        model_flops *= 2 / 3
    has_output = shape.kind != "head"
    output = boundary_bytes(shape.hidden, microbatch_size, training, tp) if has_output else 0
    return LayerPrice(
        forward_ms=forward,
        input_gradient_ms=input_gradient,
        weight_gradient_ms=weight_gradient,
        selective_extra_ms=times.core_forward_ms,
        full_extra_ms=forward if recomputable else 0.0,
        tensor_parallel_ms=collectives.forward_ms + backward_collectives,
        tensor_parallel_bytes=collectives.bytes_sent,
        recomputable=recomputable,
        kept_bytes=measured(activations.kept),
        kept_selective_bytes=measured(activations.kept_selective),
        kept_full_bytes=measured(activations.kept_full),
        transient_bytes=measured(activations.transient),
        transient_full_bytes=measured(activations.transient_full),
        logits_bytes=measured(activations.logits),
        parameters=parameters,
        trainable_parameters=parameters if layer.trainable else 0,
        embedding_parameters=shared,
        output_bytes=output,
        gradient_bytes=output,
        model_flops=model_flops,
        buffer_bytes=4 * output,
        origin=calibration.origin,
        collectives_origin=calibration.origin,
    )
