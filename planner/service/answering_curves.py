"""In a worker: ``ComputeScalingCurve``, also for each job of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from planner.messages.curves import allocations_of, curve_message, point_message
from planner.messages.fields import RequestError, at_field
from planner.messages.inputs import training_options
from planner.service.sources import Sources
from planner.studies.scaling_curve import scaling_curve
from planner.v1 import common_pb2
from planner.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from planner.service.answering import Work

__all__ = ["CurveAnswering"]


class CurveAnswering:
    """Scaling curves."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def compute(self, request: pb.ComputeScalingCurveRequest, work: Work) -> Message:
        """A curve; its points are sent on the way where somebody listens."""
        with at_field("question"):
            arguments = self._arguments(request.question, work)
            self._note_revisions(arguments, request, work)
        response = pb.CurveAnswer()
        if request.validate_only:
            return work.finish(response)
        send = work.progress
        if send is not None:
            arguments["on_point"] = lambda point: send(point_message(point).SerializeToString())
        curve = scaling_curve(
            arguments.pop("model"),
            arguments.pop("cluster"),
            **arguments,
            time_limit_s=work.left_s(request.limits),
            work_limit=work.work_limit(request.limits),
            stop=work.stop,
        )
        response.curve.CopyFrom(curve_message(curve))
        work.note_curve(curve, response.termination)
        return work.finish(response)

    def _arguments(self, question: pb.CurveQuestion, work: Work) -> dict[str, Any]:
        sources = self._sources
        with at_field("model"):
            model, notes = sources.model(question.model, work.task.models)
        work.warnings += notes
        if not question.clusters:
            raise RequestError("clusters", "is empty; expected a cluster for each GPU type")
        clusters = {}
        for name in sorted(question.clusters):
            with at_field(f"clusters[{name}]"):
                clusters[name] = sources.cluster(question.clusters[name])
        with at_field("training"):
            options = training_options(question.training)
        options.pop("allow_fewer", None)
        batch = options.pop("global_batch_size", None)
        if question.HasField("batch_range"):
            wanted = question.batch_range
            batch = (wanted.min_global_batch_size, wanted.max_global_batch_size)
        if batch is None:
            raise RequestError(
                "training.global_batch_size", "is missing; expected samples a step >= 1"
            )
        options |= {
            "model": model,
            "cluster": next(iter(clusters.values())) if len(clusters) == 1 else clusters,
            "global_batch_size": batch,
            "allocations": allocations_of(question, single=len(clusters) == 1),
        }
        if question.HasField("current_plan"):
            with at_field("current_plan"):
                options["current_plan"] = sources.plan(question.current_plan, work.task.plans)
        if question.HasField("max_restart_s"):
            options["max_restart_s"] = question.max_restart_s
        if question.valid_until:
            options["valid_until"] = question.valid_until
        return options

    def _note_revisions(self, arguments: dict[str, Any], request: Any, work: Work) -> None:
        cluster = arguments["cluster"]
        if isinstance(cluster, dict):
            cluster = cluster[min(cluster)]
        work.made_from(arguments["model"], cluster, request.expected)


_ = common_pb2
