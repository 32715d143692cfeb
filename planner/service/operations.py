"""``CreatePlan`` and ``google.longrunning.Operations``: plans that outlive their calls.

An operation lies in the store before its name is answered. A replica runs what it created, and
what nobody runs: operations of replicas that died (their lease lapsed) or were shut down.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any

import grpc
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2
from google.rpc import status_pb2

from planner.service import errors
from planner.service.canonical import check_limits, parse
from planner.service.engine import Engine
from planner.service.identity import Caller, Role, current_caller
from planner.service.store import OperationRecord, OperationState
from planner.v1 import planner_service_pb2 as pb

__all__ = ["Operations"]

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]

_LONGEST_WAIT_S = 60.0
_LOOK_EVERY_S = 0.25
"""How often a waiting call looks at the store, where another replica may have finished."""
_CLAIM_EVERY_S = 1.0
_LONGEST_WAIT_S = 24 * 3600.0
"""How long an operation may wait for a worker."""
_PROGRESS_EVERY_S = 0.5
_MOST_ATTEMPTS = 3
"""Starts after which an operation that took its replica down each time is failed."""
_PURGE_EVERY_S = 60.0
_RESPONSE_TYPE = "type.googleapis.com/planner.v1.SolvePlanResponse"
_METADATA_TYPE = "type.googleapis.com/planner.v1.PlanProgress"


class Operations:
    """Runs operations, and answers for them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._settings = engine.settings
        self._running: dict[str, asyncio.Task[None]] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._closing = False
        self._durable = not engine.settings.store.startswith("memory:")
        """Whether somebody can go on with what is not finished here."""

    def start(self) -> None:
        """Begin to look for operations that nobody runs, and to renew the leases of one's own."""
        self._watching = [
            asyncio.create_task(self._claim(), name="claims operations"),
            asyncio.create_task(self._renew(), name="renews leases"),
            asyncio.create_task(self._purge(), name="purges the store"),
        ]

    def handlers(self) -> grpc.GenericRpcHandler[Any, Any]:
        """The methods of google.longrunning.Operations."""
        methods = {
            "GetOperation": self.get,
            "ListOperations": self.list,
            "WaitOperation": self.wait,
            "CancelOperation": self.cancel,
            "DeleteOperation": self.delete,
        }
        return grpc.method_handlers_generic_handler(
            "google.longrunning.Operations",
            {name: grpc.unary_unary_rpc_method_handler(f) for name, f in methods.items()},
        )

    # --- calls --------------------------------------------------------------------------------

    async def create(
        self, request: Any, caller: Caller, remaining_s: float | None
    ) -> operations_pb2.Operation:
        """Put an operation into the store, and start it here."""
        engine = self._engine
        if engine.draining:
            raise errors.draining(1.0)
        check_limits(request, self._settings)
        check = pb.CreatePlanRequest()
        check.CopyFrom(request)
        check.validate_only, check.request_id = True, ""
        asked = await engine.ask("CreatePlan", check, caller, remaining_s)
        if request.validate_only:
            done = operations_pb2.Operation(done=True)
            done.response.type_url = _RESPONSE_TYPE
            done.response.value = asked.response
            return done
        creation = await engine.store.create_operation(
            caller=caller.name,
            method="CreatePlan",
            request_bytes=request.SerializeToString(),
            request_hash=engine.identity("CreatePlan", request),
            ttl_s=self._settings.operation_ttl_s,
            request_id=request.request_id or None,
            owner=engine.replica,
            lease_s=self._settings.lease_s,
        )
        if creation.conflict:
            raise errors.request_id_reused(request.request_id)
        if creation.created:
            self._begin(creation.operation, caller)
        return _operation(creation.operation)

    async def get(self, data: bytes, context: Context) -> bytes:
        """One operation."""
        request = parse(operations_pb2.GetOperationRequest, data)
        return _serialised(_operation(await self._find(request.name)))

    async def list(self, data: bytes, context: Context) -> bytes:
        """The caller's operations, newest first; an admin's list is everybody's."""
        request = parse(operations_pb2.ListOperationsRequest, data)
        if request.filter:
            raise errors.invalid("filter", "is not supported")
        if request.page_size < 0:
            raise errors.invalid("page_size", f"{request.page_size} is negative")
        caller = current_caller.get()
        page = await self._engine.store.list_operations(
            caller=None if caller.role is Role.ADMIN else caller.name,
            page_size=min(request.page_size or 50, 1000),
            page_token=request.page_token,
        )
        response = operations_pb2.ListOperationsResponse(
            operations=[_operation(record) for record in page.items],
            next_page_token=page.next_page_token,
        )
        return _serialised(response)

    async def wait(self, data: bytes, context: Context) -> bytes:
        """Return when an operation is done or the time is up, whichever comes first."""
        request = parse(operations_pb2.WaitOperationRequest, data)
        record = await self._find(request.name)
        left = context.time_remaining()
        longest = _LONGEST_WAIT_S if left is None else max(0.0, left - 0.1)
        if request.HasField("timeout"):
            longest = min(longest, max(0.0, request.timeout.seconds + request.timeout.nanos / 1e9))
        until = time.monotonic() + longest
        while not record.state.finished and not self._closing:
            left_s = until - time.monotonic()
            if left_s <= 0:
                break
            changed = self._changed
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _LOOK_EVERY_S)):
                    await changed.wait()
            versions = await self._engine.store.operation_versions([record.name])
            if versions.get(record.name) != record.version:
                record = await self._find(request.name)
        return _serialised(_operation(record))

    async def cancel(self, data: bytes, context: Context) -> bytes:
        """Cancel an operation; one that has finished stays as it is."""
        request = parse(operations_pb2.CancelOperationRequest, data)
        await self._find(request.name)
        await self._engine.store.request_cancel(
            request.name, error_code=1, error_bytes=errors.cancelled().to_bytes()
        )
        self._stop(request.name)
        self._tell()
        return _serialised(empty_pb2.Empty())

    async def delete(self, data: bytes, context: Context) -> bytes:
        """Forget an operation, and stop it if it still runs."""
        request = parse(operations_pb2.DeleteOperationRequest, data)
        await self._find(request.name)
        await self._engine.store.delete_operation(request.name)
        self._stop(request.name)
        self._tell()
        return _serialised(empty_pb2.Empty())

    async def _find(self, name: str) -> OperationRecord:
        if not name:
            raise errors.invalid("name", "is missing")
        record = await self._engine.store.get_operation(name)
        caller = current_caller.get()
        if record is None or not caller.may_touch(record.caller):
            # Whether somebody else has one of that name is nobody's business.
            raise errors.not_found("operation", name)
        return record

    # --- running ------------------------------------------------------------------------------

    def _begin(self, record: OperationRecord, caller: Caller) -> None:
        task = asyncio.create_task(self._run(record, caller), name=record.name)
        self._running[record.name] = task
        task.add_done_callback(lambda _: self._running.pop(record.name, None))

    async def _run(self, record: OperationRecord, caller: Caller) -> None:
        store, owner = self._engine.store, self._engine.replica
        progress = _LatestProgress()
        telling = asyncio.create_task(self._tell_progress(record.name, progress))
        try:
            request = pb.CreatePlanRequest.FromString(record.request_bytes)
            request.request_id = ""
            wall_s = request.limits.wall_time_s or self._settings.default_wall_time_s
            asked = await self._ask(request, caller, wall_s, progress)
            if self._engine.draining and self._durable and _interrupted(asked):
                return  # handed back: another replica, or the next start, goes on
            await store.finish_operation(
                record.name, state=OperationState.SUCCEEDED, owner=owner, result_bytes=asked
            )
        except errors.ServiceError as error:
            if error.reason == "DRAINING" and self._durable:
                return
            await self._fail(record.name, error)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s failed", record.name)
            await self._fail(record.name, errors.internal())
        finally:
            telling.cancel()
            self._tell()

    async def _ask(
        self, request: Any, caller: Caller, wall_s: float, progress: _LatestProgress
    ) -> bytes:
        """The answer; a full queue is waited out, since the operation was accepted."""
        while True:
            try:
                asked = await self._engine.ask(
                    "CreatePlan", request, caller, _LONGEST_WAIT_S, on_progress=progress.take,
                    counted=False, solve_s=wall_s,
                )  # fmt: skip
            except errors.ServiceError as error:
                if error.reason not in ("QUEUE_FULL", "DEADLINE_UNREACHABLE"):
                    raise
                await asyncio.sleep(0.2 + min(2.0, error.failure.retry_after_s or 0.0))
            else:
                return asked.response

    async def _fail(self, name: str, error: errors.ServiceError) -> None:
        with suppress(Exception):
            await self._engine.store.finish_operation(
                name,
                state=OperationState.FAILED,
                owner=self._engine.replica,
                error_code=error.code.value[0],
                error_bytes=error.to_bytes(),
            )

    async def _tell_progress(self, name: str, progress: _LatestProgress) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_EVERY_S)
            message = progress.new()
            if message is None:
                continue
            with suppress(Exception):
                await self._engine.store.update_progress(
                    name, owner=self._engine.replica, progress_bytes=message
                )
                self._tell()

    def _stop(self, name: str) -> None:
        task = self._running.get(name)
        if task is not None:
            task.cancel()

    def _tell(self) -> None:
        """Wake the calls that wait here."""
        self._changed.set()
        self._changed = asyncio.Event()

    # --- upkeep -------------------------------------------------------------------------------

    async def _claim(self) -> None:
        while True:
            try:
                await self._claim_one()
            except Exception as error:
                log.warning("operations cannot be claimed: %s", error)
            await asyncio.sleep(_CLAIM_EVERY_S)

    async def _claim_one(self) -> None:
        while not self._engine.draining and len(self._running) < 4 * self._settings.slots:
            record = await self._engine.store.claim_operation(
                self._engine.replica, lease_s=self._settings.lease_s
            )
            if record is None:
                return
            if record.attempts > _MOST_ATTEMPTS:
                log.error("%s ended its replica %d times", record.name, record.attempts - 1)
                await self._fail(record.name, errors.worker_crashed("several times"))
                continue
            log.info("%s is taken up (attempt %d)", record.name, record.attempts)
            self._begin(record, Caller(record.caller, Role.PLAN))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            names = list(self._running)
            if not names:
                continue
            try:
                kept = await self._engine.store.heartbeat(
                    names, owner=self._engine.replica, lease_s=self._settings.lease_s
                )
            except Exception as error:
                log.warning("leases cannot be renewed: %s", error)
                continue
            for name in set(names) - kept:
                self._stop(name)

    async def _purge(self) -> None:
        while True:
            await asyncio.sleep(_PURGE_EVERY_S)
            with suppress(Exception):
                await self._engine.store.purge_expired()

    async def close(self) -> None:
        """Hand back what is not finished."""
        self._closing = True
        self._tell()
        names = list(self._running)
        for task in self._watching:
            task.cancel()
        if names:
            with suppress(Exception):
                await self._engine.store.release_operations(names, owner=self._engine.replica)
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._watching, *self._running.values(), return_exceptions=True)

    @property
    def running(self) -> int:
        """How many run here."""
        return len(self._running)


class _LatestProgress:
    """The newest message on the way, until it has been told."""

    def __init__(self) -> None:
        self._message: bytes | None = None

    def take(self, message: bytes) -> None:
        self._message = message

    def new(self) -> bytes | None:
        message, self._message = self._message, None
        return message


def _interrupted(response: bytes) -> bool:
    from planner.v1 import common_pb2

    limit = pb.SolvePlanResponse.FromString(response).termination.limit
    return bool(limit == common_pb2.TERMINATION_LIMIT_INTERRUPTED)


def _operation(record: OperationRecord) -> operations_pb2.Operation:
    operation = operations_pb2.Operation(name=record.name, done=record.state.finished)
    operation.metadata.type_url = _METADATA_TYPE
    operation.metadata.value = record.progress_bytes
    if record.state is OperationState.SUCCEEDED:
        operation.response.type_url = _RESPONSE_TYPE
        operation.response.value = record.result_bytes
    elif record.state.finished:
        if record.error_bytes:
            operation.error.CopyFrom(status_pb2.Status.FromString(record.error_bytes))
        operation.error.code = record.error_code or operation.error.code
    return operation


def _serialised(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
