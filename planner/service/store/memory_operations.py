"""Long-running operations in memory."""

from __future__ import annotations

import heapq
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from planner.errors import InputError
from planner.service.store.errors import StoreFullError, StoreUnavailableError
from planner.service.store.paging import (
    check_keys,
    checked_page_size,
    read_page_token,
    write_page_token,
)
from planner.service.store.records import Creation, OperationRecord, OperationState, Page

__all__ = ["MemoryCaps", "MemoryOperations", "alive"]


@dataclass(frozen=True, kw_only=True)
class MemoryCaps:
    """How much a store in memory may hold.

    Operations are never evicted: where they reach a cap, creating one more is refused. Models,
    plans and answered requests leave least recently used first.
    """

    operations: int = 10_000
    operation_bytes: int = 256 * 2**20
    requests: int = 100_000
    request_bytes: int = 64 * 2**20
    models: int = 1_000
    model_bytes: int = 512 * 2**20
    plans: int = 100_000
    plan_bytes: int = 512 * 2**20


class MemoryOperations:
    """The operations' half of `planner.service.store.memory.MemoryStore`."""

    def __init__(
        self, caps: MemoryCaps | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._caps = caps or MemoryCaps()
        self._clock = clock
        self._closed = False
        self._operations: dict[str, OperationRecord] = {}
        self._operation_bytes = 0
        self._unfinished: dict[str, None] = {}
        """Names in the order of their creation."""
        self._by_request_id: dict[tuple[str, str], str] = {}

    async def create_operation(
        self,
        *,
        caller: str,
        method: str,
        request_bytes: bytes,
        request_hash: str,
        ttl_s: float,
        request_id: str | None = None,
        owner: str | None = None,
        lease_s: float = 0.0,
    ) -> Creation:
        """See `PlanStore.create_operation`."""
        now = self._now()
        check_keys(caller=caller, method=method, request_id=request_id)
        check_keys(request_hash=request_hash, owner=owner)
        if request_id is not None:
            known = self._by_request_id.get((caller, request_id))
            existing = None if known is None else self._find(known, now)
            if existing is None and known is not None:
                self._forget(known)
            if existing is not None:
                same = (existing.method, existing.request_hash) == (method, request_hash)
                return Creation(operation=existing, created=False, conflict=not same)
        self._make_room(len(request_bytes), now)
        operation = OperationRecord(
            name=f"operations/{uuid.uuid4()}",
            caller=caller,
            method=method,
            request_id=request_id,
            request_hash=request_hash,
            request_bytes=request_bytes,
            state=OperationState.PENDING if owner is None else OperationState.RUNNING,
            attempts=0 if owner is None else 1,
            owner=owner,
            lease_until=None if owner is None else now + lease_s,
            created_at=now,
            updated_at=now,
            ttl_s=ttl_s,
        )
        self._keep(operation)
        if request_id is not None:
            self._by_request_id[caller, request_id] = operation.name
        return Creation(operation=operation, created=True)

    async def get_operation(self, name: str) -> OperationRecord | None:
        """See `PlanStore.get_operation`."""
        check_keys(name=name)
        return self._find(name, self._now())

    async def list_operations(
        self,
        *,
        caller: str | None,
        page_size: int = 100,
        page_token: str = "",
        full: bool = True,
    ) -> Page[OperationRecord]:
        """See `PlanStore.list_operations`."""
        check_keys(caller=caller)
        now, size, filters = self._now(), checked_page_size(page_size), ("operations", caller)
        start = read_page_token(filters, page_token, 2)
        found = heapq.nlargest(
            size + 1,
            (
                operation
                for operation in self._operations.values()
                if alive(operation.expires_at, now)
                and caller in (None, operation.caller)
                and (start is None or (operation.created_at, operation.name) < start)
            ),
            key=lambda operation: (operation.created_at, operation.name),
        )
        token = ""
        if len(found) > size:
            last = found[size - 1]
            token = write_page_token(filters, (last.created_at, last.name))
        if not full:
            found = [replace(each, request_bytes=b"", result_bytes=b"") for each in found]
        return Page(tuple(found[:size]), token)

    async def operation_versions(self, names: Collection[str]) -> dict[str, int]:
        """See `PlanStore.operation_versions`."""
        now = self._now()
        found = (self._find(name, now) for name in names)
        return {operation.name: operation.version for operation in found if operation is not None}

    async def update_progress(self, name: str, *, owner: str, progress_bytes: bytes) -> bool:
        """See `PlanStore.update_progress`."""
        check_keys(name=name, owner=owner)
        now = self._now()
        operation = self._running(name, owner)
        if operation is None:
            return False
        self._keep(
            replace(
                operation,
                progress_bytes=progress_bytes,
                version=operation.version + 1,
                updated_at=now,
            )
        )
        return True

    async def finish_operation(
        self,
        name: str,
        *,
        state: OperationState,
        owner: str | None = None,
        result_bytes: bytes = b"",
        error_code: int = 0,
        error_bytes: bytes = b"",
    ) -> bool:
        """See `PlanStore.finish_operation`."""
        check_keys(name=name, owner=owner)
        if not state.finished:
            raise InputError("is no final state", value=state.value)
        now = self._now()
        operation = self._operations.get(name)
        if operation is None or operation.state.finished or owner not in (None, operation.owner):
            return False
        self._keep(
            replace(
                operation,
                state=state,
                result_bytes=result_bytes,
                error_code=error_code,
                error_bytes=error_bytes,
                version=operation.version + 1,
                lease_until=None,
                updated_at=now,
                expires_at=now + operation.ttl_s,
            )
        )
        return True

    async def request_cancel(
        self, name: str, *, error_code: int = 1, error_bytes: bytes = b""
    ) -> OperationRecord | None:
        """See `PlanStore.request_cancel`."""
        await self.finish_operation(
            name,
            state=OperationState.CANCELLED,
            error_code=error_code,
            error_bytes=error_bytes,
        )
        return self._find(name, self._now())

    async def delete_operation(self, name: str) -> bool:
        """See `PlanStore.delete_operation`."""
        check_keys(name=name)
        alive = self._find(name, self._now()) is not None
        self._forget(name)
        return alive

    async def claim_operation(self, owner: str, *, lease_s: float) -> OperationRecord | None:
        """See `PlanStore.claim_operation`."""
        check_keys(owner=owner)
        now = self._now()
        for name in self._unfinished:
            operation = self._operations[name]
            if operation.lease_until is None or operation.lease_until < now:
                claimed = replace(
                    operation,
                    state=OperationState.RUNNING,
                    owner=owner,
                    lease_until=now + lease_s,
                    attempts=operation.attempts + 1,
                    version=operation.version + 1,
                    updated_at=now,
                )
                self._keep(claimed)
                return claimed
        return None

    async def heartbeat(
        self, names: Collection[str], *, owner: str, lease_s: float
    ) -> frozenset[str]:
        """See `PlanStore.heartbeat`."""
        until = self._now() + lease_s
        running = [self._running(name, owner) for name in names]
        kept = [operation for operation in running if operation is not None]
        for operation in kept:
            self._keep(replace(operation, lease_until=until))
        return frozenset(operation.name for operation in kept)

    async def release_operations(self, names: Collection[str], *, owner: str) -> frozenset[str]:
        """See `PlanStore.release_operations`."""
        now = self._now()
        running = [self._running(name, owner) for name in names]
        released = [operation for operation in running if operation is not None]
        for operation in released:
            self._keep(
                replace(
                    operation,
                    state=OperationState.PENDING,
                    owner=None,
                    lease_until=None,
                    attempts=operation.attempts - 1,
                    version=operation.version + 1,
                    updated_at=now,
                )
            )
        return frozenset(operation.name for operation in released)

    def _now(self) -> float:
        if self._closed:
            raise StoreUnavailableError("the store was closed")
        return float(self._clock())

    def _find(self, name: str, now: float) -> OperationRecord | None:
        operation = self._operations.get(name)
        if operation is None or not alive(operation.expires_at, now):
            return None
        return operation

    def _running(self, name: str, owner: str) -> OperationRecord | None:
        self._now()
        operation = self._operations.get(name)
        if (
            operation is None
            or operation.state is not OperationState.RUNNING
            or operation.owner != owner
        ):
            return None
        return operation

    def _keep(self, operation: OperationRecord) -> None:
        old = self._operations.get(operation.name)
        self._operation_bytes += _bytes_of(operation) - (0 if old is None else _bytes_of(old))
        self._operations[operation.name] = operation
        if operation.state.finished:
            self._unfinished.pop(operation.name, None)
        else:
            self._unfinished.setdefault(operation.name)

    def _forget(self, name: str) -> None:
        operation = self._operations.pop(name, None)
        if operation is None:
            return
        self._operation_bytes -= _bytes_of(operation)
        self._unfinished.pop(name, None)
        if operation.request_id is not None:
            self._by_request_id.pop((operation.caller, operation.request_id), None)

    def _make_room(self, size: int, now: float) -> None:
        if self._has_room(size):
            return
        self._purge_operations(now, len(self._operations))
        if not self._has_room(size):
            raise StoreFullError(
                f"no room for one more operation: this server keeps at most "
                f"{self._caps.operations} of them and {self._caps.operation_bytes} bytes in "
                "memory; delete finished ones, or let them expire"
            )

    def _has_room(self, size: int) -> bool:
        return (
            len(self._operations) < self._caps.operations
            and self._operation_bytes + size <= self._caps.operation_bytes
        )

    def _purge_operations(self, now: float, limit: int) -> int:
        expired = [
            name for name, each in self._operations.items() if not alive(each.expires_at, now)
        ][:limit]
        for name in expired:
            self._forget(name)
        return len(expired)


def alive(expires_at: float | None, now: float) -> bool:
    """Whether a record with this expiry is still there."""
    return expires_at is None or expires_at > now


def _bytes_of(operation: OperationRecord) -> int:
    return (
        len(operation.request_bytes)
        + len(operation.progress_bytes)
        + len(operation.result_bytes)
        + len(operation.error_bytes)
    )
