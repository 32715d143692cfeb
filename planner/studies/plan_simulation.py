"""The timeline of a plan: its stages priced again, its schedule's order run on those times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.assembly import least_memory
from planner.check import Verification, check_plan, cuts_of
from planner.cost.pricing import Pricer
from planner.cost.stage_table import ChainProblem
from planner.cost.weight_versions import staleness, weight_versions
from planner.errors import PlanFileError, PlannerError
from planner.operations import Order
from planner.plans import Plan, Status
from planner.questions import plan_question
from planner.schedule_rules import RULES
from planner.schedules.grouping import grouped_memory, order_of_problem
from planner.schedules.step import StepEvaluation, evaluate_cuts
from planner.schedules.timeline import run_order
from planner.schedules.timing import automatic_order_of
from planner.specs import Cluster, Model, Recompute, Schedule, Training
from planner.studies.simulation_result import RankBytes, Simulation, limits_of, share_of, title_of

__all__ = ["simulate_plan"]

_UNLIMITED_BYTES = 2**59
"""A partition without a memory limit has a budget beyond any GPU."""


def simulate_plan(
    plan: Plan,
    *,
    model: Model | str | None = None,
    cluster: Cluster | str | None = None,
    training: Training | None = None,
    activation_limit: float | Sequence[float] | None = None,
    freed_at_i: float = 0.0,
) -> Simulation:
    """One step of a plan, from nothing of it but its layout and the layers of its stages.

    Parameters
    ----------
    plan
        A plan or a sketch; one with a layout alone gets its best cut.
    model, cluster, training
        Replace what the plan's ``inputs`` name.
    activation_limit, freed_at_i
        As of ``planner.simulate``; a plan's memory keeps activations until W (0).

    Raises
    ------
    PlanFileError
        The plan has no stages to simulate, or they are no partition of the model.
    """
    if plan.status in (Status.INFEASIBLE, Status.UNKNOWN):
        raise PlanFileError(
            f"has no stages to simulate: its status is {plan.status.value}",
            fix="give a plan that fits",
        )
    pricer, plan = plan_question(plan, model, cluster, training)
    if not plan.stages:
        raise PlanFileError("has no stages to simulate: no cut of its layout fits")
    verification = check_plan(pricer, _without_proof(plan))
    notes = _findings(plan, verification)
    cuts, _ = cuts_of(pricer, plan)
    if cuts is None:  # pragma: no cover - the judge refused such a plan
        raise PlanFileError("its stages are no partition of the model")
    problem = pricer.problem(plan.layout)
    budget = tuple(
        int(problem.budget_bytes[_first_stage(problem, r)]) for r in range(plan.layout.pp)
    )
    problem = _with_room(problem, cuts)
    evaluation = evaluate_cuts(problem, cuts)
    if evaluation is None:  # pragma: no cover - with room every legal cut is priced
        raise PlannerError("the stages of a plan cannot be priced")
    limited = None if min(budget) >= _UNLIMITED_BYTES else budget
    held = _bytes_held(problem, evaluation, limited)
    return _simulation(pricer, plan, problem, evaluation, held, notes, activation_limit, freed_at_i)


def _simulation(
    pricer: Pricer,
    plan: Plan,
    problem: ChainProblem,
    evaluation: StepEvaluation,
    held: RankBytes,
    notes: Sequence[str],
    activation_limit: float | Sequence[float] | None,
    freed_at_i: float,
) -> Simulation:
    layout = plan.layout
    rules, ranks, count = RULES[layout.schedule], layout.pp, layout.num_microbatches
    times = replace(
        evaluation.costs.times(),
        reduction=np.array(evaluation.exposed_reduction, np.int64),
        optimizer=np.array(evaluation.optimizer, np.int64),
    )
    order = _order(problem, evaluation)
    if rules.asynchronous:
        notes = [
            *notes,
            f"{rules.title} never drains: shown are {count} micro-batches from an empty pipeline "
            f"to its end; the plan's step is its steady state, {count} times the beat",
        ]
    name = pricer.model.name or plan.model
    return Simulation(
        schedule=layout.schedule.value,
        title=title_of(
            f"{name}, {rules.title}" if name else rules.title,
            ranks,
            count,
            layout.vpp if layout.vpp > 1 else None,
        ),
        order=order,
        timeline=run_order(order, times, problem.sends),
        quantum=pricer.quantum,
        chunks=-(-problem.num_stages // ranks),
        freed_at_i=share_of(freed_at_i),
        activation_limit=limits_of(activation_limit, ranks),
        weight_versions=tuple(weight_versions(layout.schedule, ranks, count).tolist()),
        staleness=tuple(staleness(layout.schedule, ranks, count).tolist()),
        parameter_copies=2 if rules.two_way else 1,
        fixed=problem.fixed_tail,
        bytes_held=held,
        notes=tuple(notes),
    )


def _order(problem: ChainProblem, evaluation: StepEvaluation) -> Order:
    """The order that the plan's step time is that of."""
    if problem.schedule is not Schedule.ZB_AUTO:
        return order_of_problem(problem)
    return automatic_order_of(problem, evaluation.costs, evaluation.limits)


def _without_proof(plan: Plan) -> Plan:
    """The plan without its bound: a picture needs no proof, and judging one takes long."""
    return plan.model_copy(
        update={"certificate": None, "bound_ms": None, "gap": None, "status": Status.FEASIBLE}
    )


def _findings(plan: Plan, verification: Verification) -> list[str]:
    """What is untrue about a plan that can be simulated all the same.

    Raises
    ------
    PlanFileError
        Its stages are no partition of the model, or its layout is not legal.
    """
    violations = verification.violations
    if verification.plan is None and violations:
        raise PlanFileError(f"cannot be simulated: {violations[0].message}")
    notes = [violation.message for violation in violations if violation.code == "OUT_OF_MEMORY"]
    wrong = len(violations) - len(notes)
    if wrong:
        notes.append(
            f"the plan states {wrong} figures that are not so; shown is what its stages really "
            "take (planner evaluate lists them)"
        )
    return notes


def _with_room(problem: ChainProblem, cuts: Sequence[int]) -> ChainProblem:
    """The problem with each over-full rank's budget raised to its smallest need."""
    budgets = problem.budget_bytes.copy()
    for rank in range(problem.num_ranks):
        if problem.is_grouped:
            modes = set(problem.recompute_modes) - {Recompute.LAYERS} or {Recompute.NONE}
            need = min(grouped_memory(problem, rank, cuts, mode).total for mode in modes)
            stages = list(problem.rank_stages[rank])
        else:
            need = least_memory(problem, rank, cuts[rank], cuts[rank + 1])
            stages = [rank]
        budgets[stages] = np.maximum(budgets[stages], need)
    return replace(problem, budget_bytes=budgets)


def _first_stage(problem: ChainProblem, rank: int) -> int:
    return problem.rank_stages[rank][0] if problem.is_grouped else rank


def _bytes_held(
    problem: ChainProblem, evaluation: StepEvaluation, budget: tuple[int, ...] | None
) -> RankBytes:
    """States and the like by rank, and activations of a micro-batch by stage.

    A stage of a two-way schedule sits on two ranks; where they recompute differently, the larger
    activations are taken for both.
    """
    cuts = evaluation.cuts
    static = [0] * problem.num_ranks
    activation = [0] * problem.num_stages
    for rank, choice in enumerate(evaluation.choices):
        stages = problem.rank_stages[rank] if problem.is_grouped else (rank,)
        for stage in stages:
            start, end = cuts[stage], cuts[stage + 1]
            layers = choice.layers
            if problem.is_grouped:
                full = choice.mode is Recompute.FULL
                layers = int(problem.recomputable[start:end].sum()) if full else 0
            terms = problem.memory_terms(stage, start, end, choice.mode, layers)
            each = terms["activations"] // max(1, int(problem.in_flight[stage]))
            activation[stage] = max(activation[stage], each)
            static[rank] = sum(terms.values()) - terms["activations"]
        if evaluation.held:
            held = evaluation.held[rank]
            static[rank] = held.total - held.activations
    return RankBytes(static=tuple(static), activation=tuple(activation), budget=budget)
