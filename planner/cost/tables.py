"""What a pricer keeps between layouts: blocks by (tp, micro-batch size), states by (tp, dp)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.cost.memory import StateBytes
from planner.cost.stage_table import TiedPair
from planner.errors import InputError
from planner.graph import Chain
from planner.specs import Model, Origin

__all__ = ["BlockTable", "FixedLink", "StateTable", "refuse_long_steps", "refuse_overflow"]

MOST_BYTES = 2.0**60
"""Bytes a model may need in all; sums of a few such numbers still fit 64 bits."""

_MOST_QUANTA = 2.0**62
"""Of a step, however badly the chain is cut."""

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class FixedLink:
    """A pipeline link given by the caller instead of a cluster: bytes / bandwidth + latency."""

    bandwidth_bytes_per_s: float | None = None
    """None: cuts cost the latency alone."""
    latency_ms: float = 0.0

    def transfer_ms(self, size_bytes: int) -> float:
        """One-way time of a transfer."""
        if self.bandwidth_bytes_per_s is None:
            return self.latency_ms
        return size_bytes / self.bandwidth_bytes_per_s * 1e3 + self.latency_ms


@dataclass(frozen=True, eq=False)
class BlockTable:
    """Prices of the N blocks for one (tensor degree, micro-batch size); times in quanta."""

    forward: I64
    input_gradient: I64
    weight_gradient: I64
    selective_extra: I64
    full_extra: I64
    recomputable: NDArray[np.bool_]
    kept_bytes: I64
    kept_selective_bytes: I64
    kept_full_bytes: I64
    transient_bytes: I64
    transient_full_bytes: I64
    tensor_parallel: I64
    logits_bytes: I64
    parameters: I64
    trainable_parameters: I64
    cut_forward_bytes: I64
    """Bytes sent forward over each cut position, shape (N+1,); zero at the ends."""
    cut_backward_bytes: I64
    buffer_bytes: int
    model_flops: float
    """FLOPs of one micro-batch, forward and backward, over all tensor-parallel ranks."""
    origin_share: dict[Origin, float]
    """Share of the time of a micro-batch by origin; the shares add up to 1."""
    tied: tuple[tuple[int, int, int], ...]
    """(first block, second block, shared parameters on a rank)."""
    origins: tuple[Origin, ...]
    """The least certain origin within each block."""

    @cached_property
    def total_ms_quanta(self) -> tuple[int, int]:
        """Total forward and total backward of a micro-batch."""
        backward = int(self.input_gradient.sum()) + int(self.weight_gradient.sum())
        return int(self.forward.sum()), backward

    def least_largest_stage(self, stages: int) -> int:
        """What the largest of some number of stages takes at least.

        Pigeonhole: some stage holds ceil(N/P) blocks, and none beats the average or one block.
        """
        found = self._least_largest.get(stages)
        if found is None:
            prefix, largest = self._time_prefix
            blocks = len(prefix) - 1
            width = -(-blocks // stages)
            window = int((prefix[width:] - prefix[:-width]).min()) if width <= blocks else 0
            found = max(window, -(-int(prefix[-1]) // stages), largest)
            self._least_largest[stages] = found
        return found

    @cached_property
    def _least_largest(self) -> dict[int, int]:
        return {}

    @cached_property
    def _time_prefix(self) -> tuple[I64, int]:
        times = self.forward + self.input_gradient + self.weight_gradient
        return np.concatenate([[0], np.cumsum(times)]), int(times.max())


@dataclass(frozen=True, eq=False)
class StateTable:
    """Model states of the blocks on one rank, and what a step's tail costs."""

    parameter_bytes: I64
    gradient_bytes: I64
    optimizer_bytes: I64
    tied: tuple[TiedPair, ...]
    tied_states: tuple[StateBytes, ...]
    reduction: I64
    reduction_latency: int
    update: I64
    reduction_bytes: I64
    """Gradient bytes each block contributes to the reduction."""

    @cached_property
    def static_bytes(self) -> I64:
        """Parameters, gradients and optimizer state."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes


def refuse_overflow(
    model: Model, chain: Chain, blocks: BlockTable, states: StateTable, depth: int
) -> None:
    """Refuse sizes whose sums 64-bit arithmetic cannot hold.

    Parameters
    ----------
    depth
        Micro-batches in flight on the rank that holds the most.

    Raises
    ------
    InputError
        A rank that held all blocks would need ``MOST_BYTES`` or more; names the largest block.
    """
    kept = np.maximum(blocks.kept_bytes, blocks.kept_selective_bytes).astype(float)
    need = states.static_bytes.astype(float) + depth * kept
    if need.sum() < MOST_BYTES:
        return
    raise InputError(
        f"{model.name} needs {need.sum():.3g} bytes with {depth} micro-batches in flight, more "
        "than 64-bit arithmetic holds",
        fix=f"check the sizes of layer {chain.names[int(np.argmax(need))]}",
    )


def refuse_long_steps(
    blocks: BlockTable, states: StateTable, edges: float, microbatches: int, stages: int
) -> None:
    """Refuse times whose sums 64-bit arithmetic cannot hold.

    The time unit is that of the smallest degrees; a slow link may make others far slower.

    Parameters
    ----------
    edges
        Of the dearest cut, both ways, in quanta.

    Raises
    ------
    InputError
        A step of one rank that held all blocks, and sent them all, might take too long.
    """
    times = (blocks.forward, blocks.input_gradient, blocks.weight_gradient, blocks.full_extra)
    sample = sum(float(time.sum(dtype=float)) for time in times)
    tail = float(states.reduction.sum(dtype=float)) + float(states.update.sum(dtype=float))
    tail += states.reduction_latency
    need = sample * (microbatches + 4) + edges * (microbatches + 2 * stages) + tail
    if need < _MOST_QUANTA:
        return
    largest = max((edges, "sending over a link"), (sample, "the layers with their collectives"),
                  (tail, "the gradient reduction"))[1]  # fmt: skip
    raise InputError(
        "a step is too long for 64-bit arithmetic in the time unit of its layers; what takes "
        f"longest is {largest}",
        fix="check the rates and latencies of the cluster",
    )
