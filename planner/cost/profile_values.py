"""The figures of profile rows at any micro-batch size: the row itself, a mixture, or in proportion.

See ``planner.cost.profile_rows`` for how rows are chosen and what is labelled how.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.cost.compute import Rates
from planner.cost.layers import weakest
from planner.errors import ProfileError
from planner.specs import Layer, LayerCost, Origin, Precision

__all__ = ["RowValues", "at_microbatch", "scaled"]

# Multiplications of a layer of a type, in units of width^2: what turns a parameter count into the
# width of its matrices. Attention 4 h^2, feed-forward 8 h^2 (Narayanan et al. 2021, equation 2).
_SQUARES = {"block": 12.0, "vision": 12.0, "attention": 4.0, "mlp": 8.0}


@dataclass(frozen=True, slots=True)
class RowValues:
    """One row's figures, or a mixture of rows."""

    forward_ms: float
    backward_ms: float
    weight_ms: float | None
    parameter_bytes: float
    activation_bytes: float
    output_bytes: float
    gradient_bytes: float
    checkpoint_bytes: float | None
    workspace_bytes: float
    model_flops: float
    origin: Origin


def at_microbatch(
    layer: Layer,
    rows: tuple[LayerCost, ...],
    size: int,
    rates: Rates | None,
    precision: Precision,
) -> RowValues:
    """Figures at a micro-batch size from rows of one degree, sorted by micro-batch size."""

    def values(row: LayerCost) -> RowValues:
        return _row_values(layer, row, rates, precision)

    below = [row for row in rows if row.microbatch_size <= size]
    above = [row for row in rows if row.microbatch_size >= size]
    if below and below[-1].microbatch_size == size:
        return values(below[-1])
    if below and above:
        low, high = below[-1], above[0]
        share = (size - low.microbatch_size) / (high.microbatch_size - low.microbatch_size)
        return _mixed(values(low), values(high), share)
    nearest = below[-1] if below else above[0]
    base = values(nearest)
    proportional = scaled(base, size / nearest.microbatch_size, Origin.FORMULA)
    pair = (below[-2:] if below else above[:2]) if len(rows) > 1 else []
    if len(pair) < 2:
        return proportional
    first, second = values(pair[0]), values(pair[1])
    steps = pair[1].microbatch_size - pair[0].microbatch_size
    offset = (size - pair[0].microbatch_size) / steps

    def on_line(low: float, high: float, floor: float) -> float:
        return max(low + (high - low) * offset, floor)

    # Growing from the largest row: not faster than the row itself. Shrinking below the smallest:
    # a fixed cost stays, so not below proportion.
    grows = bool(below)
    floor_forward = base.forward_ms if grows else proportional.forward_ms
    floor_backward = base.backward_ms if grows else proportional.backward_ms
    backward = on_line(first.backward_ms, second.backward_ms, floor_backward)
    weight = None
    if base.weight_ms is not None:
        weight = backward * (base.weight_ms / base.backward_ms) if base.backward_ms else 0.0
    return replace(
        proportional,
        forward_ms=on_line(first.forward_ms, second.forward_ms, floor_forward),
        backward_ms=backward,
        weight_ms=weight,
    )


def _row_values(
    layer: Layer, row: LayerCost, rates: Rates | None, precision: Precision
) -> RowValues:
    """A row's figures; FLOPs become time at the device's efficiency for a layer of this size."""
    flops = row.forward_flops or 0.0
    backward_flops = 2 * flops if row.backward_flops is None else row.backward_flops
    if row.forward_ms is not None:
        if row.backward_ms is None:
            raise ProfileError(
                f"layer {layer.name} has a forward time and no backward time",
                column="backward_ms",
                expected="both times, or forward_flops",
            )
        forward, backward, weight = row.forward_ms, row.backward_ms, row.weight_gradient_ms
        origin = row.origin
    else:
        if row.forward_flops is None or rates is None:
            raise ProfileError(
                f"layer {layer.name} has neither times nor FLOPs",
                expected="forward_ms and backward_ms, or forward_flops",
            )
        forward = _flops_ms(layer, row, flops, rates, precision)
        backward = forward * (backward_flops / flops) if flops else 0.0
        # Of the default backward, half is W; a given backward is split the same way.
        weight = backward / 2 if layer.trainable else 0.0
        if not layer.trainable and row.backward_flops is None:
            backward /= 2
            backward_flops /= 2
        origin = weakest(row.origin, Origin.FORMULA)
    return RowValues(
        forward_ms=forward,
        backward_ms=backward,
        weight_ms=weight,
        parameter_bytes=row.parameter_bytes,
        activation_bytes=row.activation_bytes,
        output_bytes=row.output_bytes,
        gradient_bytes=row.sent_back_bytes,
        checkpoint_bytes=row.checkpoint_bytes,
        workspace_bytes=row.workspace_bytes,
        model_flops=(flops + backward_flops) * row.tp,
        origin=origin,
    )


def _flops_ms(
    layer: Layer, row: LayerCost, flops: float, rates: Rates, precision: Precision
) -> float:
    """Time of a forward of so many FLOPs, by the efficiency of matrices of the layer's size.

    Its parameters say how wide the matrices are, and FLOPs / (2 parameters) how many rows went
    through them; a layer without parameters runs at the rate of large matrices. Its output and
    weights cross the memory bus at least once (roofline).
    """
    shape_cost = 1.0
    parameters = row.parameter_bytes / precision.weight_bytes
    if parameters and flops:
        width = (parameters / _SQUARES.get(layer.type, 1.0)) ** 0.5
        shape_cost += rates.half_width / width + rates.half_rows * 2 * parameters / flops
    compute = flops / rates.gemm_flops_per_ms * shape_cost
    moved = (row.parameter_bytes + row.output_bytes) / rates.memory_bytes_per_ms
    return max(compute, moved)


def _mixed(low: RowValues, high: RowValues, share: float) -> RowValues:
    """Linear interpolation, sizes included."""

    def between(first: float, second: float) -> float:
        return first + (second - first) * share

    def between_or_none(first: float | None, second: float | None) -> float | None:
        return None if first is None or second is None else between(first, second)

    return RowValues(
        forward_ms=between(low.forward_ms, high.forward_ms),
        backward_ms=between(low.backward_ms, high.backward_ms),
        weight_ms=between_or_none(low.weight_ms, high.weight_ms),
        parameter_bytes=max(low.parameter_bytes, high.parameter_bytes),
        activation_bytes=between(low.activation_bytes, high.activation_bytes),
        output_bytes=between(low.output_bytes, high.output_bytes),
        gradient_bytes=between(low.gradient_bytes, high.gradient_bytes),
        checkpoint_bytes=between_or_none(low.checkpoint_bytes, high.checkpoint_bytes),
        workspace_bytes=between(low.workspace_bytes, high.workspace_bytes),
        model_flops=between(low.model_flops, high.model_flops),
        origin=weakest(low.origin, high.origin, Origin.INTERPOLATED),
    )


def scaled(values: RowValues, ratio: float, origin: Origin) -> RowValues:
    """Everything that grows with the tokens, in proportion; parameters stay."""

    def by_ratio(value: float | None) -> float | None:
        return None if value is None else value * ratio

    return RowValues(
        forward_ms=values.forward_ms * ratio,
        backward_ms=values.backward_ms * ratio,
        weight_ms=by_ratio(values.weight_ms),
        parameter_bytes=values.parameter_bytes,
        activation_bytes=values.activation_bytes * ratio,
        output_bytes=values.output_bytes * ratio,
        gradient_bytes=values.gradient_bytes * ratio,
        checkpoint_bytes=by_ratio(values.checkpoint_bytes),
        workspace_bytes=values.workspace_bytes * ratio,
        model_flops=values.model_flops * ratio,
        origin=origin,
    )
