"""Slots, lanes and fairness, with workers that are told when to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from planner.service import errors, pool
from planner.service.fair_queue import FairQueue
from planner.service.frames import Answer, Failed, Ready, Task
from planner.service.pool import Job, LaneName, OutOfTimeError, Pool
from planner.service.settings import load_settings
from planner.service.worker_process import WorkerDiedError


class FakeWorker:
    """Answers when the test says so."""

    all: list[FakeWorker]

    def __init__(self, on_exit: Callable[[Any], None], settings: object = None) -> None:
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.done = 0
        self.told_to_die = ""
        self.pid = 1
        self.stopped = False
        self.task: Task | None = None
        self._on_exit = on_exit
        self._future: asyncio.Future[Answer | Failed] | None = None
        FakeWorker.all.append(self)

    async def start(self) -> None:
        self.ready.set_result(Ready(1, "v", "c"))

    @property
    def alive(self) -> bool:
        return not self.told_to_die

    def ask(self, task: Task, on_progress: object) -> asyncio.Future[Answer | Failed]:
        self.task, self.stopped = task, False
        self._future = asyncio.get_running_loop().create_future()
        return self._future

    def stop_question(self) -> None:
        self.stopped = True

    def answer(self, response: bytes = b"") -> None:
        assert self._future is not None
        assert self.task is not None
        self.done += 1
        self._future.set_result(Answer(self.task.number, response))

    def die(self, begun: bool = True) -> None:
        assert self._future is not None
        self.told_to_die = "crash"
        self._future.set_exception(WorkerDiedError(-9, begun))
        self._on_exit(self)

    def kill(self, cause: str) -> None:
        if not self.told_to_die:
            self.told_to_die = cause
            if self._future is not None and not self._future.done():
                self._future.set_exception(WorkerDiedError(-9, True))
                self._future.exception()
            self._on_exit(self)

    async def join(self) -> None:
        return None


class Watcher:
    """Counts."""

    def __init__(self) -> None:
        self.restarts: list[str] = []

    def observe_queue(self, lane: str, seconds: float) -> None:
        assert seconds >= 0

    def worker_restarted(self, cause: str) -> None:
        self.restarts.append(cause)


@pytest.fixture(autouse=True)
def fake_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeWorker.all = []
    monkeypatch.setattr(pool, "WorkerProcess", FakeWorker)


async def started(**settings: Any) -> tuple[Pool, Watcher]:
    watcher = Watcher()
    made = Pool(
        load_settings(**{"slots": 1, "quick_slots": 1, "spare_workers": 0, **settings}), watcher
    )
    await made.start()
    await settle()
    return made, watcher


def job(
    method: str, caller: str = "a", lane: LaneName = LaneName.SEARCH, seconds: float = 60.0
) -> Job:
    now = asyncio.get_running_loop().time()
    return Job(method, b"", caller, lane, answer_by=now + seconds, solve_by=now + seconds * 0.8)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def at_work() -> dict[str, FakeWorker]:
    """Workers by the question they are at."""
    return {
        w.task.method: w
        for w in FakeWorker.all
        if w.task is not None and w.alive and w._future is not None and not w._future.done()
    }


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


def test_small_questions_do_not_wait_behind_searches() -> None:
    async def test() -> None:
        made, _ = await started()
        searches = [asyncio.create_task(made.run(job(f"s{i}"))) for i in range(3)]
        await settle()
        small = [asyncio.create_task(made.run(job(f"q{i}", lane=LaneName.QUICK))) for i in range(2)]
        await settle()
        assert set(at_work()) == {"s0", "q0"}
        at_work()["q0"].answer()
        await settle()
        assert set(at_work()) == {"s0", "q1"}
        for _ in range(4):
            for worker in at_work().values():
                worker.answer()
            await settle()
        await asyncio.gather(*searches, *small)
        await made.close()

    run(test)


def test_small_questions_use_the_slots_that_searches_leave_free() -> None:
    async def test() -> None:
        made, _ = await started()
        small = [asyncio.create_task(made.run(job(f"q{i}", lane=LaneName.QUICK))) for i in range(3)]
        await settle()
        assert set(at_work()) == {"q0", "q1"}
        search = asyncio.create_task(made.run(job("s")))
        await settle()
        # The next free slot is a search's, and the quick lane's own goes to its own.
        next(iter(at_work().values())).answer()
        await settle()
        assert "s" in at_work() or "q2" in at_work()
        for _ in range(4):
            for worker in at_work().values():
                worker.answer()
            await settle()
        await asyncio.gather(search, *small)
        assert {lane["busy"] for lane in made.figures().values()} == {0}
        await made.close()

    run(test)


def test_each_caller_gets_a_share() -> None:
    """One with ten questions does not keep back one with one."""

    async def test() -> None:
        made, _ = await started()
        many = [asyncio.create_task(made.run(job(f"a{i}", "a"))) for i in range(10)]
        await settle()
        one = asyncio.create_task(made.run(job("b", "b")))
        await settle()
        at_work()["a0"].answer()
        await settle()
        assert "b" in at_work()
        while at_work():
            for worker in at_work().values():
                worker.answer()
            await settle()
        await asyncio.gather(one, *many)
        await made.close()

    run(test)


def test_weights_are_shares() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in "ab":
        for number in range(60):
            queue.push(name, f"{name}{number}", 2.0 if name == "a" else 1.0)
    served = []
    for _ in range(60):
        item = queue.pop()
        served.append(item[0])
        queue.charge(item[0], 1.0)
    assert served.count("a") == 40


def test_a_death_is_retried_once_and_one_before_the_start_for_free() -> None:
    async def test() -> None:
        made, watcher = await started()
        asked = asyncio.create_task(made.run(job("x")))
        await settle()
        for _ in range(3):
            at_work()["x"].die(begun=False)
            await settle()
        at_work()["x"].die()
        await settle()
        at_work()["x"].answer(b"yes")
        assert (await asked).response == b"yes"
        again = asyncio.create_task(made.run(job("y")))
        for _ in range(2):
            await settle()
            at_work()["y"].die()
        with pytest.raises(errors.ServiceError) as caught:
            await again
        assert caught.value.reason == "WORKER_CRASHED"
        assert watcher.restarts == ["crash"] * 6
        assert {lane["busy"] for lane in made.figures().values()} == {0}
        await made.close()

    run(test)


def test_a_cancelled_question_gives_its_slot_back_by_force_if_need_be() -> None:
    async def test() -> None:
        made, watcher = await started(soft_stop_s=0.05)
        for listens in (True, False):
            asked = asyncio.create_task(made.run(job("x")))
            await settle()
            worker = at_work()["x"]
            asked.cancel()
            await settle()
            assert worker.stopped
            if listens:
                worker.answer()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await asyncio.sleep(0 if listens else 0.1)
            await settle()
            assert worker.alive is listens
            assert {lane["busy"] for lane in made.figures().values()} == {0}
        assert watcher.restarts == ["hung"]
        queued = [asyncio.create_task(made.run(job(f"z{i}"))) for i in range(2)]
        await settle()
        queued[1].cancel()
        await settle()
        assert made.figures()["search"]["waiting"] == 0
        at_work()["z0"].answer()
        await queued[0]
        await made.close()

    run(test)


def test_what_cannot_be_in_time_is_refused_at_once() -> None:
    async def test() -> None:
        made, _ = await started(queue_size=3, caller_queue_size=2)
        made._lanes[LaneName.SEARCH].usual_s = 10.0
        running = asyncio.create_task(made.run(job("x")))
        await settle()
        with pytest.raises(errors.ServiceError) as caught:
            made.refuse_if_full(job("y", seconds=5.0))
        assert caught.value.reason == "DEADLINE_UNREACHABLE"
        assert caught.value.failure.retry_after_s
        waiting = [asyncio.create_task(made.run(job(f"w{i}", "b"))) for i in range(2)]
        await settle()
        with pytest.raises(errors.ServiceError) as caught:
            made.refuse_if_full(job("y", "b"))
        assert caught.value.reason == "QUEUE_FULL"
        made.refuse_if_full(job("y", "c"))
        waiting.append(asyncio.create_task(made.run(job("w2", "c"))))
        await settle()
        with pytest.raises(errors.ServiceError):
            made.refuse_if_full(job("y", "d"))
        while at_work():
            for worker in at_work().values():
                worker.answer()
            await settle()
        await asyncio.gather(running, *waiting)
        await made.close()

    run(test)


def test_time_is_up_in_the_queue_and_at_work() -> None:
    async def test() -> None:
        made, _ = await started(soft_stop_s=0.02)
        working = asyncio.create_task(made.run(job("x", seconds=0.1)))
        await settle()
        waiting = asyncio.create_task(made.run(job("y", seconds=0.05)))
        with pytest.raises(OutOfTimeError) as caught:
            await waiting
        assert caught.value.queued
        with pytest.raises(OutOfTimeError) as caught:
            await working
        assert not caught.value.queued
        await asyncio.sleep(0.05)
        assert {lane["busy"] for lane in made.figures().values()} == {0}
        await made.close()

    run(test)
