"""Plans that outlive the call that asked for them, for asyncio."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from google.longrunning import operations_pb2

from planner.client.answers import PlanAnswer
from planner.client.fields import Names
from planner.client.operations import LONGEST_POLL_S, OperationState, not_done, wait_request

if TYPE_CHECKING:
    from planner.client.aio_waiting import AsyncCaller

__all__ = ["AsyncRemoteOperation"]


class AsyncRemoteOperation(OperationState):
    """A plan being made on the server."""

    def __init__(self, caller: AsyncCaller, message: Any, names: Names | None = None) -> None:
        super().__init__(message, names)
        self._caller = caller

    async def refresh(self) -> AsyncRemoteOperation:
        """Look again; the same object."""
        request = operations_pb2.GetOperationRequest(name=self.name)
        self._message = await self._caller.unary(self._caller.operations.GetOperation, request)
        return self

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is done, at most so long; whether it is."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.done:
            poll_s = LONGEST_POLL_S
            if deadline is not None:
                poll_s = min(poll_s, deadline - time.monotonic())
            if poll_s <= 0:
                break
            request = wait_request(self.name, poll_s)
            self._message = await self._caller.unary(
                self._caller.operations.WaitOperation, request, poll_s + self._caller.timeout_s
            )
        return self.done

    async def result(self, timeout_s: float | None = None) -> PlanAnswer:
        """The answer, once it is done.

        Raises
        ------
        RemoteError
            The operation failed or was cancelled, or is not done within ``timeout_s``.
        """
        if not await self.wait(timeout_s):
            raise not_done(self.name, timeout_s)
        return self._answer()

    async def cancel(self) -> None:
        """Ask for it to end; what it holds becomes its result, or its error is CANCELLED."""
        request = operations_pb2.CancelOperationRequest(name=self.name)
        await self._caller.unary(self._caller.operations.CancelOperation, request)

    async def delete(self) -> None:
        """Forget it; the server cancels one that is not done."""
        request = operations_pb2.DeleteOperationRequest(name=self.name)
        await self._caller.unary(self._caller.operations.DeleteOperation, request)
