"""A worker process: takes one question at a time, answers it, and ends with its server.

The main thread solves. A second one reads the socket: it notes that the running question is to
be stopped, and ends the process when the front is gone (which closes the socket however it died),
so that no worker outlives its server.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import queue
import resource
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Literal

from planner.service.frames import (
    Begun,
    Failed,
    Progress,
    Ready,
    StopTask,
    Task,
    receive_frame,
    send_frame,
)
from planner.service.logs import configure_logging, current_request_id

__all__ = ["worker_main"]

log = logging.getLogger(__name__)

_PAGE = resource.getpagesize()
_PR_SET_PDEATHSIG = 1
"""Of ``prctl``: the signal to get when the parent dies (man 2 prctl)."""
_ORPHANED = 3
"""Exit status of a worker whose server is gone."""


class _Inbox:
    """Tasks for the main thread, and which of them is to stop."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self.stopped = -1
        threading.Thread(target=self._read, daemon=True, name="inbox").start()

    def _read(self) -> None:
        while True:
            try:
                item = receive_frame(self.connection)
            except (EOFError, OSError):
                os._exit(_ORPHANED)
            if isinstance(item, StopTask):
                self.stopped = max(self.stopped, item.number)
            else:
                self.tasks.put(item)


def worker_main(
    connection: socket.socket,
    niceness: int = 0,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["json", "text"] = "json",
) -> None:
    """Body of a worker process.

    Parameters
    ----------
    connection
        The worker's end of the socket pair.
    niceness
        Added to the process's own: searches give way to the front.
    log_level, log_format
        As of the server: its log and its workers' are one.
    """
    configure_logging(log_level, log_format)
    # The front decides when this process ends; a terminal's Ctrl-C goes to the whole group.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _die_with_parent()
    os.chdir("/")  # names in requests are never files, wherever the server was started
    if niceness:
        os.nice(niceness)
    _cap_threads()
    inbox = _Inbox(connection)
    from planner.service.answering import Answering

    answering = Answering()
    answering.warm_up()
    # What is loaded now stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    send_frame(connection, Ready(os.getpid(), *answering.versions()))
    while True:
        task = inbox.tasks.get()
        current_request_id.set(task.call_id or None)
        send_frame(connection, Begun(task.number))
        send_frame(connection, _answer(answering, task, inbox))


def _answer(answering: object, task: Task, inbox: _Inbox) -> object:
    from planner.service.answering import Answering

    assert isinstance(answering, Answering)
    began = time.monotonic()

    def stop() -> bool:
        return inbox.stopped >= task.number

    def progress(message: bytes) -> None:
        send_frame(inbox.connection, Progress(task.number, message))

    _limit_memory(task.memory_bytes)
    try:
        return answering.answer(task, stop, progress if task.with_progress else None)
    except MemoryError:
        from planner.service.errors import worker_memory

        _limit_memory(None)
        error = worker_memory(task.memory_bytes or 0).to_bytes()
        return Failed(task.number, error, memory=True, solve_s=time.monotonic() - began)
    except Exception:
        from planner.service.errors import internal

        log.exception("%s failed in its worker", task.method, extra={"worker_pid": os.getpid()})
        return Failed(task.number, internal().to_bytes(), solve_s=time.monotonic() - began)
    finally:
        _limit_memory(None)


def _die_with_parent() -> None:
    """Have the kernel end this process with the front, even if it is stopped or stuck."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit_memory(extra_bytes: int | None) -> None:
    """Cap the address space at what is mapped now and so much more; None: no cap."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = hard
    if extra_bytes is not None:
        with open("/proc/self/statm", encoding="ascii") as stream:
            mapped = int(stream.read().split()[0]) * _PAGE
        soft = mapped + extra_bytes
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _cap_threads() -> None:
    """One thread of numerics a worker: there are as many workers as cores."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
