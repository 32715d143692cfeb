"""A finished search as a plan: the winner, its proof, the runners-up and why they lose."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from planner.assembly import assemble_plan, step_breakdown
from planner.cost.pricing import Pricer
from planner.deadlines import NEVER, OutOfTimeError, poll, within
from planner.plans import Candidate, Certificate, Layout, Plan, Rejected, Status, Termination
from planner.schedule_rules import RULES
from planner.search.run import LayoutResult, SearchResult
from planner.specs import Objective

__all__ = ["candidate_of", "plan_of_search", "rejected_layouts", "why_slower"]


def plan_of_search(
    pricer: Pricer,
    result: SearchResult,
    objective: Objective,
    *,
    runners_up: int = 3,
    rejected: bool = False,
) -> Plan:
    """The plan of the best layout found.

    Raises
    ------
    IndexError
        The search found nothing (the caller answers ``infeasible`` or ``unknown`` instead).
    """
    best = result.ranking[0]
    with within(NEVER):
        plan = assemble_plan(pricer, best.layout, best.cuts, objective=objective, fitting=True)
    bound_ms, gap = _bound(pricer, result, best, objective)
    status = Status.OPTIMAL if result.proven else Status.FEASIBLE
    reason = result.interrupted or ("proven" if result.proven else "work_limit")
    if reason == "work_limit" and RULES[best.layout.schedule].several_stages:
        reason = "weak_bound"
    space = result.space
    others: tuple[Candidate, ...] = ()
    losers: tuple[Rejected, ...] = ()
    with suppress(OutOfTimeError):  # the plan alone is the answer then
        others = _runners_up(pricer, plan, result.ranking[1:], runners_up, objective)
        losers = rejected_layouts(pricer, result, best, objective) if rejected else ()
    notes = plan.notes
    if objective is Objective.TOKENS_PER_DOLLAR and plan.tokens_per_dollar is None:
        notes = (
            *notes,
            "no price was given: what is minimised is GPU-seconds a step "
            "(--price-per-gpu-hour turns them into tokens/$)",
        )
    return plan.model_copy(
        update={
            "status": status,
            "notes": notes,
            "bound_ms": bound_ms,
            "gap": gap,
            "bound_covers": "space",
            "runners_up": others,
            "rejected": losers,
            "termination": Termination(reason=reason),
            "certificate": Certificate(
                bound_kind="space",
                cuts=best.cuts,
                recompute=tuple(stage.recompute for stage in plan.stages),
                value_quanta=best.value(objective),
                bound_quanta=result.bound,
                quantum_ms=str(pricer.quantum),
                simulations=result.simulations,
                nodes=result.nodes,
                probes=result.probes,
                layouts=len(space),
                layouts_solved=result.cut_solves,
                witness={
                    "step_bound_quanta_of_layout": best.step_bound,
                    "layouts_bounded": len(space),
                    "layouts_with_exact_bottleneck": result.bottleneck_solves,
                    "layouts_that_do_not_fit": len(result.no_fit),
                },
            ),
        }
    )


def _bound(
    pricer: Pricer, result: SearchResult, best: LayoutResult, objective: Objective
) -> tuple[float, float]:
    """The bound in milliseconds of the value's own kind, and the gap as a fraction."""
    value = best.value(objective)
    gap = (value - result.bound) / value if value else 0.0
    bound = result.bound
    if objective is Objective.TOKENS_PER_DOLLAR:
        # GPU time per step, expressed as a step time on this plan's GPUs.
        return pricer.quantum.ms(bound) / best.layout.num_gpus, gap
    return pricer.quantum.ms(bound), gap


def _runners_up(
    pricer: Pricer,
    plan: Plan,
    ranking: Iterable[LayoutResult],
    count: int,
    objective: Objective,
) -> tuple[Candidate, ...]:
    """The next best layouts that differ from those above in more than the schedule."""
    # Among many schedules the choice of schedule is news; between gpipe and 1f1b it is not.
    news = len(pricer.training.schedules) > 2
    seen = {_shape(plan.layout, news)}
    chosen: list[Candidate] = []
    for found in ranking:
        if len(chosen) >= count:
            break
        shape = _shape(found.layout, news)
        if shape in seen:
            continue
        seen.add(shape)
        poll()
        other = assemble_plan(
            pricer, found.layout, found.cuts, objective=objective, fitting=True, brief=True
        )
        chosen.append(candidate_of(other, why_slower(plan, other)))
    return tuple(chosen)


def _shape(layout: Layout, with_schedule: bool) -> tuple[object, ...]:
    order = (layout.vpp, layout.schedule) if with_schedule else ()
    return (layout.dp, layout.pp, layout.tp, layout.microbatch_size, *order)


def candidate_of(plan: Plan, why: str = "") -> Candidate:
    """A plan as a row of a comparison, with why it loses where that is the question."""
    return Candidate(
        layout=plan.layout,
        step_time_ms=plan.step_time_ms or 0.0,
        bottleneck_ms=plan.bottleneck_ms or 0.0,
        peak_memory_bytes=plan.peak_memory_bytes or 0,
        num_gpus=plan.num_gpus,
        tokens_per_s=plan.tokens_per_s,
        tokens_per_dollar=plan.tokens_per_dollar,
        why=why,
    )


def why_slower(plan: Plan, other: Plan) -> str:
    """In a phrase, what ``other`` loses in the objective and which parts of the step cost it more.

    The parts are shares of the plan's own step time (of its GPU time, where cost is the
    objective); those that gain back a tenth of the loss or more are named as well.

    Parameters
    ----------
    plan
        The winner; its ``objective`` is what the phrase leads with.
    other
        A layout that loses to it.
    """
    by_cost = plan.objective is Objective.TOKENS_PER_DOLLAR
    weights = (plan.num_gpus, other.num_gpus) if by_cost else (1, 1)
    mine = {part: weights[0] * ms for part, ms in step_breakdown(plan).items()}
    theirs = {part: weights[1] * ms for part, ms in step_breakdown(other).items()}
    own = (plan.step_time_ms or 0.0) * weights[0]
    loss = (other.step_time_ms or 0.0) * weights[1] - own
    scale = own or 1.0
    lead = _lead(plan, other)
    if loss == 0:
        if lead:
            return f"{lead}, the same step time"
        if other.num_gpus != plan.num_gpus and not by_cost:
            return f"the same step time on {other.num_gpus} GPUs"
        same = "cost a token" if by_cost else "step time"
        return f"the same {same}; loses the tie-break"
    named = _grown(loss, scale, "cost a token" if by_cost else "step time")
    lead = f"{lead}, {named}" if lead else named
    differences = sorted(
        ((theirs[part] - mine[part], part) for part in mine), key=lambda item: -item[0]
    )
    worse = [
        f"{part} {_share(change, scale)}"
        for change, part in differences
        if change > 0.1 * abs(loss)
    ][:3]
    better = [
        f"{part} {_share(change, scale)}"
        for change, part in reversed(differences)
        if change < -0.1 * abs(loss)
    ][:2]
    text = f"{lead}: {', '.join(worse)}" if worse else lead
    waiting = weights[1] * _waiting_ms(other) - weights[0] * _waiting_ms(plan)
    if other.layout.schedule is not plan.layout.schedule and waiting > 0.1 * loss > 0:
        text += f" (waiting for transfers {_share(waiting, scale)})"
    return f"{text}; {', '.join(better)}" if better else text


def _waiting_ms(plan: Plan) -> float:
    """What pipeline transfers add to the makespan."""
    return sum(group.exposed_ms for group in plan.communication if group.kind == "pipeline")


def _lead(plan: Plan, other: Plan) -> str:
    """What is lost in an objective that is not the step time or its cost; empty where nothing."""
    if plan.objective is Objective.FEWEST_GPUS and other.num_gpus != plan.num_gpus:
        return f"{other.num_gpus} GPUs instead of {plan.num_gpus}"
    if plan.objective is Objective.BOTTLENECK:
        own = plan.bottleneck_ms or 0.0
        return _grown((other.bottleneck_ms or 0.0) - own, own or 1.0, "bottleneck")
    return ""


def _grown(change: float, scale: float, what: str) -> str:
    """A loss in words: in percent, or as a multiple from twice on."""
    if change == 0:
        return f"the same {what}"
    if change >= scale:
        return f"{1 + change / scale:.1f} times the {what}"
    return f"{_share(change, scale)} {what}"


def _share(change: float, scale: float) -> str:
    percent = 100 * change / scale
    return f"{percent:+.2g} %" if abs(percent) < 99.5 else f"{percent:+.0f} %"


def rejected_layouts(
    pricer: Pricer, result: SearchResult, best: LayoutResult, objective: Objective
) -> tuple[Rejected, ...]:
    """Every layout that lost, in canonical order, with the reason that was established."""
    ms = pricer.quantum.ms
    rows = []
    for index in range(len(result.space)):
        if index == best.index:
            continue
        poll()
        layout = result.space.layout(index)
        if index in result.pin_errors:
            rows.append(Rejected(layout=layout, reason="pins", detail=result.pin_errors[index]))
        elif index in result.no_fit:
            short = int(result.bounds.memory_short[index])
            detail = (
                "all ranks together lack memory even with the most saving recompute"
                if short
                else "no cut fits the budget of every rank under any allowed recompute"
            )
            rows.append(
                Rejected(layout=layout, reason="memory", detail=detail, short_bytes=short or None)
            )
        elif index in result.solved:
            found = result.solved[index]
            rows.append(
                Rejected(
                    layout=layout,
                    reason="slower" if objective is Objective.STEP_TIME else "worse",
                    detail="its best cut that was found loses",
                    step_time_ms=ms(found.step),
                    bound_ms=ms(found.step_bound),
                )
            )
        else:
            bound = max(int(result.bounds.step[index]), result.refined.get(index, 0))
            rows.append(
                Rejected(
                    layout=layout,
                    reason="bound",
                    detail="cannot beat the plan, by its proven bound",
                    bound_ms=ms(bound),
                )
            )
    return tuple(rows)
