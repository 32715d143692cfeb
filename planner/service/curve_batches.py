"""``BatchComputeScalingCurves``: hundreds of jobs in one call, each with its own status."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from planner.service import errors
from planner.service.canonical import check_limits
from planner.service.engine import Asked, Engine
from planner.service.identity import Caller
from planner.service.wire import field_of_bytes
from planner.v1 import planner_service_pb2 as pb

__all__ = ["batch_of_curves"]

_IN_HAND_PER_SLOT = 3
"""Jobs of one batch that wait for a slot or have one: enough that no slot is ever idle."""
_LEAST_WAIT_S, _MOST_WAIT_S = 0.05, 0.5
"""When a job for which there was no room in the queue, or no hope, is put forward again."""
_METHOD = "BatchComputeScalingCurves"


async def batch_of_curves(
    engine: Engine, request: Any, caller: Caller, remaining_s: float | None
) -> AsyncIterator[bytes]:
    """Serialised responses, one a job, in order of completion.

    Jobs that are not done by the deadline are answered with JOB_STATUS_DEADLINE. Until then they
    wait for what is short: room in the queue and, as each is a request, the caller's quota.
    """
    settings = engine.settings
    engine.admit(caller)
    jobs = list(request.jobs)
    if len(jobs) > settings.max_jobs:
        raise errors.limit_exceeded("max_jobs", settings.max_jobs, len(jobs), "jobs")
    check_limits(request, settings)
    twice = [name for name, count in Counter(job.job_id for job in jobs).items() if count > 1]
    if twice:
        raise errors.invalid("jobs", f'job_id "{twice[0]}" is given twice')
    if request.request_id and not request.validate_only:
        await engine.request_ids.note(
            caller.name, _METHOD, request.request_id, _identity(engine, request)
        )
    loop = asyncio.get_running_loop()
    answer_by, _ = engine.deadlines(loop.time(), remaining_s)
    waiting = iter(jobs)
    running: dict[asyncio.Task[bytes], Any] = {}
    counted = True  # the first one by the call itself
    most = _IN_HAND_PER_SLOT * (settings.slots + 1)
    try:
        while True:
            for job in waiting:
                task = asyncio.create_task(
                    _one(engine, request, job, caller, answer_by, counted=counted)
                )
                counted = False
                running[task] = job
                if len(running) >= most:
                    break
            if not running:
                return
            done, _ = await asyncio.wait(
                running,
                timeout=max(0.0, answer_by - loop.time()),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not done:
                break
            for task in done:
                del running[task]
                yield task.result()
        for job in [*running.values(), *waiting]:
            yield _response(job, pb.JOB_STATUS_DEADLINE)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _one(
    engine: Engine, request: Any, job: Any, caller: Caller, answer_by: float, *, counted: bool
) -> bytes:
    while not counted and (wait_s := engine.wait_for_quota(caller)):
        await asyncio.sleep(wait_s)
    question = pb.ComputeScalingCurveRequest(
        validate_only=request.validate_only,
        question=job.question,
        limits=request.limits,
        expected=job.expected,
    )
    try:
        asked = await _ask(engine, question, caller, answer_by)
    except errors.ServiceError as error:
        status = pb.JOB_STATUS_FAILED
        if error.reason == "DEADLINE_PASSED":
            return _response(job, pb.JOB_STATUS_DEADLINE)
        if error.code.name in ("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"):
            status = pb.JOB_STATUS_INVALID
        return _response(job, status, error)
    head = pb.BatchComputeScalingCurvesResponse(job_id=job.job_id, status=pb.JOB_STATUS_DONE)
    serialised: bytes = head.SerializeToString()
    # Parts of one message may follow each other: the fields are merged when it is read.
    return serialised + field_of_bytes(3, asked.response)


async def _ask(engine: Engine, question: Any, caller: Caller, answer_by: float) -> Asked:
    """The answer; a full queue is waited out, since the job was accepted."""
    while True:
        remaining_s = answer_by - asyncio.get_running_loop().time()
        try:
            return await engine.ask(
                "ComputeScalingCurve", question, caller, remaining_s, counted=False
            )
        except errors.ServiceError as error:
            if error.reason not in ("QUEUE_FULL", "DEADLINE_UNREACHABLE"):
                raise
            soon_s = error.failure.retry_after_s or 0.0
            await asyncio.sleep(max(_LEAST_WAIT_S, min(_MOST_WAIT_S, soon_s)))


def _identity(engine: Engine, request: Any) -> str:
    asked = pb.BatchComputeScalingCurvesRequest()
    asked.CopyFrom(request)
    for job in asked.jobs:
        job.ClearField("expected")
    return engine.identity(_METHOD, asked)


def _response(job: Any, status: int, error: errors.ServiceError | None = None) -> bytes:
    response = pb.BatchComputeScalingCurvesResponse(job_id=job.job_id, status=status)  # type: ignore[arg-type]
    if error is not None:
        response.error.code = error.code.value[0]
        response.error.reason = error.reason
        response.error.message = error.message
        response.error.field = error.field
    serialised: bytes = response.SerializeToString()
    return serialised
