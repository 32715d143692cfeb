"""From the current plan to another layout: which states move, and how long that takes.

A rank holds the weights of its stage's layers, a T-th of each, and of their optimizer states that
part's D-th where the optimizer is sharded. Shard t of T of a layer is the t-th interval of its
bytes, shard d of D an interval of that: a rank needs intervals of layers, its GPU holds others,
and what both share does not move. Gradients live for one step and do not move either.

- Only the replicas changed: replica d stays where it was, new ones receive everything.
- Else rank r of either layout sits on GPU r of the allocation, which keeps its first GPUs.
- On GPUs of another type nothing is there yet: every rank receives all that it holds.

Seconds: the largest amount that a rank receives, over the effective rate of the slowest wires of
the allocation (:func:`~planner.cost.network.effective_bytes_per_s`), and :data:`RESTART_S`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner import placement
from planner.cost.memory import optimizer_bytes_per_parameter
from planner.cost.network import effective_bytes_per_s
from planner.cost.pricing import Pricer
from planner.curves import Transition, TransitionKind
from planner.errors import InputError
from planner.plans import Layout, Plan
from planner.schedule_rules import RULES, stages_of_rank
from planner.specs import Cluster, Tier, Training

__all__ = [
    "RESTART_S",
    "Holding",
    "holding_of_cuts",
    "holding_of_plan",
    "runs_elsewhere",
    "transition",
    "transition_to",
]

I64 = NDArray[np.int64]

RESTART_S = 60.0
"""Processes and communicators started again: an assumption, no measurement."""


@dataclass(frozen=True)
class Holding:
    """Which layers each pipeline rank of a layout holds."""

    layout: Layout
    ranks: tuple[frozenset[int], ...]
    """Indices of layers, rank by rank."""


def holding_of_plan(plan: Plan, layer_names: tuple[str, ...]) -> Holding:
    """The layers of a plan's ranks.

    Raises
    ------
    InputError
        The plan has no stages, or layers that the model does not have.
    """
    if not plan.stages:
        raise InputError("the current plan has no stages", fix="give a plan that was found")
    index = {name: i for i, name in enumerate(layer_names)}
    ranks = []
    for stage in plan.stages:
        unknown = next((name for name in stage.layers if name not in index), None)
        if unknown is not None:
            raise InputError(
                "the current plan holds a layer that the model does not have", value=unknown
            )
        ranks.append(frozenset(index[name] for name in stage.layers))
    if len(ranks) != plan.layout.pp:
        raise InputError(
            "the current plan has not a stage for every pipeline rank",
            value=len(ranks),
            expected=str(plan.layout.pp),
        )
    return Holding(plan.layout, tuple(ranks))


def holding_of_cuts(
    layout: Layout, cuts: tuple[int, ...], blocks: tuple[tuple[int, ...], ...]
) -> Holding:
    """The layers of the ranks of a cut."""
    stages = [
        frozenset(layer for block in blocks[start:end] for layer in block)
        for start, end in pairwise(cuts)
    ]
    if RULES[layout.schedule].several_stages:
        held = stages_of_rank(layout.schedule, layout.pp, layout.vpp)
        ranks = [frozenset().union(*(stages[s] for s in mine)) for mine in held]
        return Holding(layout, tuple(ranks))
    return Holding(layout, tuple(stages))


def runs_elsewhere(plan: Plan, cluster: Cluster) -> bool:
    """Whether a plan says that it runs on GPUs of another type than a cluster's."""
    try:
        gpu = json.loads(plan.inputs["cluster_spec"])["gpu"]["name"]
    except (KeyError, TypeError, ValueError):
        return False  # it does not say
    return bool(gpu != cluster.gpu.name)


def transition_to(
    plan: Plan,
    layout: Layout,
    cuts: tuple[int, ...],
    pricer: Pricer,
    cluster: Cluster,
    max_restart_s: float | None,
    *,
    elsewhere: bool = False,
) -> Transition:
    """What it takes to get from a plan to a layout and its cuts.

    Sizes of layers are those of the wanted tensor degree, times the degree.
    """
    names = tuple(layer.name for layer in pricer.model.layers)
    prices = pricer.layer_prices(layout.tp, layout.microbatch_size)
    return transition(
        holding_of_plan(plan, names),
        holding_of_cuts(layout, cuts, pricer.chain.blocks),
        np.array([price.parameters for price in prices], np.int64) * layout.tp,
        np.array([price.trainable_parameters for price in prices], np.int64) * layout.tp,
        cluster,
        pricer.training,
        max_restart_s,
        elsewhere=elsewhere,
    )


def transition(
    current: Holding,
    wanted: Holding,
    parameters: I64,
    trainable: I64,
    cluster: Cluster,
    training: Training,
    max_restart_s: float | None,
    *,
    elsewhere: bool = False,
) -> Transition:
    """What it takes to get from one layout to another.

    Parameters
    ----------
    parameters, trainable
        Of each layer over all tensor ranks, shape (L,).
    cluster
        The allocation that is wanted.
    elsewhere
        Whether it has none of the GPUs that hold the states now.
    """
    old, new = current.layout, wanted.layout
    same_stages = (old.tp, old.pp) == (new.tp, new.pp) and current.ranks == wanted.ranks
    same_stages &= not elsewhere
    if same_stages and old.dp == new.dp:
        return Transition(kind=TransitionKind.NONE)
    weights = parameters * training.precision.weight_bytes
    states = trainable * optimizer_bytes_per_parameter(training)
    received = _received(
        current, wanted, weights, states, training, by_replica=same_stages, elsewhere=elsewhere
    )
    rate = effective_bytes_per_s(cluster, _slowest(cluster))
    seconds = RESTART_S + float(received.max(initial=0)) / rate
    return Transition(
        kind=TransitionKind.DATA_PARALLEL_ONLY if same_stages else TransitionKind.REPARTITION,
        bytes_moved=int(received.sum()),
        seconds=seconds,
        exceeds_max_restart=max_restart_s is not None and seconds > max_restart_s,
    )


def _slowest(cluster: Cluster) -> Tier:
    if cluster.num_gpus == 1:
        return Tier.DOMAIN
    return placement.pair_tier(cluster, 0, cluster.num_gpus - 1)


def _received(
    current: Holding,
    wanted: Holding,
    weights: I64,
    states: I64,
    training: Training,
    *,
    by_replica: bool,
    elsewhere: bool,
) -> I64:
    """Bytes that every rank of the wanted layout receives."""
    old, new = current.layout, wanted.layout
    rank = np.arange(new.num_gpus)
    tensor, replica = rank % new.tp, rank // new.tp % new.dp
    stage = rank // (new.tp * new.dp)
    if by_replica:
        was_tensor, was_replica, was_stage = tensor, replica, stage
        known = replica < old.dp
    else:
        was_tensor, was_replica = rank % old.tp, rank // old.tp % old.dp
        was_stage = np.minimum(rank // (old.tp * old.dp), old.pp - 1)
        known = (rank < old.num_gpus) & (not elsewhere)
    new_shards = new.dp if training.sharded_optimizer else 1
    old_shards = old.dp if training.sharded_optimizer else 1
    received = np.zeros(new.num_gpus, np.int64)
    for sizes, parts, was_parts in ((weights, 1, 1), (states, new_shards, old_shards)):
        need, both = _shared(wanted.ranks, current.ranks, sizes)
        # Intervals of [0, 1) with the denominators of either layout.
        lot, was_lot = new.tp * parts, old.tp * was_parts
        own = tensor * parts + (replica % parts)
        was = was_tensor * was_parts + (was_replica % was_parts)
        overlap = np.minimum((own + 1) * was_lot, (was + 1) * lot)
        overlap = np.maximum(0, overlap - np.maximum(own * was_lot, was * lot))
        # both * overlap / (lot * was_lot), whose numerator alone may exceed 64 bits.
        whole, rest = np.divmod(both[stage, was_stage], lot * was_lot)
        kept = np.where(known, whole * overlap + rest * overlap // (lot * was_lot), 0)
        received += np.maximum(0, -(-need[stage] // lot) - kept)
    return received


def _shared(
    wanted: tuple[frozenset[int], ...], current: tuple[frozenset[int], ...], sizes: I64
) -> tuple[I64, I64]:
    """Bytes of every wanted rank's layers (P), and of those a current rank holds too (P, P')."""
    layers = len(sizes)
    new, old = np.zeros((len(wanted), layers), np.int64), np.zeros((len(current), layers), np.int64)
    for row, held in enumerate(wanted):
        new[row, list(held)] = 1
    for row, held in enumerate(current):
        old[row, list(held)] = 1
    need: I64 = new @ sizes
    both: I64 = (new * sizes) @ old.T
    return need, both
