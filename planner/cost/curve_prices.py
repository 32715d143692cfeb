"""Prices of one question on many cluster sizes, as flat arrays for compiled loops.

The same numbers that :class:`~planner.cost.pricing.Pricer` puts into a
:class:`~planner.cost.stage_table.ChainProblem`, and tested to be: each distinct layer is priced
and turned into quanta once per (tp, micro-batch size), states once per (tp, dp) and wiring of
their data-parallel group, and rows over all blocks are made only for layouts that are looked at.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner import placement
from planner.cost import compute, memory, network
from planner.cost.pricing import Pricer
from planner.specs import Cluster, Recompute, Tier

__all__ = ["BlockKinds", "CurvePrices", "StateKinds"]

I64 = NDArray[np.int64]

_TIERS = list(Tier)


@dataclass(frozen=True, eq=False)
class BlockKinds:
    """Prices of the K kinds of blocks at one (tp, micro-batch size); times in quanta."""

    rows: I64
    """(7, K): F, B, extra selective, extra full, kept bytes: all, selective, full."""
    transient: I64
    """(2, K): workspace, plain and recomputed in full."""
    least_backward: I64
    """(K,): B with the extra that no allowed mode avoids."""
    least_kept: int
    """Fewest bytes that all blocks together keep of a micro-batch."""
    most_kept: float
    """The same with nothing, or the attention core, recomputed; as a float for absurd sizes."""
    parameters: I64
    trainable: I64
    shared_parameters: tuple[int, ...]
    """Of each tied pair."""
    cut_bytes: I64
    """(2, C): kinds of (forward, backward) bytes of the cuts between blocks."""
    cut_of: I64
    """(N-1,): which of them each cut has."""
    buffer_bytes: int
    total_forward: int
    total_backward: int
    total_least: int
    """F + least backward of all blocks."""
    largest: int
    """F + least backward of the largest block."""


class StateKinds(NamedTuple):
    """States of the K kinds at one (tp, dp), and what a step's tail costs."""

    static: I64
    reduction: I64
    update: I64
    latency: int
    tied: I64
    """(pairs, 3): first block, second block, bytes stored once on one stage."""
    tied_gradients: tuple[int, ...]
    gather_ms: float
    static_total: int
    update_total: int
    update_largest: int
    first_reduction: int
    """Of the first block."""


class CurvePrices:
    """Prices of one question on clusters of the same GPUs and wires.

    Parameters
    ----------
    pricer
        Of the largest cluster: where layer prices, the time quantum and transfers come from.
    """

    def __init__(self, pricer: Pricer) -> None:
        self.pricer = pricer
        self.training = pricer.training
        self.chain = pricer.chain
        self.count = len(pricer.chain.blocks)
        self._kinds: dict[tuple[int, int], BlockKinds] = {}
        self._rows: dict[tuple[int, int], tuple[I64, I64]] = {}
        self._edges: dict[tuple[int, int], tuple[I64, set[Tier]]] = {}
        self._states: dict[tuple[object, ...], StateKinds] = {}
        self._state_rows: dict[tuple[object, ...], I64] = {}
        self._tiers: dict[tuple[int, ...], tuple[I64, tuple[tuple[Tier, int], ...]]] = {}
        self._least_edges: dict[tuple[int, int, Tier], int] = {}
        self._state_keys: dict[tuple[int, ...], tuple[object, ...]] = {}
        self._tails: dict[tuple[int, ...], int] = {}
        modes = self.training.recompute
        self.has = tuple(
            mode in modes for mode in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
        )

    # --- blocks -------------------------------------------------------------------------------

    @cached_property
    def kind_of(self) -> I64:
        """Kind of every block (N,): equal layers where each is a block, else each its own."""
        if not self._alone:
            return np.arange(self.count)
        first: dict[int, int] = {}
        prices = self.pricer.layer_prices(*self._reference)
        return np.array([first.setdefault(id(price), len(first)) for price in prices], np.int64)

    @cached_property
    def counts(self) -> I64:
        """Blocks of each kind (K,)."""
        return np.bincount(self.kind_of)

    @property
    def _alone(self) -> bool:
        return len(self.chain.blocks) == len(self.pricer.model.layers) and self.chain.is_chain

    @cached_property
    def _first_of(self) -> list[int]:
        """A block of each kind."""
        found = np.unique(self.kind_of, return_index=True)[1]
        return [int(index) for index in found]

    @property
    def _reference(self) -> tuple[int, int]:
        return next(iter(self._kinds), self._asked)

    _asked: tuple[int, int] = (1, 1)

    @cached_property
    def _before_cuts(self) -> tuple[I64, I64]:
        """Kinds of blocks that stand before a cut, and which of them does before each (N-1,)."""
        kinds, of = np.unique(self.kind_of[:-1], return_inverse=True)
        return kinds, of.reshape(-1)

    @cached_property
    def tied_blocks(self) -> tuple[tuple[int, int, int, int], ...]:
        """(first block, second block, layer, layer it is tied to)."""
        layers = self.pricer.model.layers
        index = {layer.name: i for i, layer in enumerate(layers)}
        block_of = {i: block for block, members in enumerate(self.chain.blocks) for i in members}
        pairs = []
        for i, layer in enumerate(layers):
            if layer.tied_to is not None:
                other = index[layer.tied_to]
                first, second = sorted((block_of[i], block_of[other]))
                pairs.append((first, second, i, other))
        return tuple(pairs)

    def kinds(self, tp: int, microbatch_size: int) -> BlockKinds:
        """Prices of the kinds of blocks.

        Raises
        ------
        ProfileError
            No row of the profile can stand for this degree.
        """
        key = (tp, microbatch_size)
        found = self._kinds.get(key)
        if found is None:
            if "kind_of" not in self.__dict__:
                self._asked = key
            found = self._kinds[key] = self._build(tp, microbatch_size)
        return found

    def _build(self, tp: int, microbatch_size: int) -> BlockKinds:
        prices = self.pricer.layer_prices(tp, microbatch_size)
        if self._alone:
            some = [prices[block] for block in self._first_of]
            quanta = self.pricer.quantum.array(
                value
                for p in some
                for value in (
                    p.forward_ms, p.input_gradient_ms, p.weight_gradient_ms, p.selective_extra_ms,
                    p.full_extra_ms,
                )
            ).reshape(-1, 5)  # fmt: skip
            able = np.array([p.recomputable for p in some], np.bool_)
            sizes = np.array(
                [
                    (
                        p.kept_bytes,
                        p.kept_selective_bytes,
                        p.kept_full_bytes if p.recomputable else p.kept_bytes,
                        p.transient_bytes,
                        p.transient_full_bytes if p.recomputable else p.transient_bytes,
                        p.parameters,
                        p.trainable_parameters,
                    )
                    for p in some
                ],
                np.int64,
            ).T
            sent = np.array([(p.output_bytes, p.gradient_bytes) for p in some], np.int64)
            before, cut_of = self._before_cuts
            cut_bytes = sent[before].T
            buffers = max(p.buffer_bytes for p in some)
            forward, backward = quanta[:, 0], quanta[:, 1] + quanta[:, 2]
            selective, full = quanta[:, 3], np.where(able, quanta[:, 4], 0)
        else:
            table = self.pricer.block_table(tp, microbatch_size)
            able = table.recomputable
            forward, backward = table.forward, table.input_gradient + table.weight_gradient
            selective, full = table.selective_extra, np.where(able, table.full_extra, 0)
            sizes = np.stack(
                [
                    table.kept_bytes,
                    table.kept_selective_bytes,
                    np.where(able, table.kept_full_bytes, table.kept_bytes),
                    table.transient_bytes,
                    np.where(able, table.transient_full_bytes, table.transient_bytes),
                    table.parameters,
                    table.trainable_parameters,
                ]
            )
            cut_bytes = np.stack([table.cut_forward_bytes, table.cut_backward_bytes])[:, 1:-1]
            cut_of = np.arange(self.count - 1)
            buffers = table.buffer_bytes
        none, with_selective, with_full = self.has
        least = backward
        if not none:
            options = [selective] if with_selective else []
            options += [full] if with_full else []
            least = backward + np.minimum.reduce(options)
        kept = sizes[0]
        if with_selective:
            kept = np.minimum(kept, sizes[1])
        if with_full:
            kept = np.minimum(kept, sizes[2])
        shared = tuple(
            min(prices[i].embedding_parameters or prices[i].parameters
                for i in pair[2:]) for pair in self.tied_blocks
        )  # fmt: skip
        counts = self.counts
        return BlockKinds(
            rows=np.stack([forward, backward, selective, full, sizes[0], sizes[1], sizes[2]]),
            transient=sizes[3:5],
            least_backward=least,
            least_kept=int(kept @ counts),
            most_kept=float(np.maximum(sizes[0], sizes[1]).astype(np.float64) @ counts),
            parameters=sizes[5],
            trainable=sizes[6],
            shared_parameters=shared,
            cut_bytes=cut_bytes,
            cut_of=cut_of,
            buffer_bytes=buffers,
            total_forward=int(forward @ counts),
            total_backward=int(backward @ counts),
            total_least=int((forward + least) @ counts),
            largest=int((forward + least).max()),
        )

    @cached_property
    def _log(self) -> I64:
        log = np.zeros(self.count + 1, np.int64)
        log[1:] = np.frexp(np.arange(1, self.count + 1, dtype=np.float64))[1] - 1
        return log

    def block_rows(self, tp: int, microbatch_size: int) -> tuple[I64, I64]:
        """``c`` and ``w`` of :mod:`planner.solvers.quick_kernels`."""
        key = (tp, microbatch_size)
        found = self._rows.get(key)
        if found is None:
            kinds = self.kinds(tp, microbatch_size)
            c = np.zeros((9, self.count + 1), np.int64)
            np.cumsum(kinds.rows[:, self.kind_of], axis=1, out=c[:7, 1:])
            np.cumsum((kinds.rows[0] + kinds.least_backward)[self.kind_of], out=c[7, 1:])
            c[8] = self._log
            levels = int(self._log[-1]) + 1
            w = np.zeros((2, levels, self.count), np.int64)
            w[:, 0] = kinds.transient[:, self.kind_of]
            for level in range(1, levels):
                half = 1 << (level - 1)
                length = self.count - 2 * half + 1
                np.maximum(
                    w[:, level - 1, :length],
                    w[:, level - 1, half : half + length],
                    out=w[:, level, :length],
                )
            found = self._rows[key] = (c, w)
        return found

    # --- cuts ---------------------------------------------------------------------------------

    def _transfers(self, tp: int, microbatch_size: int, tier: Tier) -> I64:
        """(2, C): one-way costs of the distinct cuts, forward and backward."""
        transfer = self.pricer.transfer
        sizes = self.kinds(tp, microbatch_size).cut_bytes
        return np.array(
            [[transfer(size, tier) for size in row] for row in sizes.tolist()], np.int64
        )

    def least_edge(self, tp: int, microbatch_size: int, tier: Tier) -> int:
        """The cheapest cut between any two blocks, both ways."""
        key = (tp, microbatch_size, tier)
        found = self._least_edges.get(key)
        if found is None:
            costs = self._transfers(*key)
            found = int(costs.sum(axis=0).min()) if costs.size else 0
            self._least_edges[key] = found
        return found

    def edge_rows(self, tp: int, microbatch_size: int, tiers: frozenset[Tier]) -> I64:
        """One-way costs by (direction, tier, cut position); only the rows of ``tiers`` count."""
        key = (tp, microbatch_size)
        known = self._edges.get(key)
        if known is None:
            empty = np.zeros((2, len(_TIERS), self.count + 1), np.int64)
            known = self._edges[key] = (empty, set())
        rows, filled = known
        for tier in tiers - filled:
            costs = self._transfers(tp, microbatch_size, tier)
            rows[:, _TIERS.index(tier), 1:-1] = costs[:, self.kinds(*key).cut_of]
            filled.add(tier)
        return rows

    def boundaries(
        self, cluster: Cluster, dp: int, tp: int, pp: int
    ) -> tuple[I64, tuple[tuple[Tier, int], ...]]:
        """Index of the tier of the boundary after each stage (P-1), and how many are of each."""
        key = (cluster.nodes, cluster.gpus_per_node, dp * tp, pp)
        found = self._tiers.get(key)
        if found is None:
            tiers = placement.boundary_tiers(cluster, dp, tp, pp)
            rows = np.array([_TIERS.index(tier) for tier in tiers], np.int64)
            found = self._tiers[key] = (rows, tuple(Counter(tiers).items()))
        return found

    # --- states -------------------------------------------------------------------------------

    def states(self, cluster: Cluster, tp: int, dp: int, microbatch_size: int) -> StateKinds:
        """States on one rank of a (tp, dp) layout on ``cluster``, per kind of block."""
        key = self._state_key(cluster, tp, dp)
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = self._build_states(cluster, tp, dp, microbatch_size)
        return found

    def _state_key(self, cluster: Cluster, tp: int, dp: int) -> tuple[object, ...]:
        asked = (cluster.nodes, cluster.gpus_per_node, tp, dp)
        found = self._state_keys.get(asked)
        if found is None:
            found = self._state_keys[asked] = (tp, dp, placement.data_group(cluster, dp, tp))
        return found

    def _build_states(self, cluster: Cluster, tp: int, dp: int, microbatch_size: int) -> StateKinds:
        kinds, training, quantum = (
            self.kinds(tp, microbatch_size),
            self.training,
            self.pricer.quantum,
        )
        pairs = list(zip(kinds.parameters.tolist(), kinds.trainable.tolist(), strict=True))
        held = [memory.state_bytes(p, t, training, dp) for p, t in pairs]
        learns = training.optimizer != "none"
        reduction = update = np.zeros(len(held), np.int64)
        latency, gather_ms = 0, 0.0
        if learns:
            step = compute.optimizer_step(training, dp=dp, tp=tp, cluster=cluster)
            each = step.update_ms_per_parameter + step.weight_bytes * step.all_gather.ms_per_byte
            update = quantum.array(t * each for _, t in pairs)
            gather_ms = step.all_gather.latency_ms
            if dp > 1:
                reduce = (
                    network.reduce_scatter if training.sharded_optimizer else network.all_reduce
                )(placement.data_group(cluster, dp, tp), cluster)
                latency = quantum.quanta(reduce.latency_ms)
                reduction = quantum.array(s.gradients * reduce.ms_per_byte for s in held)
        static = np.array([s.total for s in held], np.int64)
        tied, gradients = [], []
        for (first, second, _, _), shared in zip(
            self.tied_blocks, kinds.shared_parameters, strict=True
        ):
            owners = (int(self.kind_of[first]), int(self.kind_of[second]))
            trainable = min(shared, *(int(kinds.trainable[kind]) for kind in owners))
            once = memory.state_bytes(shared, trainable, training, dp)
            if first == second:  # both owners are in one block: the second copy is never stored
                static[owners[0]] -= once.total
                continue
            tied.append((first, second, once.total))
            gradients.append(once.gradients)
        counts = self.counts
        return StateKinds(
            static=static,
            reduction=reduction,
            update=update,
            latency=latency if reduction.any() else 0,
            tied=np.array(tied, np.int64).reshape(len(tied), 3),
            tied_gradients=tuple(gradients),
            gather_ms=gather_ms,
            static_total=int(static @ counts),
            update_total=int(update @ counts),
            update_largest=int(update.max()),
            first_reduction=int(reduction[self.kind_of[0]]),
        )

    def state_rows(self, cluster: Cluster, tp: int, dp: int, microbatch_size: int) -> I64:
        """``s`` of :mod:`planner.solvers.quick_kernels`."""
        key = self._state_key(cluster, tp, dp)
        found = self._state_rows.get(key)
        if found is None:
            kinds = self.states(cluster, tp, dp, microbatch_size)
            found = np.zeros((4, self.count + 1), np.int64)
            np.cumsum(kinds.static[self.kind_of], out=found[0, 1:])
            np.cumsum(kinds.reduction[self.kind_of], out=found[1, 1:])
            found[2, :-1] = kinds.reduction[self.kind_of]
            np.cumsum(kinds.update[self.kind_of], out=found[3, 1:])
            self._state_rows[key] = found
        return found

    def fixed_tail(self, cluster: Cluster, dp: int, tp: int, pp: int, microbatch_size: int) -> int:
        """Per-step overhead, and the all-reduce of tied weights (``Pricer.fixed_tail``)."""
        key = (cluster.nodes, cluster.gpus_per_node, dp, tp, pp)
        found = self._tails.get(key)
        if found is None:
            states = self.states(cluster, tp, dp, microbatch_size)
            total_ms = cluster.gpu.calibration.step_overhead_ms
            total_ms += states.gather_ms
            if pp > 1 and states.tied_gradients:
                group = placement.tied_group(cluster, dp, tp, pp)
                for size in states.tied_gradients:
                    total_ms += network.all_reduce_ms(size, group, cluster)
            found = self._tails[key] = self.pricer.quantum.quanta(total_ms)
        return found
