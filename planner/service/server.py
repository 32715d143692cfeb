"""The server process: everything put together, started, watched and ended in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from planner.errors import InputError, PlannerError
from planner.service.engine import Engine
from planner.service.front import Front
from planner.service.identity import Identities
from planner.service.interceptors import CallInterceptor
from planner.service.logs import configure_logging
from planner.service.metrics import MetricsServer, ServiceMetrics
from planner.service.operations import Operations
from planner.service.pool import Pool
from planner.service.settings import ServiceSettings
from planner.service.store import PlanStore, open_store
from planner.service.tls import server_credentials
from planner.service.tracing import open_tracing
from planner.version import planner_version

__all__ = ["Server", "serve"]

log = logging.getLogger("planner.service")

PLANNER, OPERATIONS = "planner.v1.PlannerService", "google.longrunning.Operations"
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

_LAST_WORDS_S = 1.0
"""From the word that searches are to stop until the connections are closed."""
_LOOK_EVERY_S = 1.0


class Server:
    """A planner service."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.metrics = ServiceMetrics()
        self.address = ""
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._store: PlanStore | None = None
        self._pool: Pool | None = None
        self._engine: Engine | None = None
        self._operations: Operations | None = None
        self._server: grpc.aio.Server | None = None
        self._metrics_server: MetricsServer | None = None
        self._tracing = open_tracing(settings.otlp_endpoint)
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the store, start the workers, listen.

        Raises
        ------
        InputError
            A setting, file or address that cannot be used.
        """
        settings = self.settings
        identities = Identities.from_settings(settings)
        credentials = server_credentials(settings)
        self._server = grpc.aio.server(
            interceptors=[CallInterceptor(identities, self.metrics, self._tracing)],
            options=_options(settings),
            maximum_concurrent_rpcs=settings.max_concurrent_calls,
        )
        self.address = self._listen(self._server, credentials)
        self._store = await asyncio.to_thread(open_store, settings.store)
        if settings.metrics_port is not None:
            self._metrics_server = MetricsServer(self.metrics, settings.host, settings.metrics_port)
        self._pool = Pool(settings, self.metrics)
        self._engine = Engine(settings, self._pool, self._store, self.metrics)
        self._operations = Operations(self._engine)
        front = Front(self._engine, self._operations)
        self._server.add_generic_rpc_handlers((front.handlers(), self._operations.handlers()))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if settings.reflection:
            names = (PLANNER, OPERATIONS, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)
        await self._set_health(_NOT_SERVING)
        await self._health.set("", _SERVING)
        await self._server.start()
        log.info(
            "starting workers; the first start after an installation compiles for a minute or more",
            extra={"address": self.address, "slots": settings.slots},
        )
        await self._pool.start()
        self._operations.start()
        self._watching = asyncio.create_task(self._watch(), name="watches")
        await self._set_health(_SERVING)

    def _listen(self, server: grpc.aio.Server, credentials: Any) -> str:
        wanted = self.settings.address
        try:
            if credentials is None:
                port = server.add_insecure_port(wanted)
            else:
                port = server.add_secure_port(wanted, credentials)
        except RuntimeError:
            port = 0
        if not port:
            raise InputError(
                "cannot be listened on",
                file="address",
                value=wanted,
                fix="is another server running there? --port 0 picks a free one",
            )
        if wanted.startswith("unix:"):
            return wanted
        return f"{wanted.rpartition(':')[0]}:{port}"

    async def _set_health(self, status: Any) -> None:
        for name in (PLANNER, OPERATIONS):
            await self._health.set(name, status)

    async def _watch(self) -> None:
        """Say how things stand, to the probes and in the metrics."""
        assert self._pool is not None
        assert self._store is not None
        assert self._engine is not None
        while True:
            healthy = self._pool.healthy
            try:
                await self._store.ping()
                counts = await self._store.counts()
            except Exception as error:
                log.warning("the store does not answer: %s", error)
                healthy = False
            else:
                for state, count in counts.operations.items():
                    self.metrics.set_store_records(f"operations_{state}", count)
                self.metrics.set_store_records("models", counts.models)
                self.metrics.set_store_records("plans", counts.plans)
                self.metrics.set_store_records("requests", counts.requests)
            for lane, figures in self._pool.figures().items():
                self.metrics.set_slots(lane, "busy", figures["busy"])
                self.metrics.set_slots(lane, "free", figures["slots"] - figures["busy"])
                self.metrics.set_queue_length(lane, figures["waiting"])
            self.metrics.set_cache_bytes(self._engine.cache.size_bytes)
            await self._set_health(_SERVING if healthy else _NOT_SERVING)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def drain(self) -> None:
        """Take no more, let what runs finish, then have it return what it holds, and end."""
        assert self._pool is not None
        assert self._engine is not None
        assert self._operations is not None
        assert self._server is not None
        log.info("draining", extra={"drain_s": self.settings.drain_s})
        if self._watching is not None:
            self._watching.cancel()
        self._engine.draining = True
        await self._health.enter_graceful_shutdown()
        loop = asyncio.get_running_loop()
        if not await self._pool.idle(until=loop.time() + self.settings.drain_s):
            self._pool.stop_all()
            await self._pool.idle(until=loop.time() + self.settings.soft_stop_s + _LAST_WORDS_S)
        await asyncio.sleep(0)  # what was answered is on its way before connections close
        await self._operations.close()
        await self._server.stop(_LAST_WORDS_S)
        await self.close()

    async def close(self) -> None:
        """End at once what is left."""
        if self._server is not None:
            await self._server.stop(0)
        if self._pool is not None:
            await self._pool.close()
        if self._store is not None:
            await self._store.close()
        if self._metrics_server is not None:
            await asyncio.to_thread(self._metrics_server.stop)
        await asyncio.to_thread(self._tracing.close)


async def serve(settings: ServiceSettings) -> None:
    """Run a server until SIGTERM or SIGINT; a second one ends it at once."""
    configure_logging(settings.log_level, settings.log_format)
    loop = asyncio.get_running_loop()
    asked_to_end = asyncio.Event()
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        asked_to_end.set()
        if signals > 1:
            log.warning("ended at once")
            os._exit(1)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    server = Server(settings)
    starting = asyncio.create_task(server.start())
    ending = asyncio.create_task(asked_to_end.wait())
    try:
        await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
            return
        await starting
        log.info(
            "serving",
            extra={
                "address": server.address,
                "planner_version": planner_version(),
                "pid": os.getpid(),
                "slots": settings.slots,
                "quick_slots": settings.quick_slots,
            },
        )
        await ending
        await server.drain()
    except (InputError, PlannerError):
        raise
    finally:
        ending.cancel()
        await server.close()
    log.info("ended")


def _options(settings: ServiceSettings) -> list[tuple[str, Any]]:
    age_ms = int(settings.max_connection_age_s * 1000)
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),  # a port that is taken is an error, not shared
        ("grpc.max_connection_age_ms", age_ms),
        ("grpc.max_connection_age_grace_ms", age_ms),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 30_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
