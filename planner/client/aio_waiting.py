"""Calls through gRPC's asyncio API: as :mod:`planner.client.waiting`, without blocking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.longrunning import operations_pb2_grpc
from grpc_health.v1 import health_pb2_grpc

from planner.client.calls import Call, put_model
from planner.client.channel import Connection, positive_seconds, retry_delay_s
from planner.client.errors import (
    MODEL_NOT_FOUND,
    RemoteError,
    RemoteNotFoundError,
    error_of_call,
    plain_error,
)
from planner.client.reaching import connection_problems, unreachable
from planner.v1 import planner_service_pb2_grpc

__all__ = ["AsyncCaller"]

R = TypeVar("R")


class AsyncCaller:
    """A channel of the running event loop and how it is used."""

    def __init__(
        self, address: str, connection: Connection, timeout_s: float, connect_timeout_s: float
    ) -> None:
        self.address = address
        self.timeout_s = positive_seconds(timeout_s, "timeout_s")
        self._connect_timeout_s = positive_seconds(connect_timeout_s, "connect_timeout_s")
        self._connection = connection
        self._metadata = connection.metadata
        self._ready = False
        if connection.credentials is None:
            channel = grpc.aio.insecure_channel(connection.target, connection.options)
        else:
            channel = grpc.aio.secure_channel(
                connection.target, connection.credentials, connection.options
            )
        self._channel = channel
        stub: Any = planner_service_pb2_grpc.PlannerServiceStub
        self.planner = stub(channel)
        self.operations = operations_pb2_grpc.OperationsStub(channel)
        self.health: Any = health_pb2_grpc.HealthStub(channel)

    async def close(self) -> None:
        """Close the channel; calls in progress are cancelled."""
        await self._channel.close(None)

    async def run(self, call: Call[R]) -> R:
        """Make a call of the planner's service, and read its response."""
        method = getattr(self.planner, call.method)
        try:
            response = await self.unary(method, call.request, call.timeout_s)
        except RemoteNotFoundError as error:
            if not await self._sent_again(error, call):
                raise
            response = await self.unary(method, call.request, call.timeout_s)
        return call.read(response)

    async def _sent_again(self, error: RemoteError, call: Call[R]) -> bool:
        """Send the models that a server has lost; whether there is any to send."""
        if error.reason != MODEL_NOT_FOUND or not call.kept:
            return False
        for source in call.kept.values():
            await self.run(put_model(source))
        return True

    async def unary(self, method: Any, request: Any, timeout_s: float | None = None) -> Any:
        """The response of a method of any service; errors are ours."""
        whole_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + whole_s
        await self._connect(deadline)
        while True:
            left_s = max(deadline - time.monotonic(), 0.0)
            try:
                return await method(request, timeout=left_s, metadata=self._metadata)
            except grpc.aio.AioRpcError as failed:
                error = error_of_call(failed, self.address, whole_s)
                await self._wait_or_raise(error, deadline)

    async def stream(self, call: Call[R]) -> AsyncIterator[R]:
        """The responses of a streaming method; leaving the iterator cancels the call."""
        whole_s = self.timeout_s if call.timeout_s is None else call.timeout_s
        deadline = time.monotonic() + whole_s
        await self._connect(deadline)
        method = getattr(self.planner, call.method)
        begun, sent = False, False
        while True:
            left_s = max(deadline - time.monotonic(), 0.0)
            running = method(call.request, timeout=left_s, metadata=self._metadata)
            try:
                async for response in running:
                    begun = True
                    yield call.read(response)
                return
            except grpc.aio.AioRpcError as failed:
                error = error_of_call(failed, self.address, whole_s)
                if not sent and await self._sent_again(error, call):
                    sent = True
                    continue
                # What was seen once is not to be seen again.
                await self._wait_or_raise(error, 0.0 if begun else deadline)
            finally:
                running.cancel()

    async def _wait_or_raise(self, error: RemoteError, deadline: float) -> None:
        delay_s = retry_delay_s(error, deadline - time.monotonic())
        if delay_s is None:
            raise error from None
        await asyncio.sleep(delay_s)

    async def _connect(self, deadline: float) -> None:
        """Wait for the first connection, so that a wrong address is known as one early."""
        if self._ready:
            return
        within_s = min(self._connect_timeout_s, max(deadline - time.monotonic(), 0.0))
        try:
            await asyncio.wait_for(self._channel.channel_ready(), within_s)
        except TimeoutError:
            said = await asyncio.to_thread(connection_problems, self._connection)
            said = said or [f"no connection within {self._connect_timeout_s:.3g} s"]
            text = unreachable(self.address, said, self._connection.ca_file)
            raise plain_error(grpc.StatusCode.UNAVAILABLE, text) from None
        self._ready = True
