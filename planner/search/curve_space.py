"""The layouts of many cluster sizes at once, and what none of their cuts can beat.

The same layouts as :func:`~planner.search.space.enumerate_layouts` finds size by size, and bounds
as :func:`~planner.search.bounding.bound_layouts` (the proofs are in
:mod:`~planner.schedules.order_bounds`), for GPipe and 1F1B, one array operation for all sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.curve_prices import BlockKinds, CurvePrices, StateKinds
from planner.cost.tables import MOST_BYTES
from planner.errors import ProfileError
from planner.plans import Layout
from planner.schedules.order_bounds import layout_bound
from planner.search.space import divisors
from planner.specs import MOST_MICROBATCHES, Cluster, Schedule, Tier, Training

__all__ = ["CurveSpace", "SpaceQuestion", "bounded_space"]

I64 = NDArray[np.int64]

_FAR_KEY = 1 << 32
_EVERY_SIZE = 8


@dataclass(frozen=True, eq=False)
class SpaceQuestion:
    """Sizes that share prices: the same wires as far as tensor groups reach."""

    prices: CurvePrices
    training: Training
    clusters: Sequence[Cluster]
    """One for each size."""
    tensor_degrees: Sequence[tuple[int, ...]]
    """Legal for each size."""
    batches: Sequence[tuple[int, int]]
    """Smallest and largest global batch size allowed for each size."""
    fewer: bool = False
    """Layouts with fewer GPUs than a size has: for each pp, tp and micro-batch size the most
    replicas that divide the batch."""


@dataclass(frozen=True, eq=False)
class CurveSpace:
    """Layouts as columns of equal length K.

    Of a range of batches every dp, pp, tp and micro-batch size has the largest batch that it can
    divide: more micro-batches spread the fill and the tail over more samples.
    """

    size: I64
    """Index of the cluster."""
    dp: I64
    pp: I64
    tp: I64
    microbatch_size: I64
    num_microbatches: I64
    schedule: I64
    bound: I64
    """Lower bound of the step value."""
    short: NDArray[np.bool_]
    """All ranks together lack memory."""
    huge: NDArray[np.bool_]
    """Sizes that 64-bit arithmetic cannot hold (:func:`~planner.cost.tables.refuse_overflow`)."""
    schedules: tuple[Schedule, ...]
    has_degrees: NDArray[np.bool_]
    """By size: some tp x pp divides the GPUs, whatever the batch."""
    refusals: tuple[str, ...] = ()
    """Why some (tp, micro-batch size) could not be priced."""
    refused: NDArray[np.bool_] | None = None
    """By size: some layouts could not be priced."""

    def __len__(self) -> int:
        return len(self.dp)

    def batch(self, index: int) -> int:
        """Samples of a step."""
        return int(self.dp[index] * self.microbatch_size[index] * self.num_microbatches[index])

    def layout(self, index: int) -> Layout:
        """One layout as a plan's type."""
        return Layout(
            dp=int(self.dp[index]),
            pp=int(self.pp[index]),
            tp=int(self.tp[index]),
            microbatch_size=int(self.microbatch_size[index]),
            num_microbatches=int(self.num_microbatches[index]),
            schedule=self.schedules[int(self.schedule[index])],
        )


def bounded_space(question: SpaceQuestion) -> CurveSpace:
    """Every layout of every size that uses all its GPUs, bounded."""
    if question.fewer:
        columns, has_degrees = _fewer(question)
    else:
        degrees, has_degrees = _degrees(question)
        columns = _microbatches(question, *degrees)
    size, dp, pp, tp, mbs, count = columns
    tables, refusals, refused_pairs = _tables(question.prices, tp, mbs)
    refused = np.zeros(len(question.clusters), np.bool_)
    if refusals:
        bad = np.array(
            [(t, m) in refused_pairs for t, m in zip(tp.tolist(), mbs.tolist(), strict=True)]
        )
        refused[np.unique(size[bad])] = True
        size, dp, pp, tp, mbs, count = (column[~bad] for column in columns)
    schedules = question.training.schedules
    parts = []
    for index, schedule in enumerate(schedules):
        # One stage or one micro-batch leaves nothing to order: 1F1B stands for both.
        plain = Schedule.ONE_F_ONE_B if Schedule.ONE_F_ONE_B in schedules else schedules[0]
        keep = (pp > 1) & (count > 1) if schedule is not plain else np.ones(len(pp), np.bool_)
        chosen = [column[keep] for column in (size, dp, pp, tp, mbs, count)]
        parts.append([*chosen, np.full(int(keep.sum()), index, np.int64)])
    joined = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
    order = np.lexsort((joined[6], joined[4], joined[1], joined[3], joined[2], joined[0]))
    size, dp, pp, tp, mbs, count, which = (column[order] for column in joined)
    bound, short, huge = _bounds(question, tables, size, dp, pp, tp, mbs, count, which)
    return CurveSpace(
        size, dp, pp, tp, mbs, count, which, bound, short, huge, schedules, has_degrees,
        tuple(refusals), refused,
    )  # fmt: skip


def _degrees(question: SpaceQuestion) -> tuple[tuple[I64, I64, I64, I64], NDArray[np.bool_]]:
    """(size, dp, pp, tp) that use all GPUs, the batch aside."""
    pins, stages = question.training.pins, question.prices.count
    parts = []
    has = np.zeros(len(question.clusters), np.bool_)
    for index, (cluster, degrees) in enumerate(
        zip(question.clusters, question.tensor_degrees, strict=True)
    ):
        whole = np.array(divisors(cluster.num_gpus), np.int64)
        for tp in degrees:
            if cluster.num_gpus % tp:
                continue
            pp = whole[whole <= stages]
            pp = pp[(cluster.num_gpus // tp) % pp == 0]
            dp = cluster.num_gpus // tp // pp
            keep = np.ones(len(pp), np.bool_)
            if pins.pp:
                keep &= pp == pins.pp
            if pins.dp:
                keep &= dp == pins.dp
            pp, dp = pp[keep], dp[keep]
            has[index] |= bool(len(pp))
            parts.append((np.full(len(pp), index), dp, pp, np.full(len(pp), tp)))
    if not parts:
        nothing = np.zeros(0, np.int64)
        return (nothing, nothing, nothing, nothing), has
    size, dp, pp, tps = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    return (size, dp, pp, tps), has


def _sizes(question: SpaceQuestion) -> I64:
    """Micro-batch sizes to look at.

    For one batch its divisors; of a range, where any may divide some batch, 1 to 8 and the powers
    of two.
    """
    training = question.training
    if training.pins.microbatch_size:
        return np.array([training.pins.microbatch_size], np.int64)
    every = range(1, training.max_microbatch_size + 1)
    fixed = {low for low, high in question.batches if low == high}
    ranged = len(fixed) < len(set(question.batches))
    chosen = [
        m
        for m in every
        if (ranged and (m <= _EVERY_SIZE or m & (m - 1) == 0)) or any(b % m == 0 for b in fixed)
    ]
    return np.array(chosen, np.int64)


def _microbatches(question: SpaceQuestion, size: I64, dp: I64, pp: I64, tp: I64) -> list[I64]:
    """(size, dp, pp, tp, micro-batch size, micro-batches) of the largest batch allowed."""
    candidates = _sizes(question)
    least = np.array([low for low, _ in question.batches], np.int64)[size]
    most = np.array([high for _, high in question.batches], np.int64)[size]
    unit = dp[:, None] * candidates[None, :]
    count = np.minimum(most[:, None] // unit, MOST_MICROBATCHES)
    rows, chosen = np.nonzero((count >= 1) & (count * unit >= least[:, None]))
    return [size[rows], dp[rows], pp[rows], tp[rows], candidates[chosen], count[rows, chosen]]


def _fewer(question: SpaceQuestion) -> tuple[list[I64], NDArray[np.bool_]]:
    """(size, dp, pp, tp, micro-batch size, micro-batches) with fewer GPUs than a size has."""
    pins, candidates = question.training.pins, _sizes(question)
    parts = []
    has = np.zeros(len(question.clusters), np.bool_)
    for index, (cluster, degrees) in enumerate(
        zip(question.clusters, question.tensor_degrees, strict=True)
    ):
        batch = question.batches[index][1]
        replicas = np.array(divisors(batch), np.int64)
        for tp in degrees:
            stages = min(question.prices.count, cluster.num_gpus // tp)
            pp = np.arange(1, stages + 1)
            if pins.pp:
                pp = pp[pp == pins.pp]
            for m in candidates[batch % candidates == 0].tolist():
                able = replicas[(batch // m) % replicas == 0]
                if pins.dp:
                    able = able[able == pins.dp]
                at = np.searchsorted(able, cluster.num_gpus // (tp * pp), side="right") - 1
                some, dp = pp[at >= 0], able[at[at >= 0]]
                keep = (dp * some * tp < cluster.num_gpus) & (batch // m // dp <= MOST_MICROBATCHES)
                some, dp = some[keep], dp[keep]
                has[index] |= bool(len(dp))
                same = np.ones(len(dp), np.int64)
                parts.append([index * same, dp, some, tp * same, m * same, batch // m // dp])
    if not parts:
        return [np.zeros(0, np.int64)] * 6, has
    return [np.concatenate(pieces) for pieces in zip(*parts, strict=True)], has


def _tables(
    prices: CurvePrices, tp: I64, mbs: I64
) -> tuple[dict[tuple[int, int], BlockKinds], list[str], set[tuple[int, int]]]:
    tables: dict[tuple[int, int], BlockKinds] = {}
    refusals: dict[str, None] = {}
    refused = set()
    for key in np.unique(tp * _FAR_KEY + mbs).tolist():
        pair = divmod(key, _FAR_KEY)
        try:
            tables[pair] = prices.kinds(*pair)
        except ProfileError as error:
            refused.add(pair)
            refusals[str(error)] = None
    return tables, list(refusals), refused


def _spread(values: Sequence[int], of: I64) -> I64:
    return np.array(values, np.int64)[of]


def _bounds(
    question: SpaceQuestion,
    tables: dict[tuple[int, int], BlockKinds],
    size: I64,
    dp: I64,
    pp: I64,
    tp: I64,
    mbs: I64,
    count: I64,
    which: I64,
) -> tuple[I64, NDArray[np.bool_], NDArray[np.bool_]]:
    """Lower bounds of the step value, which layouts lack memory, and which are absurdly large."""
    prices, training = question.prices, question.training
    if not len(size):
        return np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0, np.bool_)
    pairs, of_pair = np.unique(tp * _FAR_KEY + mbs, return_inverse=True)
    names = [divmod(key, _FAR_KEY) for key in pairs.tolist()]
    kinds = [tables[name] for name in names]
    forward = _spread([k.total_forward for k in kinds], of_pair)
    least = _spread([k.total_least for k in kinds], of_pair)
    largest = _spread([k.largest for k in kinds], of_pair)
    kept = _spread([k.least_kept for k in kinds], of_pair)
    buffers = _spread([k.buffer_bytes for k in kinds], of_pair)
    transient = _spread([int(k.transient.min()) for k in kinds], of_pair)
    # Some stage holds ceil(N / P) blocks at least.
    blocks = prices.count
    lightest = _spread([int((k.rows[0] + k.least_backward).min()) for k in kinds], of_pair)
    largest = np.maximum(largest, -(-blocks // pp) * lightest)
    largest = np.maximum(largest, _window(prices, kinds, of_pair, pp))
    states, of_state = _states(question, size, tp, dp, mbs)
    static = _spread([s.static_total for s in states], of_state)
    once = _spread([int(s.tied[:, 2].sum()) for s in states], of_state)
    update = _spread([s.update_total for s in states], of_state)
    update_largest = _spread([s.update_largest for s in states], of_state)
    reduced = _spread(
        [s.latency + s.first_reduction if s.first_reduction else 0 for s in states], of_state
    )
    overhead = prices.pricer.quantum.quanta(question.clusters[0].gpu.calibration.step_overhead_ms)
    tail = reduced + np.maximum(-(-update // pp), update_largest) + overhead
    edges = _edges(question, names, of_pair, size, dp * tp, pp)
    bound = np.zeros(len(size), np.int64)
    for index, schedule in enumerate(training.schedules):
        some = which == index
        bound[some] = layout_bound(
            schedule, pp[some], count[some], forward[some], (least - forward)[some],
            largest[some], edges[some],
        )  # fmt: skip
    gpipe = np.array([s is Schedule.GPIPE for s in training.schedules], np.bool_)[which]
    budget = question.clusters[0].budget_bytes
    room = pp * (budget - np.where(pp > 1, buffers, 0) - transient)
    short = static - once + np.where(gpipe, count, 1) * kept > room
    most_kept = np.array([k.most_kept for k in kinds])[of_pair]
    depth = np.where(gpipe, count, np.minimum(count, pp))
    return bound + tail, short, static + depth * most_kept >= MOST_BYTES


def _window(prices: CurvePrices, kinds: Sequence[BlockKinds], of_pair: I64, pp: I64) -> I64:
    """The lightest run of ceil(N / P) blocks, by layout."""
    blocks = prices.count
    width = -(-blocks // pp)
    times = np.zeros((len(kinds), blocks + 1), np.int64)
    stacked = np.stack([k.rows[0] + k.least_backward for k in kinds])
    np.cumsum(stacked[:, prices.kind_of], axis=1, out=times[:, 1:])
    found = {}
    for long in np.unique(width).tolist():
        found[long] = (times[:, long:] - times[:, :-long]).min(axis=1)
    lengths = {long: number for number, long in enumerate(found)}
    table = np.stack([found[long] for long in found])
    of_width = np.array([lengths[long] for long in width.tolist()], np.int64)
    runs: I64 = table[of_width, of_pair]
    return runs


def _states(
    question: SpaceQuestion, size: I64, tp: I64, dp: I64, mbs: I64
) -> tuple[list[StateKinds], I64]:
    key = (size * _FAR_KEY + dp) * 4096 + np.minimum(tp, 4095)
    _, first, of_state = np.unique(key, return_index=True, return_inverse=True)
    states = [
        question.prices.states(question.clusters[int(size[i])], int(tp[i]), int(dp[i]), int(mbs[i]))
        for i in first.tolist()
    ]
    return states, of_state


def _edges(
    question: SpaceQuestion,
    pairs: Sequence[tuple[int, int]],
    of_pair: I64,
    size: I64,
    stage_gpus: I64,
    pp: I64,
) -> I64:
    """Lower bound of the summed edge costs over all boundaries, both ways.

    Stages that fill whole domains cross them at every boundary; of k stages in a domain, all
    boundaries but k - 1 in k do. Where they line up otherwise only the domain's wires are sure.
    """

    def cheapest(tier: Tier) -> I64:
        return _spread([question.prices.least_edge(*pair, tier) for pair in pairs], of_pair)

    domain = np.array([c.nvlink_domain for c in question.clusters], np.int64)[size]
    inside = np.minimum(domain // np.maximum(stage_gpus, 1), pp)
    crossing = np.where(
        stage_gpus >= domain,
        pp - 1,
        np.where(domain % stage_gpus == 0, -(-pp // np.maximum(inside, 1)) - 1, 0),
    )
    if (pp == 1).all():
        return np.zeros(len(size), np.int64)
    far = np.minimum.reduce([cheapest(t) for t in (Tier.NODE, Tier.RACK, Tier.CLUSTER)])
    near = np.minimum(far, cheapest(Tier.DOMAIN))
    total: I64 = crossing * far + (pp - 1 - crossing) * near
    return np.where(pp > 1, total, 0)
