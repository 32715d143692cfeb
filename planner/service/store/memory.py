"""The plan store of one process: everything in dictionaries, capped, gone at the end."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.service.store.bounded import BoundedMapping
from planner.service.store.errors import StoreFullError
from planner.service.store.memory_operations import MemoryCaps, MemoryOperations
from planner.service.store.paging import (
    check_keys,
    check_plan,
    checked_page_size,
    read_page_token,
    write_page_token,
)
from planner.service.store.records import (
    BegunRequest,
    HeldRequest,
    ModelRecord,
    NewPlan,
    OperationState,
    Page,
    PlanRecord,
    RequestOutcome,
    StoreCounts,
)

__all__ = ["MemoryCaps", "MemoryStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    request_hash: str
    owner: str
    lease_until: float
    expires_at: float
    response_bytes: bytes | None = None


class MemoryStore(MemoryOperations):
    """A `PlanStore` in memory. It has no locks: use it from one event loop.

    Parameters
    ----------
    caps
        How much it may hold.
    clock
        Seconds since the epoch.
    """

    def __init__(
        self, caps: MemoryCaps | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(caps, clock=clock)
        caps = self._caps
        self._requests: BoundedMapping[tuple[str, str, str], _Request] = BoundedMapping(
            "requests",
            max_entries=caps.requests,
            max_bytes=caps.request_bytes,
            size=lambda request: len(request.response_bytes or b""),
            stays=lambda request: (
                request.response_bytes is None and request.lease_until > self._clock()
            ),
        )
        self._models: BoundedMapping[str, ModelRecord] = BoundedMapping(
            "models",
            max_entries=caps.models,
            max_bytes=caps.model_bytes,
            size=lambda model: model.size,
        )
        self._plans: BoundedMapping[tuple[str, str], PlanRecord] = BoundedMapping(
            "plans",
            max_entries=caps.plans,
            max_bytes=caps.plan_bytes,
            size=lambda plan: len(plan.content),
        )

    # Idempotency keys

    async def begin_request(
        self,
        *,
        caller: str,
        method: str,
        request_id: str,
        request_hash: str,
        owner: str,
        lease_s: float,
        ttl_s: float,
    ) -> BegunRequest:
        """See `PlanStore.begin_request`."""
        now, key = self._now(), (caller, method, request_id)
        check_keys(caller=caller, method=method, request_id=request_id)
        check_keys(request_hash=request_hash, owner=owner)
        held = self._requests.get(key)
        if held is not None and held.expires_at > now:
            if held.request_hash != request_hash:
                return BegunRequest(outcome=RequestOutcome.CONFLICT)
            if held.response_bytes is not None:
                self._requests.use(key)
                return BegunRequest(outcome=RequestOutcome.DONE, response_bytes=held.response_bytes)
            if held.lease_until > now:
                return BegunRequest(
                    outcome=RequestOutcome.IN_PROGRESS,
                    owner=held.owner,
                    lease_until=held.lease_until,
                )
        until = now + lease_s
        self._requests.put(
            key,
            _Request(
                request_hash=request_hash,
                owner=owner,
                lease_until=until,
                expires_at=max(until, now + ttl_s),
            ),
        )
        return BegunRequest(outcome=RequestOutcome.FRESH, owner=owner, lease_until=until)

    async def renew_requests(
        self, held: Collection[HeldRequest], *, lease_s: float
    ) -> frozenset[HeldRequest]:
        """See `PlanStore.renew_requests`."""
        until = self._now() + lease_s
        kept = set()
        for each in held:
            key = (each.caller, each.method, each.request_id)
            found = self._requests.get(key)
            if found is None or found.response_bytes is not None or found.owner != each.owner:
                continue
            self._requests.put(key, replace(found, lease_until=until))
            kept.add(each)
        return frozenset(kept)

    async def finish_request(
        self,
        *,
        caller: str,
        method: str,
        request_id: str,
        owner: str,
        response_bytes: bytes,
        ttl_s: float,
    ) -> bool:
        """See `PlanStore.finish_request`."""
        now, key = self._now(), (caller, method, request_id)
        held = self._requests.get(key)
        if held is None or held.response_bytes is not None or held.owner != owner:
            return False
        self._requests.put(
            key, replace(held, response_bytes=response_bytes, expires_at=now + ttl_s)
        )
        return True

    async def abandon_request(
        self, *, caller: str, method: str, request_id: str, owner: str
    ) -> bool:
        """See `PlanStore.abandon_request`."""
        self._now()
        key = (caller, method, request_id)
        held = self._requests.get(key)
        if held is None or held.response_bytes is not None or held.owner != owner:
            return False
        self._requests.pop(key)
        return True

    # Models

    async def put_model(self, content_hash: str, content: bytes, *, ttl_s: float) -> None:
        """See `PlanStore.put_model`."""
        check_keys(content_hash=content_hash)
        expires_at = self._now() + ttl_s
        held = self._models.get(content_hash)
        if held is not None:
            expires_at = max(expires_at, held.expires_at)
        self._models.put(
            content_hash,
            ModelRecord(
                content_hash=content_hash,
                content=content,
                size=len(content),
                expires_at=expires_at,
            ),
        )

    async def get_model(self, content_hash: str, *, ttl_s: float) -> ModelRecord | None:
        """See `PlanStore.get_model`."""
        check_keys(content_hash=content_hash)
        now = self._now()
        model = self._models.get(content_hash)
        if model is None or model.expires_at <= now:
            return None
        if now + ttl_s - model.expires_at > ttl_s / 10:
            model = replace(model, expires_at=now + ttl_s)
        self._models.put(content_hash, model)
        return model

    # Plans

    async def put_plans(self, plans: Sequence[NewPlan], *, ttl_s: float) -> None:
        """See `PlanStore.put_plans`."""
        now = self._now()
        for plan in plans:
            check_plan(plan)
        if sum(len(plan.content) for plan in plans) > self._caps.plan_bytes:
            raise StoreFullError(
                f"these {len(plans)} plans are more than the {self._caps.plan_bytes} bytes that "
                "this server keeps in memory"
            )
        for plan in plans:
            key = (plan.caller, plan.plan_id)
            held = self._plans.get(key)
            if held is not None and held.expires_at > now:
                record = replace(held, expires_at=max(held.expires_at, now + ttl_s))
            else:
                record = PlanRecord(
                    plan_id=plan.plan_id,
                    caller=plan.caller,
                    content=plan.content,
                    labels=plan.labels,
                    created_at=now,
                    expires_at=now + ttl_s,
                )
            self._plans.put(key, record)

    async def get_plan(self, plan_id: str, *, caller: str | None) -> PlanRecord | None:
        """See `PlanStore.get_plan`."""
        check_keys(plan_id=plan_id, caller=caller)
        now = self._now()
        if caller is None:
            found = [
                plan
                for plan in self._plans.values()
                if plan.plan_id == plan_id and plan.expires_at > now
            ]
            return min(found, key=lambda plan: (plan.created_at, plan.caller), default=None)
        plan = self._plans.get((caller, plan_id))
        if plan is None or plan.expires_at <= now:
            return None
        self._plans.use((caller, plan_id))
        return plan

    async def list_plans(
        self,
        *,
        caller: str | None,
        page_size: int = 100,
        page_token: str = "",
        model: str | None = None,
        cluster: str | None = None,
        status: str | None = None,
        full: bool = False,
    ) -> Page[PlanRecord]:
        """See `PlanStore.list_plans`."""
        check_keys(caller=caller, model=model, cluster=cluster, status=status)
        now, size = self._now(), checked_page_size(page_size)
        filters = ("plans", caller, model, cluster, status)
        start = read_page_token(filters, page_token, 3)
        found = heapq.nlargest(
            size + 1,
            (
                plan
                for plan in self._plans.values()
                if plan.expires_at > now
                and caller in (None, plan.caller)
                and model in (None, plan.labels.model)
                and cluster in (None, plan.labels.cluster)
                and status in (None, plan.labels.status)
                and (start is None or (plan.created_at, plan.plan_id, plan.caller) < start)
            ),
            key=lambda plan: (plan.created_at, plan.plan_id, plan.caller),
        )
        token = ""
        if len(found) > size:
            last = found[size - 1]
            token = write_page_token(filters, (last.created_at, last.plan_id, last.caller))
        if not full:
            found = [replace(plan, content=b"") for plan in found]
        return Page(tuple(found[:size]), token)

    # Upkeep

    async def purge_expired(self, now: float | None = None, *, limit: int = 1000) -> int:
        """See `PlanStore.purge_expired`."""
        present = self._now()
        return self._purge(present if now is None else now, limit)

    async def counts(self) -> StoreCounts:
        """See `PlanStore.counts`."""
        self._now()
        operations = dict.fromkeys(OperationState, 0)
        for operation in self._operations.values():
            operations[operation.state] += 1
        return StoreCounts(
            operations=operations,
            requests=len(self._requests),
            models=len(self._models),
            model_bytes=self._models.total_bytes,
            plans=len(self._plans),
        )

    async def ping(self) -> None:
        """See `PlanStore.ping`."""
        self._now()

    async def close(self) -> None:
        """See `PlanStore.close`."""
        self._closed = True

    def _purge(self, now: float, limit: int) -> int:
        removed = self._purge_operations(now, limit)
        for kept in (self._requests, self._models, self._plans):
            removed += _purge_mapping(kept, now, limit)
        return removed


def _purge_mapping(kept: BoundedMapping[Any, Any], now: float, limit: int) -> int:
    expired = [key for key, value in kept.items() if value.expires_at <= now][:limit]
    for key in expired:
        kept.pop(key)
    return len(expired)
