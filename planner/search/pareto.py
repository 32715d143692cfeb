"""The plans that no other beats in step time, peak memory and GPUs at once."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor

from planner.assembly import assemble_plan
from planner.cost.pricing import Pricer
from planner.cost.question import plan_pricer
from planner.deadlines import poll
from planner.plans import Candidate
from planner.search.answer import candidate_of
from planner.search.run import LayoutResult, SearchLimits, search_layouts
from planner.search.space import LayoutSpace

__all__ = ["pareto_candidates", "pareto_front"]

_ROOTED = SearchLimits(nodes_per_layout=0)


def pareto_front(results: Iterable[LayoutResult]) -> list[LayoutResult]:
    """Non-dominated results, fastest first.

    A result is dominated when another is no worse in step time, peak bytes and GPUs, and
    better in one. Equal triples keep the first in canonical order.
    """
    ordered = sorted(results, key=lambda r: (r.step, r.peak_bytes, r.layout.num_gpus, r.index))
    front: list[LayoutResult] = []
    for candidate in ordered:
        dominated = any(
            kept.peak_bytes <= candidate.peak_bytes
            and kept.layout.num_gpus <= candidate.layout.num_gpus
            for kept in front
        )
        if not dominated:
            front.append(candidate)
    return front


def pareto_candidates(
    pricer: Pricer, space: LayoutSpace, executor: Executor | None = None
) -> tuple[Candidate, ...]:
    """The Pareto set over every layout of a space under every recompute mode that is allowed.

    Each (layout, mode) stands at the fastest cut that the root bound leads to; a mode forced on
    all stages is what trades time for memory. Nothing is pruned, since a slow layout may be the
    smallest.
    """
    training = pricer.training
    choices = [training.recompute] + [(mode,) for mode in training.recompute]
    owners: dict[int, Pricer] = {}
    found: list[LayoutResult] = []
    for modes in dict.fromkeys(choices):
        # Recompute changes no price of a layer: all of these share theirs.
        asked = training.model_copy(update={"recompute": modes})
        own = plan_pricer(pricer.model, pricer.cluster, asked)
        result = search_layouts(own, space, limits=_ROOTED, executor=executor, exhaustive=True)
        for solved in result.solved.values():
            owners[id(solved)] = own
            found.append(solved)
    front = []
    for solved in pareto_front(found):
        poll()
        own = owners[id(solved)]
        brief = assemble_plan(own, solved.layout, solved.cuts, fitting=True, brief=True)
        front.append(candidate_of(brief))
    return tuple(front)
