"""Spans: a parent from outside, what they say, and nothing where none are wanted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import grpc
import pytest

from planner.errors import InputError
from planner.service.identity import Identities
from planner.service.interceptors import CallInterceptor
from planner.service.metrics import ServiceMetrics
from planner.service.tracing import NoTracing, Tracing, current_span, open_tracing

METHOD = "/planner.v1.PlannerService/SolvePlan"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def exporter() -> Any:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    return memory.InMemorySpanExporter()


async def handler(request: bytes, context: Any) -> bytes:
    current_span.get().set("planner.termination", "optimal")
    if request == b"boom":
        raise RuntimeError("secret")
    if request == b"sleep":
        await asyncio.sleep(30)
    return b""


def traced(tracing: Tracing, request: bytes = b"", timeout: float = 10, **sent: str) -> None:
    async def main() -> None:
        server = grpc.aio.server(
            interceptors=[CallInterceptor(Identities(), ServiceMetrics(), tracing)]
        )
        service, _, method = METHOD.removeprefix("/").rpartition("/")
        own = {method: grpc.unary_unary_rpc_method_handler(handler)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, own)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            try:
                call = channel.unary_unary(METHOD)
                await call(request, timeout=timeout, metadata=tuple(sent.items()))
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.1)  # the server may learn of a deadline a little later
        await server.stop(None)

    asyncio.run(main())


def test_a_span_under_the_callers_own(exporter: Any) -> None:
    traced(open_tracing(None, exporter=exporter), traceparent=f"00-{TRACE}-{PARENT}-01")
    [span] = exporter.get_finished_spans()
    assert span.name == METHOD.removeprefix("/")
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert dict(span.attributes) == {
        "rpc.system": "grpc",
        "rpc.service": "planner.v1.PlannerService",
        "rpc.method": "SolvePlan",
        "rpc.grpc.status_code": 0,
        "planner.caller": "anonymous@127.0.0.1",
        "planner.termination": "optimal",
    }
    assert span.resource.attributes["service.name"] == "stageplan"


@pytest.mark.parametrize("traceparent", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01"])
def test_a_span_of_its_own_where_no_parent_is_sent(exporter: Any, traceparent: str) -> None:
    traced(open_tracing(None, exporter=exporter), traceparent=traceparent)
    [span] = exporter.get_finished_spans()
    assert span.parent is None


@pytest.mark.parametrize(("request_", "code", "fault"), [(b"boom", 13, True), (b"sleep", 4, False)])
def test_only_our_own_faults_are_errors(
    exporter: Any, request_: bytes, code: int, fault: bool
) -> None:
    traced(open_tracing(None, exporter=exporter), request_, 10 if fault else 0.2)
    [span] = exporter.get_finished_spans()
    assert span.attributes["rpc.grpc.status_code"] == code
    assert (span.status.status_code.name == "ERROR") == fault
    assert "secret" not in span.to_json()
    assert span.events == ()


def test_nothing_is_traced_unless_wanted() -> None:
    tracing = open_tracing(None)
    assert isinstance(tracing, NoTracing)
    traced(tracing)
    tracing.close()
    current_span.get().set("anything", 1)


def test_an_endpoint_that_is_none() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
    for endpoint in ("collector:4317", "http://", "ftp://x"):
        with pytest.raises(InputError, match=r"otlp_endpoint.*http://HOST:PORT"):
            open_tracing(endpoint)


def test_an_endpoint_that_nobody_answers_does_not_stop_the_server() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc")
    tracing = open_tracing("http://127.0.0.1:9")
    traced(tracing)
    tracing.close()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(InputError, match=r"otlp_endpoint: .*install stageplan\[telemetry\]"):
        open_tracing("http://collector:4317")


def test_the_packages_are_not_imported_unless_wanted() -> None:
    code = (
        "import sys, planner.service.tracing as t, planner.service.interceptors\n"
        "t.open_tracing(None)\n"
        "assert not [m for m in sys.modules if m.startswith(('opentelemetry', 'ortools'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
