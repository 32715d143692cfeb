"""What the server counts and times, as Prometheus metrics, and where they can be read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.exposition import start_http_server
from prometheus_client.process_collector import ProcessCollector

from planner.errors import InputError
from planner.version import planner_version

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

__all__ = ["RESTART_CAUSES", "MetricsServer", "ServiceMetrics"]

RESTART_CAUSES: Final = ("crash", "killed", "memory", "recycled", "hung")

_SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800)
_GAPS: Final = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


class ServiceMetrics:
    """The metrics of one server, in a registry of its own.

    Labels come from closed sets (methods, codes, lanes, causes), never from requests: no caller
    can make their number grow.

    Examples
    --------
    >>> metrics = ServiceMetrics()
    >>> metrics.request_started()
    >>> metrics.request_done("planner.v1.PlannerService/GetPlan", "OK", 0.002)
    >>> "planner_in_flight_calls 0.0" in metrics.text()
    True
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        ProcessCollector(registry=own)
        Info("planner_build", "What runs here", registry=own).info({"version": planner_version()})
        self._requests = Counter(
            "planner_requests_total", "Calls ended", ["method", "code"], registry=own
        )
        self._request_seconds = Histogram(
            "planner_request_seconds",
            "From a call's arrival to its end",
            ["method"],
            buckets=_SECONDS,
            registry=own,
        )
        self._in_flight = Gauge("planner_in_flight_calls", "Calls not ended yet", registry=own)
        self._queue_seconds = Histogram(
            "planner_queue_seconds",
            "Waiting for a slot",
            ["lane"],
            buckets=_SECONDS,
            registry=own,
        )
        self._solve_seconds = Histogram(
            "planner_solve_seconds",
            "In a worker",
            ["method"],
            buckets=_SECONDS,
            registry=own,
        )
        self._slots = Gauge("planner_slots", "Worker slots", ["lane", "state"], registry=own)
        self._queue_length = Gauge(
            "planner_queue_length", "Requests that wait for a slot", ["lane"], registry=own
        )
        self._restarts = Counter(
            "planner_worker_restarts_total", "Workers replaced", ["cause"], registry=own
        )
        for cause in RESTART_CAUSES:  # so that a rate is 0 before the first, not absent
            self._restarts.labels(cause)
        self._terminations = Counter(
            "planner_terminations_total", "Why solves ended", ["reason", "limit"], registry=own
        )
        self._gap = Histogram(
            "planner_gap",
            "Gap of plans to their proven bounds, a fraction",
            buckets=_GAPS,
            registry=own,
        )
        self._cache = Counter(
            "planner_cache_total", "Look-ups in the cache of answers", ["result"], registry=own
        )
        for result in ("hit", "miss"):
            self._cache.labels(result)
        self._cache_bytes = Gauge("planner_cache_bytes", "Size of cached answers", registry=own)
        self._store_records = Gauge(
            "planner_store_records", "Records in the store", ["kind"], registry=own
        )

    def request_started(self) -> None:
        """A call arrived."""
        self._in_flight.inc()

    def request_done(self, method: str, code: str, seconds: float) -> None:
        """A call that had started ended with this status code."""
        self._in_flight.dec()
        self._requests.labels(method, code).inc()
        self._request_seconds.labels(method).observe(seconds)

    def observe_queue(self, lane: str, seconds: float) -> None:
        """A request waited for so long."""
        self._queue_seconds.labels(lane).observe(seconds)

    def observe_solve(self, method: str, seconds: float) -> None:
        """A worker took so long."""
        self._solve_seconds.labels(method).observe(seconds)

    def set_slots(self, lane: str, state: str, count: int) -> None:
        """So many slots of a lane are in this state (idle, busy, starting)."""
        self._slots.labels(lane, state).set(count)

    def set_queue_length(self, lane: str, count: int) -> None:
        """So many wait now."""
        self._queue_length.labels(lane).set(count)

    def worker_restarted(self, cause: str) -> None:
        """A worker was replaced, for one of `RESTART_CAUSES`."""
        if cause not in RESTART_CAUSES:
            raise ValueError(f"{cause!r} is none of {', '.join(RESTART_CAUSES)}")
        self._restarts.labels(cause).inc()

    def terminated(self, reason: str, limit: str, gap: float | None = None) -> None:
        """A solve ended, as its termination says; ``gap`` where there is a plan with a bound."""
        self._terminations.labels(reason, limit).inc()
        if gap is not None:
            self._gap.observe(gap)

    def cache(self, result: str) -> None:
        """A look-up in the cache: ``hit``, ``miss`` or another word of the cache's own."""
        self._cache.labels(result).inc()

    def set_cache_bytes(self, size_bytes: int) -> None:
        """Size of the cache now."""
        self._cache_bytes.set(size_bytes)

    def set_store_records(self, kind: str, count: int) -> None:
        """Records of one kind in the store now."""
        self._store_records.labels(kind).set(count)

    def value(self, name: str, **labels: str) -> float:
        """What a sample stands at; 0 where it was never touched."""
        return self.registry.get_sample_value(name, labels) or 0.0

    def text(self) -> str:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry).decode()


class MetricsServer:
    """The metrics over HTTP at ``/metrics``, from a thread of its own.

    Parameters
    ----------
    host
        Of the service; where that is a Unix socket, the metrics are on loopback.
    port
        0 picks a free one; `port` says which.

    Raises
    ------
    planner.errors.InputError
        It cannot listen there.
    """

    def __init__(self, metrics: ServiceMetrics, host: str, port: int) -> None:
        address = "127.0.0.1" if host.startswith("unix:") else host
        try:
            listening = start_http_server(port, addr=address, registry=metrics.registry)
        except OSError as error:
            raise InputError(
                f"metrics cannot be served there: {error.strerror or error}",
                key="metrics_port",
                value=f"{address}:{port}",
            ) from None
        self._server: WSGIServer | None = listening[0]
        self._thread: threading.Thread = listening[1]
        self.port: int = listening[0].server_port

    def stop(self) -> None:
        """Stop listening; blocks for up to half a second, and may be called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            self._thread.join()
