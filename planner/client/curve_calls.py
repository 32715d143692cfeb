"""Scaling curves as calls: one job with its points as they are found, or many jobs at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Required

from planner.client.answers import Termination, revisions_of, termination_of
from planner.client.calls import Call, common_options, refuse_rest, set_training
from planner.client.errors import error_of_job
from planner.client.fields import (
    Names,
    cluster_argument,
    is_catalog_name,
    kept_model,
    model_argument,
    plan_argument,
    set_field,
)
from planner.client.options import (
    NO_REVISIONS,
    AnyModel,
    CallOptions,
    Recomputes,
    Revisions,
    Schedules,
)
from planner.errors import InputError
from planner.messages.convert import from_message, read_fields, to_message
from planner.plans import Plan
from planner.specs import Cluster, Precision, Sends
from planner.v1 import common_pb2
from planner.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from planner.client.errors import RemoteError
    from planner.curves import Allocation, CurvePoint, ScalingCurve, SizeRange

__all__ = ["CurveAnswer", "CurveJob", "CurveOptions", "JobAnswer", "batch_call", "curve_call"]

Clusters = Cluster | str | Mapping[str, Cluster | str]
"""A cluster, or one for each GPU type."""


class CurveOptions(CallOptions, total=False):
    """As ``planner.scaling_curve`` takes them."""

    global_batch_size: Required[int | tuple[int, int]]
    allocations: Sequence[Allocation | int] | SizeRange
    current_plan: Plan | str | None
    max_restart_s: float | None
    valid_until: str | None
    sequence_length: int | None
    dp: int | None
    pp: int | None
    tp: int | None
    vpp: int | None
    microbatch_size: int | None
    precision: Precision | str | None
    optimizer: str | None
    sharded_optimizer: bool
    sequence_parallel: bool
    flash_attention: bool
    overlap_gradient_reduction: bool
    schedules: Schedules
    recompute: Recomputes
    sends: Sends | str
    allow_cross_domain: bool
    max_microbatch_size: int | None


@dataclass(frozen=True)
class CurveAnswer:
    """A scaling curve and what it was made from."""

    curve: ScalingCurve
    revisions: Revisions = NO_REVISIONS
    termination: Termination | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class CurveJob:
    """One job of a batch: ``options`` are those of `CurveOptions` that no limits are.

    Its model is sent once, whatever number of jobs it has.
    """

    job_id: str
    model: AnyModel
    cluster: Clusters
    options: Mapping[str, Any]
    expected: Revisions | None = None


@dataclass(frozen=True)
class JobAnswer:
    """What became of a job."""

    job_id: str
    status: str
    """``done``; ``invalid``, ``failed``: see ``error``; ``deadline``: it came first."""
    answer: CurveAnswer | None = None
    error: RemoteError | None = None


# --- requests ------------------------------------------------------------------------------------


def curve_call(
    model: AnyModel, cluster: Clusters, options: CurveOptions
) -> Call[CurvePoint | CurveAnswer]:
    """``ComputeScalingCurve``."""
    given, names = dict(options), Names()
    request = pb.ComputeScalingCurveRequest()
    timeout_s = common_options(request, given)
    request.question.model.CopyFrom(model_argument(model, names))
    _question(request.question, cluster, given, names)

    def read(response: pb.ComputeScalingCurveResponse) -> CurvePoint | CurveAnswer:
        if response.WhichOneof("event") == "point":
            return _point_of(response.point)
        return _answer(response.answer, names)

    return Call("ComputeScalingCurve", request, read, timeout_s, names.kept)


def batch_call(jobs: Sequence[CurveJob], options: CallOptions) -> Call[JobAnswer]:
    """``BatchComputeScalingCurves``, with each model by its content."""
    given = dict(options)
    request = pb.BatchComputeScalingCurvesRequest()
    if given.pop("expected", None) is not None:
        raise InputError("expected is an option of each job, not of a batch")
    timeout_s = common_options(request, given)
    refuse_rest(given, CallOptions)
    names: dict[str, Names] = {}
    kept: dict[str, Any] = {}
    for job in jobs:
        own = names[job.job_id] = Names()
        message = request.jobs.add(job_id=job.job_id)
        model = job.model if is_catalog_name(job.model) else kept_model(job.model)
        message.question.model.CopyFrom(model_argument(model, own))
        _question(message.question, job.cluster, dict(job.options), own)
        if job.expected is not None:
            for name in ("model_revision", "calibration_revision", "planner_version"):
                setattr(message.expected, name, getattr(job.expected, name))
        kept |= own.kept

    def read(response: pb.BatchComputeScalingCurvesResponse) -> JobAnswer:
        return _job_answer(response, names[response.job_id])

    return Call("BatchComputeScalingCurves", request, read, timeout_s, kept)


def _question(
    question: pb.CurveQuestion, cluster: Clusters, given: dict[str, Any], names: Names
) -> None:
    clusters = cluster if isinstance(cluster, Mapping) else {"": cluster}
    for name, one in clusters.items():
        question.clusters[name].CopyFrom(cluster_argument(one, names))
    batch = given.get("global_batch_size")
    if isinstance(batch, tuple | list):
        del given["global_batch_size"]
        low, high = batch
        question.batch_range.SetInParent()
        set_field(question.batch_range, "min_global_batch_size", low, "global_batch_size")
        set_field(question.batch_range, "max_global_batch_size", high, "global_batch_size")
    _allocations(question, given.pop("allocations", ()), clusters)
    current = given.pop("current_plan", None)
    if current is not None:
        question.current_plan.CopyFrom(plan_argument(current))
    set_field(question, "max_restart_s", given.pop("max_restart_s", None))
    set_field(question, "valid_until", given.pop("valid_until", None))
    set_training(question.training, given)
    refuse_rest(given, CurveOptions)


def _allocations(
    question: pb.CurveQuestion, given: Any, clusters: Mapping[str, Cluster | str]
) -> None:
    from planner.curves import Allocation, SizeRange

    if isinstance(given, SizeRange):
        question.size_range.SetInParent()
        to_message(given, question.size_range)
        return
    if isinstance(given, str) or not isinstance(given, Iterable):
        expected = "several Allocations or numbers of GPUs, or a SizeRange"
        raise InputError("are no allocations", value=given, expected=expected)
    for each in given:
        if isinstance(each, Allocation):
            to_message(each, question.allocations.add())
        elif isinstance(each, int) and not isinstance(each, bool) and len(clusters) == 1:
            _whole_nodes(question.allocations.add(), each, next(iter(clusters.values())))
        else:
            raise InputError("is no allocation", value=each, expected="an Allocation, or GPUs")


def _whole_nodes(message: Any, num_gpus: int, cluster: Cluster | str) -> None:
    """GPUs as whole nodes, or as a part of one; refused in GPUs, as they were given."""
    from planner.studies.curve_allocations import allocation_of_count

    if isinstance(cluster, str):
        from planner.formats.cluster_file import read_cluster

        cluster = read_cluster(cluster)
    found = allocation_of_count(num_gpus, None, cluster)
    message.nodes = found.nodes
    if found.gpus_per_node < cluster.gpus_per_node:
        message.gpus_per_node = found.gpus_per_node


# --- responses -----------------------------------------------------------------------------------

_REASONS = {
    common_pb2.TERMINATION_LIMIT_TIME: "time_limit",
    common_pb2.TERMINATION_LIMIT_WORK: "work_limit",
    common_pb2.TERMINATION_LIMIT_INTERRUPTED: "stopped",
    common_pb2.TERMINATION_LIMIT_BOUND: "weak_bound",
}
_STATUSES = {
    pb.JOB_STATUS_DONE: "done",
    pb.JOB_STATUS_INVALID: "invalid",
    pb.JOB_STATUS_DEADLINE: "deadline",
    pb.JOB_STATUS_FAILED: "failed",
}


def _answer(message: pb.CurveAnswer, names: Names) -> CurveAnswer:
    from planner.curves import ScalingCurve
    from planner.plans import Termination as Ended

    found = revisions_of(message.revisions)
    curve = ScalingCurve(points=()) if not message.HasField("curve") else _curve_of(message.curve)
    ended = Ended(reason=_REASONS.get(message.termination.limit, "proven"))
    said = {
        "model_revision": found.model_revision,
        "calibration_revision": found.calibration_revision,
        "planner_version": found.planner_version,
        "termination": ended,
    }
    return CurveAnswer(
        curve.model_copy(update=said),
        found,
        termination_of(message.termination),
        (*names.warnings, *message.warnings),
    )


def _curve_of(message: Any) -> ScalingCurve:
    from planner.curves import ScalingCurve

    return ScalingCurve(**{"points": (), **read_fields(message, ScalingCurve)})


def _point_of(message: Any) -> CurvePoint:
    from planner.curves import CurvePoint

    return from_message(message, CurvePoint)


def _job_answer(response: pb.BatchComputeScalingCurvesResponse, names: Names) -> JobAnswer:
    status = _STATUSES.get(response.status, "failed")
    answer = _answer(response.answer, names) if response.HasField("answer") else None
    error = None
    if response.HasField("error"):
        said = response.error
        error = error_of_job(said.code, said.reason, said.message, said.field)
    return JobAnswer(response.job_id, status, answer, error)
