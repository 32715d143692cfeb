"""What a stream leaves behind when its caller goes away: nothing."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from rpcs import plan_question
from store_places import in_loop

from planner.service.engine import Asked
from planner.service.errors import ServiceError, draining
from planner.service.front import Front
from planner.service.identity import Caller, Role, current_caller
from planner.v1 import planner_service_pb2 as pb


class Context:
    """As much of a call's context as a stream needs."""

    def time_remaining(self) -> None:
        return None

    def trailing_metadata(self) -> tuple[()]:
        return ()

    def set_trailing_metadata(self, metadata: object) -> None:
        pass


class Engine:
    """Tells of two messages, and then does what it is told."""

    def __init__(self, *, fails: bool = False, hangs: bool = False) -> None:
        self.fails, self.hangs = fails, hangs

    async def ask(self, *_question: Any, on_progress: Any) -> Asked:
        for message in (b"one", b"two"):
            on_progress(message)
            await asyncio.sleep(0)
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise draining()
        return Asked(b"last")


def messages(engine: Engine) -> Any:
    current_caller.set(Caller("ann", Role.PLAN))
    front = Front(cast("Any", engine), cast("Any", None))
    request = pb.StreamPlanRequest(question=plan_question())
    return front._stream("StreamPlan", request, cast("Any", Context()))


@in_loop
async def test_all_messages_come_in_order() -> None:
    found = [each async for each in messages(Engine())]
    assert found == [(b"one", False), (b"two", False), (b"last", True)]


@in_loop
async def test_an_error_comes_after_the_messages() -> None:
    stream = messages(Engine(fails=True))
    assert [await anext(stream), await anext(stream)] == [(b"one", False), (b"two", False)]
    with pytest.raises(ServiceError):
        await anext(stream)


@in_loop
async def test_a_caller_who_goes_away_leaves_no_task() -> None:
    """While the stream waits for a message, and while it hands one on."""

    async def read() -> None:
        async for _ in messages(Engine(hangs=True)):
            pass

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.02)
    reading.cancel()
    await asyncio.wait({reading})
    stream = messages(Engine(hangs=True))
    await anext(stream)
    await stream.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
