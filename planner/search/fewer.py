"""Whether leaving GPUs idle would be faster or cheaper: said aloud, never done unasked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.cost.pricing import Pricer
from planner.errors import InputError
from planner.plans import Plan
from planner.search.bounding import bound_layouts, least_makespans
from planner.search.run import SearchLimits, search_layouts
from planner.search.space import LayoutSpace, enumerate_layouts
from planner.specs import Model, Objective

__all__ = ["fewer_gpus_notes"]

Column = NDArray[np.int64]

_MOST_LAYOUTS = 10_000
"""Beyond this only GPU counts that divide the plan's are looked at."""
_MOST_TRIED = 32
"""Layouts solved at most, most promising bounds first: a hint, not a proof."""
_QUICK = SearchLimits(nodes_per_layout=1)


def fewer_gpus_notes(model: Model, pricer: Pricer, plan: Plan, value: int) -> tuple[str, ...]:
    """Notes on layouts with idle GPUs that beat the plan in step time, or, with a price, in cost.

    ``value`` is the plan's step time in quanta.

    Layouts whose proven bound cannot beat the plan are never solved, so that the usual answer
    (none can) costs one vectorised bound.
    """
    training = pricer.training.model_copy(update={"allow_fewer": True})
    try:
        space = enumerate_layouts(model, pricer.cluster, training, len(pricer.chain.blocks))
    except InputError:
        return ()
    fewer = space.num_gpus < plan.num_gpus
    if fewer.sum() > _MOST_LAYOUTS:
        fewer &= plan.num_gpus % space.num_gpus == 0
    members = space.subset(fewer)
    if not len(members):
        return ()
    notes = []
    # What cannot win by its work alone needs no prices of its own.
    least = least_makespans(pricer, members)
    hopeful = least < value
    if pricer.cluster.price_per_gpu_hour:
        hopeful |= least.astype(float) * members.num_gpus < value * plan.num_gpus
    members = members.subset(np.flatnonzero(hopeful))
    if not len(members):
        return ()
    bounds = bound_layouts(pricer, members)
    faster = _promising(members, bounds.step, value)
    if len(faster):
        result = search_layouts(pricer, faster, limits=_QUICK)
        if result.ranking and result.ranking[0].step < value:
            best = result.ranking[0]
            notes.append(
                f"{best.layout.num_gpus} of {plan.num_gpus} GPUs would be faster: "
                f"{pricer.quantum.ms(best.step):.1f} ms with {best.layout.short()} "
                "(--allow-fewer)"
            )
    if pricer.cluster.price_per_gpu_hour:
        cost = value * plan.num_gpus
        # As floats: GPU time in quanta may exceed 64 bits, and this is a hint.
        cheaper = _promising(members, bounds.step.astype(float) * members.num_gpus, cost)
        if len(cheaper):
            result = search_layouts(
                pricer, cheaper, objective=Objective.TOKENS_PER_DOLLAR, limits=_QUICK
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


def _promising(space: LayoutSpace, bounds: Column | NDArray[np.float64], value: int) -> LayoutSpace:
    """The layouts whose bound undercuts a value, the smallest bounds first, not too many."""
    order = np.argsort(bounds, kind="stable")[:_MOST_TRIED]
    return space.subset(np.sort(order[bounds[order] < value]))
