"""Batches of curves: jobs wait for what is short, and count as requests do."""

from __future__ import annotations

import time
from collections import Counter

import grpc
import pytest
from rpcs import curve_question, frozen_workers, plan_question, reason_of, training
from server_process import ServerProcess, running_server

from planner.v1 import planner_service_pb2 as pb

Code = grpc.StatusCode
ONE_SLOT = ("--slots", "1", "--quick-slots", "1", "--spare-workers", "0")


def batch(count: int, first: int = 0, **fields: str) -> pb.BatchComputeScalingCurvesRequest:
    jobs = [
        pb.CurveJob(
            job_id=str(index), question=curve_question(training=training(16 * (first + index + 1)))
        )
        for index in range(count)
    ]
    return pb.BatchComputeScalingCurvesRequest(jobs=jobs, **fields)


def statuses(
    server: ServerProcess, request: pb.BatchComputeScalingCurvesRequest, timeout: float = 60.0
) -> Counter[tuple[str, str]]:
    stub = server.stub()
    return Counter(
        (pb.JobStatus.Name(answer.status), answer.error.reason)
        for answer in stub.BatchComputeScalingCurves(request, timeout=timeout)
    )


def refusal(server: ServerProcess, request: object) -> tuple[Code, str]:
    with pytest.raises(grpc.RpcError) as caught:
        statuses(server, request)  # type: ignore[arg-type]
    return caught.value.code(), reason_of(caught.value)


def test_jobs_wait_where_the_queue_is_full() -> None:
    """A job fails for its own reasons alone; where nothing moves, the deadline comes first."""
    with running_server(*ONE_SLOT, "--queue-size", "1") as server:
        assert statuses(server, batch(30)) == {("JOB_STATUS_DONE", ""): 30}
        with frozen_workers(server):
            began = time.monotonic()
            found = statuses(server, batch(30, first=100), timeout=2.0)
            assert time.monotonic() - began > 1.0
        assert found == {("JOB_STATUS_DEADLINE", ""): 30}
        bad = batch(3, first=200)
        bad.jobs[1].question.ClearField("clusters")
        found = statuses(server, bad)
        assert found == {("JOB_STATUS_DONE", ""): 2, ("JOB_STATUS_INVALID", "INVALID_ARGUMENT"): 1}


def test_an_id_is_of_one_batch() -> None:
    with running_server(*ONE_SLOT) as server:
        request = batch(2, request_id="batch")
        for _ in range(2):
            assert statuses(server, request) == {("JOB_STATUS_DONE", ""): 2}
        request.jobs[0].expected.planner_version = "another"
        assert statuses(server, request) == {
            ("JOB_STATUS_DONE", ""): 1,
            ("JOB_STATUS_INVALID", "PLANNER_VERSION_CHANGED"): 1,
        }
        request = batch(2, first=1, request_id="batch")
        assert refusal(server, request) == (Code.INVALID_ARGUMENT, "REQUEST_ID_REUSED")
        request.validate_only = True
        assert statuses(server, request) == {("JOB_STATUS_DONE", ""): 2}


def test_each_job_counts() -> None:
    """The call is refused without quota; of its jobs those beyond the quota wait."""
    quota = ("--caller-rate-per-s", "2", "--caller-burst", "3")
    with running_server(*ONE_SLOT, *quota) as server:
        began = time.monotonic()
        assert statuses(server, batch(7)) == {("JOB_STATUS_DONE", ""): 7}
        assert time.monotonic() - began > 1.5
    with running_server(*ONE_SLOT, "--caller-rate-per-s", "0.001", "--caller-burst", "3") as server:
        assert statuses(server, batch(4), timeout=3.0) == {
            ("JOB_STATUS_DONE", ""): 3,
            ("JOB_STATUS_DEADLINE", ""): 1,
        }
        assert refusal(server, batch(1)) == (Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
        with pytest.raises(grpc.RpcError) as caught:
            server.stub().SolvePlan(pb.SolvePlanRequest(question=plan_question()), timeout=30)
        assert reason_of(caught.value) == "QUOTA_EXCEEDED"
