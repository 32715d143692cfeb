"""Scaling curves from a real server: the library's figures, whose plans the judge confirms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from rpcs import MODEL, curve_question, reason_of, training
from server_process import ServerProcess, running_server

import planner
from planner.messages.curves import curve_of
from planner.messages.inputs import model_source
from planner.v1 import curve_pb2, inputs_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb

SIZES = (1, 2, 3, 4, 8)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("--slots", "1", "--quick-slots", "1", "--spare-workers", "0") as started:
        yield started


def question(**changes: Any) -> pb.CurveQuestion:
    fields: dict[str, Any] = {
        "clusters": {"h100": inputs_pb2.ClusterSource(catalog_name="dgx-h100:8")},
        "allocations": [curve_pb2.Allocation(nodes=nodes) for nodes in SIZES],
        "training": training(64),
    }
    return curve_question(**{**fields, **changes})


def ask(server: ServerProcess, asked: pb.CurveQuestion) -> list[Any]:
    request = pb.ComputeScalingCurveRequest(question=asked)
    return list(server.stub().ComputeScalingCurve(request, timeout=60))


def test_a_curve_is_the_librarys(server: ServerProcess) -> None:
    *points, last = ask(server, question())
    own = planner.scaling_curve(
        "llama3-8b",
        "dgx-h100:8",
        allocations=[8 * nodes for nodes in SIZES],
        global_batch_size=64,
        sequence_length=4096,
    )
    got = curve_of(last.answer.curve)
    assert got.points == own.points
    assert got.envelope == own.envelope
    assert got.recommended_sizes == own.recommended_sizes
    assert [event.point for event in points] == list(last.answer.curve.points)
    assert last.answer.revisions.model_revision == own.model_revision
    assert last.answer.revisions.calibration_revision == own.calibration_revision


@pytest.mark.parametrize("sent", ["by name", "inline", "by hash"])
def test_the_judge_confirms_every_point(server: ServerProcess, sent: str) -> None:
    """By its plan id alone, also where the model is the caller's own."""
    model = MODEL
    if sent != "by name":
        model = model_source(planner.load_model("llama3-8b").model_copy(update={"name": "mine"}))
        kept = server.stub().PutModel(pb.PutModelRequest(model=model), timeout=30)
        if sent == "by hash":
            model = inputs_pb2.ModelSource(content_hash=kept.content_hash)
    curve = ask(server, question(model=model, training=training(96)))[-1].answer.curve
    assert any(point.plan_id for point in curve.points)
    for point in curve.points:
        if not point.plan_id:
            continue
        source = plan_pb2.PlanSource(plan_id=point.plan_id)
        judged = server.stub().EvaluatePlan(pb.EvaluatePlanRequest(plan=source), timeout=30)
        assert judged.ok
        assert judged.plan.step_time_ms == pytest.approx(point.step_time_ms, rel=1e-9)
        memory = [stage.memory_bytes for stage in judged.plan.stages]
        assert memory == [stage.memory_bytes for stage in point.stage_memory]
        got = server.stub().GetPlan(pb.GetPlanRequest(plan_id=point.plan_id), timeout=30)
        assert got.plan.step_time_ms == judged.plan.step_time_ms
        assert point.bound_ms <= point.step_time_ms


def test_transitions(server: ServerProcess) -> None:
    now = planner.plan("llama3-8b", "dgx-h100:2", global_batch_size=64, sequence_length=4096)
    source = plan_pb2.PlanSource(plan_json=now.to_json())
    curve = ask(server, question(current_plan=source, max_restart_s=1e-3))[-1].answer.curve
    kinds = {
        point.allocation.nodes: point.transition.kind
        for point in curve.points
        if point.HasField("transition")
    }
    assert kinds[2] == curve_pb2.TRANSITION_KIND_NONE
    assert set(kinds.values()) & {
        curve_pb2.TRANSITION_KIND_DATA_PARALLEL_ONLY,
        curve_pb2.TRANSITION_KIND_REPARTITION,
    }


def test_batches_answer_job_by_job(server: ServerProcess) -> None:
    """Good, bad, forgotten and repeated jobs; each with its own status."""
    jobs = [
        pb.CurveJob(job_id="good", question=question()),
        pb.CurveJob(job_id="same", question=question()),
        pb.CurveJob(job_id="bad", question=question(clusters={})),
        pb.CurveJob(
            job_id="lost",
            question=question(model=inputs_pb2.ModelSource(content_hash="0" * 64)),
        ),
        pb.CurveJob(job_id="other", question=question(training=training(128))),
    ]
    request = pb.BatchComputeScalingCurvesRequest(jobs=jobs)
    answers = {
        answer.job_id: answer
        for answer in server.stub().BatchComputeScalingCurves(request, timeout=60)
    }
    assert set(answers) == {job.job_id for job in jobs}
    assert answers["good"].status == pb.JOB_STATUS_DONE
    assert answers["good"].answer == answers["same"].answer
    assert answers["other"].answer.curve != answers["good"].answer.curve
    assert answers["bad"].status == pb.JOB_STATUS_INVALID
    assert answers["bad"].error.field.startswith("question.clusters")
    assert (answers["lost"].status, answers["lost"].error.reason) == (
        pb.JOB_STATUS_INVALID,
        "MODEL_NOT_FOUND",
    )


def test_too_much_is_refused_by_name(server: ServerProcess) -> None:
    from planner.v1.curve_pb2 import SizeRange

    for asked, named in (
        (question(allocations=[curve_pb2.Allocation(nodes=1)] * 1001), "max_sizes"),
        (
            question(allocations=[], size_range=SizeRange(min_gpus=8, max_gpus=10**6, step=8)),
            "max_sizes",
        ),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            ask(server, asked)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert reason_of(caught.value) == "LIMIT_EXCEEDED"
        assert named in caught.value.details()
