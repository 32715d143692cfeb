"""OpenTelemetry spans of calls, where an endpoint for them is set; otherwise nothing at all.

The packages (the extra ``telemetry``) are imported only then. A span has the parent that the
caller sent as W3C ``traceparent``, so that a plan shows up inside the trace of the job that
wanted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from planner.errors import InputError
from planner.version import planner_version

__all__ = ["CallSpan", "NoTracing", "Tracing", "current_span", "open_tracing"]

AttributeValue = str | bool | int | float


class CallSpan(Protocol):
    """What may be said of a call while it runs."""

    def set(self, name: str, value: AttributeValue) -> None:
        """Add an attribute."""

    def fail(self, description: str) -> None:
        """Mark it as a fault of the server."""


class Tracing(Protocol):
    """Where spans go."""

    def call(
        self, method: str, metadata: Iterable[tuple[str, str | bytes]]
    ) -> AbstractContextManager[CallSpan]:
        """The span of one call (``/package.Service/Method``), under the caller's own if sent."""

    def close(self) -> None:
        """Send what is left; blocks for some seconds at most."""


class _NoSpan:
    def set(self, name: str, value: AttributeValue) -> None:
        pass

    def fail(self, description: str) -> None:
        pass


_NO_SPAN = _NoSpan()

current_span: ContextVar[CallSpan] = ContextVar("current_span", default=_NO_SPAN)
"""Span of the call that this code runs for: ``current_span.get().set("planner.gap", 0.0)``."""


class _NoCall:
    def __enter__(self) -> CallSpan:
        return _NO_SPAN

    def __exit__(self, *_: object) -> None:
        pass


_NO_CALL = _NoCall()


class NoTracing:
    """Nothing is traced, and nothing costs anything."""

    def call(
        self, method: str, metadata: Iterable[tuple[str, str | bytes]]
    ) -> AbstractContextManager[CallSpan]:
        """A span that goes nowhere."""
        return _NO_CALL

    def close(self) -> None:
        """Nothing is left."""


def open_tracing(otlp_endpoint: str | None, *, exporter: Any = None) -> Tracing:
    """Spans to an OTLP endpoint (``http://collector:4317``), or none.

    Parameters
    ----------
    exporter
        Where finished spans go instead, one by one (for tests).

    Raises
    ------
    planner.errors.InputError
        The endpoint is set and the extra ``telemetry`` is not installed, or it is no URL.
    """
    if otlp_endpoint is None and exporter is None:
        return NoTracing()
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError as error:
        raise _missing(error) from None
    resource = Resource.create({"service.name": "stageplan", "service.version": planner_version()})
    # Its own atexit hook would outlive the server; `close` is what ends it.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if exporter is not None:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    else:
        assert otlp_endpoint is not None
        provider.add_span_processor(BatchSpanProcessor(_exporter(otlp_endpoint)))
    return _OpenTelemetry(provider, trace, TraceContextTextMapPropagator())


def _missing(error: ImportError) -> InputError:
    return InputError(
        f"spans need a package that is not installed ({error.name})",
        key="otlp_endpoint",
        fix="install stageplan[telemetry], or leave otlp_endpoint out",
    )


def _exporter(endpoint: str) -> Any:
    scheme, _, address = endpoint.partition("://")
    if scheme not in ("http", "https") or not address:
        raise InputError(
            "is no endpoint",
            key="otlp_endpoint",
            value=endpoint,
            expected="http://HOST:PORT, or https:// with TLS",
        )
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise _missing(error) from None
    return OTLPSpanExporter(endpoint=endpoint, insecure=scheme == "http", timeout=5)


class _OpenTelemetry:
    """Spans of the OpenTelemetry SDK, with a provider of its own (no global one is set)."""

    def __init__(self, provider: Any, trace: Any, propagator: Any) -> None:
        self._provider = provider
        self._trace = trace
        self._propagator = propagator
        self._tracer = provider.get_tracer("planner.service")

    @contextmanager
    def call(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> Iterator[CallSpan]:
        carrier = {
            key: value
            for key, value in metadata
            if key in ("traceparent", "tracestate") and isinstance(value, str)
        }
        name = method.removeprefix("/")
        service, _, short = name.rpartition("/")
        span = self._tracer.start_span(
            name,
            context=self._propagator.extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": short},
        )
        ours = _Span(span, self._trace)
        token = current_span.set(ours)
        try:
            with self._trace.use_span(
                span, end_on_exit=True, record_exception=False, set_status_on_exception=False
            ):
                yield ours
        finally:
            current_span.reset(token)

    def close(self) -> None:
        self._provider.shutdown()


class _Span:
    def __init__(self, span: Any, trace: Any) -> None:
        self._span = span
        self._trace = trace

    def set(self, name: str, value: AttributeValue) -> None:
        self._span.set_attribute(name, value)

    def fail(self, description: str) -> None:
        self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, description))
