"""From a question to its answer: what is kept, what is known already, and else a worker."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import Message

from planner.service import errors
from planner.service.cache import AnswerCache, CachedAnswer
from planner.service.canonical import Needs, check_limits, needs_of, request_hash
from planner.service.fair_queue import TokenBucket
from planner.service.frames import Answer
from planner.service.identity import Caller
from planner.service.lanes import lane_of
from planner.service.pool import Job, OutOfTimeError, Pool, PoolWatcher
from planner.service.request_ids import RequestIds
from planner.service.settings import ServiceSettings
from planner.service.store import NewPlan, PlanLabels, PlanStore, StoreError
from planner.v1 import common_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb

__all__ = ["Asked", "Engine", "Watcher"]

log = logging.getLogger(__name__)

_STORE_S = 2.0
"""How long an answer waits for the store that keeps its plans."""
_LEAST_S = 0.06
"""An answer leaves at least 50 ms before the caller's deadline; the rest is the way out."""
_SOLVER_STOPS_BEFORE_S = 0.4
"""The solver is asked to stop so much before the answer has to leave, or a fifth of the time."""
_NO_SOLUTION = "TERMINATION_REASON_NO_SOLUTION_FOUND"
_KEPT_MODEL_BYTES = 64 << 20
_MODEL_OF_SKETCH = re.compile(rb'"model_content_hash": "([0-9a-f]{64})"')

_HASHED_AS = {"StreamPlan": "SolvePlan", "CreatePlan": "SolvePlan"}
"""Methods whose questions have the same answers."""
_UNKNOWN_WHEN_LATE = {
    "SolvePlan": pb.SolvePlanResponse,
    "StreamPlan": pb.SolvePlanResponse,
    "PartitionStages": pb.PartitionStagesResponse,
}
"""Methods that answer ``unknown`` where the deadline comes first; others fail."""
_ANSWERS: dict[str, Any] = {
    "SolvePlan": pb.SolvePlanResponse,
    "StreamPlan": pb.SolvePlanResponse,
    "PartitionStages": pb.PartitionStagesResponse,
    "EvaluatePlan": pb.EvaluatePlanResponse,
    "ExplainPlan": pb.ExplainPlanResponse,
    "SimulateSchedule": pb.SimulateScheduleResponse,
    "ComputeScalingCurve": pb.CurveAnswer,
}
"""What methods whose requests may pin revisions answer."""


class Watcher(PoolWatcher, Protocol):
    """Who is told what happens (the metrics)."""

    def observe_solve(self, method: str, seconds: float) -> None:
        """A worker was at a question for so long."""
        ...

    def terminated(self, reason: str, limit: str, gap: float | None) -> None:
        """How a solve ended."""
        ...

    def cache(self, result: str) -> None:
        """``hit`` or ``miss``."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A response and how it came about."""

    response: bytes
    cached: bool = False
    queue_s: float = 0.0
    solve_s: float = 0.0
    kept: bool = True
    """Whether a retry gets it again: not where time or a lost worker left it without a plan."""


class Engine:
    """Answers questions for a server."""

    def __init__(
        self, settings: ServiceSettings, pool: Pool, store: PlanStore, watcher: Watcher
    ) -> None:
        self.settings = settings
        self.pool = pool
        self.store = store
        self.cache = AnswerCache(settings.cache_bytes)
        self.replica = uuid.uuid4().hex[:12]
        self.draining = False
        self.request_ids = RequestIds(store, settings, self.replica)
        self._watcher = watcher
        self._buckets: dict[str, TokenBucket] = {}
        self._models: OrderedDict[str, bytes] = OrderedDict()
        self._model_bytes = 0

    # --- one question -------------------------------------------------------------------------

    async def ask(
        self,
        method: str,
        request: Message,
        caller: Caller,
        remaining_s: float | None,
        *,
        on_progress: Callable[[bytes], None] | None = None,
        counted: bool = True,
        solve_s: float | None = None,
    ) -> Asked:
        """Answer a request message.

        Parameters
        ----------
        remaining_s
            Until the caller's deadline; None: there is none.
        on_progress
            Gets messages on the way, serialised.
        counted
            Whether it counts against the caller's quota.
        solve_s
            Seconds of solving that begin when it is its turn, for a question that nobody waits
            for; ``remaining_s`` is then the longest it may wait.

        Raises
        ------
        ServiceError
            What a caller is told instead of an answer.
        """
        self.admit(caller, counted=counted)
        check_limits(request, self.settings)
        key = self.key(method, request)
        now = asyncio.get_running_loop().time()
        request_id = getattr(request, "request_id", "")
        if getattr(request, "validate_only", False):
            return await self._solve(method, request, key, caller, now, remaining_s, None, solve_s)
        hit = self._from_cache(key, request)
        if hit is not None and not request_id:
            return Asked(hit.response, cached=True)
        if not request_id:
            return await self._solve(
                method, request, key, caller, now, remaining_s, on_progress, solve_s
            )
        identity = self.identity(method, request)
        answer_by, _ = self.deadlines(now, remaining_s)
        async with self.request_ids.once(
            caller.name, method, request_id, identity, answer_by
        ) as slot:
            if slot.known is not None:
                _check_replay(method, request, slot.known)
                return Asked(slot.known, cached=True)
            if hit is not None:
                asked = Asked(hit.response, cached=True)
            else:
                asked = await self._solve(
                    method, request, key, caller, now, remaining_s, on_progress, solve_s
                )
            if asked.kept:
                slot.made = asked.response
            return asked

    def key(self, method: str, request: Message) -> str:
        """What the answer to a request is kept under."""
        versions = self.pool.versions
        version = f"{versions.planner_version}+{versions.catalog_revision}" if versions else ""
        return request_hash(_HASHED_AS.get(method, method), request, version)

    @staticmethod
    def identity(method: str, request: Message) -> str:
        """What makes a request the same request under its id, also after an upgrade."""
        return request_hash(_HASHED_AS.get(method, method), request, "")

    def _from_cache(self, key: str, request: Any) -> CachedAnswer | None:
        hit = self.cache.get(key)
        if hit is None:
            return None
        _check_pins(request, self._version(), *hit.revisions)
        self._watcher.cache("hit")
        return hit

    def _version(self) -> str:
        return self.pool.versions.planner_version if self.pool.versions else ""

    def admit(self, caller: Caller, *, counted: bool = True) -> None:
        """Let a call in.

        Raises
        ------
        ServiceError
            The server is about to end, or the caller's quota is used up.
        """
        if self.draining:
            raise errors.draining(1.0)
        wait = self.wait_for_quota(caller) if counted else 0.0
        if wait:
            raise errors.quota_exceeded(caller.name, wait)

    def wait_for_quota(self, caller: Caller) -> float:
        """Count a question against its caller's quota: 0, or the seconds until there is room."""
        rate = caller.rate_per_s or self.settings.caller_rate_per_s
        if rate is None:
            return 0.0
        bucket = self._buckets.get(caller.name)
        if bucket is None:
            burst = caller.burst or self.settings.caller_burst
            bucket = self._buckets[caller.name] = TokenBucket(rate, burst)
        return bucket.take()

    async def _solve(
        self,
        method: str,
        request: Any,
        key: str,
        caller: Caller,
        now: float,
        remaining_s: float | None,
        on_progress: Callable[[bytes], None] | None,
        solve_s: float | None,
    ) -> Asked:
        answer_by, solve_by = self.deadlines(now, remaining_s)
        if solve_s is not None and remaining_s is not None:
            answer_by = solve_by = now + remaining_s
        if remaining_s is not None and answer_by <= now:
            raise errors.deadline_passed()
        if self.pool.versions:
            _check_pins(request, self._version())  # of model and calibration the worker knows
        limits = getattr(request, "limits", None)
        job = Job(
            method=method,
            request=request.SerializeToString(),
            caller=caller.name,
            lane=lane_of(method, request),
            answer_by=answer_by,
            solve_by=solve_by,
            weight=caller.weight,
            request_hash=key,
            memory_bytes=(limits.memory_bytes or None) if limits is not None else None,
            on_progress=on_progress,
            solve_s=None if solve_s is None else min(solve_s, self.settings.max_wall_time_s),
        )
        self.pool.refuse_if_full(job)
        needs = needs_of(request)
        if needs.model_hashes or needs.plan_ids:
            await self._fetch(needs, job)
        self._watcher.cache("miss")
        try:
            answer = await self.pool.run(job)
        except OutOfTimeError:
            return Asked(self._late(method, key), queue_s=job.queued_s, kept=False)
        self._watcher.observe_solve(method, answer.solve_s)
        if answer.reason:
            self._watcher.terminated(answer.reason, answer.limit, answer.gap)
        await self._keep(
            answer, key, caller, cacheable=not getattr(request, "validate_only", False)
        )
        kept = answer.final or answer.reason != _NO_SOLUTION
        return Asked(answer.response, queue_s=job.queued_s, solve_s=answer.solve_s, kept=kept)

    def deadlines(self, now: float, remaining_s: float | None) -> tuple[float, float]:
        """By when the answer has to leave the worker, and by when the solver is to stop."""
        settings = self.settings
        if remaining_s is None:
            remaining_s = settings.default_wall_time_s
        remaining_s = min(remaining_s, settings.max_wall_time_s)
        answer_by = (
            now + remaining_s - max(_LEAST_S, min(settings.answer_margin_s, remaining_s / 5))
        )
        return answer_by, answer_by - min(_SOLVER_STOPS_BEFORE_S, remaining_s / 5)

    def _late(self, method: str, key: str) -> bytes:
        kind = _UNKNOWN_WHEN_LATE.get(method)
        if kind is None:
            raise errors.deadline_passed()
        response = kind(
            plan=plan_pb2.Plan(status=plan_pb2.STATUS_UNKNOWN),
            termination=common_pb2.Termination(
                reason=common_pb2.TERMINATION_REASON_NO_SOLUTION_FOUND,
                limit=common_pb2.TERMINATION_LIMIT_TIME,
            ),
            revisions=common_pb2.Revisions(planner_version=self._version(), request_hash=key),
        )
        self._watcher.terminated(_NO_SOLUTION, "TERMINATION_LIMIT_TIME", None)
        return response.SerializeToString(deterministic=True)

    # --- what is kept -------------------------------------------------------------------------

    async def _fetch(self, needs: Needs, job: Job) -> None:
        for content_hash in needs.model_hashes:
            job.models[content_hash] = await self.model_bytes(content_hash)
        for plan_id in needs.plan_ids:
            record = await self.store.get_plan(plan_id, caller=None)
            if record is None:
                raise errors.not_found("plan", plan_id)
            job.plans[plan_id] = record.content
            named = _MODEL_OF_SKETCH.search(record.content)
            if named is not None:
                # Plans of curves name the model that was sent; where it is gone they say so.
                with suppress(errors.ServiceError):
                    content_hash = named.group(1).decode()
                    job.models[content_hash] = await self.model_bytes(content_hash)

    async def model_bytes(self, content_hash: str) -> bytes:
        """A model that was sent before.

        Raises
        ------
        ServiceError
            MODEL_NOT_FOUND.
        """
        found = self._models.get(content_hash)
        if found is not None:
            self._models.move_to_end(content_hash)
            return found
        record = await self.store.get_model(content_hash, ttl_s=self.settings.model_ttl_s)
        if record is None:
            raise errors.model_not_found(content_hash)
        self._models[content_hash] = record.content
        self._model_bytes += len(record.content)
        while self._model_bytes > _KEPT_MODEL_BYTES and len(self._models) > 1:
            _, dropped = self._models.popitem(last=False)
            self._model_bytes -= len(dropped)
        return record.content

    async def _keep(self, answer: Answer, key: str, caller: Caller, *, cacheable: bool) -> None:
        if answer.plans:
            plans = [
                NewPlan(
                    plan_id=name, caller=caller.name, content=content, labels=PlanLabels(**labels)
                )
                for name, content, labels in answer.plans
            ]
            try:
                async with asyncio.timeout(_STORE_S):
                    await self.store.put_plans(plans, ttl_s=self.settings.plan_ttl_s)
            except (StoreError, TimeoutError) as error:
                # The answer is none the worse for it; only GetPlan will not find it.
                log.warning("a plan is answered but not kept: %s", error or "the store is slow")
        if cacheable and answer.final:
            self.cache.put(key, CachedAnswer(answer.response, answer.revisions))


def _check_replay(method: str, request: Any, response: bytes) -> None:
    """Hold an answer of earlier on against the pins of the call that asks for it again."""
    if method in _ANSWERS and request.HasField("expected"):
        made = _ANSWERS[method].FromString(response).revisions
        _check_pins(request, made.planner_version, made.model_revision, made.calibration_revision)


def _check_pins(request: Any, version: str, model: str = "", calibration: str = "") -> None:
    """Raise where a request pins other revisions than an answer's.

    An answer that is made from no model, as of a schedule by its name, has a version alone.
    """
    if "expected" not in request.DESCRIPTOR.fields_by_name:
        return
    actual = {"planner_version": version}
    if model or calibration:
        actual |= {"model_revision": model, "calibration_revision": calibration}
    errors.check_pins(request.expected, actual)
