"""In a worker: each RPC that needs a solver, from its request message to its response message."""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any

from google.protobuf.message import Message

from planner import api
from planner.errors import (
    ClusterError,
    GraphError,
    InputError,
    LayoutError,
    ModelConfigError,
    PinError,
    PlannerError,
    ProfileError,
)
from planner.messages.convert import to_message
from planner.messages.fields import RequestError, at_field
from planner.messages.inputs import (
    objective_of,
    optimizer_of,
    precision_of,
    recompute_of,
    schedules_of,
    sends_of,
)
from planner.messages.inputs import training_options as options_of
from planner.messages.plans import (
    explanation_message,
    plan_message,
    termination_message,
)
from planner.plans import Plan, Status
from planner.revisions import catalog_revision
from planner.service import errors
from planner.service.frames import Answer, Failed, Task
from planner.service.sources import Sources
from planner.service.validation import as_far_as_it_is_quick
from planner.service.work import Work
from planner.specs import Cluster, Model, Objective
from planner.v1 import common_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb
from planner.version import planner_version

__all__ = ["Answering"]

log = logging.getLogger(__name__)

_OPTION = re.compile(r"option (\w+)")


class Answering:
    """The verbs of the library behind the protocol."""

    def __init__(self) -> None:
        self.sources = Sources()
        from planner.service.answering_curves import CurveAnswering
        from planner.service.answering_simulation import simulate_schedule

        curves = CurveAnswering(self.sources)
        self._methods: dict[str, tuple[type[Any], Callable[[Any, Work], Message]]] = {
            "SolvePlan": (pb.SolvePlanRequest, self._solve_plan),
            "StreamPlan": (pb.StreamPlanRequest, self._solve_plan),
            "CreatePlan": (pb.CreatePlanRequest, self._solve_plan),
            "PartitionStages": (pb.PartitionStagesRequest, self._partition_stages),
            "EvaluatePlan": (pb.EvaluatePlanRequest, self._evaluate_plan),
            "ExplainPlan": (pb.ExplainPlanRequest, self._explain_plan),
            "SimulateSchedule": (
                pb.SimulateScheduleRequest,
                partial(simulate_schedule, self.sources),
            ),
            "ComputeScalingCurve": (pb.ComputeScalingCurveRequest, curves.compute),
            "PutModel": (pb.PutModelRequest, self._put_model),
        }

    def versions(self) -> tuple[str, str]:
        """Version of the planner, and a hash of the catalog that names are looked up in."""
        return planner_version(), catalog_revision()

    def warm_up(self) -> None:
        """Import and compile what questions need, so that the first one does not wait for it."""
        with suppress(ImportError):
            import_module("numba")  # compiled loops are then used from the first operation on
            import_module("planner.solvers.chain_kernels")
        # Questions whose bounds leave gaps, so that all loops run.
        plan = api.plan(
            "llama3-70b", "dgx-h100:8", global_batch_size=72, sequence_length=4096, runners_up=0
        )
        api.evaluate(plan)
        api.partition("gpt3-175b", 8, 16, objective="step-time", cluster="dgx-a100-80gb:1")
        api.partition("gpt3-175b", 8, 16, cluster="dgx-a100-80gb:1")
        import planner

        planner.simulate("1f1b", stages=4, microbatches=8)
        planner.simulate("interleaved", stages=4, microbatches=8, chunks=2)
        from planner.studies.scaling_curve import scaling_curve

        scaling_curve(
            "llama3-70b", "dgx-h100:16", allocations=[32, 64, 96, 128], global_batch_size=512,
            sequence_length=8192,
        )  # fmt: skip

    def answer(
        self, task: Task, stop: Callable[[], bool], progress: Callable[[bytes], None] | None
    ) -> Answer | Failed:
        """Answer a task; whatever goes wrong becomes a failure with a status."""
        began = time.monotonic()
        work = Work(task, stop, progress)
        try:
            kind, method = self._methods[task.method]
            with _input_warnings(work.warnings):
                response = method(kind.FromString(task.request), work)
        except MemoryError:
            raise
        except errors.ServiceError as error:
            return Failed(task.number, error.to_bytes(), solve_s=time.monotonic() - began)
        except InputError as error:
            failure = errors.from_input(_located(error, task.method))
            return Failed(task.number, failure.to_bytes(), solve_s=time.monotonic() - began)
        except (PlannerError, Exception) as error:
            log.exception("%s failed", task.method)
            failure = errors.from_exception(error)
            return Failed(task.number, failure.to_bytes(), solve_s=time.monotonic() - began)
        return Answer(
            task.number,
            response.SerializeToString(deterministic=True),
            final=work.final,
            revisions=work.revisions,
            reason=work.reason,
            limit=work.limit,
            gap=work.gap,
            plans=tuple(work.plans),
            solve_s=time.monotonic() - began,
        )

    # --- plans --------------------------------------------------------------------------------

    def _solve_plan(self, request: Any, work: Work) -> Message:
        with at_field("question"):
            asked = self._question(request.question, work, request.expected)
        response = pb.SolvePlanResponse()
        warm_start: Plan | None = None
        if request.question.HasField("warm_start_plan"):
            with at_field("question.warm_start_plan"):
                warm_start = self.sources.plan(request.question.warm_start_plan, work.task.plans)
        if request.validate_only:
            api.plan(*asked[:2], **asked[2], stop=lambda: True)
            return work.finish(response)
        model, cluster, options = asked
        options["time_limit_s"] = work.left_s(request.limits)
        options["work_limit"] = work.work_limit(request.limits)
        if work.progress is not None:
            options["on_incumbent"] = _reporter(work.progress)
        options["warm_start"] = warm_start
        plan = api.plan(model, cluster, stop=work.stop, **options)
        plan = _named(plan, request.question.model, request.question.cluster)
        response.plan_id = work.note_plan(plan)
        response.plan.CopyFrom(plan_message(plan))
        response.termination.CopyFrom(termination_message(plan))
        return work.finish(response)

    def _question(
        self, question: pb.PlanQuestion, work: Work, expected: common_pb2.ExpectedRevisions
    ) -> tuple[Model, Cluster, dict[str, Any]]:
        """Model, cluster and options of a plan question."""
        with at_field("model"):
            model, notes = self.sources.model(question.model, work.task.models)
        work.warnings += notes
        with at_field("cluster"):
            cluster = self.sources.cluster(question.cluster)
        work.made_from(model, cluster, expected)
        with at_field("training"):
            options = options_of(question.training)
            if "global_batch_size" not in options:
                raise RequestError("global_batch_size", "is missing; expected samples a step >= 1")
        options["objective"] = objective_of(question.objective, Objective.STEP_TIME)
        if question.HasField("runner_up_count"):
            if not 0 <= question.runner_up_count <= 1000:
                raise RequestError("runner_up_count", "is out of range; expected 0 to 1000")
            options["runners_up"] = question.runner_up_count
        options["pareto"], options["rejected"] = question.pareto, question.rejected
        return model, cluster, options

    def _partition_stages(self, request: pb.PartitionStagesRequest, work: Work) -> Message:
        with at_field("model"):
            model, notes = self.sources.model(request.model, work.task.models)
        work.warnings += notes
        cluster = None
        if request.HasField("cluster"):
            with at_field("cluster"):
                cluster = self.sources.cluster(request.cluster)
        work.made_from(model, cluster, request.expected)
        options = _partition_options(request)
        count = request.microbatch_count or 1
        response = pb.PartitionStagesResponse()
        if request.validate_only:
            api.partition(
                model,
                request.stage_count,
                count,
                cluster=cluster,
                stop=lambda: True,
                **options,
            )
            return work.finish(response)
        plan = api.partition(
            model,
            request.stage_count,
            count,
            cluster=cluster,
            time_limit_s=work.left_s(request.limits),
            work_limit=work.work_limit(request.limits),
            stop=work.stop,
            **options,
        )
        plan = _named(plan, request.model, request.cluster if cluster is not None else None)
        response.plan_id = work.note_plan(plan)
        response.plan.CopyFrom(plan_message(plan))
        response.termination.CopyFrom(termination_message(plan))
        return work.finish(response)

    # --- about a plan -------------------------------------------------------------------------

    def _subject(self, request: Any, work: Work) -> tuple[Plan, dict[str, Any]]:
        """The plan of a request and what replaces its own model, cluster and training."""
        with at_field("plan"):
            plan = self.sources.plan(request.plan, work.task.plans)
        found = self.sources.overrides(request, plan, work.task.models)
        with at_field("plan"):
            work.made_from_plan(plan, found, request.expected)
        return plan, found

    def _evaluate_plan(self, request: pb.EvaluatePlanRequest, work: Work) -> Message:
        plan, overrides = self._subject(request, work)
        response = pb.EvaluatePlanResponse()
        if request.validate_only:
            with at_field("plan"), as_far_as_it_is_quick():
                api.evaluate(plan, **overrides)
            return work.finish(response)
        with at_field("plan"):
            verification = api.evaluate(plan, **overrides)
        if verification.plan is not None:
            response.plan.CopyFrom(plan_message(verification.plan))
        for violation in verification.violations:
            to_message(violation, response.violations.add())
        response.ok = verification.ok
        response.bound_recomputed = verification.bound_recomputed
        response.layout_bound_checked = verification.layout_bound_checked
        return work.finish(response)

    def _explain_plan(self, request: pb.ExplainPlanRequest, work: Work) -> Message:
        with at_field("plan"):
            plan = self.sources.plan(request.plan, work.task.plans)
        overrides: dict[str, Any] = {}
        if plan.status not in (Status.INFEASIBLE, Status.UNKNOWN):
            plan, overrides = self._subject(request, work)
        elif "model_digest" in plan.inputs:
            named = {"model": None, "cluster": None}
            work.made_from_plan(plan, named, request.expected)
        response = pb.ExplainPlanResponse()
        if request.validate_only:
            with at_field("plan"), as_far_as_it_is_quick():
                api.explain(plan, **overrides)
            return work.finish(response)
        with at_field("plan"):
            explanation = api.explain(plan, **overrides)
        return work.finish(explanation_message(explanation, response))

    # --- models -------------------------------------------------------------------------------

    def _put_model(self, request: pb.PutModelRequest, work: Work) -> Message:
        with at_field("model"):
            if request.model.WhichOneof("source") in (None, "content_hash", "catalog_name"):
                raise RequestError("", "holds no content; expected text or a profile")
            model, notes = self.sources.model(request.model, {})
        from planner.graph import check_layers

        with at_field("model"):
            check_layers(model)
        return pb.PutModelResponse(
            layer_count=len(model.layers),
            model_revision=model.digest(),
            warnings=[*notes, *work.warnings],
        )


# --- helpers -------------------------------------------------------------------------------------


def _partition_options(request: pb.PartitionStagesRequest) -> dict[str, Any]:
    options: dict[str, Any] = {"objective": objective_of(request.objective, Objective.BOTTLENECK)}
    schedules = schedules_of(request.schedules, request.all_synchronous_schedules)
    if schedules:
        options["schedule"] = schedules
    recompute = recompute_of(request.recompute)
    if recompute:
        options["recompute"] = recompute
    for name in (
        "vpp",
        "memory_bytes",
        "bandwidth_bytes_per_s",
        "latency_ms",
        "tp",
        "microbatch_size",
        "sequence_length",
        "device",
    ):
        value = getattr(request, name)
        if value:
            options[name] = value
    precision = precision_of(request.precision)
    if precision is not None:
        options["precision"] = precision
    if request.optimizer:
        options["optimizer"] = optimizer_of(request.optimizer)
    if request.HasField("sequence_parallel"):
        options["sequence_parallel"] = request.sequence_parallel
    sends = sends_of(request.sends)
    if sends is not None:
        options["sends"] = sends
    return options


def _named(plan: Plan, model: Any, cluster: Any) -> Plan:
    """The plan with the catalog names that the request gave, as the library has them."""
    names = {}
    if model.WhichOneof("source") == "catalog_name":
        names["model"] = model.catalog_name
    if cluster is not None and cluster.WhichOneof("source") == "catalog_name":
        names["cluster"] = cluster.catalog_name
    return plan.model_copy(update={"inputs": {**plan.inputs, **names}})


def _reporter(send: Callable[[bytes], None]) -> Callable[[Any], None]:
    """Send incumbents on, the first at once and then a few a second."""
    last = 0.0

    def report(incumbent: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < 0.02:
            return
        last = now
        message = pb.PlanProgress(
            layouts_done_count=incumbent.layouts_done, layouts_total_count=incumbent.layouts_total
        )
        for name in ("value_ms", "bound_ms", "gap"):
            value = getattr(incumbent, name)
            if value is not None:
                setattr(message, name, value)
        if incumbent.layout is not None:
            message.layout.CopyFrom(to_message(incumbent.layout, plan_pb2.Layout()))
        send(message.SerializeToString())

    return report


@contextmanager
def _input_warnings(found: list[str]) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", api.InputWarning)
        yield
    found += [str(w.message) for w in caught if issubclass(w.category, api.InputWarning)]


_FIELD_OF_ERROR: dict[type[InputError], str] = {
    PinError: "training.pins",
    GraphError: "model",
    ProfileError: "model",
    ModelConfigError: "model",
    ClusterError: "cluster",
    LayoutError: "training",
}


def _located(error: InputError, method: str) -> InputError:
    """A library error with the field of the request that it is about, as well as that is known."""
    if isinstance(error, RequestError):
        inner, why, reason = error.field, error.why, error.cause_reason
        cause = error.cause
    else:
        inner, why, reason = "", str(error), error.reason
        cause = error
    in_question = method in ("SolvePlan", "StreamPlan", "CreatePlan")
    prefix = "question." if in_question else ""
    if inner and inner != "question":
        return RequestError(inner, why, reason, cause)
    option = _OPTION.match(why)
    if option is not None:
        name = option.group(1)
        field = f"training.{name}" if in_question else name
        if name in ("dp", "pp", "tp", "vpp", "microbatch_size") and in_question:
            field = f"training.pins.{name}"
        return RequestError(prefix + field, why.removeprefix("option "), reason, cause)
    for kind, field in _FIELD_OF_ERROR.items():
        if error.__class__ is kind or reason == kind.reason:
            return RequestError(prefix + field if in_question else field, why, reason, cause)
    return RequestError(inner, why, reason, cause)
