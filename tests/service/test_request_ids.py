"""One request id, one answer: while its call lives, after its server died, and for how long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from rpcs import SOLVING, frozen_workers, plan_question, reason_of, training
from server_process import ServerProcess, running_server
from store_places import begin, in_loop

from planner.service.errors import ServiceError
from planner.service.request_ids import RequestIds
from planner.service.settings import load_settings
from planner.service.store import RequestOutcome, StoreUnavailableError
from planner.service.store.memory import MemoryStore
from planner.v1 import common_pb2, inputs_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb

Code = grpc.StatusCode
ONE_SLOT = ("--slots", "1", "--quick-slots", "1", "--spare-workers", "0")
LEASE_S = 0.3
PINNED = {
    "SolvePlan", "StreamPlan", "PartitionStages", "EvaluatePlan", "ExplainPlan",
    "SimulateSchedule", "ComputeScalingCurve",
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(*ONE_SLOT) as started:
        yield started


def ids_of(store: MemoryStore, replica: str) -> RequestIds:
    return RequestIds(store, load_settings(lease_s=LEASE_S), replica)


def after(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


@in_loop
async def test_a_living_call_keeps_its_id_for_longer_than_a_lease() -> None:
    store = MemoryStore()
    begun = asyncio.Event()

    async def work() -> None:
        async with ids_of(store, "one").once("ann", "SolvePlan", "id", "h", after(60)) as slot:
            assert slot.known is None
            begun.set()
            await asyncio.sleep(4 * LEASE_S)
            slot.made = b"answer"

    working = asyncio.create_task(work())
    await begun.wait()
    async with ids_of(store, "two").once("ann", "SolvePlan", "id", "h", after(60)) as slot:
        assert slot.known == b"answer"
    await working


@in_loop
async def test_the_id_of_a_dead_server_is_free_after_a_lease() -> None:
    """However long the deadline was that its call had."""
    store = MemoryStore()
    dead = await begin(store, request_id="id", owner="dead", lease_s=LEASE_S)
    assert dead.outcome is RequestOutcome.FRESH
    ids, began = ids_of(store, "two"), time.monotonic()
    with pytest.raises(ServiceError, match="deadline"):
        async with ids.once("ann", "SolvePlan", "id", "hash", after(0)):
            pass
    async with ids.once("ann", "SolvePlan", "id", "hash", after(60)) as slot:
        assert slot.known is None
        assert LEASE_S * 0.9 < time.monotonic() - began < 10 * LEASE_S


@in_loop
async def test_an_answer_is_none_the_worse_for_a_store_that_fails() -> None:
    class Failing(MemoryStore):
        async def abandon_request(self, **_names: str) -> bool:
            raise StoreUnavailableError("gone")

    async with ids_of(Failing(), "one").once("ann", "SolvePlan", "id", "h", after(60)) as slot:
        assert slot.known is None


def test_a_retry_after_a_kill_is_computed_at_once(tmp_path: Path) -> None:
    """The new server is alone with the file: whoever had the id is gone."""
    flags = (*ONE_SLOT, "--store", f"sqlite:///{tmp_path}/planner.db", "--lease-s", "600")
    request = pb.SolvePlanRequest(
        request_id="killed", question=plan_question(training=training(48))
    )
    server = ServerProcess(*flags)
    try:
        with frozen_workers(server):
            call = server.stub().SolvePlan.future(request, timeout=300)
            time.sleep(0.5)
            server.kill()
            assert call.code() is Code.UNAVAILABLE
    finally:
        server.kill()
    with running_server(*flags) as again:
        answer = again.stub().SolvePlan(request, timeout=20)
        assert answer.plan.status == plan_pb2.STATUS_OPTIMAL
        assert again.stub().SolvePlan(request, timeout=20) == answer


def test_a_plan_that_time_left_unknown_is_not_kept(server: ServerProcess) -> None:
    stub = server.stub()
    request = pb.SolvePlanRequest(request_id="late", question=plan_question(training=training(144)))
    with frozen_workers(server):
        late = stub.SolvePlan(request, timeout=1.0)
    assert late.plan.status == plan_pb2.STATUS_UNKNOWN
    answer = stub.SolvePlan(request, timeout=60)
    assert answer.plan.status == plan_pb2.STATUS_OPTIMAL
    assert stub.SolvePlan(request, timeout=60) == answer


def test_pins_hold_for_answers_of_earlier_on(tmp_path: Path) -> None:
    """Of a server that kept them under their ids, and of the one after it."""
    flags = (*ONE_SLOT, "--store", f"sqlite:///{tmp_path}/planner.db")
    pinned = [rpc for rpc in SOLVING if rpc.name in PINNED]
    assert len(pinned) == len(PINNED)
    requests = {rpc.name: rpc.good() for rpc in pinned}
    for request in requests.values():
        request.request_id = "pinned"
    with running_server(*flags) as server:
        first = {rpc.name: rpc.call(server, requests[rpc.name]) for rpc in pinned}
    with running_server(*flags) as server:
        for rpc in pinned:
            request, answer = requests[rpc.name], first[rpc.name]
            revisions = (answer.answer if rpc.streams else answer).revisions
            for name in ("planner_version", "model_revision", "calibration_revision"):
                request.ClearField("expected")
                setattr(request.expected, name, getattr(revisions, name))
                assert rpc.call(server, request) == answer
                if name == "model_revision" and not revisions.model_revision:
                    break  # a schedule by its name is made from no model
                setattr(request.expected, name, "another")
                outcome = rpc.begin(server, request).outcome()
                assert outcome == (Code.FAILED_PRECONDITION, f"{name.upper()}_CHANGED")


def test_pins_of_what_is_made_from_no_model(server: ServerProcess) -> None:
    """Why nothing fits, and a schedule by its name: the version counts, kept or not."""
    stub = server.stub()
    question = plan_question(
        model=inputs_pb2.ModelSource(catalog_name="llama3-405b"), training=training(16)
    )
    plan = stub.SolvePlan(pb.SolvePlanRequest(question=question), timeout=60)
    assert plan.plan.status == plan_pb2.STATUS_INFEASIBLE
    explain = pb.ExplainPlanRequest(plan=plan_pb2.PlanSource(plan_id=plan.plan_id))
    simulate = pb.SimulateScheduleRequest(
        schedule=common_pb2.SCHEDULE_GPIPE, stage_count=3, microbatch_count=7
    )
    for method, request in ((stub.ExplainPlan, explain), (stub.SimulateSchedule, simulate)):
        for _ in range(2):
            request.expected.planner_version = "another"
            with pytest.raises(grpc.RpcError) as caught:
                method(request, timeout=30)
            assert reason_of(caught.value) == "PLANNER_VERSION_CHANGED"
            request.expected.planner_version = plan.revisions.planner_version
            answer = method(request, timeout=30)
    for _ in range(2):
        explain.expected.model_revision = plan.revisions.model_revision
        assert stub.ExplainPlan(explain, timeout=30).headline
        explain.expected.model_revision = "another"
        with pytest.raises(grpc.RpcError) as caught:
            stub.ExplainPlan(explain, timeout=30)
        assert reason_of(caught.value) == "MODEL_REVISION_CHANGED"
    assert answer.makespan_ms > 0
