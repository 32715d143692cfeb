"""A profile from formulas: what a measured one of this model would look like."""

from __future__ import annotations

from collections.abc import Sequence

from planner.cost.layers import LayerPrice, price_layer
from planner.cost.legality import tensor_parallel_conflict
from planner.errors import InputError, LayoutError
from planner.specs import Cluster, Layer, LayerCost, Model, Training

__all__ = ["formula_profile"]


def formula_profile(
    model: Model,
    cluster: Cluster,
    *,
    sequence_length: int | None = None,
    tensor_degrees: Sequence[int] = (1,),
    microbatch_sizes: Sequence[int] = (1,),
) -> Model:
    """Price every layer by formula and keep the prices as profile rows.

    Raises
    ------
    LayoutError
        A tensor degree does not divide the model.
    InputError
        The sequence length is not known.
    """
    length = sequence_length or model.sequence_length
    if length is None:
        raise InputError("the sequence length is not known", fix="give it with --seq-len")
    for tp in tensor_degrees:
        conflict = tensor_parallel_conflict(model, tp)
        if conflict:
            raise LayoutError(conflict)
    training = Training(
        global_batch_size=max(microbatch_sizes), sequence_length=length, precision=model.precision
    )
    layers = []
    for layer in model.layers:
        costs = []
        for tp in tensor_degrees:
            for size in microbatch_sizes:
                price = price_layer(
                    layer,
                    cluster=cluster,
                    training=training,
                    tp=tp,
                    microbatch_size=size,
                    profile_precision=model.precision,
                )
                costs.append(_row(price, model, cluster, tp, size, length))
        layers.append(
            Layer(
                name=layer.name,
                type=layer.shape.kind if layer.shape is not None else layer.type,
                inputs=layer.inputs,
                trainable=layer.trainable,
                tied_to=layer.tied_to,
                pin_stage=layer.pin_stage,
                colocate_with=layer.colocate_with,
                costs=tuple(costs),
            )
        )
    return model.model_copy(update={"layers": tuple(layers), "sequence_length": length})


def _row(
    price: LayerPrice, model: Model, cluster: Cluster, tp: int, size: int, length: int
) -> LayerCost:
    backward_ms = price.input_gradient_ms + price.weight_gradient_ms
    return LayerCost(
        tp=tp,
        microbatch_size=size,
        sequence_length=length,
        device=cluster.gpu.name,
        forward_ms=round(price.forward_ms, 6),
        backward_ms=round(backward_ms, 6),
        weight_gradient_ms=round(min(price.weight_gradient_ms, backward_ms), 6),
        parameter_bytes=price.parameters * model.precision.weight_bytes,
        activation_bytes=price.kept_bytes,
        output_bytes=price.output_bytes,
        gradient_bytes=price.gradient_bytes,
        checkpoint_bytes=price.kept_full_bytes if price.recomputable else None,
        workspace_bytes=price.transient_bytes,
        collectives_included=True,
        origin=price.weakest_origin,
    )
