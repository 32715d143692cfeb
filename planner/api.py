"""What ``import planner`` offers: a question in, a proven and checked plan out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from planner.check import Verification, check_plan, cuts_of
from planner.cost.pricing import Pricer
from planner.cost.question import partition_question, plan_pricer
from planner.deadlines import NEVER, OutOfTimeError, in_force, late, poll, within
from planner.errors import InputError
from planner.explain import closest_setup, explain_plan, partition_misfit, plan_misfit
from planner.formats.plan_file import read_plan
from planner.options import deadline_of, objective_of, schedules_of, search_limits, spec_of
from planner.plans import Candidate, Explanation, Layout, Plan, Status, Termination
from planner.questions import InputWarning, load_cluster, load_model, plan_question
from planner.search.answer import plan_of_search
from planner.search.best_schedule import best_schedule
from planner.search.fewer import fewer_gpus_notes
from planner.search.incumbents import Incumbent
from planner.search.pareto import pareto_candidates
from planner.search.run import search_layouts
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
    on_incumbent: Callable[[Incumbent], None] | None = None,
    warm_start: Plan | None = None,
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
    progress, on_incumbent
        Told in words what is being done, and of every better value and better bound.
    warm_start
        A plan to fall back on where its layout and cuts are legal here: the answer is never
        worse, and the same as without it once the search ends by itself with its proof.
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
    digest = model_spec.digest()
    inputs = {
        "question": "plan",
        "model": model if isinstance(model, str) else model_spec.name,
        "model_digest": digest,
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
        pricer = plan_pricer(model_spec, cluster_spec, training, model_digest=digest)
        known = None if warm_start is None else _known_cuts(pricer, warm_start)
        with within(NEVER if known else in_force()):
            space = enumerate_layouts(model_spec, cluster_spec, training, len(pricer.chain.blocks))
        result = search_layouts(
            pricer,
            space,
            objective=wanted,
            keep=1 + runners_up,
            limits=limits,
            executor=executor or own_pool,
            progress=progress,
            on_incumbent=on_incumbent,
            warm_start=known,
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
    on_incumbent: Callable[[Incumbent], None] | None = None,
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
    time_limit_s, stop, work_limit, on_incumbent
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
            setup, answer, misfits = best_schedule(
                model_spec, setup, asked, cluster_spec, wanted, limits, on_incumbent
            )
            if len(misfits) > 1:
                setup = closest_setup(model_spec, misfits, cluster_spec)
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


def _known_cuts(pricer: Pricer, plan: Plan) -> tuple[Layout, tuple[int, ...]] | None:
    """Layout and cuts of a plan, where its stages are cuts of this chain."""
    if plan.layout is None or not plan.stages:
        return None
    cuts, _ = cuts_of(pricer, plan)
    return None if cuts is None else (plan.layout, cuts)


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
