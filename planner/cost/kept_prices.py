"""Prices that outlive their question: the same model on the same cluster, at another batch.

A scheduler asks about few models again and again. What layers, blocks, states and transfers cost
depends on neither the batch nor the layout, so the last few models stay priced in this process.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.layers import LayerPrice
from planner.cost.pins import StageWindows
from planner.cost.tables import BlockTable, StateTable
from planner.graph import Chain, contract
from planner.specs import Cluster, Layer, Model, Tier, Training

__all__ = ["KeptPrices", "UnitPrices", "kept_prices"]

I64 = NDArray[np.int64]

_MOST_KEPT = 16
_MOST_LAYERS = 5_000
"""Larger models are priced anew each time: their tables would fill the memory."""
_MOST_CELLS = 4_000_000
"""Numbers in the tables of one entry (8 bytes each); a fuller one is started afresh."""
_CELLS_OF_A_BLOCK = {"tables": 20, "states": 8, "edges": 8}
_NOT_PRICED = {
    "global_batch_size", "pins", "schedules", "recompute", "sends", "allow_fewer",
    "allow_cross_domain", "max_microbatch_size",
}  # fmt: skip
"""What says which layouts there are and how they run, and changes no price."""


@dataclass(eq=False)
class UnitPrices:
    """Prices in whole quanta of one size."""

    tables: dict[tuple[int, int], BlockTable] = field(default_factory=dict)
    """By (tp, micro-batch size)."""
    states: dict[tuple[int, int], StateTable] = field(default_factory=dict)
    """By (tp, dp)."""
    edges: dict[tuple[int, int, tuple[Tier, ...]], tuple[I64, I64]] = field(default_factory=dict)
    transfers: dict[tuple[int, Tier], int] = field(default_factory=dict)
    fixed_tails: dict[tuple[int, int, int], int] = field(default_factory=dict)


@dataclass(eq=False)
class KeptPrices:
    """What is known of one model on one cluster under one training set-up, whatever the batch."""

    model: Model
    chain: Chain
    layers: dict[tuple[int, int], tuple[LayerPrice, ...]] = field(default_factory=dict)
    """By (tp, micro-batch size), in model order."""
    units: dict[int, UnitPrices] = field(default_factory=dict)
    """By the quantum's exponent."""
    windows: dict[int, StageWindows] = field(default_factory=dict)
    tiers: dict[tuple[int, int, int], tuple[Tier, ...]] = field(default_factory=dict)

    def unit(self, exponent: int) -> UnitPrices:
        """Prices in quanta of ``10**exponent`` ms."""
        return self.units.setdefault(exponent, UnitPrices())

    @cached_property
    def distinct_layers(self) -> tuple[list[Layer], list[int]]:
        """One layer of each kind, and the kind of every layer."""
        kinds: dict[object, int] = {}
        first: list[Layer] = []
        kind_of: list[int] = []
        for layer in self.model.layers:
            key = (layer.shape if layer.shape is not None else id(layer), layer.trainable)
            kind = kinds.setdefault(key, len(kinds))
            if kind == len(first):
                first.append(layer)
            kind_of.append(kind)
        return first, kind_of

    @cached_property
    def tied_layers(self) -> tuple[tuple[int, int], ...]:
        """(layer, layer it is tied to) by index."""
        index = {layer.name: i for i, layer in enumerate(self.model.layers)}
        return tuple(
            (i, index[layer.tied_to])
            for i, layer in enumerate(self.model.layers)
            if layer.tied_to is not None
        )

    @cached_property
    def block_of(self) -> dict[int, int]:
        """The block of each layer."""
        return {
            layer: block for block, members in enumerate(self.chain.blocks) for layer in members
        }

    def is_full(self) -> bool:
        """Whether the tables have grown past what is kept."""
        cells = len(self.layers) * len(self.model.layers)
        for unit in list(self.units.values()):
            for name, each in _CELLS_OF_A_BLOCK.items():
                cells += each * len(getattr(unit, name)) * len(self.chain.blocks)
        return cells > _MOST_CELLS


_kept: OrderedDict[tuple[Any, ...], KeptPrices] = OrderedDict()
_lock = threading.Lock()


def kept_prices(
    model: Model, cluster: Cluster, training: Training, model_digest: str | None = None
) -> KeptPrices:
    """The prices of an earlier question about the same, or empty ones to fill.

    Parameters
    ----------
    model_digest
        Content hash of the model, where the caller has it at hand.
    """
    if len(model.layers) > _MOST_LAYERS:
        return KeptPrices(model, contract(model))
    asked = tuple(
        getattr(training, name) for name in type(training).model_fields if name not in _NOT_PRICED
    )
    key = (model_digest or model.digest(), cluster.digest(), asked)
    with _lock:
        found = _kept.pop(key, None)
        if found is None or found.is_full():
            found = KeptPrices(model, contract(model))
        _kept[key] = found
        while len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
    return found
