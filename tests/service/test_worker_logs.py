"""What workers log is in the server's format, under the id of the call."""

from __future__ import annotations

import io
import json
import logging
import multiprocessing
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from planner.service import worker
from planner.service.answering import Answering
from planner.service.frames import Begun, Failed, Ready, Task, receive_frame, send_frame
from planner.service.logs import configure_logging, current_request_id


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = configure_logging("info", "json", stream)
    yield stream
    logging.getLogger().removeHandler(handler)


class Broken(Answering):
    def __init__(self) -> None:
        pass

    def answer(self, task, stop, progress):  # type: ignore[no-untyped-def,override]
        raise ZeroDivisionError("a mistake of ours")


def test_a_mistake_is_one_json_line_with_the_id(lines: io.StringIO) -> None:
    inbox = SimpleNamespace(stopped=0, connection=None)
    token = current_request_id.set("call-7")
    try:
        found = worker._answer(
            Broken(), Task(1, "SolvePlan", b"", 1.0), cast("worker._Inbox", inbox)
        )
    finally:
        current_request_id.reset(token)
    assert isinstance(found, Failed)
    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    (line,) = [entry for entry in said if entry["level"] == "error"]
    assert line["request_id"] == "call-7"
    assert "SolvePlan" in line["message"]
    assert "ZeroDivisionError: a mistake of ours" in line["exception"]


def _fails(self, task, stop, progress):  # type: ignore[no-untyped-def]
    raise ZeroDivisionError("a mistake of ours")


def _worker(connection: socket.socket, path: str) -> None:
    with open(path, "w", buffering=1) as stream:
        import os

        os.dup2(stream.fileno(), 2)
        Answering.warm_up = lambda self: None  # type: ignore[method-assign]
        Answering.answer = _fails  # type: ignore[method-assign]
        worker.worker_main(connection, 0, "info", "json")


def test_the_id_comes_with_the_question(tmp_path) -> None:  # type: ignore[no-untyped-def]
    ours, theirs = socket.socketpair()
    path = tmp_path / "stderr"
    process = multiprocessing.get_context("spawn").Process(
        target=_worker, args=(theirs, str(path)), daemon=True
    )
    process.start()
    theirs.close()
    try:
        assert isinstance(receive_frame(ours), Ready)
        send_frame(ours, Task(1, "SolvePlan", b"", 1.0, call_id="call-8"))
        assert isinstance(receive_frame(ours), Begun)
        assert isinstance(receive_frame(ours), Failed)
    finally:
        ours.close()
        process.join(10)
    said = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry["request_id"] for entry in said if entry["level"] == "error"] == ["call-8"]
