"""From specs to the integer table that solvers read: the one place where a stage gets its price.

A :class:`Pricer` belongs to one question (model, cluster, training set-up). It prices each
layer once per (tensor degree, micro-batch size), sums layers into blocks, turns times into
whole quanta and hands out a :class:`~planner.cost.stage_table.ChainProblem` per layout.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner import placement
from planner.cost import compute, memory, network
from planner.cost.kept_prices import KeptPrices, UnitPrices
from planner.cost.layers import LayerPrice, price_layer, weakest
from planner.cost.layout_table import layout_problem
from planner.cost.pins import StageWindows, stage_windows
from planner.cost.quantum import Quantum, choose_quantum
from planner.cost.stage_table import ChainProblem, TiedPair
from planner.cost.tables import BlockTable, FixedLink, StateTable
from planner.graph import Chain
from planner.plans import Layout
from planner.specs import Cluster, Model, Origin, Tier, Training

__all__ = ["Pricer"]

I64 = NDArray[np.int64]


class Pricer:
    """Prices for one question.

    Parameters
    ----------
    model, chain
        The model and the chain its graph contracts to (``planner.graph.contract``).
    cluster, training
        Where and how it trains.
    fixed_link
        Use this link for pipeline cuts instead of the cluster's.
    tail
        Whether gradient reduction, optimizer and per-step overhead are priced.
    repeats
        Upper bound of micro-batches plus stages, for the choice of the time quantum.
    reference
        (tp, micro-batch size) that will be asked for, where only one will.
    kept
        What earlier questions priced already; only where there is no fixed link, and a tail.
    """

    def __init__(
        self,
        model: Model,
        chain: Chain,
        cluster: Cluster,
        training: Training,
        *,
        fixed_link: FixedLink | None = None,
        tail: bool = True,
        repeats: int | None = None,
        reference: tuple[int, int] | None = None,
        kept: KeptPrices | None = None,
    ) -> None:
        self.model = model
        self.chain = chain
        self.cluster = cluster
        self.training = training
        self.fixed_link = fixed_link
        self.tail = tail
        self._reference = reference
        self._repeats = repeats or training.global_batch_size + 2 * len(chain.blocks)
        self._kept = kept or KeptPrices(model, chain)

    # --- layers and blocks --------------------------------------------------------------------

    def layer_prices(self, tp: int, microbatch_size: int) -> tuple[LayerPrice, ...]:
        """The price of every layer, in model order; equal layers are priced once."""
        key = (tp, microbatch_size)
        found = self._kept.layers.get(key)
        if found is None:
            distinct = [
                price_layer(
                    layer,
                    cluster=self.cluster,
                    training=self.training,
                    tp=tp,
                    microbatch_size=microbatch_size,
                    profile_precision=self.model.precision,
                )
                for layer in self._kept.distinct_layers[0]
            ]
            prices = [distinct[kind] for kind in self._kept.distinct_layers[1]]
            found = self._kept.layers[key] = tuple(prices)
        return found

    @cached_property
    def quantum(self) -> Quantum:
        """The time unit of the whole question."""
        rows = [row for layer in self.model.layers for row in layer.costs]
        typed = [
            time
            for row in rows
            for time in (row.forward_ms, row.backward_ms, row.weight_gradient_ms)
            if time
        ]
        if self.fixed_link is not None and self.fixed_link.latency_ms:
            typed.append(self.fixed_link.latency_ms)
        prices = self.layer_prices(*self._reference_degrees())
        derived = [
            value
            for price in prices
            for value in (price.forward_ms, price.input_gradient_ms, price.weight_gradient_ms)
        ]
        total = sum(derived)
        if self.fixed_link is not None or self.cluster.num_gpus > 1:
            # A makespan holds each edge a few times; the widest one stands for all.
            slowest = max((link.tier for link in self.cluster.links), key=list(Tier).index)
            widest_ms = self.transfer_ms(max(price.output_bytes for price in prices), slowest)
            total += 4 * widest_ms
            if not any(derived):
                derived = [widest_ms]  # layers that cost nothing leave the edges to decide
        timed = all(layer.costs for layer in self.model.layers) and all(
            row.forward_ms is not None for row in rows
        )
        if typed and timed and self._reference_degrees() == self._smallest_row():
            derived = []  # the typed times say it all
        return choose_quantum(typed, derived, total_ms=total, repeats=self._repeats)

    @cached_property
    def _unit(self) -> UnitPrices:
        return self._kept.unit(self.quantum.exponent)

    def _reference_degrees(self) -> tuple[int, int]:
        """(tp, micro-batch size) whose prices set the scale of times."""
        if self._reference is not None:
            return self._reference
        if self.model.is_analytic:
            return (self.training.pins.tp or 1, self.training.pins.microbatch_size or 1)
        return self._smallest_row()

    def _smallest_row(self) -> tuple[int, int]:
        rows = [row for layer in self.model.layers for row in layer.costs]
        if not rows:
            return (1, 1)
        return (min(row.tp for row in rows), min(row.microbatch_size for row in rows))

    def block_table(self, tp: int, microbatch_size: int) -> BlockTable:
        """Prices of the blocks at one (tensor degree, micro-batch size)."""
        key = (tp, microbatch_size)
        table = self._unit.tables.get(key)
        if table is None:
            table = self._unit.tables[key] = self._build_block_table(self.layer_prices(*key))
        return table

    def _build_block_table(self, prices: tuple[LayerPrice, ...]) -> BlockTable:
        chain = self.chain
        # Few layers are distinct (a transformer has three): quantise those, then spread.
        distinct = list({id(price): price for price in prices}.values())
        number = {id(price): i for i, price in enumerate(distinct)}
        of_layer = np.array([number[id(price)] for price in prices], dtype=np.intp)
        alone = len(chain.blocks) == len(prices)

        def summed(values: list[int] | I64) -> I64:
            array = np.array(values, dtype=np.int64)[of_layer]
            if alone:
                return array
            return np.array([int(array[list(m)].sum()) for m in chain.blocks], dtype=np.int64)

        def largest(values: list[int]) -> I64:
            array = np.array(values, dtype=np.int64)[of_layer]
            if alone:
                return array
            return np.array([int(array[list(m)].max()) for m in chain.blocks], dtype=np.int64)

        def times(values: list[float]) -> I64:
            return summed(self.quantum.array(values))

        kinds = [price.weakest_origin for price in distinct]
        origins = [kinds[kind] for kind in of_layer.tolist()]
        cut_forward, cut_backward = self._cut_bytes(prices)
        origin_ms: dict[Origin, float] = {}
        counts = np.bincount(of_layer)
        for price, count in zip(distinct, counts.tolist(), strict=True):
            time_ms = price.forward_ms + price.input_gradient_ms + price.weight_gradient_ms
            shares = [(price.origin, max(time_ms - price.tensor_parallel_ms, 0.0))]
            if price.tensor_parallel_ms:
                shares.append((price.collectives_origin, price.tensor_parallel_ms))
            for origin, share_ms in shares:
                origin_ms[origin] = origin_ms.get(origin, 0.0) + count * share_ms
        all_ms = sum(origin_ms.values())
        return BlockTable(
            forward=times([p.forward_ms for p in distinct]),
            input_gradient=times([p.input_gradient_ms for p in distinct]),
            weight_gradient=times([p.weight_gradient_ms for p in distinct]),
            selective_extra=times([p.selective_extra_ms for p in distinct]),
            full_extra=times([p.full_extra_ms for p in distinct]),
            recomputable=summed([int(p.recomputable) for p in distinct]) > 0,
            kept_bytes=summed([p.kept_bytes for p in distinct]),
            kept_selective_bytes=summed([p.kept_selective_bytes for p in distinct]),
            kept_full_bytes=summed(
                [p.kept_full_bytes if p.recomputable else p.kept_bytes for p in distinct]
            ),
            transient_bytes=largest([p.transient_bytes for p in distinct]),
            transient_full_bytes=largest(
                [p.transient_full_bytes if p.recomputable else p.transient_bytes for p in distinct]
            ),
            tensor_parallel=times([p.tensor_parallel_ms for p in distinct]),
            logits_bytes=summed([p.logits_bytes for p in distinct]),
            parameters=summed([p.parameters for p in distinct]),
            trainable_parameters=summed([p.trainable_parameters for p in distinct]),
            cut_forward_bytes=cut_forward,
            cut_backward_bytes=cut_backward,
            buffer_bytes=max(p.buffer_bytes for p in distinct),
            model_flops=sum(
                p.model_flops * n for p, n in zip(distinct, counts.tolist(), strict=True)
            ),
            origin_share={
                origin: origin_ms[origin] / all_ms if all_ms else 1.0 / len(origin_ms)
                for origin in Origin
                if origin in origin_ms
            },
            tied=self._tied_blocks(prices),
            origins=tuple(weakest(*{origins[layer] for layer in m}) for m in chain.blocks)
            if not alone
            else tuple(origins),
        )

    def _cut_bytes(self, prices: tuple[LayerPrice, ...]) -> tuple[I64, I64]:
        """Bytes over each cut position, forward and backward; zero at the ends."""
        chain = self.chain
        forward, backward = np.zeros((2, len(chain.blocks) + 1), np.int64)
        if chain.is_chain:
            forward[1:-1] = [price.output_bytes for price in prices[:-1]]
            backward[1:-1] = [price.gradient_bytes for price in prices[:-1]]
            return forward, backward
        for position, producers in enumerate(chain.crossing, start=1):
            forward[position] = sum(prices[layer].output_bytes for layer in producers)
            backward[position] = sum(prices[layer].gradient_bytes for layer in producers)
        return forward, backward

    def _tied_blocks(self, prices: tuple[LayerPrice, ...]) -> tuple[tuple[int, int, int], ...]:
        pairs = []
        for i, other in self._kept.tied_layers:
            shared = min(
                price.embedding_parameters or price.parameters
                for price in (prices[i], prices[other])
            )
            first, second = sorted((self._kept.block_of[i], self._kept.block_of[other]))
            pairs.append((first, second, shared))
        return tuple(pairs)

    # --- states and tail ----------------------------------------------------------------------

    def state_table(self, tp: int, dp: int, microbatch_size: int) -> StateTable:
        """States per block on one rank of a (tp, dp) layout, and the reduction and update times."""
        key = (tp, dp)
        table = self._unit.states.get(key)
        if table is None:
            table = self._unit.states[key] = self._build_state_table(tp, dp, microbatch_size)
        return table

    def _build_state_table(self, tp: int, dp: int, microbatch_size: int) -> StateTable:
        blocks = self.block_table(tp, microbatch_size)
        known: dict[tuple[int, int], memory.StateBytes] = {}

        def states(parameters: int, trainable: int) -> memory.StateBytes:
            found = known.get((parameters, trainable))
            if found is None:
                found = memory.state_bytes(parameters, trainable, self.training, dp)
                known[(parameters, trainable)] = found
            return found

        held = [
            states(p, t)
            for p, t in zip(
                blocks.parameters.tolist(), blocks.trainable_parameters.tolist(), strict=True
            )
        ]
        zeros = np.zeros(len(held), np.int64)
        reduction, update, latency = zeros, zeros, 0
        reduction_bytes = np.array([s.gradients for s in held], np.int64)
        if dp == 1 or self.training.optimizer == "none":
            reduction_bytes = zeros
        if self.tail and self.training.optimizer != "none":
            update = self._spread(
                blocks.trainable_parameters,
                lambda count: compute.optimizer_step_ms(
                    count, dp=dp, training=self.training, cluster=self.cluster, tp=tp
                ),
            )
            if dp > 1:
                group = placement.data_group(self.cluster, dp, tp)
                reduce = (
                    network.reduce_scatter
                    if self.training.sharded_optimizer
                    else network.all_reduce
                )(group, self.cluster)
                latency = self.quantum.quanta(reduce.latency_ms)
                reduction = self._spread(reduction_bytes, lambda size: size * reduce.ms_per_byte)
        pairs, pair_states = [], []
        for first, second, shared in blocks.tied:
            trainable = min(
                shared,
                int(blocks.trainable_parameters[first]),
                int(blocks.trainable_parameters[second]),
            )
            once = states(shared, trainable)
            if first == second:
                # Both owners are in one block: the second copy is never stored.
                held[first] = memory.StateBytes(
                    held[first].parameters - once.parameters,
                    held[first].gradients - once.gradients,
                    held[first].optimizer - once.optimizer,
                )
                continue
            pairs.append(TiedPair(first, second, sum(once)))
            pair_states.append(once)
        return StateTable(
            parameter_bytes=np.array([s.parameters for s in held], np.int64),
            gradient_bytes=np.array([s.gradients for s in held], np.int64),
            optimizer_bytes=np.array([s.optimizer for s in held], np.int64),
            tied=tuple(pairs),
            tied_states=tuple(pair_states),
            reduction=reduction,
            reduction_latency=latency,
            update=update,
            reduction_bytes=reduction_bytes,
        )

    def _spread(self, amounts: I64, time_ms: Callable[[int], float]) -> I64:
        """Quanta of a time per block, computed once per distinct amount."""
        distinct, of_block = np.unique(amounts, return_inverse=True)
        return self.quantum.array(time_ms(amount) for amount in distinct.tolist())[of_block]

    def fixed_tail(self, layout: Layout) -> int:
        """``fixed_tail_ms`` in quanta."""
        key = (layout.dp, layout.tp, layout.pp)
        found = self._unit.fixed_tails.get(key)
        if found is None:
            found = self._unit.fixed_tails[key] = self.quantum.quanta(self.fixed_tail_ms(layout))
        return found

    def fixed_tail_ms(self, layout: Layout) -> float:
        """Per-step overhead, and the gradient all-reduce of tied weights between two stages."""
        if not self.tail:
            return 0.0
        total_ms = self.cluster.gpu.calibration.step_overhead_ms
        step = compute.optimizer_step(
            self.training, dp=layout.dp, tp=layout.tp, cluster=self.cluster
        )
        total_ms += step.all_gather.latency_ms
        states = self.state_table(layout.tp, layout.dp, layout.microbatch_size)
        if layout.pp > 1 and states.tied_states:
            group = placement.tied_group(self.cluster, layout.dp, layout.tp, layout.pp)
            for shared in states.tied_states:
                total_ms += network.all_reduce_ms(shared.gradients, group, self.cluster)
        return total_ms

    # --- cuts ---------------------------------------------------------------------------------

    def boundary_tiers(self, layout: Layout) -> tuple[Tier, ...]:
        """Link tier of the boundary after each stage, length pp - 1."""
        if self.fixed_link is not None:
            return (Tier.CLUSTER,) * (layout.pp - 1)
        key = (layout.dp, layout.tp, layout.pp)
        tiers = self._kept.tiers.get(key)
        if tiers is None:
            found = placement.boundary_tiers(self.cluster, layout.dp, layout.tp, layout.pp)
            tiers = self._kept.tiers[key] = tuple(found)
        return tiers

    def transfer_ms(self, size_bytes: int, tier: Tier) -> float:
        """One-way time of a pipeline transfer: bytes / bandwidth + latency."""
        if self.fixed_link is not None:
            return self.fixed_link.transfer_ms(size_bytes)
        return network.point_to_point_ms(size_bytes, tier, self.cluster)

    def transfer(self, size_bytes: int, tier: Tier) -> int:
        """``transfer_ms`` in quanta."""
        key = (size_bytes, tier)
        found = self._unit.transfers.get(key)
        if found is None:
            found = self._unit.transfers[key] = self.quantum.quanta(
                self.transfer_ms(size_bytes, tier)
            )
        return found

    def edge_rows(self, tp: int, microbatch_size: int, tiers: tuple[Tier, ...]) -> tuple[I64, I64]:
        """One-way costs by (tier, cut position), shape (T, N+1), forward and backward."""
        key = (tp, microbatch_size, tiers)
        rows = self._unit.edges.get(key)
        if rows is None:
            blocks = self.block_table(tp, microbatch_size)

            def costs(sizes: I64) -> I64:
                row = np.zeros((len(tiers), len(sizes)), np.int64)
                for i, tier in enumerate(tiers):
                    row[i, 1:-1] = [self.transfer(size, tier) for size in sizes[1:-1].tolist()]
                return row

            rows = (costs(blocks.cut_forward_bytes), costs(blocks.cut_backward_bytes))
            self._unit.edges[key] = rows
        return rows

    def cheapest_edges(self, tp: int, microbatch_size: int, tiers: tuple[Tier, ...]) -> list[int]:
        """Least cost of a cut inside the chain over each tier, both ways."""
        blocks = self.block_table(tp, microbatch_size)
        pairs = zip(
            blocks.cut_forward_bytes.tolist(), blocks.cut_backward_bytes.tolist(), strict=True
        )
        sizes = set(list(pairs)[1:-1])
        return [
            min((self.transfer(a, tier) + self.transfer(b, tier) for a, b in sizes), default=0)
            for tier in tiers
        ]

    def windows(self, num_stages: int) -> StageWindows:
        """Where pins and colocations allow cuts and stages (PinError where they contradict)."""
        found = self._kept.windows.get(num_stages)
        if found is None:
            found = self._kept.windows[num_stages] = stage_windows(
                self.model, self.chain, num_stages
            )
        return found

    # --- the table of a layout ----------------------------------------------------------------

    def problem(self, layout: Layout) -> ChainProblem:
        """The priced chain of one layout (:func:`~planner.cost.layout_table.layout_problem`)."""
        return layout_problem(self, layout)
