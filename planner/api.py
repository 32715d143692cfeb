"""What ``import planner`` offers: a question in, a proven and checked plan out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from decimal import Decimal
from typing import Any

from planner.check import Verification, check_plan
from planner.cost.question import partition_question, plan_pricer
from planner.deadlines import OutOfTimeError, late, poll, within
from planner.errors import InputError, LayoutError, ScheduleError
from planner.explain import closest_setup, explain_plan, partition_misfit, plan_misfit
from planner.formats.plan_file import read_plan
from planner.options import deadline_of, objective_of, schedules_of, search_limits, spec_of
from planner.plans import Candidate, Explanation, Plan, Status, Termination
from planner.questions import InputWarning, load_cluster, load_model, plan_question
from planner.schedule_rules import RULES
from planner.search.answer import candidate_of, plan_of_search, why_slower
from planner.search.fewer import fewer_gpus_notes
from planner.search.pareto import pareto_candidates
from planner.search.partition import least_by_work, solve_partition
from planner.search.run import SearchLimits, search_layouts
from planner.search.schedule_choice import schedule_notes
from planner.search.space import enumerate_layouts
from planner.search.workers import worker_pool
from planner.specs import (
    Cluster,
    Model,
    Objective,
    PartitionSetup,
    Pins,
    Schedule,
    Training,
)
from planner.version import planner_version

__all__ = [
    "InputWarning",
    "evaluate",
    "explain",
    "load_cluster",
    "load_model",
    "partition",
    "plan",
]


def plan(
    model: Model | str,
    cluster: Cluster | str,
    *,
    global_batch_size: int,
    sequence_length: int | None = None,
    objective: Objective | str = Objective.STEP_TIME,
    dp: int | None = None,
    pp: int | None = None,
    tp: int | None = None,
    vpp: int | None = None,
    microbatch_size: int | None = None,
    runners_up: int = 3,
    pareto: bool = False,
    rejected: bool = False,
    time_limit_s: float | None = None,
    stop: Callable[[], bool] | None = None,
    work_limit: int | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Plan:
    """The best layout and cut of a model on a cluster, with the proof of how good it is.

    Parameters
    ----------
    model, cluster
        Specs, or what ``load_model`` and ``load_cluster`` take.
    global_batch_size, sequence_length
        Samples a step and tokens a sample; the sequence length defaults to the model's.
    objective
        ``step-time``, ``bottleneck``, ``tokens-per-dollar`` or ``fewest-gpus``.
    dp, pp, tp, vpp, microbatch_size
        Pins; what is None is searched.
    runners_up, pareto, rejected
        How many next-best layouts to report; whether to report the Pareto set over step time,
        peak memory and GPUs (every layout under every recompute mode); whether to list all
        that lost and why.
    time_limit_s, stop, work_limit
        Wall clock; whether to stop now with what there is, asked very often (an event's
        ``is_set``, say, that another thread sets); and branch-and-bound nodes a layout
        (deterministic).
    workers, executor
        Processes of a pool (no more than there are cores), or an executor to use; neither
        changes the answer.
    options
        Further fields of :class:`planner.specs.Training` (``precision``, ``recompute``,
        ``schedules``: a name, several, or ``auto``, ...).

    Returns
    -------
    Plan
        ``optimal`` or ``feasible`` with its gap, ``infeasible`` with the reason and changes that
        work, or ``unknown`` where the time limit passed first.

    Raises
    ------
    InputError
        Input that cannot be used.
    PlannerError
        A worker process was killed from outside.

    Examples
    --------
    >>> best = plan("llama3-8b", "dgx-h100:1", global_batch_size=64, sequence_length=4096)
    >>> best.status.value, best.layout.num_gpus
    ('optimal', 8)
    """
    # Asking for a plan that costs less or uses fewer GPUs is asking to leave some idle.
    wanted = objective_of(objective)
    if wanted in (Objective.TOKENS_PER_DOLLAR, Objective.FEWEST_GPUS):
        options.setdefault("allow_fewer", True)
    if wanted is Objective.FEWEST_GPUS and not options["allow_fewer"]:
        raise InputError("the objective fewest-gpus leaves GPUs idle", fix="omit allow_fewer=False")
    model_spec = load_model(model) if isinstance(model, str) else model
    cluster_spec = load_cluster(cluster) if isinstance(cluster, str) else cluster
    length = sequence_length or model_spec.sequence_length
    if length is None:
        raise InputError("the sequence length is not known", fix="give it with --seq-len")
    if "schedule" in options:  # as partition calls it
        options["schedules"] = options.pop("schedule")
    if "schedules" in options:
        options["schedules"] = schedules_of(options["schedules"])
    training = spec_of(
        Training,
        global_batch_size=global_batch_size,
        sequence_length=length,
        pins=spec_of(Pins, dp=dp, pp=pp, tp=tp, vpp=vpp, microbatch_size=microbatch_size),
        **options,
    )
    limits = search_limits(work_limit)
    inputs = {
        "question": "plan",
        "model": model if isinstance(model, str) else model_spec.name,
        "model_digest": model_spec.digest(),
        "cluster": cluster if isinstance(cluster, str) else cluster_spec.name,
        "cluster_spec": cluster_spec.model_dump_json(),
        "training": training.model_dump_json(),
        "planner_version": planner_version(),
    }
    front: tuple[Candidate, ...] = ()
    with (
        within(deadline_of(time_limit_s, stop)),
        suppress(OutOfTimeError),
        worker_pool(workers if executor is None else 1) as own_pool,
    ):
        pricer = plan_pricer(model_spec, cluster_spec, training)
        space = enumerate_layouts(model_spec, cluster_spec, training, len(pricer.chain.blocks))
        result = search_layouts(
            pricer,
            space,
            objective=wanted,
            keep=1 + runners_up,
            limits=limits,
            executor=executor or own_pool,
            progress=progress,
        )
        if result.ranking:
            if pareto:
                with suppress(OutOfTimeError):
                    front = pareto_candidates(pricer, space, executor or own_pool)
            answer = plan_of_search(
                pricer, result, wanted, runners_up=runners_up, rejected=rejected
            )
            notes = answer.notes
            with suppress(OutOfTimeError):
                poll()
                if not training.allow_fewer:
                    step = result.ranking[0].step
                    notes += fewer_gpus_notes(model_spec, pricer, answer, step)
                notes += schedule_notes(pricer, answer)
            if reason := late():  # something may be missing, the runners-up for one
                answer = answer.model_copy(update={"termination": Termination(reason=reason)})
            said = {
                "inputs": inputs,
                "notes": notes,
                "pareto": front,
                "sequence_length_assumed": sequence_length is None,
            }
            return answer.model_copy(update=said)
        if not result.interrupted:
            if result.pin_errors and not result.no_fit:
                raise InputError(next(iter(result.pin_errors.values())))
            why, layout, stages = plan_misfit(
                model_spec, cluster_spec, training, pricer, space, result.bounds
            )
            return Plan(
                status=Status.INFEASIBLE,
                objective=wanted,
                model=model_spec.name,
                cluster=cluster_spec.name,
                layout=layout,
                stages=stages,
                num_gpus=layout.num_gpus,
                infeasible=why,
                inputs=inputs,
            )
    return _unknown(model_spec, cluster_spec, wanted, time_limit_s, stop, inputs)


def partition(
    model: Model | str,
    stages: int,
    microbatches: int = 1,
    *,
    objective: Objective | str = Objective.BOTTLENECK,
    cluster: Cluster | str | None = None,
    time_limit_s: float | None = None,
    stop: Callable[[], bool] | None = None,
    work_limit: int | None = None,
    **options: Any,
) -> Plan:
    """The best cut of a model into pipeline stages.

    Parameters
    ----------
    model
        A spec, or what ``load_model`` takes.
    stages, microbatches
        P non-empty stages, M micro-batches a step.
    objective
        ``bottleneck`` (max t_i + c_i) or ``step-time`` (simulated).
    cluster
        Needed only where the model gives FLOPs or shapes instead of times.
    time_limit_s, stop, work_limit
        As of :func:`plan`.
    options
        Fields of :class:`planner.specs.PartitionSetup`: ``schedule`` (a name, several to choose
        from, or ``auto``), ``memory_bytes``, ``bandwidth_bytes_per_s``, ``latency_ms``,
        ``recompute``, ...

    Returns
    -------
    Plan
        With ``certificate``; ``infeasible`` where no cut fits.

    Raises
    ------
    InputError
        More stages than layers, pins that contradict, or other input that cannot be used.
    """
    wanted = objective_of(objective)
    if wanted not in (Objective.BOTTLENECK, Objective.STEP_TIME):
        raise InputError(
            "is no objective of a partition", value=wanted.value, expected="bottleneck or step-time"
        )
    model_spec = load_model(model) if isinstance(model, str) else model
    cluster_spec = load_cluster(cluster) if isinstance(cluster, str) else cluster
    named = options.pop("schedules", Schedule.ONE_F_ONE_B)  # as plan calls it
    asked = schedules_of(options.pop("schedule", named))
    setup = spec_of(PartitionSetup, num_stages=stages, num_microbatches=microbatches, **options)
    limits = search_limits(work_limit)
    answer: Plan | None = None
    with within(deadline_of(time_limit_s, stop)):
        with suppress(OutOfTimeError):
            setup, answer = _best_schedule(model_spec, setup, asked, cluster_spec, wanted, limits)
        inputs = {
            "question": "partition",
            "model": model if isinstance(model, str) else model_spec.name,
            "model_digest": model_spec.digest(),
            "setup": setup.model_dump_json(),
            "planner_version": planner_version(),
        }
        if cluster_spec is not None:
            inputs["cluster"] = cluster if isinstance(cluster, str) else cluster_spec.name
            inputs["cluster_spec"] = cluster_spec.model_dump_json()
        if answer is None:
            if not late():
                with suppress(OutOfTimeError):
                    return _no_partition(model_spec, setup, cluster_spec, wanted, inputs)
            return _unknown(model_spec, cluster_spec, wanted, time_limit_s, stop, inputs)
    notes = answer.notes
    if setup.bandwidth_bytes_per_s is None and setup.num_stages > 1:
        free = "cuts are free" if not setup.latency_ms else "cuts cost their latency alone"
        notes = (*notes, f"no bandwidth was given: {free}")
    return answer.model_copy(update={"inputs": inputs, "notes": notes})


def evaluate(
    plan: Plan | str,
    *,
    model: Model | str | None = None,
    cluster: Cluster | str | None = None,
    training: Training | None = None,
) -> Verification:
    """Re-price a plan from the specs and list what it says that is not so.

    Parameters
    ----------
    plan
        A plan or a plan file; a sketch with a layout and each stage's layers is enough, and one
        with a layout alone gets its best cut.
    model, cluster, training
        Replace what the plan's ``inputs`` name; needed where it names nothing.

    Raises
    ------
    PlanFileError
        Not a plan, or one that names no model, cluster or training.
    """
    subject = read_plan(plan) if isinstance(plan, str) else plan
    pricer, subject = plan_question(subject, model, cluster, training)
    if not subject.stages:
        return Verification((), subject, False)
    return check_plan(pricer, subject)


def explain(
    plan: Plan | str,
    *,
    model: Model | str | None = None,
    cluster: Cluster | str | None = None,
    training: Training | None = None,
) -> Explanation:
    """What limits a plan, or why nothing fits.

    The plan is re-priced first, so that the explanation is of what is true, not of what it says.
    """
    subject = read_plan(plan) if isinstance(plan, str) else plan
    if subject.status in (Status.INFEASIBLE, Status.UNKNOWN):
        return explain_plan(subject)
    verification = evaluate(subject, model=model, cluster=cluster, training=training)
    findings = tuple(violation.message for violation in verification.violations)
    if verification.plan is None or any(
        violation.code == "OUT_OF_MEMORY" for violation in verification.violations
    ):
        return Explanation(headline="the plan cannot run as written", findings=findings)
    found = explain_plan(verification.plan)
    return found.model_copy(update={"findings": (*findings, *found.findings)})


# --- helpers -----------------------------------------------------------------------------------


def _best_schedule(
    model: Model,
    setup: PartitionSetup,
    schedules: tuple[Schedule, ...],
    cluster: Cluster | None,
    objective: Objective,
    limits: SearchLimits,
) -> tuple[PartitionSetup, Plan | None]:
    """The best cut under the best of some schedules; the others are its runners-up.

    Schedules that cannot run this shape are left out where others can.
    """
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
            own, answer = _best_chain(model, own, cluster, objective, limits)
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
        return setup, best
    if not misfits:
        named = ", ".join(schedule.value for schedule in schedules)
        raise refusal or LayoutError(f"none of {named} puts {setup.vpp} chunks on a rank")
    if len(misfits) == 1 or late():
        return misfits[0], None
    return closest_setup(model, misfits, cluster), None


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
) -> tuple[PartitionSetup, Plan | None]:
    """Cut the model as a chain of blocks and, where a block could be cut inside, in file order.

    Cuts in file order include the block borders, so they win where they are better; where both
    are equal the block borders stand, whose proof says more.
    """
    pricer, layout = partition_question(model, setup, cluster)
    answer = solve_partition(pricer, layout, objective, limits)
    if pricer.chain.covers_all_cuts or pricer.chain.linearised or late():
        return setup, answer
    inside = setup.model_copy(update={"cut_inside_blocks": True})
    finer, _ = partition_question(model, inside, cluster)
    other = solve_partition(finer, layout, objective, limits)
    if other is None or other.certificate is None:
        return setup, answer
    if answer is None or answer.certificate is None:
        return inside, other
    if other.certificate.value_quanta < answer.certificate.value_quanta:
        return inside, other
    return setup, answer


def _no_partition(
    model: Model,
    setup: PartitionSetup,
    cluster: Cluster | None,
    objective: Objective,
    inputs: dict[str, str],
) -> Plan:
    """Nothing fits, and why."""
    layout = partition_question(model, setup, cluster)[1]
    why, held = partition_misfit(model, setup, cluster, objective)
    return Plan(
        status=Status.INFEASIBLE,
        objective=objective,
        model=model.name,
        layout=layout,
        stages=held,
        num_gpus=layout.num_gpus,
        infeasible=why,
        inputs=inputs,
    )


def _unknown(
    model: Model,
    cluster: Cluster | None,
    objective: Objective,
    limit_s: float | None,
    stop: Callable[[], bool] | None,
    inputs: dict[str, str],
) -> Plan:
    stopped = stop is not None and stop()
    return Plan(
        status=Status.UNKNOWN,
        objective=objective,
        model=model.name,
        cluster=cluster.name if cluster else None,
        termination=Termination(
            reason="stopped" if stopped else "time_limit", limit=None if stopped else limit_s
        ),
        inputs=inputs,
    )
