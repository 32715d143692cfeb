"""Plans that outlive their calls: started, watched, cancelled, taken over."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.longrunning import operations_pb2, operations_pb2_grpc
from rpcs import plan_question, reason_of, training
from server_process import ServerProcess, running_server

import planner
from planner.messages.plans import plan_of
from planner.v1 import inputs_pb2
from planner.v1 import planner_service_pb2 as pb

ONE_SLOT = ("--slots", "1", "--quick-slots", "1", "--spare-workers", "0")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(*ONE_SLOT, "--slots", "2") as started:
        yield started


def operations(server: ServerProcess) -> Any:
    return operations_pb2_grpc.OperationsStub(server.channel())


def create(server: ServerProcess, batch: int = 32, **changes: Any) -> Any:
    request = pb.CreatePlanRequest(question=plan_question(training=training(batch)), **changes)
    return server.stub().CreatePlan(request, timeout=30)


def wait(server: ServerProcess, name: str, seconds: float = 60.0) -> Any:
    request = operations_pb2.WaitOperationRequest(name=name)
    request.timeout.FromMilliseconds(int(seconds * 1000))
    return operations(server).WaitOperation(request, timeout=seconds + 5)


def answer_of(operation: Any) -> pb.SolvePlanResponse:
    answer = pb.SolvePlanResponse()
    assert operation.done
    assert operation.response.Unpack(answer)
    return answer


def long_question() -> pb.PlanQuestion:
    """One that takes many seconds."""
    question = plan_question(
        model=inputs_pb2.ModelSource(catalog_name="llama3-405b"),
        cluster=inputs_pb2.ClusterSource(catalog_name="dgx-h100:2048"),
        training=training(4096),
    )
    question.training.all_synchronous_schedules = True
    return question


def test_an_operation_ends_in_the_answer_of_a_call(server: ServerProcess) -> None:
    operation = wait(server, create(server, 56).name)
    answer = answer_of(operation)
    assert planner.evaluate(plan_of(answer.plan)).ok
    request = pb.SolvePlanRequest(question=plan_question(training=training(56)))
    assert server.stub().SolvePlan(request, timeout=30) == answer
    got = operations(server).GetOperation(operations_pb2.GetOperationRequest(name=operation.name))
    assert got == operation
    kept = server.stub().GetPlan(pb.GetPlanRequest(plan_id=answer.plan_id), timeout=30)
    assert kept.plan == answer.plan


def test_bad_questions_are_refused_at_once(server: ServerProcess) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        create(server, 10**8)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_same_request_id_is_the_same_operation(server: ServerProcess) -> None:
    name = str(uuid.uuid4())
    first, second = (create(server, 72, request_id=name).name for _ in range(2))
    assert first == second
    with pytest.raises(grpc.RpcError) as caught:
        create(server, 80, request_id=name)
    assert reason_of(caught.value) == "REQUEST_ID_REUSED"


def test_progress_is_seen_and_cancel_frees_the_slot(server: ServerProcess) -> None:
    request = pb.CreatePlanRequest(question=long_question())
    name = server.stub().CreatePlan(request, timeout=30).name
    progress = pb.PlanProgress()
    deadline = time.monotonic() + 30
    while not progress.layouts_total_count:
        assert time.monotonic() < deadline
        got = operations(server).GetOperation(operations_pb2.GetOperationRequest(name=name))
        assert not got.done
        assert got.metadata.Unpack(progress)
        time.sleep(0.1)
    operations(server).CancelOperation(operations_pb2.CancelOperationRequest(name=name))
    operation = wait(server, name, 10)
    assert operation.done
    assert operation.error.code == grpc.StatusCode.CANCELLED.value[0]
    # Cancelling again changes nothing, and both slots work.
    operations(server).CancelOperation(operations_pb2.CancelOperationRequest(name=name))
    names = [create(server, 88 + 8 * i).name for i in range(4)]
    assert all(answer_of(wait(server, each)).plan.stages for each in names)


def test_listing_and_forgetting(server: ServerProcess) -> None:
    names = {create(server, 200 + 8 * i).name for i in range(3)}
    listed: list[str] = []
    token = ""
    while True:
        page = operations(server).ListOperations(
            operations_pb2.ListOperationsRequest(page_size=2, page_token=token)
        )
        assert len(page.operations) <= 2
        listed += [operation.name for operation in page.operations]
        token = page.next_page_token
        if not token:
            break
    assert names <= set(listed)
    assert len(listed) == len(set(listed))
    for name in names:
        operations(server).DeleteOperation(operations_pb2.DeleteOperationRequest(name=name))
        with pytest.raises(grpc.RpcError) as caught:
            operations(server).GetOperation(operations_pb2.GetOperationRequest(name=name))
        assert reason_of(caught.value) == "OPERATION_NOT_FOUND"


def test_waiting_ends_in_time(server: ServerProcess) -> None:
    request = pb.CreatePlanRequest(question=long_question())
    request.question.training.global_batch_size += 64
    name = server.stub().CreatePlan(request, timeout=30).name
    operation = wait(server, name, 0.2)
    assert not operation.done
    operations(server).DeleteOperation(operations_pb2.DeleteOperationRequest(name=name))


def test_what_a_stopped_server_leaves_another_goes_on_with(tmp_path: Path) -> None:
    """SIGTERM hands operations back; the next server, or another replica, takes them up."""
    store = ("--store", f"sqlite:///{tmp_path}/planner.db", "--drain-s", "0.5")
    with running_server(*ONE_SLOT, *store) as first:
        name = (
            first.stub().CreatePlan(pb.CreatePlanRequest(question=long_question()), timeout=30).name
        )
        waiting = [create(first, 32 + 8 * i).name for i in range(2)]
        time.sleep(0.5)
        first.terminate()
        assert first.wait(20) == 0
    with running_server(*ONE_SLOT, "--slots", "2", *store) as second:
        for each in waiting:
            assert answer_of(wait(second, each)).plan.stages
        got = operations(second).GetOperation(operations_pb2.GetOperationRequest(name=name))
        assert not got.done
        operations(second).CancelOperation(operations_pb2.CancelOperationRequest(name=name))
        assert wait(second, name, 10).done


def test_two_replicas_share_their_operations(tmp_path: Path) -> None:
    """Created on one, seen, waited for and cancelled on the other."""
    store = ("--store", f"sqlite:///{tmp_path}/planner.db", "--lease-s", "1.5")
    with running_server(*ONE_SLOT, *store) as one, running_server(*ONE_SLOT, *store) as other:
        name = create(one, 48).name
        assert answer_of(wait(other, name)).plan.stages
        request = pb.CreatePlanRequest(question=long_question())
        name = one.stub().CreatePlan(request, timeout=30).name
        operations(other).CancelOperation(operations_pb2.CancelOperationRequest(name=name))
        assert wait(one, name, 10).error.code == 1
        assert answer_of(wait(other, create(one, 64).name)).plan.stages
        # One dies: the other takes over what it was at.
        request = pb.CreatePlanRequest(question=plan_question(training=training(104)))
        name = one.stub().CreatePlan(request, timeout=30).name
        one.kill()
        assert answer_of(wait(other, name)).plan.stages


def test_waiting_for_a_worker_costs_no_time_to_solve() -> None:
    with running_server(*ONE_SLOT) as server:
        running = pb.CreatePlanRequest(question=long_question())
        running.limits.wall_time_s = 4
        first = server.stub().CreatePlan(running, timeout=30)
        later = []
        for batch in (32, 64, 96):
            request = pb.CreatePlanRequest(question=plan_question(training=training(batch)))
            request.limits.wall_time_s = 1
            later.append(server.stub().CreatePlan(request, timeout=30))
        for operation in later:
            found = plan_of(answer_of(wait(server, operation.name)).plan)
            assert found.status.value == "optimal"
        assert answer_of(wait(server, first.name)).HasField("termination")
