"""Each method of the client as a call: its request message, and how its response is read.

Both clients make the same calls; they differ in how they wait.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from planner.client import answers
from planner.client.channel import positive_seconds
from planner.client.fields import (
    Names,
    cluster_argument,
    member_of,
    model_argument,
    number_of,
    numbers_of,
    plan_argument,
    recompute_numbers,
    refuse_no_schedule,
    schedule_numbers,
    set_field,
)
from planner.client.options import (
    AnyModel,
    JudgeOptions,
    PartitionOptions,
    PlanOptions,
    Revisions,
    SimulateOptions,
)
from planner.errors import InputError
from planner.formats.spelling import did_you_mean
from planner.messages.inputs import training_message
from planner.plans import Plan
from planner.schedule_rules import RULES
from planner.specs import Cluster, Objective, Precision, Schedule, Sends
from planner.v1 import inputs_pb2
from planner.v1 import planner_service_pb2 as pb

__all__ = [
    "Call",
    "catalog",
    "common_options",
    "create_plan",
    "evaluate_plan",
    "explain_plan",
    "get_plan",
    "list_plans",
    "partition_stages",
    "put_model",
    "refuse_rest",
    "set_training",
    "simulate_schedule",
    "solve_plan",
    "stream_plan",
]

R = TypeVar("R")

TIME_FOR_QUEUE_S = 30.0
"""By how much a call outlasts the time limit of its solver."""


@dataclass(frozen=True)
class Call(Generic[R]):
    """A request, and what is made of its response."""

    method: str
    request: Message
    read: Callable[[Any], R]
    timeout_s: float | None = None
    """None: the client's own."""
    kept: Mapping[str, inputs_pb2.ModelSource] = field(default_factory=dict)
    """What is sent again where the server has lost it, by content hash."""


# --- plans ---------------------------------------------------------------------------------------


def solve_plan(
    model: AnyModel, cluster: Cluster | str, options: PlanOptions
) -> Call[answers.PlanAnswer]:
    """``SolvePlan``."""
    given, names = dict(options), Names()
    request = pb.SolvePlanRequest()
    timeout_s = common_options(request, given)
    _question(request.question, model, cluster, given, names)
    return Call(
        "SolvePlan", request, lambda r: answers.plan_answer(r, names), timeout_s, names.kept
    )


def stream_plan(
    model: AnyModel, cluster: Cluster | str, options: PlanOptions
) -> Call[answers.PlanProgress | answers.PlanAnswer]:
    """``StreamPlan``."""
    given, names = dict(options), Names()
    request = pb.StreamPlanRequest()
    timeout_s = common_options(request, given)
    _question(request.question, model, cluster, given, names)

    def read(response: pb.StreamPlanResponse) -> answers.PlanProgress | answers.PlanAnswer:
        if response.WhichOneof("event") == "progress":
            return answers.progress_of(response.progress)
        return answers.plan_answer(response.answer, names)

    return Call("StreamPlan", request, read, timeout_s, names.kept)


def create_plan(
    model: AnyModel, cluster: Cluster | str, options: PlanOptions
) -> tuple[Call[Any], Names]:
    """``CreatePlan``, and the names that its answer is to get."""
    given, names = dict(options), Names()
    request = pb.CreatePlanRequest()
    # The search goes on after the call: its time limit is none of the call's.
    timeout_s: Any = given.pop("timeout_s", None)
    if timeout_s is not None:
        positive_seconds(timeout_s, "timeout_s")
    common_options(request, given)
    _question(request.question, model, cluster, given, names)
    return Call("CreatePlan", request, lambda operation: operation, timeout_s, names.kept), names


def _question(
    question: pb.PlanQuestion,
    model: AnyModel,
    cluster: Cluster | str,
    given: dict[str, Any],
    names: Names,
) -> None:
    question.model.CopyFrom(model_argument(model, names))
    question.cluster.CopyFrom(cluster_argument(cluster, names))
    objective = member_of(Objective, given.pop("objective", Objective.STEP_TIME), "objective")
    question.objective = number_of(objective)
    set_field(question, "runner_up_count", given.pop("runners_up", None), "runners_up")
    question.pareto = bool(given.pop("pareto", False))
    question.rejected = bool(given.pop("rejected", False))
    warm_start = given.pop("warm_start", None)
    if warm_start is not None:
        question.warm_start_plan.CopyFrom(plan_argument(warm_start))
    set_training(question.training, given)
    refuse_rest(given, PlanOptions)


_PINS = ("dp", "pp", "tp", "vpp", "microbatch_size")


def set_training(message: inputs_pb2.Training, given: dict[str, Any]) -> None:
    """Take the training options out of some keyword arguments, into a message."""
    for name in ("global_batch_size", "sequence_length", "max_microbatch_size"):
        set_field(message, name, given.pop(name, None))
    for name in (
        "sharded_optimizer",
        "sequence_parallel",
        "flash_attention",
        "overlap_gradient_reduction",
        "allow_fewer",
        "allow_cross_domain",
    ):
        set_field(message, name, given.pop(name, None))
    for name in _PINS:
        set_field(message.pins, name, given.pop(name, None))
    # The library's default, which a server would take from the model.
    precision = given.pop("precision", None) or Precision.BF16
    message.precision = number_of(member_of(Precision, precision, "precision"))
    _set_optimizer(message, given)
    schedules = given.pop("schedules", None) or given.pop("schedule", None)
    numbers, message.all_synchronous_schedules = schedule_numbers(schedules)
    message.schedules.extend(numbers)
    message.recompute.extend(recompute_numbers(given.pop("recompute", None)))
    _set_sends(message, given)


def partition_stages(
    model: AnyModel, stages: int, microbatches: int, options: PartitionOptions
) -> Call[answers.PlanAnswer]:
    """``PartitionStages``."""
    given, names = dict(options), Names()
    request = pb.PartitionStagesRequest(model=model_argument(model, names))
    timeout_s = common_options(request, given)
    cluster: Any = given.pop("cluster", None)
    if cluster is not None:
        request.cluster.CopyFrom(cluster_argument(cluster, names))
    set_field(request, "stage_count", stages, "stages")
    set_field(request, "microbatch_count", microbatches, "microbatches")
    for name, count in (("stages", stages), ("microbatches", microbatches)):
        if count < 1:
            raise InputError(f"option {name}: is out of range", value=count, expected=">= 1")
    objective = member_of(Objective, given.pop("objective", Objective.BOTTLENECK), "objective")
    request.objective = number_of(objective)
    named: Any = given.pop("schedules", None)
    schedules: Any = given.pop("schedule", None) or named
    numbers, request.all_synchronous_schedules = schedule_numbers(schedules)
    request.schedules.extend(numbers)
    for name in ("memory_bytes", "bandwidth_bytes_per_s"):
        value: Any = given.get(name)
        if value is not None and not value > 0:  # 0 is how the protocol says that there is none
            raise InputError(f"option {name}: is out of range", value=value, expected="> 0")
    for name in (
        "vpp",
        "memory_bytes",
        "bandwidth_bytes_per_s",
        "latency_ms",
        "tp",
        "microbatch_size",
        "sequence_length",
        "device",
        "sequence_parallel",
    ):
        set_field(request, name, given.pop(name, None))
    request.recompute.extend(recompute_numbers(given.pop("recompute", None)))
    precision = given.pop("precision", None)
    if precision is not None:
        request.precision = number_of(member_of(Precision, precision, "precision"))
    _set_optimizer(request, given)
    _set_sends(request, given)
    refuse_rest(given, PartitionOptions)
    return Call(
        "PartitionStages", request, lambda r: answers.plan_answer(r, names), timeout_s, names.kept
    )


def evaluate_plan(plan: Plan | str, options: JudgeOptions) -> Call[answers.EvaluateAnswer]:
    """``EvaluatePlan``."""
    request = pb.EvaluatePlanRequest()
    names, timeout_s = _judged(request, plan, options)
    return Call(
        "EvaluatePlan", request, lambda r: answers.evaluate_answer(r, names), timeout_s, names.kept
    )


def explain_plan(plan: Plan | str, options: JudgeOptions) -> Call[answers.ExplainAnswer]:
    """``ExplainPlan``."""
    request = pb.ExplainPlanRequest()
    names, timeout_s = _judged(request, plan, options)
    return Call(
        "ExplainPlan", request, lambda r: answers.explain_answer(r, names), timeout_s, names.kept
    )


def _judged(request: Any, plan: Plan | str, options: JudgeOptions) -> tuple[Names, float | None]:
    given, names = dict(options), Names()
    timeout_s = common_options(request, given)
    request.plan.CopyFrom(plan_argument(plan))
    _replacements(request, given, names)
    refuse_rest(given, JudgeOptions)
    return names, timeout_s


def _replacements(request: Any, given: dict[str, Any], names: Names) -> None:
    """The model, cluster and training that replace those of a plan."""
    model, cluster = given.pop("model", None), given.pop("cluster", None)
    training = given.pop("training", None)
    if model is not None:
        request.model.CopyFrom(model_argument(model, names))
    if cluster is not None:
        request.cluster.CopyFrom(cluster_argument(cluster, names))
    if training is not None:
        request.training.CopyFrom(training_message(training))


# --- schedules -----------------------------------------------------------------------------------

_SIMULATED = {
    "stages": "stage_count",
    "microbatches": "microbatch_count",
    "chunks": "chunk_count",
    "group_size": "group_size",
    "pair_ms": "pair_ms",
    "freed_at_i": "freed_at_i",
    "text_width": "text_width",
    "timeline_width": "timeline_width",
    "text_color": "text_color",
    "text_slots": "text_slots",
}
_SIMULATED_TIMES = {
    "forward_ms": "forward_ms",
    "backward_ms": "backward_ms",
    "wgrad_ms": "weight_gradient_ms",
    "comm_ms": "communication_ms",
    "reduction_ms": "reduction_ms",
    "optimizer_ms": "optimizer_ms",
    "activation_limit": "activation_limit",
}


def simulate_schedule(
    subject: Schedule | Plan | str | None, options: SimulateOptions
) -> Call[answers.SimulationAnswer]:
    """``SimulateSchedule``: a schedule by name, a plan, an order, or several schedules."""
    given, names = dict(options), Names()
    request = pb.SimulateScheduleRequest()
    timeout_s = common_options(request, given)
    compared: Any = given.pop("compare", None)
    order: Any = given.pop("order", None)
    text: Any = given.pop("order_text", None)
    name: Any = given.pop("order_name", "")
    ways = [way for way in (subject, compared, order, text) if way is not None]
    if len(ways) != 1:
        raise InputError("one of a schedule, a plan, an order and compare is to be given")
    if compared is not None:
        for each in compared:
            schedule = member_of(Schedule, each, "schedule")
            request.compared_schedules.append(number_of(schedule))
    elif text is not None:
        request.order.text, request.order.name = text, name
    elif order is not None:
        for cells in order:
            request.order.ranks.add().operations.extend(cells)
    elif isinstance(subject, str) and subject.strip().lower() in RULES:
        request.schedule = number_of(Schedule(subject.strip().lower()))
    else:
        assert subject is not None
        if isinstance(subject, str):
            refuse_no_schedule(subject)
        request.plan.CopyFrom(plan_argument(subject))
    for option, target in _SIMULATED.items():
        set_field(request, target, given.pop(option, None), option)
    for option, target in _SIMULATED_TIMES.items():
        set_field(request, target, numbers_of(given.pop(option, None)), option)
    set_field(request, "aim", given.pop("aim", None))
    _set_sends(request, given)
    _replacements(request, given, names)
    wanted: Any = given.pop("renderings", ())
    for each in wanted:
        rendering = member_of(answers.Rendering, each, "rendering")
        number: Any = pb.Rendering.Value(f"RENDERING_{rendering.name}")
        request.renderings.append(number)
    refuse_rest(given, SimulateOptions)
    return Call(
        "SimulateSchedule",
        request,
        lambda r: answers.simulation_answer(r, names),
        timeout_s,
        names.kept,
    )


# --- what the server keeps -----------------------------------------------------------------------


def put_model(source: inputs_pb2.ModelSource) -> Call[str]:
    """``PutModel``: content to keep; its hash."""
    return Call("PutModel", pb.PutModelRequest(model=source), lambda r: str(r.content_hash))


def get_plan(plan_id: str) -> Call[Plan]:
    """``GetPlan``."""
    from planner.messages.plans import plan_of

    return Call("GetPlan", pb.GetPlanRequest(plan_id=plan_id), lambda r: plan_of(r.plan))


def list_plans(page_size: int, page_token: str, full: bool) -> Call[Any]:
    """``ListPlans``; the response, as there may be more pages."""
    view = pb.PLAN_VIEW_FULL if full else pb.PLAN_VIEW_BASIC
    request = pb.ListPlansRequest(page_token=page_token, view=view)
    set_field(request, "page_size", page_size)
    return Call("ListPlans", request, lambda response: response)


def catalog(name: str | None, page_token: str = "") -> Call[Any]:
    """``ListCatalog``; the response, as there may be more pages."""
    request = pb.ListCatalogRequest(page_size=1000, page_token=page_token, name=name or "")
    return Call("ListCatalog", request, lambda response: response)


# --- what requests share -------------------------------------------------------------------------


def common_options(request: Any, given: dict[str, Any]) -> float | None:
    """Take what every request has out of the arguments; the timeout of the call."""
    request.request_id = given.pop("request_id", None) or str(uuid.uuid4())
    request.validate_only = bool(given.pop("validate_only", False))
    expected: Revisions | None = given.pop("expected", None)
    if expected is not None:
        for name in ("model_revision", "calibration_revision", "planner_version"):
            setattr(request.expected, name, getattr(expected, name))
    limit_s = given.pop("time_limit_s", None)
    timeout_s: float | None = given.pop("timeout_s", None)
    if timeout_s is not None:
        positive_seconds(timeout_s, "timeout_s")
    if limit_s is not None:
        if not 0 < limit_s < float("inf"):
            raise InputError("is no time limit", value=limit_s, expected="seconds > 0")
        request.limits.wall_time_s = limit_s
        timeout_s = limit_s + TIME_FOR_QUEUE_S if timeout_s is None else timeout_s
    for name, option in (("work_node_count", "work_limit"), ("memory_bytes", "memory_limit_bytes")):
        value = given.pop(option, None)
        if value is not None:
            if value < 1:
                raise InputError(f"option {option}: is out of range", value=value, expected=">= 1")
            set_field(request.limits, name, value, option)
    return timeout_s


def _set_optimizer(message: Any, given: dict[str, Any]) -> None:
    name = given.pop("optimizer", None)
    if name is None:
        return
    known = [text.removeprefix("OPTIMIZER_").lower() for text in _OPTIMIZERS]
    if name not in known:
        raise InputError("is no optimizer", value=name, expected=", ".join(known))
    message.optimizer = _OPTIMIZERS[f"OPTIMIZER_{name.upper()}"]


def _set_sends(message: Any, given: dict[str, Any]) -> None:
    sends = given.pop("sends", None)
    if sends is not None:
        message.sends = number_of(member_of(Sends, sends, "way to send"))


def _optimizers() -> Mapping[str, int]:
    from planner.v1 import common_pb2

    return {name: number for name, number in common_pb2.Optimizer.items() if number}


_OPTIMIZERS = _optimizers()


def refuse_rest(given: Mapping[str, Any], options: type) -> None:
    """Refuse what is left of some keyword arguments, of those that the options name."""
    if given:
        names = sorted(given)
        known = options.__annotations__
        hints = [hint for name in names if (hint := did_you_mean(name, known))]
        problem = f"{', '.join(names)}: no such option of this call"
        raise InputError(problem, fix=hints[0] if hints else None)
