"""Calls through gRPC's blocking API: deadlines, retries, and errors of ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, TypeVar

import grpc
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

__all__ = ["Caller"]

R = TypeVar("R")


class Caller:
    """A channel and how it is used."""

    def __init__(
        self, address: str, connection: Connection, timeout_s: float, connect_timeout_s: float
    ) -> None:
        self.address = address
        self.timeout_s = positive_seconds(timeout_s, "timeout_s")
        self._connect_timeout_s = positive_seconds(connect_timeout_s, "connect_timeout_s")
        self._connection = connection
        self._metadata = connection.metadata
        self._ready = False
        self._lock = threading.Lock()
        if connection.credentials is None:
            self._channel = grpc.insecure_channel(connection.target, connection.options)
        else:
            self._channel = grpc.secure_channel(
                connection.target, connection.credentials, connection.options
            )
        stub: Any = planner_service_pb2_grpc.PlannerServiceStub
        self.planner = stub(self._channel)
        self.operations = operations_pb2_grpc.OperationsStub(self._channel)
        self.health = health_pb2_grpc.HealthStub(self._channel)

    def close(self) -> None:
        """Close the channel; calls in progress are cancelled."""
        self._channel.close()

    def run(self, call: Call[R]) -> R:
        """Make a call of the planner's service, and read its response."""
        method = getattr(self.planner, call.method)
        try:
            response = self.unary(method, call.request, call.timeout_s)
        except RemoteNotFoundError as error:
            if not self._sent_again(error, call):
                raise
            response = self.unary(method, call.request, call.timeout_s)
        return call.read(response)

    def _sent_again(self, error: RemoteError, call: Call[R]) -> bool:
        """Send the models that a server has lost; whether there is any to send."""
        if error.reason != MODEL_NOT_FOUND or not call.kept:
            return False
        for source in call.kept.values():
            self.run(put_model(source))
        return True

    def unary(self, method: Any, request: Any, timeout_s: float | None = None) -> Any:
        """The response of a method of any service; errors are ours."""
        whole_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + whole_s
        self._connect(deadline)
        while True:
            left_s = deadline - time.monotonic()
            running = method.future(request, timeout=max(left_s, 0.0), metadata=self._metadata)
            try:
                return running.result()
            except grpc.RpcError as failed:
                error = error_of_call(failed, self.address, whole_s)
                self._wait_or_raise(error, deadline)
            except BaseException:
                # Ctrl-C ends the wait, and the server is not to go on for nobody.
                running.cancel()
                raise

    def stream(self, call: Call[R]) -> Iterator[R]:
        """The responses of a streaming method; leaving the iterator cancels the call."""
        whole_s = self.timeout_s if call.timeout_s is None else call.timeout_s
        deadline = time.monotonic() + whole_s
        self._connect(deadline)
        method = getattr(self.planner, call.method)
        begun, sent = False, False
        while True:
            left_s = deadline - time.monotonic()
            running = method(call.request, timeout=max(left_s, 0.0), metadata=self._metadata)
            try:
                for response in running:
                    begun = True
                    yield call.read(response)
                return
            except grpc.RpcError as failed:
                error = error_of_call(failed, self.address, whole_s)
                if not sent and self._sent_again(error, call):
                    sent = True
                    continue
                # What was seen once is not to be seen again.
                self._wait_or_raise(error, 0.0 if begun else deadline)
            finally:
                running.cancel()

    def _wait_or_raise(self, error: RemoteError, deadline: float) -> None:
        delay_s = retry_delay_s(error, deadline - time.monotonic())
        if delay_s is None:
            raise error from None
        time.sleep(delay_s)

    def _connect(self, deadline: float) -> None:
        """Wait for the first connection, so that a wrong address is known as one early.

        Calls wait for a server that restarts as long as they may; one that was never there is
        given ``connect_timeout_s``.
        """
        if self._ready:
            return
        with self._lock:
            if self._ready:
                return
            within_s = min(self._connect_timeout_s, max(deadline - time.monotonic(), 0.0))
            try:
                grpc.channel_ready_future(self._channel).result(timeout=within_s)
            except grpc.FutureTimeoutError:
                said = connection_problems(self._connection)
                said = said or [f"no connection within {self._connect_timeout_s:.3g} s"]
                text = unreachable(self.address, said, self._connection.ca_file)
                raise plain_error(grpc.StatusCode.UNAVAILABLE, text) from None
            self._ready = True
