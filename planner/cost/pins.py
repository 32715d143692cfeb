"""Pins and colocations as stage windows and legal cuts of a chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.errors import PinError
from planner.graph import Chain
from planner.specs import Model

__all__ = ["StageWindows", "stage_windows"]


@dataclass(frozen=True, eq=False)
class StageWindows:
    """Where a chain may be cut and which stages each block may be on."""

    legal_cut: NDArray[np.bool_]
    """Shape (N+1,)."""
    stage_low: NDArray[np.int64]
    stage_high: NDArray[np.int64]


def stage_windows(model: Model, chain: Chain, num_stages: int) -> StageWindows:
    """Turn the layers' pins and colocations into windows of a chain cut into ``num_stages``.

    Raises
    ------
    PinError
        A pin outside the stages, two pins that contradict, a pin that leaves a stage empty, or
        too few legal cuts for the number of stages; the message names the layers.
    """
    blocks = len(chain.blocks)
    block_of = {
        model.layers[layer].name: block
        for block, members in enumerate(chain.blocks)
        for layer in members
    }
    low = np.zeros(blocks, np.int64)
    high = np.full(blocks, num_stages - 1, np.int64)
    pinned_by: dict[int, str] = {}
    for layer in model.layers:
        if layer.pin_stage is None:
            continue
        pin = layer.pin_stage if layer.pin_stage >= 0 else num_stages + layer.pin_stage
        if not 0 <= pin < num_stages:
            raise PinError(
                f"layer {layer.name} is pinned to stage {layer.pin_stage}, "
                f"which {num_stages} stages do not have",
                expected=f"{-num_stages} .. {num_stages - 1}",
            )
        block = block_of[layer.name]
        if low[block] > pin or high[block] < pin:
            raise PinError(
                f"layers {pinned_by[block]} and {layer.name} share a stage but are pinned to "
                f"stages {int(low[block])} and {pin}"
            )
        low[block] = high[block] = pin
        pinned_by.setdefault(block, layer.name)
    legal = np.ones(blocks + 1, np.bool_)
    for layer in model.layers:
        if layer.colocate_with is None:
            continue
        first, last = sorted((block_of[layer.name], block_of[layer.colocate_with]))
        legal[first + 1 : last + 1] = False
    _check_order(chain, low, high, legal, pinned_by, num_stages)
    return StageWindows(legal, low, high)


def _check_order(
    chain: Chain,
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    legal: NDArray[np.bool_],
    pinned_by: dict[int, str],
    num_stages: int,
) -> None:
    """Walk the chain with the set of stages each block can be on; complain where it is empty.

    Stages advance by at most one per block (no stage is empty) and only at legal cuts.
    """
    blocks = len(low)
    lowest, highest = 0, 0
    last_pin: str | None = None
    for block in range(blocks):
        if block and legal[block]:
            highest += 1
        before = (lowest, highest)
        lowest = max(lowest, int(low[block]))
        highest = min(highest, int(high[block]))
        if lowest > highest:
            layer = pinned_by.get(block, chain.names[block])
            where = f"stage {int(low[block])}"
            if before[0] > high[block] and last_pin is not None:
                raise PinError(
                    f"layer {layer} is pinned to {where} but follows layer {last_pin}, "
                    f"pinned to stage {before[0]}"
                )
            raise PinError(
                f"layer {layer} is pinned to {where}, but stage {before[1]} is the last it can be "
                f"on with {block} block{'s' * (block != 1)} before it and no stage empty"
            )
        if block in pinned_by:
            last_pin = pinned_by[block]
    groups = int(legal[1:blocks].sum()) + 1
    if highest < num_stages - 1:
        if groups >= num_stages and last_pin is not None:
            raise PinError(
                f"after layer {last_pin}, pinned to its stage, too few blocks are left for "
                f"{num_stages} non-empty stages"
            )
        if groups < blocks:
            raise PinError(
                f"colocations leave {groups} group{'s' if groups > 1 else ''} of layers for "
                f"{num_stages} stages",
                fix=f"use at most {groups} stage{'s' if groups > 1 else ''}",
            )
