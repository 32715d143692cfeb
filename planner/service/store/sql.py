"""The plan store in a database: SQLite for one machine, PostgreSQL for several replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, exc, text

from planner.errors import InputError
from planner.service.store import sql_contents as contents
from planner.service.store import sql_operations as operations
from planner.service.store.errors import StoreError, StoreUnavailableError
from planner.service.store.records import (
    BegunRequest,
    Creation,
    HeldRequest,
    ModelRecord,
    NewPlan,
    OperationRecord,
    OperationState,
    Page,
    PlanRecord,
    StoreCounts,
)
from planner.service.store.sql_engine import begin, is_conflict, make_engine, translated
from planner.service.store.sql_presence import Presence, let_go
from planner.service.store.sql_schema import create_schema

__all__ = ["SqlStore", "open_sql_store"]

P = ParamSpec("P")
T = TypeVar("T")

POOL_SIZE = 8
SQLITE_READERS = 3
_TRIES = 4
"""Of a transaction that the database rolls back for another's sake."""


def open_sql_store(url: str, *, clock: Callable[[], float]) -> SqlStore:
    """Connect to a database and create the tables that it lacks."""
    engine = make_engine(url, pool_size=POOL_SIZE)
    presence = None
    try:
        if engine.dialect.name == "sqlite":
            presence = Presence(Path(str(engine.url.database)))
        _transact(engine, create_schema, write=True)
        if presence is not None:
            if presence.alone:
                _transact(engine, let_go, write=True)
            presence.share()
    except (StoreError, InputError):
        engine.dispose()
        if presence is not None:
            presence.close()
        raise
    return SqlStore(engine, clock=clock, presence=presence)


def _transact(engine: Engine, work: Callable[[Connection], T], *, write: bool) -> T:
    for left in reversed(range(_TRIES)):
        try:
            with begin(engine, write=write) as connection, connection.begin():
                return work(connection)
        except exc.SQLAlchemyError as error:
            lost = isinstance(error, exc.DBAPIError) and error.connection_invalidated
            if left and (is_conflict(error) or (lost and not write)):
                continue
            # Without the cause: its text holds the statement and may hold the URL.
            raise translated(error, engine.url) from None
    raise AssertionError


class SqlStore:
    """A `PlanStore` over SQLAlchemy Core, in threads of its own.

    SQLite gets one thread that writes, so that writers of one process queue instead of polling
    for the file's lock, and a few that read beside it.

    Parameters
    ----------
    engine
        An engine of `planner.service.store.sql_engine.make_engine` whose tables exist.
    clock
        Seconds since the epoch; called in the store's threads.
    presence
        What shows others that this store is open, until it is closed.
    """

    def __init__(
        self, engine: Engine, *, clock: Callable[[], float], presence: Presence | None = None
    ) -> None:
        self._engine = engine
        self._presence = presence
        self._clock = clock
        self._closed = False
        shared = engine.dialect.name == "postgresql"
        self._writers = ThreadPoolExecutor(POOL_SIZE if shared else 1, "plan-store")
        self._readers = (
            self._writers if shared else ThreadPoolExecutor(SQLITE_READERS, "plan-store-read")
        )

    # Operations

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
        return await self._write(
            operations.create_operation,
            caller=caller,
            method=method,
            request_bytes=request_bytes,
            request_hash=request_hash,
            ttl_s=ttl_s,
            request_id=request_id,
            owner=owner,
            lease_s=lease_s,
        )

    async def get_operation(self, name: str) -> OperationRecord | None:
        """See `PlanStore.get_operation`."""
        return await self._read(operations.get_operation, name)

    async def list_operations(
        self,
        *,
        caller: str | None,
        page_size: int = 100,
        page_token: str = "",
        full: bool = True,
    ) -> Page[OperationRecord]:
        """See `PlanStore.list_operations`."""
        return await self._read(
            operations.list_operations,
            caller=caller,
            page_size=page_size,
            page_token=page_token,
            full=full,
        )

    async def operation_versions(self, names: Collection[str]) -> dict[str, int]:
        """See `PlanStore.operation_versions`."""
        return await self._read(operations.operation_versions, names)

    async def update_progress(self, name: str, *, owner: str, progress_bytes: bytes) -> bool:
        """See `PlanStore.update_progress`."""
        return await self._write(
            operations.update_progress, name, owner=owner, progress_bytes=progress_bytes
        )

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
        return await self._write(
            operations.finish_operation,
            name,
            state=state,
            owner=owner,
            result_bytes=result_bytes,
            error_code=error_code,
            error_bytes=error_bytes,
        )

    async def request_cancel(
        self, name: str, *, error_code: int = 1, error_bytes: bytes = b""
    ) -> OperationRecord | None:
        """See `PlanStore.request_cancel`."""
        return await self._write(
            operations.request_cancel, name, error_code=error_code, error_bytes=error_bytes
        )

    async def delete_operation(self, name: str) -> bool:
        """See `PlanStore.delete_operation`."""
        return await self._write(operations.delete_operation, name)

    async def claim_operation(self, owner: str, *, lease_s: float) -> OperationRecord | None:
        """See `PlanStore.claim_operation`."""
        return await self._write(operations.claim_operation, owner, lease_s=lease_s)

    async def heartbeat(
        self, names: Collection[str], *, owner: str, lease_s: float
    ) -> frozenset[str]:
        """See `PlanStore.heartbeat`."""
        return await self._write(operations.heartbeat, names, owner=owner, lease_s=lease_s)

    async def release_operations(self, names: Collection[str], *, owner: str) -> frozenset[str]:
        """See `PlanStore.release_operations`."""
        return await self._write(operations.release_operations, names, owner=owner)

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
        return await self._write(
            contents.begin_request,
            caller=caller,
            method=method,
            request_id=request_id,
            request_hash=request_hash,
            owner=owner,
            lease_s=lease_s,
            ttl_s=ttl_s,
        )

    async def renew_requests(
        self, held: Collection[HeldRequest], *, lease_s: float
    ) -> frozenset[HeldRequest]:
        """See `PlanStore.renew_requests`."""
        return await self._write(contents.renew_requests, held, lease_s=lease_s)

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
        return await self._write(
            contents.finish_request,
            caller=caller,
            method=method,
            request_id=request_id,
            owner=owner,
            response_bytes=response_bytes,
            ttl_s=ttl_s,
        )

    async def abandon_request(
        self, *, caller: str, method: str, request_id: str, owner: str
    ) -> bool:
        """See `PlanStore.abandon_request`."""
        return await self._write(
            contents.abandon_request,
            caller=caller,
            method=method,
            request_id=request_id,
            owner=owner,
        )

    # Models

    async def put_model(self, content_hash: str, content: bytes, *, ttl_s: float) -> None:
        """See `PlanStore.put_model`."""
        await self._write(contents.put_model, content_hash, content, ttl_s=ttl_s)

    async def get_model(self, content_hash: str, *, ttl_s: float) -> ModelRecord | None:
        """See `PlanStore.get_model`."""
        model = await self._read(contents.get_model, content_hash)
        # SQLite writes the whole row again to move its expiry, which may be megabytes.
        until = self._now() + ttl_s
        if model is None or until - model.expires_at <= ttl_s / 10:
            return model
        await self._write(contents.keep_model, content_hash, ttl_s=ttl_s)
        return replace(model, expires_at=until)

    # Plans

    async def put_plans(self, plans: Sequence[NewPlan], *, ttl_s: float) -> None:
        """See `PlanStore.put_plans`."""
        await self._write(contents.put_plans, plans, ttl_s=ttl_s)

    async def get_plan(self, plan_id: str, *, caller: str | None) -> PlanRecord | None:
        """See `PlanStore.get_plan`."""
        return await self._read(contents.get_plan, plan_id, caller=caller)

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
        return await self._read(
            contents.list_plans,
            caller=caller,
            page_size=page_size,
            page_token=page_token,
            model=model,
            cluster=cluster,
            status=status,
            full=full,
        )

    # Upkeep

    async def purge_expired(self, now: float | None = None, *, limit: int = 1000) -> int:
        """See `PlanStore.purge_expired`."""

        def purge(connection: Connection, present: float) -> int:
            until = present if now is None else now
            return contents.purge_expired(connection, until, limit=limit)

        return await self._write(purge)

    async def counts(self) -> StoreCounts:
        """See `PlanStore.counts`."""
        return await self._read(contents.count_all)

    async def ping(self) -> None:
        """See `PlanStore.ping`."""

        def ask(connection: Connection, _now: float) -> None:
            connection.execute(text("SELECT version FROM stageplan_schema"))

        await self._read(ask)

    async def close(self) -> None:
        """See `PlanStore.close`."""
        if self._closed:
            return
        self._closed = True
        # What is under way ends first; the event loop does not wait for it.
        for executor in {self._writers, self._readers}:
            await asyncio.to_thread(executor.shutdown)
        await asyncio.to_thread(self._engine.dispose)
        if self._presence is not None:
            self._presence.close()

    async def _read(
        self,
        work: Callable[Concatenate[Connection, float, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._in(
            self._readers,
            False,
            lambda connection: work(connection, self._now(), *args, **kwargs),
        )

    async def _write(
        self,
        work: Callable[Concatenate[Connection, float, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._in(
            self._writers,
            True,
            lambda connection: work(connection, self._now(), *args, **kwargs),
        )

    def _now(self) -> float:
        # Read once the connection is there, not while the call still waits for it.
        return float(self._clock())

    async def _in(
        self, executor: ThreadPoolExecutor, write: bool, work: Callable[[Connection], T]
    ) -> T:
        if self._closed:
            raise StoreUnavailableError("the store was closed")
        call = partial(_transact, self._engine, work, write=write)
        return await asyncio.get_running_loop().run_in_executor(executor, call)
