"""A model with measured costs as a profile CSV that reads back equal."""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import TextIO

from planner.errors import FileFormatError
from planner.specs import Layer, LayerCost, Model

__all__ = ["write_profile"]

_LayerText = Callable[[Layer], str]
_CostText = Callable[[LayerCost], str]

_ALWAYS = ("name", "type", "parameter_bytes", "activation_bytes", "output_bytes")


def _optional(value: object) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _flag(value: bool) -> str:
    return "true" if value else "false"


_LAYER_COLUMNS: dict[str, tuple[_LayerText, str]] = {
    "name": (lambda layer: layer.name, ""),
    "type": (lambda layer: layer.type, ""),
    "inputs": (lambda layer: ";".join(layer.inputs), ""),
    "trainable": (lambda layer: _flag(layer.trainable), "true"),
    "tied_to": (lambda layer: _optional(layer.tied_to), ""),
    "pin_stage": (lambda layer: _optional(layer.pin_stage), ""),
    "with": (lambda layer: _optional(layer.colocate_with), ""),
}
_COST_COLUMNS: dict[str, tuple[_CostText, str]] = {
    "tp": (lambda cost: str(cost.tp), "1"),
    "microbatch_size": (lambda cost: str(cost.microbatch_size), "1"),
    "sequence_length": (lambda cost: _optional(cost.sequence_length), ""),
    "device": (lambda cost: _optional(cost.device), ""),
    "forward_ms": (lambda cost: _optional(cost.forward_ms), ""),
    "backward_ms": (lambda cost: _optional(cost.backward_ms), ""),
    "weight_gradient_ms": (lambda cost: _optional(cost.weight_gradient_ms), ""),
    "forward_flops": (lambda cost: _optional(cost.forward_flops), ""),
    "backward_flops": (lambda cost: _optional(cost.backward_flops), ""),
    "parameter_bytes": (lambda cost: str(cost.parameter_bytes), ""),
    "activation_bytes": (lambda cost: str(cost.activation_bytes), ""),
    "output_bytes": (lambda cost: str(cost.output_bytes), ""),
    "gradient_bytes": (lambda cost: _optional(cost.gradient_bytes), ""),
    "checkpoint_bytes": (lambda cost: _optional(cost.checkpoint_bytes), ""),
    "workspace_bytes": (lambda cost: str(cost.workspace_bytes), "0"),
    "collectives_included": (lambda cost: _flag(cost.collectives_included), "false"),
    "origin": (lambda cost: cost.origin.value, "measured"),
}
"""Column, how its text is made, and the text that means the default."""


def _check(model: Model) -> None:
    for layer in model.layers:
        problem = fix = None
        if not layer.costs:
            problem = "has a shape and no measured costs"
            fix = "plan it directly, or write the costs of its formulas first"
        elif any(
            text != text.strip() or ";" in text or not text.isprintable()
            for text in (layer.name, layer.type, *(cost.device or "" for cost in layer.costs))
        ):
            problem = "has a name, type or device with ;, outer blanks or control characters"
            fix = "rename it"
        elif any(
            (cost.forward_ms is None) != (cost.backward_ms is None)
            or (cost.forward_ms is None) == (cost.forward_flops is None)
            for cost in layer.costs
        ):
            problem = "has a cost with neither or both of times and flops"
            fix = "give forward_ms and backward_ms, or forward_flops"
        if problem is not None:
            raise FileFormatError(
                f"layer {layer.name} {problem}; it cannot be written as a profile CSV", fix=fix
            )


def write_profile(model: Model, stream: TextIO) -> None:
    """Write a profile CSV: the columns that say something, numbers exactly.

    Optional columns are left out where every row has the default, and ``inputs`` where the model
    is a chain. Nothing is written where the model cannot be.

    Raises
    ------
    FileFormatError
        A layer priced from its shape, or with a name that a CSV cannot carry.

    Examples
    --------
    >>> import sys
    >>> cost = LayerCost(forward_ms=1.5, backward_ms=3, output_bytes=8)
    >>> write_profile(Model(name="one", layers=(Layer(name="a", costs=(cost,)),)), sys.stdout)
    name,type,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes
    a,layer,1.5,3.0,0,0,8
    """
    _check(model)
    layers = model.layers
    names = [layer.name for layer in layers]
    chain = all(
        layer.inputs == ((names[index - 1],) if index else ()) for index, layer in enumerate(layers)
    )
    rows = [(layer, cost) for layer in layers for cost in layer.costs]
    columns: dict[str, list[str]] = {}
    for name, (layer_text, default) in _LAYER_COLUMNS.items():
        values = [layer_text(layer) for layer, _ in rows]
        wanted = not chain if name == "inputs" else any(value != default for value in values)
        if name in _ALWAYS or wanted:
            columns[name] = values
    for name, (cost_text, default) in _COST_COLUMNS.items():
        values = [cost_text(cost) for _, cost in rows]
        if name in _ALWAYS or any(value != default for value in values):
            columns[name] = values
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
