"""What happens around calls, with a real server and a client, for all four kinds of call."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from planner.errors import InputError
from planner.service.errors import queue_full
from planner.service.identity import Identities, current_caller, new_token
from planner.service.interceptors import CallInterceptor
from planner.service.logs import JsonFormatter, current_request_id
from planner.service.metrics import ServiceMetrics
from planner.service.store.errors import StoreUnavailableError
from planner.v1.planner_service_pb2 import CreatePlanRequest

# Methods of the real service lend their names, so that the table of roles holds.
S = "planner.v1.PlannerService"
KINDS = {
    "unary_unary": "SolvePlan",
    "unary_stream": "StreamPlan",
    "stream_unary": "PutModel",
    "stream_stream": "ListPlans",
}
TOKEN, DIGEST = new_token()
READER, READER_DIGEST = new_token()


def seen() -> bytes:
    return f"{current_caller.get().name}|{current_request_id.get()}".encode()


async def work(request: bytes, context: Any) -> None:
    """What the request asks a handler to do."""
    match request:
        case b"boom":
            raise RuntimeError("secret detail")
        case b"input":
            raise InputError("is odd", value="7")
        case b"full":
            raise queue_full(2.0)
        case b"store":
            raise StoreUnavailableError("secret database")
        case b"abort":
            await context.abort(grpc.StatusCode.ABORTED, "own words")
        case b"set":
            context.set_code(grpc.StatusCode.DATA_LOSS)
        case b"sleep":
            await asyncio.sleep(30)


async def unary_unary(request: bytes, context: Any) -> bytes:
    await work(request, context)
    return seen()


async def unary_stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
    yield seen()
    await work(request, context)
    yield seen()


async def stream_unary(requests: AsyncIterator[bytes], context: Any) -> bytes:
    async for request in requests:
        await work(request, context)
    return seen()


async def stream_stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        await work(request, context)
        yield seen()


async def writing(request: bytes, context: Any) -> None:
    await context.write(seen())
    await work(request, context)


def blocking(request: bytes, context: Any) -> bytes:
    return b"in a thread, unauthenticated"


class Served:
    """A server with the interceptor, its client, its metrics and its log lines."""

    def __init__(self, channel: Any, metrics: ServiceMetrics, lines: list[dict[str, Any]]) -> None:
        self.channel = channel
        self.metrics = metrics
        self.lines = lines

    async def call(
        self, kind: str, request: bytes = b"", method: str | None = None, **options: Any
    ) -> tuple[list[bytes], Any]:
        """Answers and the finished call."""
        path = f"/{S}/{method or KINDS[kind]}"
        stub = getattr(self.channel, kind)(path)
        sent: Any = iter([request]) if kind.startswith("stream") else request
        call = stub(sent, **{"timeout": 10, **options})
        answers = []
        try:
            if kind.endswith("stream"):
                async for answer in call:
                    answers.append(answer)
            else:
                answers.append(await call)
        except grpc.aio.AioRpcError:
            pass
        return answers, call

    async def ended(self, count: int = 1) -> list[dict[str, Any]]:
        """The log lines of ended calls, once there are that many."""
        for _ in range(500):
            found = [line for line in self.lines if line["message"] == "call ended"]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(f"only {self.lines}")


class _Lines(logging.Handler):
    def __init__(self, lines: list[dict[str, Any]]) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


def served(
    test: Callable[[Served], Awaitable[None]],
    identities: Identities | None = None,
    level: int = logging.INFO,
) -> None:
    """Run a test against a server."""

    async def main() -> None:
        metrics = ServiceMetrics()
        server = grpc.aio.server(
            interceptors=[CallInterceptor(identities or Identities(), metrics)]
        )
        own = {
            "SolvePlan": grpc.unary_unary_rpc_method_handler(unary_unary),
            "StreamPlan": grpc.unary_stream_rpc_method_handler(unary_stream),
            "PutModel": grpc.stream_unary_rpc_method_handler(stream_unary),
            "ListPlans": grpc.stream_stream_rpc_method_handler(stream_stream),
            "ComputeScalingCurve": grpc.unary_stream_rpc_method_handler(writing),
            "GetPlan": grpc.unary_unary_rpc_method_handler(blocking),
            "CreatePlan": grpc.unary_unary_rpc_method_handler(
                unary_unary, request_deserializer=CreatePlanRequest.FromString
            ),
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(S, own)])
        health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
        reflection.enable_server_reflection((S,), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        lines: list[dict[str, Any]] = []
        logger, handler = logging.getLogger("planner"), _Lines(lines)
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(level)
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                await test(Served(channel, metrics, lines))
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
            await server.stop(None)

    asyncio.run(main())


async def details(call: Any) -> tuple[str, float | None]:
    """Reason of a failed call, and when to retry."""
    status = await rpc_status.aio.from_call(call)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    retry_after_s = None
    for detail in status.details:
        detail.Unpack(info)
        if detail.Unpack(retry):
            retry_after_s = retry.retry_delay.seconds
    assert info.domain == "planner.v1"
    return info.reason, retry_after_s


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_knows_who_and_which_and_is_counted_and_logged(kind: str) -> None:
    async def test(at: Served) -> None:
        answers, call = await at.call(kind, metadata=(("x-request-id", "my-1"),))
        assert await call.code() is grpc.StatusCode.OK
        assert set(answers) == {b"anonymous@127.0.0.1|my-1"}
        assert ("x-request-id", "my-1") in tuple(await call.trailing_metadata())
        initial = tuple(await call.initial_metadata())
        assert (("x-request-id", "my-1") in initial) == kind.endswith("stream")
        [line] = await at.ended()
        assert line["method"] == f"{S}/{KINDS[kind]}"
        assert line["code"] == "OK"
        assert line["caller"] == "anonymous@127.0.0.1"
        assert line["request_id"] == "my-1"
        assert line["duration_ms"] >= 0
        counted = at.metrics.value("planner_requests_total", method=line["method"], code="OK")
        assert counted == 1
        assert at.metrics.value("planner_in_flight_calls") == 0

    served(test)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("request_", "code", "reason"),
    [
        (b"boom", "INTERNAL", "INTERNAL"),
        (b"input", "INVALID_ARGUMENT", "INVALID_INPUT"),
        (b"full", "RESOURCE_EXHAUSTED", "QUEUE_FULL"),
        (b"store", "UNAVAILABLE", "STORE_UNAVAILABLE"),
    ],
)
def test_failures(kind: str, request_: bytes, code: str, reason: str) -> None:
    async def test(at: Served) -> None:
        _, call = await at.call(kind, request_)
        assert (await call.code()).name == code
        assert "secret" not in await call.details()
        got, retry_after_s = await details(call)
        assert got == reason
        assert retry_after_s == (2 if reason == "QUEUE_FULL" else None)
        trailing = dict(tuple(await call.trailing_metadata()))
        [line] = await at.ended()
        assert (line["code"], line["reason"]) == (code, reason)
        assert trailing["x-request-id"] == line["request_id"]
        tracebacks = [other for other in at.lines if "Traceback" in other.get("exception", "")]
        assert len(tracebacks) == (1 if reason == "INTERNAL" else 0)
        assert all(other["request_id"] == line["request_id"] for other in tracebacks)
        counted = at.metrics.value("planner_requests_total", method=line["method"], code=code)
        assert counted == 1
        assert at.metrics.value("planner_in_flight_calls") == 0

    served(test)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("request_", "code"), [(b"abort", "ABORTED"), (b"set", "DATA_LOSS")])
def test_a_handlers_own_status_stays(kind: str, request_: bytes, code: str) -> None:
    async def test(at: Served) -> None:
        _, call = await at.call(kind, request_)
        assert (await call.code()).name == code
        [line] = await at.ended()
        assert line["code"] == code
        assert "x-request-id" in dict(tuple(await call.trailing_metadata()))

    served(test)


@pytest.mark.parametrize("kind", KINDS)
def test_deadlines(kind: str) -> None:
    async def test(at: Served) -> None:
        _, call = await at.call(kind, b"sleep", timeout=0.2)
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        [line] = await at.ended()
        assert line["code"] == "DEADLINE_EXCEEDED"
        assert at.metrics.value("planner_in_flight_calls") == 0

    served(test)


@pytest.mark.parametrize("kind", KINDS)
def test_cancellation(kind: str) -> None:
    async def test(at: Served) -> None:
        task = asyncio.create_task(at.call(kind, b"sleep"))
        await asyncio.sleep(0.2)
        assert at.metrics.value("planner_in_flight_calls") == 1
        task.cancel()
        [line] = await at.ended()
        assert line["code"] == "CANCELLED"
        assert at.metrics.value("planner_in_flight_calls") == 0

    served(test)


def test_a_handler_that_writes_itself() -> None:
    async def test(at: Served) -> None:
        answers, call = await at.call("unary_stream", method="ComputeScalingCurve")
        assert len(answers) == 1
        _, call = await at.call("unary_stream", b"boom", method="ComputeScalingCurve")
        assert await call.code() is grpc.StatusCode.INTERNAL

    served(test)


def test_a_blocking_handler_is_refused_rather_than_let_through() -> None:
    async def test(at: Served) -> None:
        answers, call = await at.call("unary_unary", method="GetPlan")
        assert answers == []
        assert (await details(call))[0] == "INTERNAL"
        assert any("coroutine function" in line["message"] for line in at.lines)

    served(test)


def test_a_request_that_is_no_message_of_its_method() -> None:
    async def test(at: Served) -> None:
        _, call = await at.call("unary_unary", b"\xff\xff\xff", method="CreatePlan")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (await details(call))[0] == "MALFORMED_REQUEST"
        _, call = await at.call("unary_unary", b"", method="CreatePlan")
        assert await call.code() is grpc.StatusCode.OK

    served(test)


def test_nothing_of_a_stranger_is_parsed(identities: Identities) -> None:
    async def test(at: Served) -> None:
        _, call = await at.call("unary_unary", b"\xff\xff\xff", method="CreatePlan")
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED

    served(test, identities)


def test_an_unknown_method() -> None:
    async def test(at: Served) -> None:
        for kind in KINDS:
            _, call = await at.call(kind, method="Nothing")
            assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
            assert (await details(call))[0] == "UNKNOWN_METHOD"
        counted = at.metrics.value("planner_requests_total", method="other", code="UNIMPLEMENTED")
        assert counted == 4

    served(test)


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "\x7e\x7e", 'quote"', "{}"])
def test_an_insane_request_id_is_replaced(given: str) -> None:
    async def test(at: Served) -> None:
        _, call = await at.call("unary_unary", metadata=(("x-request-id", given),))
        echoed = dict(tuple(await call.trailing_metadata()))["x-request-id"]
        assert len(echoed) == 32
        assert echoed != given

    served(test)


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    path = tmp_path / "identities.yaml"
    path.write_text(
        "identities:\n"
        f"  - {{name: planner-1, role: plan, token_sha256: {DIGEST}}}\n"
        f"  - {{name: reader, role: read, token_sha256: {READER_DIGEST}}}\n"
    )
    return Identities(path)


@pytest.mark.parametrize("kind", KINDS)
def test_only_those_who_may_reach_the_handler(kind: str, identities: Identities) -> None:
    async def test(at: Served) -> None:
        _, call = await at.call(kind)
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        assert (await details(call))[0] == "MISSING_CREDENTIALS"
        bad = (("authorization", "Bearer plt_wrong-wrong-wrong"),)
        _, call = await at.call(kind, metadata=bad)
        assert (await details(call))[0] == "BAD_TOKEN"
        reader = (("authorization", f"Bearer {READER}"),)
        answers, call = await at.call(kind, metadata=reader)
        if KINDS[kind] == "ListPlans":
            assert answers[0].startswith(b"reader|")
        else:
            assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
            assert (await details(call))[0] == "ROLE_TOO_LOW"
        good = (("authorization", f"Bearer {TOKEN}"),)
        answers, call = await at.call(kind, metadata=good)
        assert answers[0].startswith(b"planner-1|")
        lines = await at.ended(4)
        assert [line["caller"] for line in lines] == ["", "", "reader", "planner-1"]
        text = json.dumps(at.lines)
        assert TOKEN not in text
        assert READER not in text
        assert "wrong-wrong" not in text

    served(test, identities)


def test_concurrent_calls_do_not_mix(identities: Identities) -> None:
    async def test(at: Served) -> None:
        async def one(number: int) -> None:
            metadata = (("authorization", f"Bearer {TOKEN}"), ("x-request-id", f"n{number}"))
            answers, _ = await at.call("unary_stream", metadata=metadata)
            assert set(answers) == {f"planner-1|n{number}".encode()}

        await asyncio.gather(*(one(number) for number in range(100)))
        assert at.metrics.value("planner_in_flight_calls") == 0

    served(test, identities)


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_health_needs_nobody_and_is_quiet(level: int, identities: Identities) -> None:
    async def test(at: Served) -> None:
        stub = health_pb2_grpc.HealthStub(at.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        async for update in stub.Watch(health_pb2.HealthCheckRequest(), timeout=10):
            assert update.status == health_pb2.HealthCheckResponse.SERVING
            break
        method = "grpc.health.v1.Health/Check"
        assert at.metrics.value("planner_requests_total", method=method, code="OK") == 1
        assert any(line["message"] == "call ended" for line in at.lines) == (level < logging.INFO)

    served(test, identities, level)


def test_reflection_is_for_those_who_may_read(identities: Identities) -> None:
    async def test(at: Served) -> None:
        stub = reflection_pb2_grpc.ServerReflectionStub(at.channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")

        async def names(token: str) -> list[str]:
            metadata = (("authorization", f"Bearer {token}"),)
            async for answer in stub.ServerReflectionInfo(
                iter([asked]), timeout=10, metadata=metadata
            ):
                return [service.name for service in answer.list_services_response.service]
            raise AssertionError("no answer")

        assert S in await names(READER)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await names("plt_nobody-nobody")
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    served(test, identities)


def test_unavailable_is_retried_by_a_client_that_has_a_retry_policy() -> None:
    """Initial metadata before the status would have committed the call to the first attempt."""
    attempts = 0

    async def twice_unavailable(request: bytes, context: Any) -> bytes:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise StoreUnavailableError("for now")
        return seen()

    policy = {
        "maxAttempts": 4,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.02s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})

    async def main() -> None:
        server = grpc.aio.server(interceptors=[CallInterceptor(Identities(), ServiceMetrics())])
        handler = grpc.unary_unary_rpc_method_handler(twice_unavailable)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(S, {"SolvePlan": handler})]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        options = (("grpc.service_config", config),)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            await channel.unary_unary(f"/{S}/SolvePlan")(b"", timeout=10)
        await server.stop(None)

    asyncio.run(main())
    assert attempts == 3


def test_a_stop_does_not_wait_for_calls_that_failed() -> None:
    async def main() -> float:
        server = grpc.aio.server(interceptors=[CallInterceptor(Identities(), ServiceMetrics())])
        handler = grpc.unary_unary_rpc_method_handler(unary_unary)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(S, {"SolvePlan": handler})]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(f"/{S}/SolvePlan")(b"full", timeout=10)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await server.stop(8)
        return loop.time() - began

    assert asyncio.run(main()) < 4
