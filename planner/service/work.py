"""In a worker: one question being answered, and what becomes known of it on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from planner.formats.catalog import load_model
from planner.messages.fields import RequestError
from planner.messages.plans import plan_id_of, termination_message
from planner.options import stored_spec
from planner.plans import Plan, Status
from planner.revisions import calibration_revision
from planner.service import errors
from planner.service.frames import Task
from planner.specs import Cluster, Model
from planner.v1 import common_pb2
from planner.version import planner_version

__all__ = ["Work"]

_UNFINISHED = ("time_limit", "stopped")


class Work:
    """One question being answered."""

    def __init__(
        self, task: Task, stop: Callable[[], bool], progress: Callable[[bytes], None] | None
    ) -> None:
        self.task = task
        self.stop = stop
        self.progress = progress
        self.deadline = time.monotonic() + task.wall_s
        self.warnings: list[str] = []
        self.revisions = ("", "")
        self.final = True
        self.reason, self.limit = "", ""
        self.gap: float | None = None
        self.plans: list[tuple[str, bytes, dict[str, Any]]] = []

    def left_s(self, limits: common_pb2.Limits) -> float:
        """Wall time that is left: of the request's own limit and of the task's."""
        left = self.deadline - time.monotonic()
        if limits.wall_time_s < 0:
            raise RequestError("limits.wall_time_s", "is negative")
        if limits.wall_time_s:
            left = min(left, limits.wall_time_s)
        return max(left, 0.001)

    def work_limit(self, limits: common_pb2.Limits) -> int | None:
        """Deterministic work, where the request limits it."""
        if limits.work_node_count < 0:
            raise RequestError("limits.work_node_count", "is negative")
        return limits.work_node_count or None

    def made_from(
        self, model: Model, cluster: Cluster | None, expected: common_pb2.ExpectedRevisions
    ) -> None:
        """Note what the answer is made from, and hold it against the caller's pins."""
        calibration = calibration_revision(cluster) if cluster else ""
        self.made_from_revisions(model.digest(), calibration, expected)

    def made_from_plan(
        self, plan: Plan, overrides: dict[str, Any], expected: common_pb2.ExpectedRevisions
    ) -> None:
        """The same, where the question is about a plan that may name model and cluster itself."""
        model, cluster = overrides["model"], overrides["cluster"]
        if model is not None:
            digest = model.digest()
        elif "model_digest" in plan.inputs:
            digest = plan.inputs["model_digest"]  # the judge refuses a model that has another
        else:
            digest = load_model(plan.inputs.get("model") or plan.model).digest()
        if cluster is None and "cluster_spec" in plan.inputs:
            cluster = stored_spec(Cluster, plan.inputs, "cluster_spec")
        self.made_from_revisions(digest, calibration_revision(cluster) if cluster else "", expected)

    def made_from_revisions(
        self, model: str, calibration: str, expected: common_pb2.ExpectedRevisions
    ) -> None:
        """The same, where both hashes are known."""
        self.revisions = (model, calibration)
        actual = {
            "model_revision": self.revisions[0],
            "calibration_revision": self.revisions[1],
            "planner_version": planner_version(),
        }
        errors.check_pins(expected, actual)

    def note_plan(self, plan: Plan) -> str:
        """Keep a plan, note how it ended, and return its id ("" where there is none)."""
        ended = plan.termination.reason if plan.termination else ""
        self.final = self.final and ended not in _UNFINISHED
        message = termination_message(plan)
        self.reason = common_pb2.TerminationReason.Name(message.reason)
        self.limit = common_pb2.TerminationLimit.Name(message.limit)
        self.gap = plan.gap
        if plan.status is Status.UNKNOWN:
            return ""
        plan_id = plan_id_of(plan)
        labels = {
            "model": plan.model,
            "cluster": plan.cluster or "",
            "status": plan.status.value,
            "num_gpus": plan.num_gpus,
            "step_time_ms": plan.step_time_ms,
        }
        self.plans.append((plan_id, plan.to_json().encode(), labels))
        return plan_id

    def finish(self, response: Any) -> Message:
        """The response with its revisions and warnings."""
        response.revisions.model_revision = self.revisions[0]
        response.revisions.calibration_revision = self.revisions[1]
        response.revisions.planner_version = planner_version()
        response.revisions.request_hash = self.task.request_hash
        response.warnings.extend(dict.fromkeys(self.warnings))
        assert isinstance(response, Message)
        return response
