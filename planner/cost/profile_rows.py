"""Prices from measured profile rows: exact, interpolated, or carried over by formula.

A row holds what a layer costs a rank at one tensor degree, micro-batch size, sequence length and
device. The closest rows are chosen and every step away from what was measured is labelled:

- the same degree and micro-batch size: the row itself, *measured*;
- a micro-batch size between two measured ones: linear in between, *interpolated*;
- outside them: sizes in proportion; times in proportion from one row, or on the line through the
  nearest two (growing, never below the largest row; shrinking, never below proportion), *formula*;
- another tensor degree or sequence length, for known layer types only: work and shards in
  proportion, *formula*.

A row's own origin counts where it is the weaker. Tensor-parallel collectives are added to rows that
exclude them; their time alone is then *formula*, the rest keeps its origin.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from math import ceil, log2

from planner.cost.compute import device_rates
from planner.cost.layers import LayerPrice, tensor_collectives
from planner.cost.profile_values import RowValues, at_microbatch, scaled
from planner.errors import ProfileError
from planner.specs import Cluster, Layer, LayerCost, Origin, Precision, Training

__all__ = ["KNOWN_TYPES", "price_rows"]

KNOWN_TYPES: dict[str, tuple[float, float]] = {
    # All-reduces of the layer's output per forward and per backward (Shoeybi et al. 2019,
    # section 3). A head's is of its input, whose size no row holds: left out.
    "block": (2.0, 2.0),
    "vision": (2.0, 2.0),
    "attention": (1.0, 1.0),
    "mlp": (1.0, 1.0),
    "moe": (1.0, 1.0),
    "embedding": (0.5, 0.5),
    "norm": (0.0, 0.0),
    "head": (0.0, 0.0),
    "loss": (0.0, 0.0),
}
"""Layer types whose cost at another tensor degree is known by formula."""

_UNSHARDED_OF_GPT = (10.0, 24.0)
"""Of 34 bytes per s b h, those that tensor parallelism alone leaves whole and those it shards
(Korthikanti et al. 2022, equation 2)."""


def price_rows(
    layer: Layer,
    *,
    cluster: Cluster,
    training: Training,
    tp: int,
    microbatch_size: int,
    profile_precision: Precision,
) -> LayerPrice:
    """Price a layer from its profile rows.

    Parameters are ``parameter_bytes`` over the bytes per weight of the profile's precision.
    Without ``weight_gradient_ms`` half of the backward is W. A layer can be recomputed in full
    where the profile gives its ``checkpoint_bytes``; what selective recompute would save is not
    known, so it changes nothing.

    Raises
    ------
    ProfileError
        No row stands for this device, degree or sequence length.
    """
    rows = _rows_of_device(layer, cluster)
    rows, seq_ratio = _rows_of_sequence(layer, rows, training.sequence_length)
    rows = _rows_of_degree(layer, rows, tp)
    row_tp = rows[0].tp
    rates = None
    if any(row.forward_ms is None for row in rows):
        rates = device_rates(cluster.gpu, training.precision)
    values = at_microbatch(layer, rows, microbatch_size, rates, profile_precision)
    if seq_ratio != 1.0:
        values = scaled(values, seq_ratio, Origin.FORMULA)
    whole_output = _whole_output_bytes(layer, rows, values, microbatch_size, seq_ratio)
    if tp != row_tp:
        values = _at_degree(layer, values, tp / row_tp, tp, whole_output, training)
    included = all(row.collectives_included for row in rows)
    collectives = tensor_collectives(
        0 if included and tp == row_tp else ceil(whole_output),
        *KNOWN_TYPES.get(layer.type, (0.0, 0.0)),
        cluster=cluster,
        training=training,
        tp=tp,
    )
    return _price(layer, values, collectives, profile_precision)


def _rows_of_device(layer: Layer, cluster: Cluster) -> tuple[LayerCost, ...]:
    """Rows of the cluster's GPU; unlabelled rows where none names it."""
    name = cluster.gpu.name.casefold()
    rows = layer.costs
    named = tuple(row for row in rows if row.device is not None and row.device.casefold() == name)
    if named:
        return named
    unnamed = tuple(row for row in rows if row.device is None)
    if unnamed:
        return unnamed
    devices = sorted({row.device for row in rows if row.device is not None})
    raise ProfileError(
        f"layer {layer.name} was not profiled on this device",
        column="device",
        value=cluster.gpu.name,
        expected=f"one of {', '.join(devices)}",
        fix="profile this GPU, or leave the device column empty to use its rows anywhere",
    )


def _rows_of_sequence(
    layer: Layer, rows: tuple[LayerCost, ...], seq: int
) -> tuple[tuple[LayerCost, ...], float]:
    """Rows of this sequence length (or of none), else the nearest length and the ratio to it."""
    same = tuple(row for row in rows if row.sequence_length in (seq, None))
    if same:
        exact = tuple(row for row in same if row.sequence_length is not None)
        return (exact or same), 1.0
    lengths = sorted({row.sequence_length for row in rows if row.sequence_length is not None})
    if layer.type not in KNOWN_TYPES:
        shown = ", ".join(str(length) for length in lengths)
        raise ProfileError(
            f"is not a sequence length layer {layer.name} was profiled at, and how a layer of "
            f'type "{layer.type}" grows with it is not known',
            column="sequence_length",
            value=seq,
            expected=f"one of {shown}",
            fix=f"use --seq-len {lengths[0]}, or give the layer a known type",
        )
    nearest = min(lengths, key=lambda length: (abs(log2(length / seq)), length))
    return tuple(row for row in rows if row.sequence_length == nearest), seq / nearest


def _rows_of_degree(layer: Layer, rows: tuple[LayerCost, ...], tp: int) -> tuple[LayerCost, ...]:
    """Rows of this tensor degree, else of the nearest one for known types, by micro-batch size."""
    degrees = sorted({row.tp for row in rows})
    if tp in degrees:
        chosen = tp
    elif layer.type in KNOWN_TYPES:
        chosen = min(degrees, key=lambda degree: (abs(log2(degree / tp)), degree))
    else:
        shown = ", ".join(str(degree) for degree in degrees)
        raise ProfileError(
            f"is not a tensor degree layer {layer.name} was profiled at, and how a layer of type "
            f'"{layer.type}" splits is not known',
            column="tp",
            value=tp,
            expected=f"tp {shown}",
            fix="profile this degree, or give the layer a known type",
        )
    return tuple(
        sorted((row for row in rows if row.tp == chosen), key=lambda row: row.microbatch_size)
    )


def _whole_output_bytes(
    layer: Layer,
    rows: tuple[LayerCost, ...],
    values: RowValues,
    microbatch_size: int,
    seq_ratio: float,
) -> float:
    """Size of the layer's output over all tensor ranks.

    A row at tp = 1 and the same micro-batch size knows it; otherwise the output of the row in use
    is taken as whole (without sequence parallelism every rank holds it).
    """
    first = rows[0]
    if first.tp != 1:
        for row in layer.costs:
            alike = row.device == first.device and row.sequence_length == first.sequence_length
            if row.tp == 1 and row.microbatch_size == microbatch_size and alike:
                return row.output_bytes * seq_ratio
    return values.output_bytes


def _at_degree(
    layer: Layer,
    values: RowValues,
    ratio: float,
    tp: int,
    whole_output: float,
    training: Training,
) -> RowValues:
    """Another tensor degree by formula: ``ratio`` = new degree over the row's degree.

    Work and weights are divided by it, norms excepted: their weights are replicated, and without
    sequence parallelism their work too. Activations are divided under sequence parallelism;
    without it, 10 of 34 parts stay whole, as in a GPT block.
    """
    sequence_parallel = training.sequence_parallel
    replicated = layer.type == "norm"
    work = 1.0 if replicated and not sequence_parallel else ratio
    whole, sharded = _UNSHARDED_OF_GPT
    if sequence_parallel:
        kept = 1.0 / ratio
        output = whole_output / tp
    else:
        old = tp / ratio
        kept = 1.0 if replicated else (whole + sharded / tp) / (whole + sharded / old)
        output = whole_output
    sent_back = values.gradient_bytes / values.output_bytes if values.output_bytes else 1.0
    checkpoint = values.checkpoint_bytes
    if checkpoint is not None and sequence_parallel:
        checkpoint /= ratio
    return replace(
        values,
        forward_ms=values.forward_ms / work,
        backward_ms=values.backward_ms / work,
        weight_ms=None if values.weight_ms is None else values.weight_ms / work,
        parameter_bytes=values.parameter_bytes / (1.0 if replicated else ratio),
        activation_bytes=values.activation_bytes * kept,
        output_bytes=output,
        gradient_bytes=output * sent_back,
        checkpoint_bytes=checkpoint,
        workspace_bytes=values.workspace_bytes * kept,
        origin=Origin.FORMULA,
    )


def _difference(total: float, part: float) -> float:
    """``total - part`` of two typed decimals, without the noise of binary subtraction."""
    return max(float(Decimal(repr(total)) - Decimal(repr(part))), 0.0)


def _price(
    layer: Layer,
    values: RowValues,
    collectives: tuple[float, float, int],
    profile_precision: Precision,
) -> LayerPrice:
    forward_collectives, backward_collectives, sent = collectives
    if layer.type == "embedding" and not layer.trainable:
        backward_collectives = 0.0
    weight = values.backward_ms / 2 if values.weight_ms is None else values.weight_ms
    input_gradient = _difference(values.backward_ms, weight)
    if not layer.trainable:
        # A stated W is not run. Without one the backward is taken as measured, frozen.
        input_gradient = values.backward_ms if values.weight_ms is None else input_gradient
        weight = 0.0
    exposed = forward_collectives + backward_collectives
    kept = ceil(values.activation_bytes)
    workspace = ceil(values.workspace_bytes)
    recomputable = values.checkpoint_bytes is not None
    kept_full = kept if values.checkpoint_bytes is None else ceil(values.checkpoint_bytes)
    parameters = ceil(values.parameter_bytes / profile_precision.weight_bytes)
    forward = values.forward_ms + forward_collectives
    return LayerPrice(
        forward_ms=forward,
        input_gradient_ms=input_gradient + backward_collectives,
        weight_gradient_ms=weight,
        selective_extra_ms=0.0,
        full_extra_ms=forward if recomputable else 0.0,
        tensor_parallel_ms=exposed,
        tensor_parallel_bytes=sent,
        recomputable=recomputable,
        kept_bytes=kept,
        kept_selective_bytes=kept,
        kept_full_bytes=kept_full,
        transient_bytes=workspace,
        transient_full_bytes=workspace + kept if recomputable else workspace,
        logits_bytes=0,
        parameters=parameters,
        trainable_parameters=parameters if layer.trainable else 0,
        embedding_parameters=parameters if layer.tied_to is not None else 0,
        output_bytes=ceil(values.output_bytes),
        gradient_bytes=ceil(values.gradient_bytes),
        model_flops=values.model_flops,
        buffer_bytes=0,
        origin=values.origin,
        collectives_origin=Origin.FORMULA,
        collectives_added=sent > 0,
    )
