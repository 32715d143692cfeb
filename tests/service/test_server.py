"""What a scheduler relies on, against real server processes."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from rpcs import CSV, csv_model, plan_question, reason_of, training
from server_process import ServerProcess, running_server

import planner
from planner.messages.inputs import model_of
from planner.messages.plans import plan_of
from planner.v1 import common_pb2, inputs_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb

Code = grpc.StatusCode


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    flags = ("--slots", "1", "--quick-slots", "1", "--spare-workers", "0", "--max-layers", "500")
    with running_server(*flags) as started:
        yield started


def refusal(call: object, request: object) -> tuple[Code, str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=30)  # type: ignore[operator]
    return caught.value.code(), reason_of(caught.value), caught.value.details()


def test_answers_are_right(server: ServerProcess) -> None:
    """The plan is the library's own, and the judge finds nothing."""
    answer = server.stub().SolvePlan(pb.SolvePlanRequest(question=plan_question()), timeout=30)
    plan = plan_of(answer.plan)
    own = planner.plan("llama3-8b", "dgx-h100:2", global_batch_size=32, sequence_length=4096)
    assert plan.stages == own.stages
    assert plan.certificate == own.certificate
    assert planner.evaluate(plan).ok
    assert answer.termination.reason == common_pb2.TERMINATION_REASON_OPTIMAL
    assert answer.revisions.model_revision == planner.load_model("llama3-8b").digest()


def test_nothing_fits_is_an_answer(server: ServerProcess) -> None:
    question = plan_question(
        model=inputs_pb2.ModelSource(catalog_name="llama3-405b"), training=training(16)
    )
    answer = server.stub().SolvePlan(pb.SolvePlanRequest(question=question), timeout=60)
    assert answer.termination.reason == common_pb2.TERMINATION_REASON_INFEASIBLE
    assert answer.plan.infeasible.constraint == "memory"
    assert answer.plan.infeasible.short_bytes > 0


def test_a_model_is_sent_once(server: ServerProcess) -> None:
    stub = server.stub()
    unknown = inputs_pb2.ModelSource(content_hash="0" * 64)
    request = pb.PartitionStagesRequest(model=unknown, stage_count=4)
    assert refusal(stub.PartitionStages, request)[:2] == (Code.NOT_FOUND, "MODEL_NOT_FOUND")
    put = stub.PutModel(pb.PutModelRequest(model=csv_model()), timeout=30)
    assert put.layer_count == 24
    by_hash = pb.PartitionStagesRequest(
        model=inputs_pb2.ModelSource(content_hash=put.content_hash), stage_count=4
    )
    inline = pb.PartitionStagesRequest(model=csv_model(), stage_count=4)
    first = stub.PartitionStages(by_hash, timeout=30)
    second, call = stub.PartitionStages.with_call(inline, timeout=30)
    assert first == second
    assert dict(call.trailing_metadata())["planner-cache"] == "hit"
    plan = plan_of(first.plan)
    assert planner.evaluate(plan, model=model_of(csv_model())[0]).ok


def test_the_same_request_id_has_the_same_answer(server: ServerProcess) -> None:
    """One call makes it, the others wait."""
    stub = server.stub()
    name = str(uuid.uuid4())
    request = pb.SolvePlanRequest(request_id=name, question=plan_question(training=training(40)))
    with ThreadPoolExecutor(8) as threads:
        calls = list(threads.map(lambda _: stub.SolvePlan.with_call(request, timeout=30), range(8)))
    assert all(answer == calls[0][0] for answer, _ in calls)
    came = [dict(call.trailing_metadata())["planner-cache"] for _, call in calls]
    assert sorted(came) == ["hit"] * 7 + ["miss"]
    request.question.training.global_batch_size += 1
    assert refusal(stub.SolvePlan, request)[:2] == (Code.INVALID_ARGUMENT, "REQUEST_ID_REUSED")


def test_pins(server: ServerProcess) -> None:
    """Of the model's, the calibration's and the planner's revision; on cached answers too."""
    stub = server.stub()
    request = pb.SolvePlanRequest(question=plan_question())
    revisions = stub.SolvePlan(request, timeout=30).revisions
    for name in ("model_revision", "calibration_revision", "planner_version"):
        request.ClearField("expected")
        setattr(request.expected, name, getattr(revisions, name))
        assert stub.SolvePlan(request, timeout=30).revisions == revisions
        setattr(request.expected, name, "another")
        code, reason, _ = refusal(stub.SolvePlan, request)
        assert code is Code.FAILED_PRECONDITION
        assert reason == f"{name.upper()}_CHANGED"
        fresh = pb.SolvePlanRequest(
            question=plan_question(training=training(8)), expected=request.expected
        )
        assert refusal(stub.SolvePlan, fresh)[0] is Code.FAILED_PRECONDITION


def test_validate_only_does_no_work(server: ServerProcess) -> None:
    stub = server.stub()
    good = pb.SolvePlanRequest(validate_only=True, question=plan_question())
    answer = stub.SolvePlan(good, timeout=30)
    assert not answer.plan.stages
    assert answer.revisions.model_revision
    good.question.training.pins.tp = 7
    code, _, message = refusal(stub.SolvePlan, good)
    assert code is Code.INVALID_ARGUMENT
    assert "7" in message


def test_violations_point_into_the_request(server: ServerProcess) -> None:
    from rpcs import details_of

    stub = server.stub()
    cases = {
        "question.training.global_batch_size": plan_question(
            training=inputs_pb2.Training(global_batch_size=10**8)
        ),
        "question.model.catalog_name": plan_question(
            model=inputs_pb2.ModelSource(catalog_name="lama3-8b")
        ),
        "question.cluster.catalog_name": plan_question(
            cluster=inputs_pb2.ClusterSource(catalog_name="dgx-h100:none")
        ),
        "question.model.text.text": plan_question(
            model=inputs_pb2.ModelSource(
                text=inputs_pb2.ModelText(
                    format=inputs_pb2.MODEL_FORMAT_PROFILE_CSV, text=CSV.replace("l3,1", "l3,x")
                )
            )
        ),
        "question.training.pins.tp": plan_question(
            training=inputs_pb2.Training(global_batch_size=8, pins=inputs_pb2.DegreePins(tp=-1))
        ),
    }
    for field, question in cases.items():
        with pytest.raises(grpc.RpcError) as caught:
            stub.SolvePlan(pb.SolvePlanRequest(question=question), timeout=30)
        assert caught.value.code() is Code.INVALID_ARGUMENT
        violations = details_of(caught.value)[1].field_violations
        assert [v.field for v in violations] == [field]


def test_names_are_not_files(server: ServerProcess, tmp_path: Path) -> None:
    """Neither as a model or cluster of a request, nor inside a plan that is judged."""
    secret = tmp_path / "secret.csv"
    secret.write_text(CSV)
    stub = server.stub()
    model = inputs_pb2.ModelSource(catalog_name=str(secret))
    request = pb.PartitionStagesRequest(model=model, stage_count=2)
    assert refusal(stub.PartitionStages, request)[1] == "NOT_IN_CATALOG"
    plan = planner.partition(str(secret), 2).to_json()
    judged = pb.EvaluatePlanRequest(plan=plan_pb2.PlanSource(plan_json=plan))
    code, _, message = refusal(stub.EvaluatePlan, judged)
    assert code is Code.INVALID_ARGUMENT
    assert "not in the catalog" in message


def test_too_many_layers_are_refused_by_name(server: ServerProcess) -> None:
    rows = "".join(f"x{i},1,2,1,1,1\n" for i in range(501))
    model = csv_model()
    model.text.text = CSV.partition("\n")[0] + "\n" + rows
    request = pb.PartitionStagesRequest(model=model, stage_count=2)
    code, reason, message = refusal(server.stub().PartitionStages, request)
    assert (code, reason) == (Code.INVALID_ARGUMENT, "LIMIT_EXCEEDED")
    assert "max_layers" in message
    assert "500" in message


def test_a_million_layers_are_refused_by_name(server: ServerProcess) -> None:
    rows = "".join(f"x{i},1,2,1,1,1\n" for i in range(10**6))
    model = csv_model()
    model.text.text = CSV.partition("\n")[0] + "\n" + rows
    request = pb.PartitionStagesRequest(model=model, stage_count=2)
    code, _, message = refusal(server.stub().PartitionStages, request)
    assert code is Code.RESOURCE_EXHAUSTED or "max_layers" in message
    assert "larger than max" in message or "max_layers" in message


def test_reflection_is_enough_to_call_it(server: ServerProcess) -> None:
    """As generic command-line clients do: no stub, only what the server says of itself."""
    channel = server.channel()
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    service = pool.FindServiceByName("planner.v1.PlannerService")
    method = service.FindMethodByName("PartitionStages")
    request = message_factory.GetMessageClass(method.input_type)()
    request.stage_count = 3
    request.model.text.text = CSV
    request.model.text.format = 1
    answer = message_factory.GetMessageClass(method.output_type)()
    reply = channel.unary_unary(f"/{service.full_name}/{method.name}")(
        request.SerializeToString(), timeout=30
    )
    answer.ParseFromString(reply)
    assert len(answer.plan.stages) == 3


def test_health(server: ServerProcess) -> None:
    stub = health_pb2_grpc.HealthStub(server.channel())
    for name in ("", "planner.v1.PlannerService", "google.longrunning.Operations"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_progress_never_goes_back(server: ServerProcess) -> None:
    question = plan_question(
        model=inputs_pb2.ModelSource(catalog_name="gpt3-175b"),
        cluster=inputs_pb2.ClusterSource(catalog_name="dgx-a100-80gb:128"),
        training=training(1536),
    )
    events = list(server.stub().StreamPlan(pb.StreamPlanRequest(question=question), timeout=60))
    answer = events[-1].answer
    assert answer.plan.stages
    progress = [event.progress for event in events[:-1]]
    values = [p.value_ms for p in progress if p.HasField("value_ms")]
    bounds = [p.bound_ms for p in progress if p.HasField("bound_ms")]
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds)


def test_replicas_and_worker_counts_agree() -> None:
    """Three replicas, two worker counts: the same bytes."""
    requests = [
        pb.SolvePlanRequest(question=plan_question(training=training(batch))) for batch in (32, 96)
    ]
    requests.append(
        pb.SolvePlanRequest(
            question=plan_question(training=training(64), pareto=True, rejected=True)
        )
    )
    found = set()
    for slots in ("1", "2", "2"):
        with (
            running_server("--slots", slots, "--spare-workers", "0") as server,
            ThreadPoolExecutor(3) as threads,
        ):
            answers = threads.map(
                lambda request, own=server: own.stub().SolvePlan(request, timeout=60), requests
            )
            found.add(tuple(answer.SerializeToString(deterministic=True) for answer in answers))
    assert len(found) == 1


def test_the_front_imports_no_solver() -> None:
    code = (
        "import sys, planner.service.server\n"
        "bad = [m for m in sys.modules if m.startswith(('ortools', 'numba', 'pandas', "
        "'planner.solvers', 'planner.search', 'planner.schedules.', 'planner.api'))]\n"
        "print(bad)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_quota() -> None:
    flags = ("--slots", "1", "--quick-slots", "1", "--spare-workers", "0")
    with running_server(*flags, "--caller-rate-per-s", "0.001", "--caller-burst", "2") as server:
        stub = server.stub()
        request = pb.PartitionStagesRequest(model=csv_model(), stage_count=4)
        for _ in range(2):
            stub.PartitionStages(request, timeout=30)
        assert refusal(stub.PartitionStages, request)[:2] == (
            Code.RESOURCE_EXHAUSTED,
            "QUOTA_EXCEEDED",
        )


def test_bad_settings_are_one_line(server: ServerProcess) -> None:
    taken = server.address.rpartition(":")[2]
    for flags, said in (
        (("--slots", "none"), "slots"),
        (("--host", "0.0.0.0"), "TLS"),
        (("--store", "redis://x"), "store"),
        (("--port", taken), "listened"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "planner", "serve", "--port", "0", *flags],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
