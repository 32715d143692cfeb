"""One worker process as the front sees it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from planner.service.frames import (
    Answer,
    Begun,
    Failed,
    Progress,
    Ready,
    StopTask,
    Task,
    read_frame,
    to_frame,
)
from planner.service.settings import ServiceSettings

__all__ = ["WorkerDiedError", "WorkerProcess"]

log = logging.getLogger(__name__)

_NICENESS = 5
"""Searches give way to the front, whose answers take microseconds."""
_SPAWN = multiprocessing.get_context("spawn")
_names = itertools.count(1)


class WorkerDiedError(Exception):
    """The worker ended while it was at a question, or before it had ``begun`` with it."""

    def __init__(self, exit_code: int | None, begun: bool = False) -> None:
        self.exit_code = exit_code
        self.begun = begun
        super().__init__(f"exit code {exit_code}")


class WorkerProcess:
    """A process, the socket to it, and the question it is at.

    ``spawn``: a forked child of a gRPC server may hang in a lock that a thread held.
    """

    def __init__(self, on_exit: Callable[[WorkerProcess], None], settings: ServiceSettings) -> None:
        self._settings = settings
        self.name = f"worker-{next(_names)}"
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.done = 0
        """Questions answered."""
        self.told_to_die = ""
        """Why the front killed it, if it did."""
        self._on_exit = on_exit
        self._current: tuple[int, asyncio.Future[Answer | Failed]] | None = None
        self._begun = False
        self._on_progress: Callable[[bytes], None] | None = None
        self._process: multiprocessing.process.BaseProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process; ``ready`` is set when it can take a question."""
        ours, theirs = socket.socketpair()
        from planner.service.worker import worker_main

        process = _SPAWN.Process(
            target=worker_main,
            args=(theirs, _NICENESS, self._settings.log_level, self._settings.log_format),
            name=self.name,
            daemon=True,
        )
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._process = process
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._reading = asyncio.create_task(self._read(reader), name=f"{self.name} reader")

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether it has not ended and was not told to."""
        return not self.told_to_die and self._reading is not None and not self._reading.done()

    def ask(
        self, task: Task, on_progress: Callable[[bytes], None] | None
    ) -> asyncio.Future[Answer | Failed]:
        """Send a question; the future ends in its answer or in :class:`WorkerDiedError`."""
        assert self._current is None, f"{self.name} is busy"
        future: asyncio.Future[Answer | Failed] = asyncio.get_running_loop().create_future()
        # Seen, also where nobody waits for it any more.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if not self.alive:
            future.set_exception(WorkerDiedError(None))
            return future
        self._current, self._begun = (task.number, future), False
        self._on_progress = on_progress
        self._send(task)
        return future

    def stop_question(self) -> None:
        """Ask for an answer now with what there is."""
        if self._current is not None:
            self._send(StopTask(self._current[0]))

    def kill(self, cause: str) -> None:
        """End it at once."""
        if self.told_to_die or self._process is None:
            return
        self.told_to_die = cause
        with suppress(ProcessLookupError, AttributeError):
            self._process.kill()

    async def join(self) -> None:
        """Wait until it is gone."""
        if self._reading is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._reading)

    # --- inside -------------------------------------------------------------------------------

    def _send(self, item: object) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(to_frame(item))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                self._take(await read_frame(reader))
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            pass
        finally:
            await self._reap()

    def _take(self, item: object) -> None:
        if isinstance(item, Ready):
            if not self.ready.done():
                self.ready.set_result(item)
            return
        number = getattr(item, "number", None)
        if self._current is None or self._current[0] != number:
            return  # of a question nobody waits for any more
        if isinstance(item, Begun):
            self._begun = True
            return
        if isinstance(item, Progress):
            if self._on_progress is not None:
                self._on_progress(item.message)
            return
        assert isinstance(item, Answer | Failed)
        future = self._current[1]
        self._current, self._on_progress = None, None
        self.done += 1
        if not future.done():
            future.set_result(item)

    async def _reap(self) -> None:
        process = self._process
        assert process is not None
        if process.is_alive() and not self.told_to_die:
            # It closed its socket and lives on: of no use to anybody.
            process.kill()
        for _ in range(200):
            if process.exitcode is not None:
                break
            await asyncio.sleep(0.005)
        code = process.exitcode
        if self._writer is not None:
            self._writer.close()
        if not self.told_to_die:
            how = signal.Signals(-code).name if code is not None and code < 0 else f"status {code}"
            log.warning("%s (pid %s) ended by itself: %s", self.name, process.pid, how)
        error = WorkerDiedError(code, self._begun)
        if self._current is not None and not self._current[1].done():
            self._current[1].set_exception(error)
        self._current = None
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # seen: nobody need wait for a worker that was never used
        self._on_exit(self)
