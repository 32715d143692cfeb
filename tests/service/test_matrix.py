"""Every RPC, and everything that can happen to it, against a real server process.

What a worker does is made to last for ever by stopping all workers with SIGSTOP, so that each
RPC can be cut off in the middle of its work however little that is.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import grpc
import pytest
from google.rpc import error_details_pb2
from rpcs import (
    NAMES_NOTHING,
    RPCS,
    SOLVING,
    Rpc,
    details_of,
    frozen_workers,
    plan_question,
    training,
)
from server_process import ServerProcess, running_server

from planner.v1 import common_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb

OK = grpc.StatusCode.OK
Code = grpc.StatusCode

_IN_FLIGHT_S = 0.3


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("--slots", "1", "--quick-slots", "1", "--spare-workers", "1") as started:
        yield started


def by_name(rpcs: tuple[Rpc, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rpc", rpcs, ids=[rpc.name for rpc in rpcs])


def fresh(rpc: Rpc) -> object:
    """A good request that no cache has seen."""
    request = rpc.good()
    fresh.count += 1  # type: ignore[attr-defined]
    batch = 64 + fresh.count  # type: ignore[attr-defined]
    if hasattr(request, "question"):
        request.question.training.global_batch_size = batch
    elif isinstance(request, pb.BatchComputeScalingCurvesRequest):
        request.jobs[0].question.training.global_batch_size = batch
    elif isinstance(request, pb.PartitionStagesRequest | pb.SimulateScheduleRequest):
        request.microbatch_count = batch
    elif isinstance(request, pb.EvaluatePlanRequest | pb.ExplainPlanRequest):
        request.request_id = f"fresh-{batch}"
        request.training.max_microbatch_size = batch
    elif isinstance(request, pb.PutModelRequest):
        request.model.text.name = f"model-{batch}"
    return request


fresh.count = 0  # type: ignore[attr-defined]


def serves(server: ServerProcess) -> None:
    """Each slot works: one question a lane, asked anew."""
    for rpc in SOLVING:
        if rpc.name in ("SolvePlan", "PartitionStages"):
            assert rpc.begin(server, fresh(rpc)).outcome() == (OK, "")


@by_name(RPCS)
def test_ok(server: ServerProcess, rpc: Rpc) -> None:
    code, _ = rpc.begin(server, rpc.good()).outcome()
    assert code is (Code.NOT_FOUND if rpc.name in NAMES_NOTHING else OK)


@by_name(RPCS)
def test_invalid(server: ServerProcess, rpc: Rpc) -> None:
    """INVALID_ARGUMENT with a reason and the field to blame."""
    with pytest.raises(grpc.RpcError) as caught:
        rpc.call(server, rpc.bad())
    assert caught.value.code() is Code.INVALID_ARGUMENT
    details = details_of(caught.value)
    infos = [d for d in details if isinstance(d, error_details_pb2.ErrorInfo)]
    fields = [d for d in details if isinstance(d, error_details_pb2.BadRequest)]
    assert infos[0].reason
    assert infos[0].domain == "planner.v1"
    assert fields[0].field_violations[0].description
    serves(server)


@by_name(SOLVING)
def test_the_client_cancels(server: ServerProcess, rpc: Rpc) -> None:
    with frozen_workers(server) as workers:
        call = rpc.begin(server, fresh(rpc))
        time.sleep(_IN_FLIGHT_S)
        call.cancel()
        assert call.outcome()[0] is Code.CANCELLED
        # The worker that does not listen is killed, and only that one.
        wait_for(lambda: len(server.orphans(workers)) == len(workers) - 1)
    serves(server)


@by_name(SOLVING)
def test_the_deadline_comes(server: ServerProcess, rpc: Rpc) -> None:
    """The server answers first: with ``unknown``, or with its own DEADLINE_EXCEEDED."""
    with frozen_workers(server):
        call = rpc.begin(server, fresh(rpc), timeout=1.0)
        if rpc.answers_late:
            assert late_answer(call.result())
        else:
            assert call.outcome() == (Code.DEADLINE_EXCEEDED, "DEADLINE_PASSED")
    serves(server)


def late_answer(answer: object) -> bool:
    if isinstance(answer, pb.BatchComputeScalingCurvesResponse):
        return answer.status == pb.JOB_STATUS_DEADLINE
    if isinstance(answer, pb.StreamPlanResponse):
        answer = answer.answer
    assert isinstance(answer, pb.SolvePlanResponse | pb.PartitionStagesResponse)
    ended = answer.termination
    return (
        answer.plan.status == plan_pb2.STATUS_UNKNOWN
        and ended.reason == common_pb2.TERMINATION_REASON_NO_SOLUTION_FOUND
        and ended.limit == common_pb2.TERMINATION_LIMIT_TIME
    )


@by_name(SOLVING)
def test_a_worker_is_killed(server: ServerProcess, rpc: Rpc) -> None:
    """Its question is asked once more, and nobody notices."""
    with frozen_workers(server) as workers:
        call = rpc.begin(server, fresh(rpc))
        time.sleep(_IN_FLIGHT_S)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        assert call.outcome() == (OK, "")
    serves(server)


def test_a_worker_is_killed_each_time(server: ServerProcess) -> None:
    """Twice is enough: the request fails, the server does not."""
    rpc = SOLVING[0]
    call = rpc.begin(server, fresh(rpc), timeout=60.0)
    code = None
    for _ in range(2):
        with frozen_workers(server) as workers:
            time.sleep(_IN_FLIGHT_S)
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda gone=workers: not server.orphans(gone) and len(server.workers()) >= 1)
    code, reason = call.outcome()
    assert (code, reason) in ((Code.INTERNAL, "WORKER_CRASHED"), (OK, ""))
    serves(server)


@by_name(tuple(rpc for rpc in SOLVING if rpc.name in ("SolvePlan", "StreamPlan")))
def test_the_memory_cap(server: ServerProcess, rpc: Rpc) -> None:
    request = fresh(rpc)
    request.question.cluster.catalog_name = "dgx-h100:2048"  # type: ignore[attr-defined]
    request.question.model.catalog_name = "llama3-405b"  # type: ignore[attr-defined]
    request.question.training.global_batch_size = 4096  # type: ignore[attr-defined]
    request.question.training.all_synchronous_schedules = True  # type: ignore[attr-defined]
    request.limits.memory_bytes = 1 << 20  # type: ignore[attr-defined]
    outcome = rpc.begin(server, request, timeout=60.0).outcome()
    assert outcome == (Code.RESOURCE_EXHAUSTED, "WORKER_MEMORY_LIMIT")
    serves(server)


def test_the_queue_is_full() -> None:
    flags = ("--slots", "1", "--quick-slots", "1", "--spare-workers", "0", "--queue-size", "1")
    with running_server(*flags) as server:
        for rpc in SOLVING:
            if rpc.name in ("CreatePlan", "BatchComputeScalingCurves"):
                continue  # they wait for their turn by themselves
            with frozen_workers(server):
                # Small ones may take the search's slot too: at most two run and one waits.
                first = [rpc.begin(server, fresh(rpc)) for _ in range(3)]
                time.sleep(_IN_FLIGHT_S)
                with pytest.raises(grpc.RpcError) as caught:
                    rpc.call(server, fresh(rpc))
                assert caught.value.code() is Code.RESOURCE_EXHAUSTED
                details = details_of(caught.value)
                assert details[0].reason == "QUEUE_FULL"
                retry = [d for d in details if isinstance(d, error_details_pb2.RetryInfo)]
                assert retry[0].retry_delay.ToNanoseconds() > 0
            outcomes = [call.outcome() for call in first]
            assert outcomes.count((OK, "")) >= 2
            assert set(outcomes) <= {(OK, ""), (Code.RESOURCE_EXHAUSTED, "QUEUE_FULL")}
        serves(server)


def test_sigterm_in_the_middle_of_everything() -> None:
    """Calls in flight end with a definite status, searches with what they hold; none is lost."""
    flags = ("--slots", "2", "--quick-slots", "1", "--spare-workers", "0", "--drain-s", "1")
    with running_server(*flags) as server:
        long = pb.SolvePlanRequest(question=plan_question(training=training(4096)))
        long.question.model.catalog_name = "llama3-405b"
        long.question.cluster.catalog_name = "dgx-h100:2048"
        long.question.training.all_synchronous_schedules = True
        search = SOLVING[0].begin(server, long, timeout=60.0)
        time.sleep(_IN_FLIGHT_S)
        calls = [rpc.begin(server, fresh(rpc), timeout=20.0) for rpc in SOLVING]
        time.sleep(0.05)
        workers = server.workers()
        server.terminate()
        answer = search.result()
        assert answer.termination.limit in (
            common_pb2.TERMINATION_LIMIT_INTERRUPTED,
            common_pb2.TERMINATION_LIMIT_NONE,
            common_pb2.TERMINATION_LIMIT_BOUND,
        )
        for call in calls:
            assert call.outcome()[0] in (OK, Code.UNAVAILABLE, Code.CANCELLED)
        assert server.wait(20.0) == 0
        assert not server.orphans(workers)


def test_the_server_is_killed_and_started_again(tmp_path: object) -> None:
    """UNAVAILABLE for all in flight, no orphan, and what was acknowledged is there."""
    store = ("--store", f"sqlite:///{tmp_path}/planner.db", "--lease-s", "1")
    flags = ("--slots", "1", "--quick-slots", "1", "--spare-workers", "0", *store)
    server = ServerProcess(*flags)
    workers = server.workers()
    try:
        made = rpc_named("CreatePlan").call(server, fresh(rpc_named("CreatePlan")))
        with frozen_workers(server):
            calls = [rpc.begin(server, fresh(rpc)) for rpc in SOLVING if rpc.name != "CreatePlan"]
            time.sleep(_IN_FLIGHT_S)
            server.kill()
            assert {call.outcome()[0] for call in calls} == {Code.UNAVAILABLE}
        wait_for(lambda: not server.orphans(workers))
    finally:
        server.kill()
    with running_server(*flags) as again:
        from google.longrunning import operations_pb2

        wait = operations_pb2.WaitOperationRequest(name=made.name)
        operation = rpc_named("WaitOperation").call(again, wait)
        assert operation.done
        answer = pb.SolvePlanResponse()
        assert operation.response.Unpack(answer)
        assert answer.plan.status == plan_pb2.STATUS_OPTIMAL
        serves(again)


def rpc_named(name: str) -> Rpc:
    return next(rpc for rpc in RPCS if rpc.name == name)


def wait_for(holds: object, timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)
