"""In a worker: ``ComputeScalingCurve``, also for each job of a batch."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from google.protobuf.message import Message

from planner.curves import ScalingCurve
from planner.graph import contract
from planner.messages.curves import allocations_of, curve_message, point_message, time_of
from planner.messages.fields import RequestError, at_field
from planner.messages.inputs import content_hash, training_options
from planner.messages.plans import LIMITS
from planner.schedule_rules import RULES
from planner.service.sources import Sources
from planner.service.work import Work
from planner.specs import Cluster, Model
from planner.studies.curve_allocations import allocation_cluster
from planner.studies.curve_envelope import combined_revision
from planner.studies.curve_plans import point_plan
from planner.studies.curve_transitions import holding_of_plan
from planner.studies.scaling_curve import scaling_curve
from planner.v1 import common_pb2
from planner.v1 import planner_service_pb2 as pb

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
            scaling_curve(
                arguments.pop("model"), arguments.pop("cluster"), **arguments, stop=lambda: True
            )
            return work.finish(response)
        send = work.progress
        if send is not None:
            arguments["on_point"] = lambda point: send(point_message(point).SerializeToString())
        asked = dict(arguments)
        curve = scaling_curve(
            arguments.pop("model"),
            arguments.pop("cluster"),
            **arguments,
            time_limit_s=work.left_s(request.limits),
            work_limit=work.work_limit(request.limits),
            stop=work.stop,
        )
        response.curve.CopyFrom(curve_message(curve))
        _note_end(curve, response.termination, work)
        source = request.question.model
        sent = source.content_hash
        if source.WhichOneof("source") in ("text", "profile"):
            sent = content_hash(source)
        work.plans += _sketches(curve, asked["model"], asked["cluster"], sent)
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
        named = any(a.gpu_type for a in question.allocations) or question.size_range.gpu_type
        options |= {
            "model": model,
            "cluster": clusters if named or len(clusters) > 1 else next(iter(clusters.values())),
            "global_batch_size": batch,
            "allocations": allocations_of(question),
        }
        if question.HasField("current_plan"):
            with at_field("current_plan"):
                plan = sources.plan(question.current_plan, work.task.plans)
                holding_of_plan(plan, tuple(layer.name for layer in model.layers))
            options["current_plan"] = plan
        if question.HasField("max_restart_s"):
            options["max_restart_s"] = question.max_restart_s
        if question.valid_until:
            with at_field("valid_until"):
                options["valid_until"] = time_of(question.valid_until)
        return options

    def _note_revisions(self, arguments: dict[str, Any], request: Any, work: Work) -> None:
        cluster = arguments["cluster"]
        clusters = cluster if isinstance(cluster, dict) else {None: cluster}
        calibration = combined_revision(clusters)
        work.made_from_revisions(arguments["model"].digest(), calibration, request.expected)


def _note_end(curve: ScalingCurve, termination: common_pb2.Termination, work: Work) -> None:
    """How the curve ended, for the answer, the cache and the metrics."""
    reason = curve.termination.reason
    work.final = reason not in ("time_limit", "stopped")
    termination.reason = (
        common_pb2.TERMINATION_REASON_OPTIMAL
        if reason == "proven"
        else common_pb2.TERMINATION_REASON_FEASIBLE
    )
    termination.limit = LIMITS[reason]
    work.reason = common_pb2.TerminationReason.Name(termination.reason)
    work.limit = common_pb2.TerminationLimit.Name(termination.limit)


def _sketches(
    curve: ScalingCurve, model: Model, cluster: Cluster | dict[str, Cluster], sent: str
) -> list[tuple[str, bytes, dict[str, Any]]]:
    """The points' plans as layout and layers, which is all that pricing them again needs.

    Where ranks hold several chunks, the whole plan: those are few, and slow to find anyway.
    """
    blocks = contract(model).blocks
    layers = [tuple(model.layers[layer].name for layer in block) for block in blocks]
    training = json.loads(curve.inputs["training"])
    found = {}
    specs: dict[tuple[str | None, int, int], str] = {}
    for point in (*curve.points, *curve.spare):
        layout = point.layout
        if layout is None:
            continue
        allocation = point.allocation
        key = (allocation.gpu_type, allocation.nodes, allocation.gpus_per_node)
        whole = cluster[allocation.gpu_type or ""] if isinstance(cluster, dict) else cluster
        if key not in specs:
            specs[key] = allocation_cluster(whole, allocation).model_dump_json()
        training["global_batch_size"] = point.global_batch_size
        training["allow_fewer"] = point.gpus_used != point.num_gpus
        stages = [
            {"rank": rank, "layers": [name for block in layers[start:end] for name in block]}
            for rank, (start, end) in enumerate(pairwise(point.cuts))
        ]
        inputs = {
            "question": "plan",
            "model": model.name,
            "model_digest": curve.model_revision,
            "cluster_spec": specs[key],
            "training": json.dumps(training),
            "planner_version": curve.planner_version,
        }
        if sent:
            inputs["model_content_hash"] = sent
        if RULES[layout.schedule].several_stages:
            whole_plan = point_plan(curve, point, model=model)
            body = whole_plan.model_copy(update={"inputs": inputs}).to_json(indent=None).encode()
        else:
            sketch = {
                "model": model.name,
                "cluster": whole.name,
                "layout": layout.model_dump(mode="json"),
                "stages": stages,
                "num_gpus": point.gpus_used,
                "inputs": inputs,
            }
            body = json.dumps(sketch).encode()
        labels = {
            "model": model.name,
            "cluster": whole.name,
            "status": "feasible",
            "num_gpus": point.gpus_used,
            "step_time_ms": point.step_time_ms,
        }
        found[point.plan_id] = (point.plan_id, body, labels)
    return list(found.values())
