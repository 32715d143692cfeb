"""Plans that outlive the call that asked for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import grpc
from google.longrunning import operations_pb2

from planner.client.answers import PlanAnswer, PlanProgress, plan_answer, progress_of
from planner.client.errors import RemoteError, error_of_status, plain_error
from planner.client.fields import Names
from planner.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from planner.client.waiting import Caller

__all__ = ["OperationState", "RemoteOperation"]

LONGEST_POLL_S = 30.0
"""Of one WaitOperation; longer waits are several."""


class OperationState:
    """An operation as it was last seen."""

    def __init__(self, message: Any, names: Names | None = None) -> None:
        self._message = message
        self._names = names or Names()

    @property
    def name(self) -> str:
        """``operations/...``; any client finds the operation by it."""
        return str(self._message.name)

    @property
    def done(self) -> bool:
        """Whether there is a result, or an error."""
        return bool(self._message.done)

    @property
    def progress(self) -> PlanProgress | None:
        """How far the search was; None where the server has not said."""
        message = pb.PlanProgress()
        return progress_of(message) if self._message.metadata.Unpack(message) else None

    @property
    def error(self) -> RemoteError | None:
        """Why it failed; None where it has not."""
        if self._message.WhichOneof("result") != "error":
            return None
        return error_of_status(self._message.error)

    def _answer(self) -> PlanAnswer:
        error = self.error
        if error is not None:
            raise error
        response = pb.SolvePlanResponse()
        self._message.response.Unpack(response)
        return plan_answer(response, self._names)

    def __repr__(self) -> str:
        state = "running"
        if self.done:
            state = "done" if self.error is None else self.error.reason
        return f"<{type(self).__name__} {self.name}: {state}>"


class RemoteOperation(OperationState):
    """A plan being made on the server."""

    def __init__(self, caller: Caller, message: Any, names: Names | None = None) -> None:
        super().__init__(message, names)
        self._caller = caller

    def refresh(self) -> RemoteOperation:
        """Look again; the same object."""
        request = operations_pb2.GetOperationRequest(name=self.name)
        self._message = self._caller.unary(self._caller.operations.GetOperation, request)
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is done, at most so long; whether it is."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.done:
            poll_s = LONGEST_POLL_S
            if deadline is not None:
                poll_s = min(poll_s, deadline - time.monotonic())
            if poll_s <= 0:
                break
            request = wait_request(self.name, poll_s)
            self._message = self._caller.unary(
                self._caller.operations.WaitOperation, request, poll_s + self._caller.timeout_s
            )
        return self.done

    def result(self, timeout_s: float | None = None) -> PlanAnswer:
        """The answer, once it is done.

        Raises
        ------
        RemoteError
            The operation failed or was cancelled, or is not done within ``timeout_s``.
        """
        if not self.wait(timeout_s):
            raise not_done(self.name, timeout_s)
        return self._answer()

    def cancel(self) -> None:
        """Ask for it to end; what it holds becomes its result, or its error is CANCELLED."""
        request = operations_pb2.CancelOperationRequest(name=self.name)
        self._caller.unary(self._caller.operations.CancelOperation, request)

    def delete(self) -> None:
        """Forget it; the server cancels one that is not done."""
        request = operations_pb2.DeleteOperationRequest(name=self.name)
        self._caller.unary(self._caller.operations.DeleteOperation, request)


def wait_request(name: str, poll_s: float) -> Any:
    """A long poll."""
    request = operations_pb2.WaitOperationRequest(name=name)
    request.timeout.FromNanoseconds(int(poll_s * 1e9))
    return request


def not_done(name: str, timeout_s: float | None) -> RemoteError:
    """The error of a result that is not there in time."""
    text = f"{name} is not done after {timeout_s:.3g} s" if timeout_s else f"{name} is not done"
    return plain_error(grpc.StatusCode.DEADLINE_EXCEEDED, text)
