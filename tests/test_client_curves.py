"""Scaling curves through the client: what is sent, what comes back, models that are sent once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from fake_planner_service import FakeService, fake_service

import planner
from planner.client import AsyncPlannerClient, CurveJob, JobAnswer, PlannerClient, Revisions
from planner.curves import Allocation, CurvePoint, PointStatus, ScalingCurve, SizeRange
from planner.errors import InputError
from planner.messages.convert import to_message
from planner.messages.inputs import content_hash
from planner.v1 import common_pb2, curve_pb2
from planner.v1 import planner_service_pb2 as pb

POINTS = tuple(
    CurvePoint(
        allocation=Allocation(nodes=nodes),
        num_gpus=8 * nodes,
        status=PointStatus.FEASIBLE,
        global_batch_size=64,
        step_time_ms=100.0 / nodes,
    )
    for nodes in (1, 2)
)
CURVE = ScalingCurve(points=POINTS, minimum_gpus=8, notes=("a note",))
OPTIONS: dict[str, Any] = {"global_batch_size": 64, "allocations": [4, 8, 16]}


def answer_message() -> pb.CurveAnswer:
    """The curve as a server sends it."""
    return pb.CurveAnswer(
        curve=to_message(CURVE, curve_pb2.ScalingCurve()),
        revisions=common_pb2.Revisions(model_revision="m", planner_version="1"),
        termination=common_pb2.Termination(
            reason=common_pb2.TERMINATION_REASON_FEASIBLE,
            limit=common_pb2.TERMINATION_LIMIT_TIME,
        ),
        warnings=["a warning"],
    )


class Keeping(FakeService):
    """A service that keeps models, and may lose them."""

    def __init__(self) -> None:
        super().__init__()
        self.models: set[str] = set()
        self.lose = False
        self.usual |= {
            "ComputeScalingCurve": self.curve,
            "BatchComputeScalingCurves": self.batch,
            "PutModel": self.put,
        }

    def put(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.models.add(content_hash(request.model))
        return pb.PutModelResponse(content_hash=content_hash(request.model))

    def curve(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for point in POINTS:
            message = to_message(point, curve_pb2.CurvePoint())
            yield pb.ComputeScalingCurveResponse(point=message)
        yield pb.ComputeScalingCurveResponse(answer=answer_message())

    def batch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        if self.lose:
            self.models.clear()
            self.lose = False
        for job in reversed(request.jobs):
            source = job.question.model
            response = pb.BatchComputeScalingCurvesResponse(job_id=job.job_id)
            if source.content_hash and source.content_hash not in self.models:
                response.status = pb.JOB_STATUS_INVALID
                response.error.code, response.error.reason = 5, "MODEL_NOT_FOUND"
            elif source.catalog_name == "nothing":
                response.status = pb.JOB_STATUS_INVALID
                response.error.code, response.error.reason = 3, "NOT_IN_CATALOG"
                response.error.message = "question.model: is not in the catalog"
                response.error.field = "question.model"
            else:
                response.status = pb.JOB_STATUS_DONE
                response.answer.CopyFrom(answer_message())
            yield response


@pytest.fixture
def fake() -> Iterator[Keeping]:
    with fake_service(Keeping()) as service:
        assert isinstance(service, Keeping)
        yield service


def test_points_come_as_they_are_found(fake: Keeping) -> None:
    seen: list[CurvePoint] = []
    with PlannerClient(fake.address) as client:
        answer = client.scaling_curve(
            "llama3-8b", "dgx-h100:4", on_point=seen.append, tp=2, time_limit_s=5.0, **OPTIONS
        )
    assert tuple(seen) == POINTS
    assert answer.curve.points == POINTS
    assert answer.curve.notes == ("a note",)
    assert answer.curve.minimum_gpus == 8
    assert answer.curve.model_revision == answer.revisions.model_revision == "m"
    assert answer.curve.termination.reason == "time_limit"
    assert answer.warnings == ("a warning",)
    question = fake.calls[0][1].question
    sizes = [(each.nodes, each.gpus_per_node) for each in question.allocations]
    assert sizes == [(1, 4), (1, 0), (2, 0)]
    assert question.training.pins.tp == 2
    assert question.training.global_batch_size == 64


def test_what_may_be_asked(fake: Keeping) -> None:
    with PlannerClient(fake.address) as client:
        client.scaling_curve(
            "llama3-8b",
            {"a100": "dgx-a100-80gb:4", "h100": "dgx-h100:4"},
            global_batch_size=(32, 128),
            allocations=SizeRange(min_gpus=8, max_gpus=32, gpu_type="a100"),
            current_plan=planner.plan("llama3-8b", "dgx-h100:1", global_batch_size=64),
            max_restart_s=60.0,
            valid_until="2030-01-01T00:00:00Z",
        )
        question = fake.calls[0][1].question
        assert sorted(question.clusters) == ["a100", "h100"]
        assert question.batch_range.max_global_batch_size == 128
        assert not question.training.global_batch_size
        assert question.size_range.gpu_type == "a100"
        assert question.current_plan.plan_json
        assert question.max_restart_s == 60.0
        for odd in ([12], [True], ["8"], [0]):
            with pytest.raises(
                InputError, match=r"is no allocation|fill no whole nodes of 8|is no number of GPUs"
            ):
                client.scaling_curve(
                    "llama3-8b", "dgx-h100:4", global_batch_size=64, allocations=odd
                )


def jobs() -> list[CurveJob]:
    """Four jobs of two models, and one of none."""
    models = [planner.load_model("llama3-8b"), planner.load_model("gpt2")]
    found = [CurveJob(f"job-{i}", models[i % 2], "dgx-h100:4", OPTIONS) for i in range(4)]
    return [*found, CurveJob("odd", "nothing", "dgx-h100:4", OPTIONS, Revisions("m"))]


def check(fake: Keeping, found: dict[str, JobAnswer]) -> None:
    """Every job has its answer."""
    assert set(found) == {"job-0", "job-1", "job-2", "job-3", "odd"}
    for name, answer in found.items():
        if name == "odd":
            assert (answer.status, answer.answer) == ("invalid", None)
            assert answer.error is not None
            assert answer.error.reason == "NOT_IN_CATALOG"
            assert answer.error.violations == (("question.model", "is not in the catalog"),)
        else:
            assert answer.status == "done"
            assert answer.answer is not None
            assert answer.answer.curve.points == POINTS


def test_models_of_a_batch_are_sent_once(fake: Keeping) -> None:
    seen: list[str] = []
    with PlannerClient(fake.address) as client:
        found = client.scaling_curves(jobs(), on_answer=lambda each: seen.append(each.job_id))
        check(fake, found)
        assert seen == ["odd", "job-3", "job-2", "job-1", "job-0"]
        check(fake, client.scaling_curves(jobs()))
        assert [name for name, _ in fake.calls].count("PutModel") == 2
        fake.lose = True
        check(fake, client.scaling_curves(jobs()))
    names = [name for name, _ in fake.calls]
    assert names[-4:] == ["BatchComputeScalingCurves", "PutModel", "PutModel", names[-1]]
    first, again = fake.calls[-4][1], fake.calls[-1][1]
    assert len(again.jobs) == 4  # what was answered is not asked again
    assert first.request_id != again.request_id


def test_coroutines_find_the_same_curves(fake: Keeping) -> None:
    async def run() -> None:
        async with AsyncPlannerClient(fake.address) as client:
            seen: list[CurvePoint] = []
            answer = await client.scaling_curve(
                "llama3-8b", "dgx-h100:4", on_point=seen.append, **OPTIONS
            )
            assert tuple(seen) == answer.curve.points == POINTS
            check(fake, await client.scaling_curves(jobs()))
            fake.lose = True
            check(fake, await client.scaling_curves(jobs()))

    asyncio.run(run())
