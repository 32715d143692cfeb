"""Why a schedule won over the one a reader would expect: said aloud where it is a surprise."""

from __future__ import annotations

from planner.assembly import assemble_plan
from planner.cost.pricing import Pricer
from planner.errors import InputError
from planner.plans import Plan, Status
from planner.search.answer import why_slower
from planner.solvers.chain import solve_bottleneck
from planner.solvers.step_time import solve_step_time
from planner.specs import Schedule
from planner.units import format_ms

__all__ = ["schedule_notes"]


def schedule_notes(pricer: Pricer, plan: Plan) -> tuple[str, ...]:
    """A note where GPipe beats 1F1B on the plan's own layout, and what costs 1F1B more.

    1F1B is expected to be no slower and to hold less. Where transfers are not hidden its steady
    state waits for them every turn, and GPipe's does not (bounds and counter-examples:
    :func:`~planner.schedules.closed_forms.steady_period`).
    """
    layout = plan.layout
    asked = pricer.training.schedules
    if (
        plan.status not in (Status.OPTIMAL, Status.FEASIBLE)
        or layout.schedule is not Schedule.GPIPE
        or Schedule.ONE_F_ONE_B not in asked
        or min(layout.pp, layout.num_microbatches) == 1
    ):
        return ()
    expected = layout.model_copy(update={"schedule": Schedule.ONE_F_ONE_B})
    try:
        problem = pricer.problem(expected)
    except InputError:
        return ()
    balanced = solve_bottleneck(problem, kernel="loaded")
    if balanced is None:
        return ()
    found = solve_step_time(problem, seeds=[balanced.cuts], node_limit=0)
    if found.cuts is None:
        return ()
    other = assemble_plan(
        pricer,
        expected,
        found.cuts,
        objective=plan.objective,
        problem=problem,
        fitting=True,
        brief=True,
    )
    return (
        f"1f1b on this layout takes {format_ms(other.step_time_ms or 0.0)}: "
        f"{why_slower(plan, other)}",
    )
