"""The prices that solvers read: one integer table a (device, degrees, micro-batch, schedule).

A chain of N blocks is cut at ``0 = c_0 < c_1 < ... < c_P = N``; stage s holds blocks
``c_s .. c_{s+1}-1``. Every price of a stage [j, k) at pipeline rank s is a function of
(s, j, k) alone, which is what makes exact solving possible. Times are int64 numbers of
``quantum_ms``; memory is in bytes.

The methods here are the plain definitions. Solvers may read the arrays for speed; the brute
force and the judge use the methods.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.schedule_rules import RULES
from planner.specs import Recompute, Schedule, Sends

__all__ = ["ChainProblem", "RecomputeChoice", "TiedPair"]

I64 = NDArray[np.int64]


class TiedPair(NamedTuple):
    """Blocks whose tied weights are stored once where both are on one stage."""

    first: int
    second: int
    shared_bytes: int
    """Bytes saved when one stage holds both."""


class RecomputeChoice(NamedTuple):
    """How a stage recomputes: the cheapest way that fits its budget."""

    mode: Recompute
    layers: int
    """Leading recomputable blocks recomputed in full (``full``: all of them)."""
    extra: int
    """Quanta added to the backward of one micro-batch."""
    memory_bytes: int


@dataclass(frozen=True, eq=False)
class ChainProblem:
    """A chain of N blocks to be cut into P stages, fully priced.

    Where the schedule puts several stages on a rank (``rank_stages``), ``num_stages`` counts the
    stages, ``in_flight`` holds 1 for each, and ``budget_bytes`` is that of a stage's rank: what
    this table allows is then necessary, and :mod:`planner.schedules.grouping` decides.

    Array shapes: N for per-block arrays, (T, N+1) for edges by link tier and cut position
    (columns 0 and N are zero: nothing is sent at the ends), P-1 for ``boundary_tier``, P for
    ``in_flight`` and ``budget_bytes``.
    """

    block_names: tuple[str, ...]
    num_stages: int
    num_microbatches: int
    schedule: Schedule
    sends: Sends
    quantum_ms: str
    """Exact decimal of one time unit in milliseconds."""

    forward: I64
    input_gradient: I64
    weight_gradient: I64
    selective_extra: I64
    """Added to the backward under ``selective``; zero where nothing is saved."""
    full_extra: I64
    """Added to the backward when the block is recomputed in full."""
    recomputable: NDArray[np.bool_]
    """Blocks that can be recomputed in full; elsewhere ``full`` changes nothing."""
    recompute_modes: tuple[Recompute, ...]
    """Modes a stage may choose from."""

    edge_forward: I64
    edge_backward: I64
    boundary_tier: I64
    """Row of the edge arrays that the boundary after stage s uses, s = 0 .. P-2."""

    static_bytes: I64
    """Parameters, gradients and optimizer state of each block on one rank."""
    kept_bytes: I64
    """Activations kept per micro-batch in flight, mode ``none``."""
    kept_selective_bytes: I64
    kept_full_bytes: I64
    """Kept when recomputed in full (equal to ``kept_bytes`` where not recomputable)."""
    transient_bytes: I64
    """Workspace of a block that is not recomputed; a stage needs its largest."""
    transient_full_bytes: I64
    """Workspace of a block recomputed in full (its own activations come back)."""
    buffer_bytes: int
    """Send and receive buffers of a rank that has a neighbour (0 when P = 1)."""
    tied: tuple[TiedPair, ...]
    in_flight: I64
    budget_bytes: I64

    legal_cut: NDArray[np.bool_]
    """Positions 0..N where the chain may be cut (ends are True)."""
    stage_low: I64
    """First stage each block may be on (pins), 0 where free."""
    stage_high: I64
    """Last stage each block may be on, P-1 where free."""

    reduction: I64
    """Gradient reduction time of each block (bandwidth part), once a step."""
    reduction_latency: int
    """Added once per stage that reduces anything."""
    overlap_reduction: bool
    update: I64
    """Optimizer step time of each block (with the parameter all-gather when sharded)."""
    fixed_tail: int
    """Per-step overhead and tied-embedding reduction, cut-independent."""

    rank_stages: tuple[tuple[int, ...], ...] = ()
    """Stages that each rank holds; empty: one each."""
    mirrored_tier: I64 | None = None
    """``boundary_tier`` for the micro-batches of a two-way schedule that enter at the last rank."""
    tensor_parallel: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """Exposed tensor-parallel communication inside each block's forward and backward (for
    reports only; already part of the times)."""

    # --- shapes and prefix sums ---------------------------------------------------------------

    @property
    def num_blocks(self) -> int:
        """N."""
        return len(self.block_names)

    @property
    def is_grouped(self) -> bool:
        """Whether a rank holds several stages."""
        return bool(self.rank_stages)

    @property
    def num_ranks(self) -> int:
        """Pipeline ranks."""
        return len(self.rank_stages) or self.num_stages

    @property
    def hides_reduction(self) -> str:
        """The times, by name, that gradient reduction runs beside."""
        return "weight_gradient" if RULES[self.schedule].splits_backward else "backward"

    @cached_property
    def backward(self) -> I64:
        """Full backward of each block without recompute, B = I + W."""
        return self.input_gradient + self.weight_gradient

    @cached_property
    def prefix(self) -> dict[str, list[int]]:
        """Prefix sums (length N+1, exact Python integers) of the additive arrays, by name."""
        names = (
            "forward", "input_gradient", "weight_gradient", "backward", "selective_extra",
            "full_extra", "static_bytes", "kept_bytes", "kept_selective_bytes",
            "kept_full_bytes", "reduction", "update",
        )  # fmt: skip
        sums = {}
        for name in names:
            values = getattr(self, name)
            total = np.zeros(len(values) + 1, np.int64)
            np.cumsum(values, out=total[1:])
            sums[name] = total.tolist()
        return sums

    # --- one stage ----------------------------------------------------------------------------

    def edges(self, stage: int, start: int, end: int) -> tuple[int, int, int, int]:
        """One-way costs (in_forward, in_backward, out_forward, out_backward) of a stage's cuts."""
        into = self.boundary_tier[stage - 1] if stage > 0 else None
        out = self.boundary_tier[stage] if stage < self.num_stages - 1 else None
        return (
            0 if into is None else int(self.edge_forward[into, start]),
            0 if into is None else int(self.edge_backward[into, start]),
            0 if out is None else int(self.edge_forward[out, end]),
            0 if out is None else int(self.edge_backward[out, end]),
        )

    def recompute_choice(self, stage: int, start: int, end: int) -> RecomputeChoice | None:
        """The allowed way to recompute with the least extra time that fits; None if none fits.

        Ties go to the earlier of none, selective, layers, full.
        """
        best: RecomputeChoice | None = None
        budget = int(self.budget_bytes[stage])
        for mode in Recompute:
            if mode not in self.recompute_modes and not (
                mode is Recompute.NONE and not self.recompute_modes
            ):
                continue
            for count in self._recompute_counts(mode, start, end):
                memory = self.stage_memory(stage, start, end, mode, count)
                if memory > budget:
                    continue
                extra = self.recompute_extra(start, end, mode, count)
                if best is None or extra < best.extra:
                    best = RecomputeChoice(mode, count, extra, memory)
        return best

    def _recompute_counts(self, mode: Recompute, start: int, end: int) -> range | tuple[int]:
        total = int(self.recomputable[start:end].sum())
        if mode is Recompute.FULL:
            return (total,)
        if mode is Recompute.LAYERS:
            return range(total + 1)
        return (0,)

    def recomputed_mask(self, start: int, end: int, count: int) -> NDArray[np.bool_]:
        """Which blocks of [start, end) are recomputed in full: the first ``count`` able ones."""
        able = self.recomputable[start:end]
        return able & (np.cumsum(able) <= count)

    def recompute_extra(self, start: int, end: int, mode: Recompute, count: int) -> int:
        """Quanta that recompute adds to the stage's backward of one micro-batch."""
        if mode is Recompute.SELECTIVE:
            return int(self.selective_extra[start:end].sum())
        return int(self.full_extra[start:end][self.recomputed_mask(start, end, count)].sum())

    def memory_terms(
        self, stage: int, start: int, end: int, mode: Recompute, count: int
    ) -> dict[str, int]:
        """Bytes of a stage: states, activations, workspace and buffers; they add up."""
        static = int(self.static_bytes[start:end].sum())
        for pair in self.tied:
            if start <= pair.first and pair.second < end:
                static -= pair.shared_bytes
        mask = self.recomputed_mask(start, end, count)
        kept = self.kept_bytes if mode is not Recompute.SELECTIVE else self.kept_selective_bytes
        activations = np.where(mask, self.kept_full_bytes[start:end], kept[start:end])
        transient = np.where(
            mask, self.transient_full_bytes[start:end], self.transient_bytes[start:end]
        )
        return {
            "states": static,
            "activations": int(self.in_flight[stage]) * int(activations.sum()),
            "workspace": int(transient.max()),
            "buffers": self.buffer_bytes if self.num_stages > 1 else 0,
        }

    def stage_memory(self, stage: int, start: int, end: int, mode: Recompute, count: int) -> int:
        """Peak bytes of a stage under one way to recompute."""
        return sum(self.memory_terms(stage, start, end, mode, count).values())

    def allowed(self, stage: int, start: int, end: int) -> bool:
        """Whether pins and colocations let ``stage`` hold exactly blocks start .. end-1."""
        return bool(
            start < end
            and self.legal_cut[start]
            and self.legal_cut[end]
            and (self.stage_low[start:end] <= stage).all()
            and (stage <= self.stage_high[start:end]).all()
        )

    def stage_cost(self, stage: int, start: int, end: int) -> int | None:
        """t + c of a stage (the bottleneck's term), or None where it is not allowed or fits not."""
        if not self.allowed(stage, start, end):
            return None
        choice = self.recompute_choice(stage, start, end)
        if choice is None:
            return None
        sums = self.prefix
        compute = sums["forward"][end] - sums["forward"][start]
        compute += sums["backward"][end] - sums["backward"][start]
        return compute + choice.extra + sum(self.edges(stage, start, end))

    # --- the tail of a step -------------------------------------------------------------------

    def exposed_reduction(self, start: int, end: int) -> int:
        """Gradient reduction left after a stage's last backward.

        Gradients are reduced block by block behind the last micro-batch's backward, which runs
        from the last block to the first: the first block's own reduction is never hidden, the
        rest hides under the backward of the blocks before them in the model,
        latency + max(R[start], sum R - sum_{blocks after start} B). Where backwards are split it is
        W that hides it: no gradient is whole before the last W.
        """
        sums = self.prefix
        total = sums["reduction"][end] - sums["reduction"][start]
        if total == 0:
            return 0
        if not self.overlap_reduction:
            return self.reduction_latency + total
        hiding = sums[self.hides_reduction]
        window = hiding[end] - hiding[start + 1]
        return self.reduction_latency + max(int(self.reduction[start]), total - window)

    def optimizer_time(self, start: int, end: int) -> int:
        """Optimizer step of a stage."""
        return self.prefix["update"][end] - self.prefix["update"][start]
