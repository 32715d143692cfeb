"""A partition under the best of several schedules: the answer of ``partition``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from planner.cost.pricing import Pricer
from planner.cost.question import partition_question
from planner.deadlines import late
from planner.errors import InputError, LayoutError, ScheduleError
from planner.plans import Layout, Plan, Status, Termination
from planner.schedule_rules import RULES
from planner.search.answer import candidate_of, why_slower
from planner.search.incumbents import Reporter, Watcher
from planner.search.partition import least_by_work, solve_partition
from planner.search.results import SearchLimits
from planner.specs import Cluster, Model, Objective, PartitionSetup, Schedule

__all__ = ["best_schedule"]

_ROUNDING = 1 - 1e-9
"""What bounds of several schedules, each in a time quantum of its own, may differ by."""


def best_schedule(
    model: Model,
    setup: PartitionSetup,
    schedules: Sequence[Schedule],
    cluster: Cluster | None,
    objective: Objective,
    limits: SearchLimits,
    on_incumbent: Watcher | None = None,
) -> tuple[PartitionSetup, Plan | None, list[PartitionSetup]]:
    """The best cut under the best of some schedules; the others are its runners-up.

    Schedules that cannot run this shape are left out where others can.

    Returns
    -------
    The set-up of the answer, the answer, and where there is none the set-ups that do not fit.

    Raises
    ------
    InputError
        No schedule can run this shape.
    """
    watched = None
    if on_incumbent is not None:
        watched = _Watched(on_incumbent, len(schedules), objective)
    found: list[tuple[PartitionSetup, Plan]] = []
    misfits: list[PartitionSetup] = []
    refusal: InputError | None = None
    interrupted: str | None = None
    for schedule in schedules:
        interrupted = late() if found or misfits else None
        if interrupted:
            break
        free = RULES[schedule].chunks is None
        if len(schedules) > 1 and setup.vpp not in (None, RULES[schedule].chunks) and not free:
            continue  # the pinned number of chunks is not this schedule's
        chunks = setup.vpp if len(schedules) == 1 or free else None
        own = setup.model_copy(update={"schedule": schedule, "vpp": chunks})
        try:
            own, answer = _best_chain(model, own, cluster, objective, limits, watched)
        except (ScheduleError, LayoutError) as error:
            refusal = refusal or error
            continue
        interrupted = late() if answer is None else None
        if answer is None:
            misfits.append(own)
        else:
            found.append((own, answer))
    if found:
        setup, best = _best_answer(found, objective)
        if interrupted:
            floor_ms = least_by_work(*partition_question(model, setup, cluster), objective)
            best = _weakened(best, floor_ms, Termination(reason=interrupted))
        elif reason := late():
            best = best.model_copy(update={"termination": Termination(reason=reason)})
        if watched is not None:
            watched.answer(best)
        return setup, best, []
    if not misfits:
        named = ", ".join(schedule.value for schedule in schedules)
        raise refusal or LayoutError(f"none of {named} puts {setup.vpp} chunks on a rank")
    return misfits[0], None, [] if interrupted else misfits


class _Watched:
    """What several schedules come to, as one search.

    Until all have been searched the bound is what none can beat: the work spread over the ranks.
    """

    def __init__(self, watcher: Watcher, schedules: int, objective: Objective) -> None:
        self.reporter = Reporter(watcher, schedules)
        self.alone = schedules == 1
        self.objective = objective
        self.done = 0

    def chain(self, pricer: Pricer, layout: Layout) -> Callable[[int, int], None]:
        """What to tell of values and bounds in quanta of one chain."""
        ms = pricer.quantum.ms
        floor_ms = least_by_work(pricer, layout, self.objective) * _ROUNDING
        exact = self.alone and pricer.chain.covers_all_cuts

        def tell(value: int, bound: int) -> None:
            bound_ms = ms(bound) if exact else floor_ms
            self.reporter.tell(ms(value), bound_ms, layout, self.done)

        return tell

    def answer(self, plan: Plan) -> None:
        """Tell the end of it."""
        by_beat = self.objective is Objective.BOTTLENECK
        value_ms = plan.bottleneck_ms if by_beat else plan.step_time_ms
        self.reporter.tell(value_ms, plan.bound_ms, plan.layout, self.reporter.last.layouts_total)


def _best_answer(
    found: list[tuple[PartitionSetup, Plan]], objective: Objective
) -> tuple[PartitionSetup, Plan]:
    """The best of some schedules' answers; its bound becomes what none of them can beat."""

    def rank(item: tuple[PartitionSetup, Plan]) -> tuple[float, float]:
        step, beat = item[1].step_time_ms or 0.0, item[1].bottleneck_ms or 0.0
        return (beat, step) if objective is Objective.BOTTLENECK else (step, beat)

    found.sort(key=rank)
    setup, best = found[0]
    others = tuple(candidate_of(other, why_slower(best, other)) for _, other in found[1:])
    best = best.model_copy(update={"runners_up": others})
    weakest = min((plan for _, plan in found), key=lambda plan: plan.bound_ms or 0.0)
    certificate = best.certificate
    if certificate is None or (weakest.bound_ms or 0.0) >= (best.bound_ms or 0.0):
        return setup, best
    note = (
        f"{weakest.layout.schedule.value} might be faster still: its own bound is weaker than "
        "the best plan, whose cuts are proven under its own schedule"
    )
    if best.status is Status.OPTIMAL:
        best = best.model_copy(update={"notes": (*best.notes, note)})
    return setup, _weakened(best, weakest.bound_ms or 0.0, weakest.termination)


def _weakened(plan: Plan, bound_ms: float, termination: Termination | None) -> Plan:
    """The plan with a bound that covers more than its own schedule."""
    certificate = plan.certificate
    if certificate is None:
        return plan
    unit = Decimal(certificate.quantum_ms)
    value = certificate.value_quanta
    bound = min(certificate.bound_quanta, int(Decimal(repr(bound_ms)) / unit))
    return plan.model_copy(
        update={
            "status": Status.FEASIBLE if bound < value else plan.status,
            "bound_ms": float(bound * unit),
            "gap": (value - bound) / value if value else 0.0,
            "termination": termination,
            "certificate": certificate.model_copy(update={"bound_quanta": bound}),
        }
    )


def _best_chain(
    model: Model,
    setup: PartitionSetup,
    cluster: Cluster | None,
    objective: Objective,
    limits: SearchLimits,
    watched: _Watched | None,
) -> tuple[PartitionSetup, Plan | None]:
    """Cut the model as a chain of blocks and, where a block could be cut inside, in file order.

    Cuts in file order include the block borders, so they win where they are better; where both
    are equal the block borders stand, whose proof says more.
    """
    pricer, layout = partition_question(model, setup, cluster)
    watch = None if watched is None else watched.chain(pricer, layout)
    answer = solve_partition(pricer, layout, objective, limits, watch)
    if watched is not None:
        watched.done += 1
    if pricer.chain.covers_all_cuts or pricer.chain.linearised or late():
        return setup, answer
    inside = setup.model_copy(update={"cut_inside_blocks": True})
    finer, _ = partition_question(model, inside, cluster)
    other = solve_partition(finer, layout, objective, limits, watch)
    if other is None or other.certificate is None:
        return setup, answer
    if answer is None or answer.certificate is None:
        return inside, other
    if other.certificate.value_quanta < answer.certificate.value_quanta:
        return inside, other
    return setup, answer
