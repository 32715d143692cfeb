"""What happens around every call: who calls, its id, its count, its log line, its errors."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

import grpc

from planner.errors import InputError
from planner.service.errors import (
    ServiceError,
    abort,
    from_exception,
    internal,
    invalid,
    unknown_method,
)
from planner.service.identity import LEAST_ROLES, Identities, Role, authorise, current_caller
from planner.service.logs import current_request_id
from planner.service.metrics import ServiceMetrics
from planner.service.store.errors import StoreError
from planner.service.tracing import NoTracing, Tracing

__all__ = ["REQUEST_ID_KEY", "CallInterceptor"]

REQUEST_ID_KEY = "x-request-id"

_log = logging.getLogger("planner.service.calls")

_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS)

_KINDS: dict[tuple[bool, bool], tuple[str, Callable[..., Any]]] = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, False): ("stream_unary", grpc.stream_unary_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}
"""By whether requests and answers are streams: the handler's attribute, and what makes one."""

Context = grpc.aio.ServicerContext[Any, Any]
Behaviour = Callable[[Any, Context], Awaitable[Any]]


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """The only interceptor of the server.

    For each call, of any kind: `planner.service.logs.current_request_id` and
    `planner.service.identity.current_caller` are set while its handler runs; the request's id goes
    back as trailing metadata (and first, in streams); it is counted, traced and logged once, at
    its end. `ServiceError`, `InputError` and `StoreError` become their statuses, and any other
    exception INTERNAL without a word of it to the client.

    Unary answers carry no initial metadata, on purpose: a client that has seen any will not
    retry, not even UNAVAILABLE.
    """

    def __init__(
        self,
        identities: Identities,
        metrics: ServiceMetrics,
        tracing: Tracing | None = None,
    ) -> None:
        self._identities = identities
        self._metrics = metrics
        self._tracing: Tracing = NoTracing() if tracing is None else tracing

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of one call."""
        method = str(handler_call_details.method)
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return self._refusal("other", unknown_method(method))
        kind, make = _KINDS[bool(handler.request_streaming), bool(handler.response_streaming)]
        behaviour, parse = getattr(handler, kind), handler.request_deserializer
        if not _is_async(behaviour):
            # It would run in a thread, out of reach of what is set up here.
            _log.error("the handler of %s is no coroutine function", method)
            return self._refusal(method, internal())
        if inspect.isasyncgenfunction(behaviour):
            behaviour = _written(behaviour)
        if parse is not None and not handler.request_streaming:
            behaviour, parse = _parsing(behaviour, parse), None
        return make(
            self._around(method, behaviour),
            request_deserializer=parse,
            response_serializer=handler.response_serializer,
        )

    def _refusal(self, method: str, error: ServiceError) -> Any:
        async def refuse(request: Any, context: Context) -> None:
            raise error

        # Of the most general kind: it answers calls of all four.
        return grpc.stream_stream_rpc_method_handler(self._around(method, refuse, guarded=False))

    def _around(self, method: str, behaviour: Behaviour, guarded: bool = True) -> Behaviour:
        async def run(request: Any, context: Context) -> Any:
            metadata = tuple(context.invocation_metadata() or ())
            call = _Call(method, _request_id(metadata), context)
            call.request_id_token = current_request_id.set(call.request_id)
            context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
            self._metrics.request_started()
            try:
                with self._tracing.call(method, metadata) as span:
                    try:
                        if guarded:
                            self._admit(call, metadata)
                        span.set("planner.caller", call.caller)
                        answer = await behaviour(request, context)
                        code = context.code() or grpc.StatusCode.OK
                        call.code = code if isinstance(code, grpc.StatusCode) else call.code
                        return answer
                    except asyncio.CancelledError:
                        late = context.time_remaining()
                        call.code = (
                            grpc.StatusCode.DEADLINE_EXCEEDED
                            if late is not None and late <= 0
                            else grpc.StatusCode.CANCELLED
                        )
                        raise
                    except grpc.aio.AbortError:  # the handler's own abort
                        call.code = context.code()
                        raise
                    except Exception as error:
                        await self._fail(call, error)
                    finally:
                        span.set("rpc.grpc.status_code", call.code.value[0])
                        if call.reason:
                            span.set("planner.reason", call.reason)
                        if call.code in _FAULTS:
                            span.fail(call.reason or call.code.name)
            finally:
                self._end(call)

        return run

    def _admit(self, call: _Call, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        if LEAST_ROLES.get(call.method, Role.ADMIN) is None:
            return
        context = call.context
        caller = self._identities.caller_of(metadata, context.peer(), context.auth_context())
        call.caller = caller.name
        authorise(caller, call.method)
        # The task ends with the call, and this with it.
        current_caller.set(caller)

    async def _fail(self, call: _Call, error: Exception) -> None:
        if isinstance(error, ServiceError | InputError | MemoryError):
            failure = from_exception(error)
        elif isinstance(error, StoreError):
            failure = from_exception(error)
            _log.error("the store failed in %s: %s", call.method, error)
        else:
            failure = internal()
            _log.error("unexpected error in %s", call.method, exc_info=error)
        call.code, call.reason = failure.code, failure.reason
        await abort(call.context, failure)

    def _end(self, call: _Call) -> None:
        seconds = time.monotonic() - call.began
        self._metrics.request_done(call.method.removeprefix("/"), call.code.name, seconds)
        probe = call.method.startswith("/grpc.health.")
        _log.log(
            logging.DEBUG if probe else logging.INFO,
            "call ended",
            extra={
                "method": call.method.removeprefix("/"),
                "code": call.code.name,
                "caller": call.caller,
                "peer": call.context.peer(),
                "duration_ms": round(seconds * 1e3, 3),
                **({"reason": call.reason} if call.reason else {}),
            },
        )
        current_request_id.reset(call.request_id_token)


class _Call:
    """What becomes known of a call while it runs."""

    def __init__(self, method: str, request_id: str, context: Context) -> None:
        self.method = method
        self.request_id = request_id
        self.context = context
        self.began = time.monotonic()
        self.code = grpc.StatusCode.UNKNOWN
        self.reason = ""
        self.caller = ""
        self.request_id_token: Any = None


def _request_id(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The caller's own id of the call if it is sane, or a new one."""
    for key, value in metadata:
        if key == REQUEST_ID_KEY and isinstance(value, str) and _SANE_ID.fullmatch(value):
            return value
    return uuid.uuid4().hex


def _written(behaviour: Callable[[Any, Context], Any]) -> Behaviour:
    """A handler that yields, as one that writes: the wrapper then runs as a single coroutine.

    Context variables stay set between messages, and the generator is closed at once when the
    call is cancelled.
    """

    async def write(request: Any, context: Context) -> None:
        first = True
        async with aclosing(behaviour(request, context)) as messages:
            async for message in messages:
                if first:
                    first = False
                    request_id = current_request_id.get() or ""
                    await context.send_initial_metadata(((REQUEST_ID_KEY, request_id),))
                await context.write(message)

    return write


def _is_async(behaviour: Any) -> bool:
    return inspect.iscoroutinefunction(behaviour) or inspect.isasyncgenfunction(behaviour)


def _parsing(behaviour: Behaviour, parse: Callable[[bytes], Any]) -> Behaviour:
    """A handler of the serialized request, so that nothing of a stranger's is parsed."""

    async def parsed(request: bytes, context: Context) -> Any:
        try:
            message = parse(request)
        except Exception:
            raise invalid(
                "", "the request is not a message of this method", "MALFORMED_REQUEST"
            ) from None
        return await behaviour(message, context)

    return parsed
