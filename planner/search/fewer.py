"""Whether leaving GPUs idle would be faster or cheaper: said aloud, never done unasked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.cost.pricing import Pricer
from planner.deadlines import poll
from planner.errors import InputError
from planner.plans import Plan
from planner.search.bounding import bound_layouts, least_makespans
from planner.search.run import SearchLimits, search_layouts
from planner.search.space import LayoutSpace, enumerate_layouts, searched_degrees
from planner.specs import Model, Objective

__all__ = ["fewer_gpus_notes"]

Column = NDArray[np.int64]

_MOST_LAYOUTS = 10_000
"""Beyond this only GPU counts that divide the plan's are looked at."""
_MOST_TRIED = 32
"""Layouts solved at most, most promising bounds first: a hint, not a proof."""
_QUICK = SearchLimits(nodes_per_layout=0)


def fewer_gpus_notes(model: Model, pricer: Pricer, plan: Plan, value: int) -> tuple[str, ...]:
    """Notes on layouts with idle GPUs that beat the plan in step time, or, with a price, in cost.

    ``value`` is the plan's step time in quanta.

    Layouts whose proven bound cannot beat the plan are never solved, so that the usual answer
    (none can) costs one vectorised bound.
    """
    if value <= 0:
        return ()
    training = pricer.training.model_copy(update={"allow_fewer": True})
    price = pricer.cluster.price_per_gpu_hour
    times = _gpu_times(model, pricer)
    fewest = 1 if price else min(times.values(), default=0) // value + 1
    if fewest >= plan.num_gpus:
        return ()
    blocks = len(pricer.chain.blocks)
    try:
        space = enumerate_layouts(model, pricer.cluster, training, blocks, fewest_gpus=fewest)
    except InputError:
        return ()
    fewer = space.num_gpus < plan.num_gpus
    if not price:  # what cannot win by its work alone needs no prices of its own
        for (tp, size), time in times.items():
            same = (space.tp == tp) & (space.microbatch_size == size)
            fewer &= ~same | (space.num_gpus > time // value)
    if fewer.sum() > _MOST_LAYOUTS:
        fewer &= plan.num_gpus % space.num_gpus == 0
    members = space.subset(fewer)
    if not len(members):
        return ()
    least = least_makespans(pricer, members)
    hopeful = least < value
    if price:
        hopeful |= least.astype(float) * members.num_gpus < value * plan.num_gpus
    members = members.subset(np.flatnonzero(hopeful))
    if not len(members):
        return ()
    bounds = bound_layouts(pricer, members)
    fitting = bounds.memory_short == 0
    notes = []
    faster = _promising(members, bounds.step, value, fitting)
    if len(faster):
        result = search_layouts(pricer, faster, limits=_QUICK, beat=value)
        if result.ranking and result.ranking[0].step < value:
            best = result.ranking[0]
            notes.append(
                f"{best.layout.num_gpus} of {plan.num_gpus} GPUs would be faster: "
                f"{pricer.quantum.ms(best.step):.1f} ms with {best.layout.short()} "
                "(--allow-fewer)"
            )
    if price:
        cost = value * plan.num_gpus
        # As floats: GPU time in quanta may exceed 64 bits, and this is a hint.
        step_cost = bounds.step.astype(float) * members.num_gpus
        cheaper = _promising(members, step_cost, cost, fitting)
        if len(cheaper):
            result = search_layouts(
                pricer,
                cheaper,
                objective=Objective.TOKENS_PER_DOLLAR,
                limits=_QUICK,
                beat=cost,
            )
            if result.ranking:
                best = result.ranking[0]
                saved = 1 - best.step * best.layout.num_gpus / cost
                if saved > 0:
                    notes.append(
                        f"{best.layout.num_gpus} of {plan.num_gpus} GPUs would be "
                        f"{100 * saved:.1f} % cheaper a token, at "
                        f"{pricer.quantum.ms(best.step):.1f} ms a step "
                        "(--objective tokens-per-dollar)"
                    )
    return tuple(notes)


def _gpu_times(model: Model, pricer: Pricer) -> dict[tuple[int, int], int]:
    """What a step takes at least of all GPUs together, in quanta, by (tp, micro-batch size).

    Every sample passes every block forward and backward, on T GPUs at once and with its
    micro-batch: D x P x T x makespan >= B / m x T x (F + B).
    """
    batch = pricer.training.global_batch_size
    degrees, sizes = searched_degrees(model, pricer.cluster, pricer.training)
    times = {}
    for tp in degrees:
        for size in sizes:
            poll()
            table = pricer.block_table(tp, size)
            times[tp, size] = batch // size * tp * sum(table.total_ms_quanta)
    return times


def _promising(
    space: LayoutSpace,
    bounds: Column | NDArray[np.float64],
    value: int,
    fitting: NDArray[np.bool_],
) -> LayoutSpace:
    """The layouts whose bound undercuts a value, the smallest bounds first, not too many."""
    able = np.flatnonzero(fitting & (bounds < value))
    order = able[np.argsort(bounds[able], kind="stable")[:_MOST_TRIED]]
    return space.subset(np.sort(order))
