"""The legal layouts of a question, and what a layout cannot beat: both vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.in_flight import in_flight_microbatches
from planner.cost.legality import legal_tensor_degrees, tensor_parallel_conflict
from planner.deadlines import poll
from planner.errors import LayoutError
from planner.placement import stays_in_domain
from planner.plans import Layout
from planner.schedule_rules import RULES, legal_shapes
from planner.specs import MOST_MICROBATCHES, Cluster, Model, Schedule, Training

__all__ = ["LayoutSpace", "divisors", "enumerate_layouts", "searched_degrees"]

I64 = NDArray[np.int64]

_SEARCHED_CHUNKS = (2, 3, 4, 6, 8)


@dataclass(frozen=True, eq=False)
class LayoutSpace:
    """Candidate layouts as columns of equal length K, in the canonical tie order
    (pp, tp, dp, vpp, microbatch_size, schedule)."""

    dp: I64
    pp: I64
    tp: I64
    vpp: I64
    microbatch_size: I64
    num_microbatches: I64
    schedule: I64
    """Index into ``schedules``."""
    schedules: tuple[Schedule, ...]

    def __len__(self) -> int:
        return len(self.dp)

    @property
    def num_gpus(self) -> I64:
        """World size of each layout, shape (K,)."""
        return self.dp * self.pp * self.tp

    def subset(self, keep: NDArray[np.bool_] | I64) -> LayoutSpace:
        """Layouts chosen by a mask or by index, in the same order."""
        return LayoutSpace(
            self.dp[keep], self.pp[keep], self.tp[keep], self.vpp[keep],
            self.microbatch_size[keep], self.num_microbatches[keep], self.schedule[keep],
            self.schedules,
        )  # fmt: skip

    def index(self, layout: Layout) -> int | None:
        """Where a layout stands, whatever it recomputes; None where it does not."""
        if layout.schedule not in self.schedules:
            return None
        same = self.schedule == self.schedules.index(layout.schedule)
        for name in ("dp", "pp", "tp", "vpp", "microbatch_size", "num_microbatches"):
            same &= getattr(self, name) == getattr(layout, name)
        found = np.flatnonzero(same)
        return int(found[0]) if len(found) else None

    def layout(self, index: int) -> Layout:
        """One layout as a plan's type."""
        return Layout(
            dp=int(self.dp[index]),
            pp=int(self.pp[index]),
            tp=int(self.tp[index]),
            vpp=int(self.vpp[index]),
            microbatch_size=int(self.microbatch_size[index]),
            num_microbatches=int(self.num_microbatches[index]),
            schedule=self.schedules[int(self.schedule[index])],
        )


def divisors(number: int) -> list[int]:
    """All divisors in ascending order.

    Examples
    --------
    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def searched_degrees(
    model: Model, cluster: Cluster, training: Training
) -> tuple[list[int], list[int]]:
    """Tensor degrees and micro-batch sizes that layouts may have."""
    pins, gpus = training.pins, cluster.num_gpus
    widest = gpus if training.allow_cross_domain else min(gpus, cluster.nvlink_domain)
    sizes = divisors(training.global_batch_size)
    return (
        [pins.tp] if pins.tp else legal_tensor_degrees(model, widest),
        [pins.microbatch_size]
        if pins.microbatch_size
        else [size for size in sizes if size <= training.max_microbatch_size],
    )


def enumerate_layouts(
    model: Model,
    cluster: Cluster,
    training: Training,
    max_stages: int,
    *,
    fewest_gpus: int = 1,
) -> LayoutSpace:
    """Every layout that is legal: T divides the model, P <= ``max_stages``, D x M x m = batch.

    All GPUs are used unless ``training.allow_fewer``, and then ``fewest_gpus`` at least; T stays
    inside the nvlink domain unless ``training.allow_cross_domain``.

    Raises
    ------
    LayoutError
        Nothing is legal, or a pinned degree cannot be; the message names the nearest that works.
    """
    _check_pins(model, cluster, training, max_stages)
    gpus = cluster.num_gpus
    batch = training.global_batch_size
    tensor_degrees, searched = searched_degrees(model, cluster, training)
    batch_divisors = np.array(divisors(batch), np.int64)
    sizes = np.array(searched, np.int64)
    columns: list[I64] = []
    for tp in tensor_degrees:
        poll()
        pairs = _data_and_pipeline(gpus, tp, max_stages, batch_divisors, training)
        if fewest_gpus > 1:
            pairs = pairs[pairs[:, 0] * pairs[:, 1] * tp >= fewest_gpus]
        if not training.allow_cross_domain:
            pairs = pairs[stays_in_domain(cluster, tp, pairs[:, 0] * pairs[:, 1] * tp)]
        if not len(pairs):
            continue
        per_replica = batch // pairs[:, 0]
        fits = per_replica[:, None] % sizes[None, :] == 0
        fits &= per_replica[:, None] <= MOST_MICROBATCHES * sizes[None, :]
        rows, columns_of_size = np.nonzero(fits)
        chosen = sizes[columns_of_size]
        columns.append(
            np.stack(
                [
                    pairs[rows, 0],
                    pairs[rows, 1],
                    np.full(len(rows), tp, np.int64),
                    chosen,
                    per_replica[rows] // chosen,
                ]
            )
        )
    if not columns or not sum(block.shape[1] for block in columns):
        raise _nothing_legal(cluster, training, tensor_degrees, max_stages)
    dp, pp, tp_column, size, count = np.concatenate(columns, axis=1)
    return _scheduled(training, max_stages, dp, pp, tp_column, size, count)


def _scheduled(
    training: Training, max_stages: int, dp: I64, pp: I64, tp: I64, size: I64, count: I64
) -> LayoutSpace:
    """The layouts under every schedule and number of chunks that can run them."""
    schedules = training.schedules
    pinned = training.pins.vpp
    variants = [
        (index, chunks)
        for index, schedule in enumerate(schedules)
        for chunks in _chunk_counts(schedule)
        if pinned in (None, chunks)
    ]
    if pinned is not None:
        variants += [
            (index, pinned)
            for index, schedule in enumerate(schedules)
            if RULES[schedule].chunks is None and pinned not in _chunk_counts(schedule)
        ]
    if not variants:
        named = ", ".join(schedule.value for schedule in schedules)
        raise LayoutError(
            f"none of the schedules {named} puts {pinned} chunks on a rank",
            fix="use --schedule interleaved (any number), zb-v (2), or --schedule auto",
        )
    # One stage, or one micro-batch of whole backwards, leaves nothing to order: the variant that
    # holds the fewest micro-batches stands for all.
    plain = min(variants, key=lambda variant: _plainness(schedules[variant[0]], variant[1]))
    columns = []
    for index, chunks in variants:
        schedule = schedules[index]
        keep = legal_shapes(schedule, pp, count, chunks) & (pp * chunks <= max_stages)
        if (index, chunks) != plain:
            keep &= (pp > 1) & ((count > 1) | RULES[schedule].splits_backward)
        if RULES[schedule].two_way:
            keep &= pp > 1
        held, name = np.full_like(dp, chunks), np.full_like(dp, index)
        columns.append(np.stack([dp, pp, tp, held, size, count, name])[:, keep])
    dp, pp, tp, vpp, size, count, which = np.concatenate(columns, axis=1)
    if not len(dp):
        raise _no_schedule(schedules, max_stages)
    whole = LayoutSpace(dp, pp, tp, vpp, size, count, which, schedules)
    return whole.subset(np.lexsort((which, size, vpp, dp, tp, pp)))


def _plainness(schedule: Schedule, chunks: int) -> tuple[bool, int, bool, int]:
    """What is best where there is nothing to order: one chunk a rank, few micro-batches held, any
    recompute, and 1F1B among equals."""
    rules = RULES[schedule]
    held = in_flight_microbatches(schedule, 1, 8)[0]
    plainest = schedule is not Schedule.ONE_F_ONE_B
    return (rules.several_stages, held * chunks, rules.splits_backward, int(plainest))


def _chunk_counts(schedule: Schedule) -> tuple[int, ...]:
    """Chunks a rank that are searched; any number can be pinned where the schedule takes it."""
    chunks = RULES[schedule].chunks
    return _SEARCHED_CHUNKS if chunks is None else (chunks,)


def _no_schedule(schedules: Sequence[Schedule], max_stages: int) -> LayoutError:
    named = "; ".join(f"{s.value}: {RULES[s].conditions}" for s in schedules)
    return LayoutError(
        f"no layout has a shape that the schedules can run ({named}; at most {max_stages} stages)",
        fix="use another global batch or --schedule auto",
    )


def _data_and_pipeline(
    gpus: int, tp: int, max_stages: int, batch_divisors: I64, training: Training
) -> I64:
    """Pairs (dp, pp) for a tensor degree, shape (K, 2)."""
    pins = training.pins
    if training.allow_fewer:
        stages = np.arange(1, min(max_stages, gpus // tp) + 1, dtype=np.int64)
        data = batch_divisors[batch_divisors <= gpus // tp]
    else:
        if gpus % tp:
            return np.zeros((0, 2), np.int64)
        stages = np.array(divisors(gpus // tp), np.int64)
        stages = stages[stages <= max_stages]
        data = gpus // tp // stages
    if pins.pp:
        keep = stages == pins.pp
        stages = stages[keep]
        data = data if training.allow_fewer else data[keep]
    if training.allow_fewer:
        data_grid, stage_grid = np.meshgrid(data, stages)
        pairs = np.stack([data_grid.ravel(), stage_grid.ravel()], axis=1)
        pairs = pairs[pairs[:, 0] * pairs[:, 1] * tp <= gpus]
    else:
        pairs = np.stack([data, stages], axis=1)
        pairs = pairs[training.global_batch_size % pairs[:, 0] == 0]
    if pins.dp:
        pairs = pairs[pairs[:, 0] == pins.dp]
    return pairs


def _check_pins(model: Model, cluster: Cluster, training: Training, max_stages: int) -> None:
    pins = training.pins
    gpus = cluster.num_gpus
    if pins.tp:
        if pins.tp > cluster.nvlink_domain and not training.allow_cross_domain:
            raise LayoutError(
                f"tp={pins.tp} leaves the nvlink domain of {cluster.nvlink_domain} GPUs",
                fix=f"use tp <= {cluster.nvlink_domain} or --allow-cross-domain",
            )
        conflict = tensor_parallel_conflict(model, pins.tp)
        if conflict:
            legal = legal_tensor_degrees(model, min(gpus, cluster.nvlink_domain))
            raise LayoutError(conflict, fix=f"tp can be {_listed(legal)}")
        straddles = not stays_in_domain(cluster, pins.tp, gpus)
        if straddles and not training.allow_cross_domain and not training.allow_fewer:
            raise LayoutError(
                f"tp={pins.tp} does not divide the nvlink domain of {cluster.nvlink_domain} GPUs, "
                "so its groups would straddle domains",
                fix="use a divisor or --allow-cross-domain",
            )
    if pins.pp and pins.pp > max_stages:
        raise LayoutError(
            f"pp={pins.pp} is more than the {max_stages} blocks that {model.name} can be cut into",
            fix=f"use pp <= {max_stages}",
        )
    known = {"dp": pins.dp, "pp": pins.pp, "tp": pins.tp}
    product = 1
    for degree in known.values():
        product *= degree or 1
    named = " x ".join(f"{name}={degree}" for name, degree in known.items() if degree)
    complete = all(known.values())
    if product > gpus or (not training.allow_fewer and gpus % product):
        raise LayoutError(
            f"{named} needs a multiple of {product} GPUs and the cluster has {gpus}",
            fix=_degree_fix(model, cluster, training, gpus),
        )
    if complete and product != gpus and not training.allow_fewer:
        raise LayoutError(
            f"{named} uses {product} of {gpus} GPUs",
            fix=f"use dp={gpus // (product // (pins.dp or 1))}, or --allow-fewer to idle some",
        )
    _check_batch(training)


def _degree_fix(model: Model, cluster: Cluster, training: Training, gpus: int) -> str:
    pins = training.pins
    if pins.tp and pins.pp and gpus % pins.pp == 0:
        legal = [
            tp
            for tp in divisors(gpus // pins.pp)
            if tp <= cluster.nvlink_domain and not tensor_parallel_conflict(model, tp)
        ]
        return f"with pp={pins.pp} kept, tp can be {_listed(legal)}"
    return f"degrees must divide {gpus}: {_listed(divisors(gpus))}"


def _check_batch(training: Training) -> None:
    pins = training.pins
    batch = training.global_batch_size
    unit = (pins.dp or 1) * (pins.microbatch_size or 1)
    if batch % unit == 0:
        return
    below = batch // unit * unit
    near = [value for value in (below, below + unit) if value > 0]
    parts = [f"dp={pins.dp}"] if pins.dp else []
    parts += [f"microbatch_size={pins.microbatch_size}"] if pins.microbatch_size else []
    raise LayoutError(
        f"global batch {batch} is not a multiple of {' x '.join(parts)} = {unit}",
        fix=f"the nearest global batches that work are {_listed(near)}",
    )


def _nothing_legal(
    cluster: Cluster, training: Training, tensor_degrees: Sequence[int], max_stages: int
) -> LayoutError:
    gpus, batch, pins = cluster.num_gpus, training.global_batch_size, training.pins
    size = pins.microbatch_size or 1
    data_degrees = sorted(
        {
            gpus // (tp * pp)
            for tp in tensor_degrees
            if gpus % tp == 0
            for pp in divisors(gpus // tp)
            if pp <= max_stages and pins.pp in (None, pp)
        }
    )
    if not data_degrees:
        return LayoutError(
            f"no tp x pp with tp in {_listed(tensor_degrees)} and pp <= {max_stages} "
            f"divides {gpus} GPUs",
            fix="use --allow-fewer to leave GPUs idle, or another number of nodes",
        )
    units = [dp * size for dp in data_degrees]
    near = sorted(
        {value for unit in units for value in (batch // unit * unit, -(-batch // unit) * unit)}
    )
    below = [value for value in near if 0 < value < batch][-1:]
    above = [value for value in near if value > batch][:1]
    return LayoutError(
        f"global batch {batch} is not divisible by dp x microbatch_size for any layout on "
        f"{gpus} GPUs (dp in {_listed(data_degrees)}, microbatch_size {size})",
        fix=f"the nearest global batches that work are {_listed(below + above)}; "
        "--allow-fewer leaves GPUs idle",
    )


def _listed(values: Sequence[int]) -> str:
    """Numbers for a message, the middle left out when there are many."""
    texts = [str(value) for value in values]
    if len(texts) > 12:
        texts = [*texts[:6], "...", *texts[-3:]]
    return ", ".join(texts) if texts else "none"
