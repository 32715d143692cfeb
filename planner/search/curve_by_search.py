"""One size by the whole search: schedules, pins and recompute that the quick search leaves out."""

from __future__ import annotations

from planner.cost.pricing import Pricer
from planner.errors import InputError, LayoutError, ProfileError
from planner.schedules.step import evaluate_cuts
from planner.search.curve_search import CurveCounts, SizeResult
from planner.search.results import SearchLimits
from planner.search.run import search_layouts
from planner.search.space import enumerate_layouts
from planner.specs import Model

__all__ = ["solve_size"]


def solve_size(
    model: Model, pricer: Pricer, limits: SearchLimits, counts: CurveCounts
) -> SizeResult:
    """The best layout of the pricer's cluster that uses all its GPUs, or why there is none."""
    try:
        space = enumerate_layouts(model, pricer.cluster, pricer.training, len(pricer.chain.blocks))
    except LayoutError as error:
        return _none_legal(model, pricer, str(error))
    try:
        result = search_layouts(pricer, space, limits=limits)
    except ProfileError as error:
        return SizeResult(None, refusal=str(error))
    counts.layouts += len(space)
    counts.layouts_solved += result.cut_solves
    counts.simulations += result.simulations
    if not result.ranking:
        if result.pin_errors and not result.no_fit and not result.interrupted:
            raise InputError(next(iter(result.pin_errors.values())))
        refuted = len(result.no_fit) + len(result.pin_errors) == len(space)
        left = result.interrupted or (None if refuted else "work_limit")
        return SizeResult(None, interrupted=left)
    best = result.ranking[0]
    evaluated = evaluate_cuts(pricer.problem(best.layout), best.cuts)
    assert evaluated is not None
    return SizeResult(
        layout=best.layout,
        cuts=best.cuts,
        value=best.step,
        bound=min(result.bound, best.step),
        interrupted=result.interrupted,
        recompute=tuple(choice.mode for choice in evaluated.choices),
        memory_bytes=tuple(choice.memory_bytes for choice in evaluated.choices),
        loads=evaluated.load,
    )


def _none_legal(model: Model, pricer: Pricer, why: str) -> SizeResult:
    """Whether a batch of one sample a replica would have a layout: then the batch is at fault."""
    gpus = pricer.cluster.num_gpus
    training = pricer.training.model_copy(
        update={"global_batch_size": min(10**6, gpus * (pricer.training.pins.microbatch_size or 1))}
    )
    try:
        enumerate_layouts(model, pricer.cluster, training, len(pricer.chain.blocks))
    except LayoutError:
        return SizeResult(None, has_degrees=False, has_layouts=False, refusal=why)
    return SizeResult(None, has_layouts=False, refusal=why)
