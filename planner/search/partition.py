"""One chain, P stages: the answer of ``partition``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import numpy as np

from planner.assembly import assemble_plan
from planner.cost.pricing import Pricer
from planner.cost.stage_table import ChainProblem
from planner.deadlines import NEVER, OutOfTimeError, in_force, late, poll, within
from planner.plans import Certificate, Layout, Plan, Status, Termination
from planner.schedule_rules import RULES
from planner.schedules.cut_batch import batch_of, evaluate_fitting, takes_batches
from planner.schedules.general_bounds import grouped_least_bottleneck
from planner.schedules.prices import UNREACHABLE
from planner.schedules.step import StepEvaluation
from planner.search.run import SearchLimits
from planner.solvers.chain import balanced_bottleneck, solve_bottleneck
from planner.solvers.step_time import solve_step_time
from planner.solvers.surrogate import solve_surrogate
from planner.specs import Objective

__all__ = ["least_by_work", "solve_partition"]

_MOST_TIE_CELLS = 200_000
"""Blocks times stages above which ties are broken only among the cuts that were met anyway:
the exact tie-break takes seconds there."""

_MOST_MOVES = 50
"""Single blocks moved at the end; ties are seldom more than a few moves away."""


def solve_partition(
    pricer: Pricer,
    layout: Layout,
    objective: Objective,
    limits: SearchLimits,
    watch: Callable[[int, int], None] | None = None,
) -> Plan | None:
    """The best cut of one layout, with its certificate; None where nothing fits.

    Ties of the bottleneck are broken by the smaller simulated step time, then the largest
    smallest stage, then peak bytes, then the smallest cuts, among the cuts met and those that
    differ from the best by one block at one cut.

    Parameters
    ----------
    watch
        Told of values and bounds in quanta as they get better.
    """
    problem = pricer.problem(layout)
    try:
        bottleneck = solve_bottleneck(problem, kernel="auto")
    except OutOfTimeError:
        return None
    if bottleneck is None:
        return None
    quick = objective is Objective.BOTTLENECK
    if watch is not None and quick and not problem.is_grouped:
        watch(bottleneck.value, bottleneck.bound)
    seeds = [bottleneck.cuts]
    few = problem.num_blocks * problem.num_stages <= _MOST_TIE_CELLS
    few &= takes_batches(problem.schedule)
    if few and not problem.is_grouped:
        with suppress(OutOfTimeError):
            seeds.append(tuple(solve_surrogate(problem, bottleneck, kernel="auto")))
            seeds.append(tuple(balanced_bottleneck(problem, bottleneck.value)))
    step = solve_step_time(
        problem,
        seeds=seeds,
        watch=None if quick else watch,
        node_limit=0 if quick and not problem.is_grouped else limits.nodes_per_layout,
    )
    candidates = dict.fromkeys([*([tuple(step.cuts)] if step.cuts else []), *seeds])
    evaluated = _evaluated(problem, candidates)
    if not evaluated:
        return None  # ranks that hold several stages: nothing that was tried fits
    best = min(evaluated, key=lambda found: _rank(found, objective))
    if few:
        best = _settled(problem, best, objective)
    if quick:
        value, bound, kind = best.bottleneck, bottleneck.bound, "bottleneck"
        if problem.is_grouped:
            bound, kind = grouped_least_bottleneck(problem), "totals"
        proven, nodes, simulations = bound >= value, 0, len(evaluated)
    else:
        value, bound, kind = best.value, step.bound, step.bound_kind
        proven, nodes, simulations = step.bound >= value, step.nodes, step.simulations
    bound = min(bound, value)
    status = Status.OPTIMAL if proven else Status.FEASIBLE
    with within(NEVER):
        plan = assemble_plan(
            pricer, layout, best.cuts, objective=objective, fitting=True, problem=problem
        )
    notes = plan.notes
    witness: dict[str, int | str] = {}
    covers = "cuts"
    if not pricer.chain.covers_all_cuts:
        covers = "file_order_cuts" if pricer.chain.linearised else "block_cuts"
        graph_bound = min(bound, _graph_bound(pricer, layout, objective))
        witness["graph_bound_quanta"] = graph_bound
        where = "at block borders"
        if pricer.chain.linearised:
            where = "in the order of the file, also inside blocks of parallel branches,"
        room = 100 * (1 - graph_bound / value) if value else 0.0
        notes = (
            *notes,
            f"cuts {where} were considered; no other cut of the graph can be more than "
            f"{room:.3g} % better",
        )
    ms = pricer.quantum.ms
    return plan.model_copy(
        update={
            "status": status,
            "bound_ms": ms(bound),
            "gap": (value - bound) / value if value else 0.0,
            "bound_covers": covers,
            "notes": notes,
            "termination": Termination(reason=_reason(proven, late(), kind)),
            "certificate": Certificate(
                bound_kind=kind,
                cuts=best.cuts,
                recompute=tuple(choice.mode for choice in best.choices),
                value_quanta=value,
                bound_quanta=bound,
                quantum_ms=str(pricer.quantum),
                witness=witness,
                simulations=simulations,
                nodes=nodes,
                probes=bottleneck.probes,
            ),
        }
    )


def _evaluated(
    problem: ChainProblem, candidates: Iterable[tuple[int, ...]]
) -> list[StepEvaluation]:
    """The cuts that fit, priced; the first of them in any case, the others while there is time."""
    evaluated: list[StepEvaluation] = []
    for cuts in candidates:
        with suppress(OutOfTimeError), within(in_force() if evaluated else NEVER):
            poll()
            found = evaluate_fitting(problem, cuts)
            if found is not None:
                evaluated.append(found)
    return evaluated


def _reason(proven: bool, interrupted: str | None, bound_kind: str) -> str:
    """Why the search ended: where loads alone bound the value, no work would have closed it.

    Once time is up the cut may be proven and yet not the one that ties are broken for.
    """
    if interrupted:
        return interrupted
    if proven:
        return "proven"
    return "weak_bound" if bound_kind == "totals" else "work_limit"


def _settled(problem: ChainProblem, best: StepEvaluation, objective: Objective) -> StepEvaluation:
    """The best after moving single blocks over single cuts as long as its rank improves."""
    batch = batch_of(problem)
    for _ in range(_MOST_MOVES):
        cuts = np.array(best.cuts, np.int64)
        inner = np.arange(1, problem.num_stages)
        around = np.tile(cuts, (2 * len(inner), 1))
        around[np.arange(len(inner)), inner] -= 1
        around[len(inner) + np.arange(len(inner)), inner] += 1
        around = around[(np.diff(around, axis=1) > 0).all(axis=1)]
        if not len(around) or late():
            return best
        try:
            found = batch.evaluate(around)
            poll()
        except OutOfTimeError:
            return best
        lead = [found.bottleneck, found.value]
        if objective is not Objective.BOTTLENECK:
            lead.reverse()
        lead[0] = np.where(found.value < UNREACHABLE, lead[0], UNREACHABLE)
        keys = [found.cuts[:, i] for i in range(problem.num_stages, -1, -1)]
        first = int(np.lexsort([*keys, found.peak_bytes, -found.lightest, lead[1], lead[0]])[0])
        moved = None
        if found.value[first] < UNREACHABLE:
            with within(NEVER):
                moved = evaluate_fitting(problem, found.cuts[first].tolist())
        if moved is None or _rank(moved, objective) >= _rank(best, objective):
            return best
        best = moved
    return best


def _rank(found: StepEvaluation, objective: Objective) -> tuple[object, ...]:
    lead = (found.bottleneck, found.value)
    if objective is not Objective.BOTTLENECK:
        lead = (found.value, found.bottleneck)
    return (*lead, -found.lightest_stage, found.peak_bytes, found.cuts)


def _graph_bound(
    pricer: Pricer, layout: Layout, objective: Objective, *, spread: bool = False
) -> int:
    """What no cut of the uncontracted graph can beat: its work spread evenly, without transfers.

    Some stage has a P-th of the work and some stage the largest layer, so its time, and M times
    its time, bound the bottleneck and the makespan of any schedule. ``spread``: the first alone,
    which holds wherever layers may be on several ranks, too.
    """
    prices = pricer.layer_prices(layout.tp, layout.microbatch_size)
    times = [
        sum(
            pricer.quantum.quanta(t)
            for t in (p.forward_ms, p.input_gradient_ms, p.weight_gradient_ms)
        )
        for p in prices
    ]
    largest = -(-sum(times) // layout.pp)
    if not spread and not RULES[layout.schedule].several_stages:
        largest = max(largest, max(times))
    if objective is Objective.BOTTLENECK:
        return largest
    return layout.num_microbatches * largest


def least_by_work(pricer: Pricer, layout: Layout, objective: Objective) -> float:
    """Milliseconds that no cut under any schedule can beat: the work spread over all ranks."""
    return pricer.quantum.ms(_graph_bound(pricer, layout, objective, spread=True))
