"""Worker slots: who runs what, when, and what happens when a worker dies, hangs or is cancelled.

A lane is a number of slots and a fair queue before them. ``quick`` is for questions known to be
small, which so never wait behind a search; ``search`` for all others. Workers are not bound to a
lane: there are as many as slots and a few spare ones, so that the slot of a killed worker goes on
at once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from planner.errors import PlannerError
from planner.service import errors
from planner.service.fair_queue import FairQueue
from planner.service.frames import Answer, Failed, Ready, Task
from planner.service.logs import current_request_id
from planner.service.settings import ServiceSettings
from planner.service.worker_process import WorkerDiedError, WorkerProcess

__all__ = ["Job", "LaneName", "OutOfTimeError", "Pool", "PoolWatcher"]

log = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 10.0
_ANSWER_AFTER_S = 1.0
"""What a question whose time begins in the worker has for its answer after that."""
_STOP_AHEAD_S = 0.03
"""A worker that has not answered by itself is told to, so much before the answer has to leave."""


_MOST_DEATHS = 2
"""Workers that may die over one question: the first may have been chance."""


class LaneName(StrEnum):
    """Where a question waits."""

    QUICK = "quick"
    SEARCH = "search"


class OutOfTimeError(Exception):
    """The time to answer came and there is no answer; ``queued`` says whether it ever ran."""

    def __init__(self, queued: bool) -> None:
        self.queued = queued
        super().__init__("queued" if queued else "solving")


class PoolWatcher(Protocol):
    """Who is told what happens (the metrics)."""

    def observe_queue(self, lane: str, seconds: float) -> None:
        """A question waited so long for a slot."""
        ...

    def worker_restarted(self, cause: str) -> None:
        """A worker was replaced."""
        ...


@dataclass(eq=False)
class Job:
    """A question with who asks and by when it has to be answered."""

    method: str
    request: bytes
    caller: str
    lane: LaneName
    answer_by: float
    """Instant of the event loop's clock by which the front needs an answer."""
    solve_by: float
    """Instant by which the worker is to have stopped looking for better ones."""
    weight: float = 1.0
    request_hash: str = ""
    models: dict[str, bytes] = field(default_factory=dict)
    plans: dict[str, bytes] = field(default_factory=dict)
    memory_bytes: int | None = None
    on_progress: Callable[[bytes], None] | None = None
    solve_s: float | None = None
    """Where set, its time begins when a worker is free: both instants above follow from it then,
    and until then say how long it may wait."""
    queued_s: float = 0.0
    """Set when it starts: how long it waited."""


@dataclass(eq=False)
class _Waiting:
    job: Job
    granted: asyncio.Future[WorkerProcess]
    since: float


class _Lane:
    def __init__(self, name: LaneName, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.running = 0
        self.queue: FairQueue[_Waiting] = FairQueue()
        self.usual_s = 0.0
        """Moving average of how long a question takes."""

    def wait_s(self, caller: str) -> float:
        """What the next question of a caller has to expect."""
        if self.running < self.limit:
            return 0.0
        return self.usual_s * (self.queue.ahead_of(caller) + 1) / self.limit

    def took(self, seconds: float) -> None:
        self.usual_s += 0.1 * (seconds - self.usual_s)


@dataclass(eq=False)
class _Busy:
    """What a worker is at, and whose slot that takes."""

    job: Job
    slots: _Lane


class Pool:
    """All workers of a server."""

    def __init__(self, settings: ServiceSettings, watcher: PoolWatcher) -> None:
        self._settings = settings
        self._watcher = watcher
        self._lanes = {
            LaneName.QUICK: _Lane(LaneName.QUICK, settings.quick_slots),
            LaneName.SEARCH: _Lane(LaneName.SEARCH, settings.slots),
        }
        self._target = settings.quick_slots + settings.slots + settings.spare_workers
        self._workers: set[WorkerProcess] = set()
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, _Busy] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._closing = False
        self._failed_starts = 0
        self.versions: Ready | None = None

    async def start(self) -> None:
        """Start all workers, and return when the first two can take a question.

        The first one starts alone: after an installation it compiles what the others then find
        on disk.

        Raises
        ------
        PlannerError
            The first one could not start.
        """
        await self._grow()
        if self.versions is None:
            raise PlannerError("no worker process could be started; what they printed says why")
        others = [self._grow() for _ in range(self._target - 1)]
        await asyncio.gather(*others[:1])

    # --- one question -------------------------------------------------------------------------

    def refuse_if_full(self, job: Job) -> None:
        """Raise what a question is refused with that cannot be answered in time.

        Raises
        ------
        ServiceError
            The queue is full, or it is so long that the deadline would pass in it.
        """
        lane, settings = self._lanes[job.lane], self._settings
        wait = lane.wait_s(job.caller)
        if (
            len(lane.queue) >= settings.queue_size
            or lane.queue.waiting(job.caller) >= settings.caller_queue_size
        ):
            raise errors.queue_full(max(0.05, min(wait, 10.0)))
        if wait > max(0.0, job.solve_by - self._now()):
            raise errors.deadline_unreachable(wait)

    async def run(self, job: Job) -> Answer:
        """Answer a question in a worker.

        Raises
        ------
        ServiceError
            It cannot be answered: the worker says why, or two workers died over it.
        OutOfTimeError
            ``answer_by`` came first.
        asyncio.CancelledError
            The caller went away; the slot is free again within ``soft_stop_s``.
        """
        began = self._now()
        deaths, again = 0, False
        while True:
            worker = await self._slot(job, first=again)
            job.queued_s = self._now() - began
            if not again:
                self._watcher.observe_queue(job.lane, job.queued_s)
            try:
                found = await self._ask(worker, job)
            except WorkerDiedError as error:
                # One that was dying already when it was asked says nothing about the question.
                deaths += error.begun
                if deaths == _MOST_DEATHS:
                    raise errors.worker_crashed() from None
                again = True
                log.warning("%s is asked again: its worker ended", job.method)
                continue
            if isinstance(found, Failed):
                raise errors.ServiceError.from_bytes(found.error)
            return found

    async def _slot(self, job: Job, *, first: bool) -> WorkerProcess:
        """A worker for a job, when it is its turn."""
        waiting = _Waiting(job, asyncio.get_running_loop().create_future(), self._now())
        lane = self._lanes[job.lane]
        lane.queue.push(job.caller, waiting, job.weight, first=first)
        self._dispatch()
        try:
            async with asyncio.timeout_at(job.solve_by):
                return await waiting.granted
        except BaseException as error:
            lane.queue.remove(job.caller, waiting)
            if waiting.granted.done() and not waiting.granted.cancelled():
                # Granted in the very moment in which nobody wanted it any more.
                self._release(waiting.granted.result(), job, 0.0)
            if isinstance(error, TimeoutError):
                raise OutOfTimeError(queued=True) from None
            raise

    def _dispatch(self) -> None:
        """Give free slots away: each lane's to its own first, then searches' to small questions."""
        quick, search = self._lanes[LaneName.QUICK], self._lanes[LaneName.SEARCH]
        for waiting_lane, slots in ((quick, quick), (search, search), (quick, search)):
            while len(waiting_lane.queue) and slots.running < slots.limit and self._idle:
                waiting = waiting_lane.queue.pop()
                if waiting.granted.done():
                    continue
                worker = self._idle.pop()
                slots.running += 1
                self._busy[worker] = _Busy(waiting.job, slots)
                waiting.granted.set_result(worker)

    async def _ask(self, worker: WorkerProcess, job: Job) -> Answer | Failed:
        began = self._now()
        if job.solve_s is not None:
            job.solve_by = began + job.solve_s
            job.answer_by = job.solve_by + _ANSWER_AFTER_S
        task = Task(
            number=next(self._numbers),
            method=job.method,
            request=job.request,
            request_hash=job.request_hash,
            wall_s=max(0.001, job.solve_by - began),
            models=job.models,
            plans=job.plans,
            memory_bytes=job.memory_bytes or self._settings.worker_memory_bytes,
            with_progress=job.on_progress is not None,
            call_id=current_request_id.get() or "",
        )
        future = worker.ask(task, job.on_progress)
        reminder = asyncio.get_running_loop().call_at(
            job.answer_by - _STOP_AHEAD_S, worker.stop_question
        )
        try:
            async with asyncio.timeout_at(job.answer_by):
                found = await asyncio.shield(future)
        except TimeoutError:
            self._wind_down(worker, job, future, began)
            raise OutOfTimeError(queued=False) from None
        except asyncio.CancelledError:
            self._wind_down(worker, job, future, began)
            raise
        except WorkerDiedError:
            self._release(worker, job, self._now() - began)
            raise
        finally:
            reminder.cancel()
        self._release(worker, job, self._now() - began, found)
        return found

    def _wind_down(
        self, worker: WorkerProcess, job: Job, future: asyncio.Future[Answer | Failed], began: float
    ) -> None:
        """Nobody waits any more: stop the worker, by force if it does not listen."""

        async def wind_down() -> None:
            worker.stop_question()
            await asyncio.wait([future], timeout=self._settings.soft_stop_s)
            found: Answer | Failed | None = None
            if not future.done():
                worker.kill("hung")
            elif future.exception() is None:
                found = future.result()
            self._release(worker, job, self._now() - began, found)

        self._spawn(wind_down())

    def _release(
        self, worker: WorkerProcess, job: Job, seconds: float, found: Answer | Failed | None = None
    ) -> None:
        """Give a slot back, and its worker to the next one if it is fit for that."""
        busy = self._busy.pop(worker, None)
        if busy is None:
            return
        busy.slots.running -= 1
        lane = self._lanes[job.lane]
        if found is not None:
            lane.took(seconds)
        lane.queue.charge(job.caller, seconds)
        if isinstance(found, Failed) and found.memory:
            worker.kill("memory")
        elif worker.done >= self._settings.worker_max_questions:
            worker.kill("recycled")
        if worker.alive:
            self._idle.append(worker)
        self._dispatch()

    # --- workers ------------------------------------------------------------------------------

    def _grow(self, pause_s: float = 0.0) -> asyncio.Task[None]:
        async def grow() -> None:
            if pause_s:
                await asyncio.sleep(pause_s)
            if self._closing:
                return
            worker = WorkerProcess(self._ended, self._settings)
            self._workers.add(worker)
            try:
                await worker.start()
                ready = await worker.ready
            except (WorkerDiedError, OSError) as error:
                if not self._closing:
                    log.error("a worker could not start: %s", error)
                if worker in self._workers and worker.pid is None:
                    self._ended(worker)
                return
            self._failed_starts = 0
            self.versions = ready
            self._idle.insert(0, worker)
            self._dispatch()

        return self._spawn(grow())

    def _ended(self, worker: WorkerProcess) -> None:
        """A worker is gone, by its own fault, ours or somebody else's."""
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if self._closing:
            return
        self._watcher.worker_restarted(worker.told_to_die or "crash")
        pause = 0.0
        if not worker.ready.done() or worker.ready.exception() is not None:
            self._failed_starts += 1
            pause = min(_LONGEST_PAUSE_S, 0.1 * 2**self._failed_starts)
        if len(self._workers) < self._target:
            self._grow(pause)

    def _spawn(self, coroutine: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(coroutine)  # type: ignore[arg-type]
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # --- the whole ----------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        """Whether a question could run now or soon."""
        return bool(self._idle or self._busy)

    def figures(self) -> dict[str, dict[str, int]]:
        """Of each lane: slots busy and in all, and how many wait."""
        return {
            lane.name: {"busy": lane.running, "slots": lane.limit, "waiting": len(lane.queue)}
            for lane in self._lanes.values()
        }

    def pids(self) -> list[int]:
        """Of all workers, for tests and the log."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    async def idle(self, until: float) -> bool:
        """Wait until nothing runs or waits; whether that came before the instant ``until``."""
        while self._busy or any(len(lane.queue) for lane in self._lanes.values()):
            if self._now() >= until:
                return False
            await asyncio.sleep(0.02)
        return True

    def stop_all(self) -> None:
        """Every running search is to return what it holds; what waits is refused."""
        for lane in self._lanes.values():
            for waiting in lane.queue.clear():
                if not waiting.granted.done():
                    waiting.granted.set_exception(errors.draining())
        for worker in self._busy:
            worker.stop_question()

    async def close(self) -> None:
        """Kill all workers and wait until they are gone."""
        self._closing = True
        workers = list(self._workers)
        for worker in workers:
            worker.kill("closing")
        await asyncio.gather(*(worker.join() for worker in workers))
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
