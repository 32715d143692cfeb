"""The sizes of one GPU type, solved: together where the quick search can, else one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from planner import placement
from planner.cost.curve_prices import CurvePrices
from planner.cost.legality import legal_tensor_degrees
from planner.cost.question import plan_pricer
from planner.deadlines import OutOfTimeError, late
from planner.graph import Chain
from planner.placement import stays_in_domain
from planner.search.curve_by_search import solve_size
from planner.search.curve_search import CurveCounts, SizeResult, solve_sizes
from planner.search.curve_space import SpaceQuestion
from planner.search.results import SearchLimits
from planner.specs import Cluster, Model, Recompute, Schedule, Training

__all__ = ["TypeSolver"]

_QUICK_SCHEDULES = {Schedule.ONE_F_ONE_B, Schedule.GPIPE}
_QUICK_RECOMPUTE = {Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL}
_MOST_BLOCKS = 2_000
_SLOW_LIMITS = SearchLimits(nodes_per_layout=300)
"""Of sizes that the quick search leaves out, where the caller gives no work limit."""
_MOST_BATCHES = 8
"""Batches of a range that are tried for such a size: multiples of ever smaller powers of two."""


class TypeSolver:
    """The sizes of one GPU type.

    Parameters
    ----------
    model, chain
        The model and its chain of blocks.
    cluster
        All GPUs of this type.
    training
        What is asked of every size; its batch is the largest of ``batches``.
    batches
        Smallest and largest global batch size.
    limits
        Work of sizes that the quick search leaves out, and of points that it leaves open; None
        spends nothing on open points.
    """

    def __init__(
        self,
        model: Model,
        chain: Chain,
        cluster: Cluster,
        training: Training,
        batches: tuple[int, int],
        limits: SearchLimits | None,
    ) -> None:
        self.model, self.chain, self.cluster = model, chain, cluster
        self.training, self.batches, self.limits = training, batches, limits
        self.counts = CurveCounts()
        self._refuted: list[tuple[int, int, set[int]]] = []
        self._prices: dict[tuple[int, int] | None, CurvePrices] = {}
        widest = cluster.num_gpus
        if not training.allow_cross_domain:
            widest = min(widest, cluster.nvlink_domain)
        pinned = training.pins.tp
        self._degrees = (pinned,) if pinned else tuple(legal_tensor_degrees(model, widest))

    @property
    def quick(self) -> bool:
        """Whether the quick search can take the question."""
        training, pins = self.training, self.training.pins
        return (
            set(training.schedules) <= _QUICK_SCHEDULES
            and set(training.recompute) <= _QUICK_RECOMPUTE
            and pins.vpp in (None, 1)
            and not training.allow_cross_domain
            and len(self.chain.blocks) <= _MOST_BLOCKS
            and not any(
                layer.pin_stage is not None or layer.colocate_with is not None
                for layer in self.model.layers
            )
        )

    def prices(self, cluster: Cluster) -> CurvePrices:
        """Prices for a size; shared by all whose tensor groups have the wires of the whole cluster.

        One GPU alone has no wires at all, which the time quantum depends on.
        """
        whole = self.cluster
        shared = cluster.num_gpus > 1 and all(
            placement.tensor_group(cluster, tp) == placement.tensor_group(whole, tp)
            for tp in self._degrees_of(cluster)
        )
        key = None if shared else (cluster.nodes, cluster.gpus_per_node)
        found = self._prices.get(key)
        if found is None:
            base = whole if shared else cluster
            pricer = plan_pricer(self.model, base, self.training, self.chain)
            found = self._prices[key] = CurvePrices(pricer)
        return found

    def _degrees_of(self, cluster: Cluster) -> tuple[int, ...]:
        most = min(cluster.num_gpus, cluster.nvlink_domain)
        return tuple(
            tp
            for tp in self._degrees
            if tp <= most and stays_in_domain(cluster, tp, cluster.num_gpus)
        )

    def solve(
        self, clusters: Sequence[Cluster], on_size: Callable[[int, SizeResult, int], None]
    ) -> None:
        """Solve sizes, and tell of each: its index, the result and the batch chosen.

        Sizes that time leaves no room for are told of as interrupted.
        """
        told: set[int] = set()

        def tell(index: int, result: SizeResult, batch: int) -> None:
            told.add(index)
            on_size(index, result, batch)

        with suppress(OutOfTimeError):
            if self.quick:
                self._solve_quickly(clusters, tell)
            else:
                for index, cluster in enumerate(clusters):
                    if late():
                        break
                    tell(index, *self._solve_slowly(cluster))
        for index in range(len(clusters)):
            if index not in told:
                on_size(
                    index, SizeResult(None, interrupted=late() or "time_limit"), self.batches[1]
                )

    def fewer(self, cluster: Cluster, batch: int) -> SizeResult | None:
        """The best layout with fewer GPUs than a size has; None where nobody looked.

        A result without layout that nothing interrupted is a proof: the most replicas that divide
        the batch, of each pp, tp and micro-batch size, leave every rank the least to hold.
        """
        degrees = set(self._degrees_of(cluster))
        if any(
            cluster.num_gpus <= size and batch == known and degrees <= wider
            for size, known, wider in self._refuted
        ):
            return SizeResult(None)
        if not self.quick or late():
            return None
        question = self._question([cluster], [(batch, batch)], fewer=True)
        with suppress(OutOfTimeError):
            result = solve_sizes(question, self.counts)[0]
            if result.layout is None and result.interrupted is None and result.refusal is None:
                self._refuted.append((cluster.num_gpus, batch, degrees))
            return result
        return None

    def _question(
        self,
        clusters: Sequence[Cluster],
        batches: Sequence[tuple[int, int]],
        *,
        fewer: bool = False,
    ) -> SpaceQuestion:
        return SpaceQuestion(
            prices=self.prices(clusters[0]),
            training=self.training,
            clusters=clusters,
            tensor_degrees=[self._degrees_of(cluster) for cluster in clusters],
            batches=batches,
            fewer=fewer,
        )

    def _solve_quickly(
        self, clusters: Sequence[Cluster], tell: Callable[[int, SizeResult, int], None]
    ) -> None:
        groups: dict[int, list[int]] = {}
        for index, cluster in enumerate(clusters):
            groups.setdefault(id(self.prices(cluster)), []).append(index)
        for members in groups.values():
            some = [clusters[index] for index in members]
            batches = [self.batches] * len(members)
            if self.batches[0] < self.batches[1]:
                question = self._question(some, batches)
                chosen = [
                    _batch_of(found, self.batches[1])
                    for found in solve_sizes(question, self.counts)
                ]
                batches = [(batch, batch) for batch in chosen]
            question = self._question(some, batches)

            def on(number: int, result: SizeResult) -> None:
                batch = batches[number][1]  # noqa: B023 - called before the next group
                member = members[number]  # noqa: B023
                tell(member, self._closed(clusters[member], result, batch), batch)

            solve_sizes(question, self.counts, on)

    def _closed(self, cluster: Cluster, result: SizeResult, batch: int) -> SizeResult:
        """An open point after the whole search, where the caller allows it work or nothing was
        found and nothing refuted."""
        if result.layout is None and result.interrupted == "work_limit":
            return self._search(cluster, batch, self.limits or _SLOW_LIMITS)
        if self.limits is None or result.layout is None or result.bound >= result.value:
            return result
        other = self._search(cluster, batch, self.limits)
        if other.layout is None or other.value > result.value:
            return result
        if other.value == result.value and other.bound <= result.bound:
            return result
        return other

    def _search(self, cluster: Cluster, batch: int, limits: SearchLimits) -> SizeResult:
        training = self.training.model_copy(update={"global_batch_size": batch})
        pricer = plan_pricer(self.model, cluster, training, self.chain)
        return solve_size(self.model, pricer, limits, self.counts)

    def _solve_slowly(self, cluster: Cluster) -> tuple[SizeResult, int]:
        limits = self.limits or _SLOW_LIMITS
        low, high = self.batches
        found: list[tuple[float, int, SizeResult]] = []
        for batch in _rounded(low, high):
            result = self._search(cluster, batch, limits)
            each = result.value / batch if result.layout is not None else np.inf
            found.append((each, batch, result))
            if late():
                break
        _, batch, result = min(found, key=lambda item: (item[0], -item[1]))
        return result, batch


def _batch_of(found: SizeResult, otherwise: int) -> int:
    layout = found.layout
    if layout is None:
        return otherwise
    return layout.dp * layout.microbatch_size * layout.num_microbatches


def _rounded(low: int, high: int) -> list[int]:
    """The largest batches of a range that are multiples of powers of two, largest power last."""
    found: dict[int, None] = {}
    power = 1
    while high // power * power >= max(low, 1):
        found[high // power * power] = None
        power *= 2
    return list(found)[-_MOST_BATCHES:]
