"""SQLite: one file, several processes, and what the file may be."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import exc, make_url
from store_places import TTL_S, begin, create, every_plan, in_loop, plans

from planner.errors import InputError
from planner.service.store import (
    OperationState,
    RequestOutcome,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    open_store,
)
from planner.service.store import sql_engine as engine

ROOT = Path(__file__).resolve().parents[3]

KILLED = """
import asyncio, os, signal, sys
from planner.service.store import NewPlan, open_store

async def main():
    store = open_store(sys.argv[1])
    made = await store.create_operation(
        caller="ann", method="CreatePlan", request_bytes=b"q", request_hash="h",
        ttl_s=3600, request_id="r", owner="dead", lease_s=0.001)
    await store.put_plans(
        [NewPlan(plan_id=str(index), caller="ann", content=b"p" * 999) for index in range(300)],
        ttl_s=3600)
    print(made.operation.name, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

HOLDER = """
import asyncio, os, signal, sys
from planner.service.store import open_store

async def main():
    store = open_store(sys.argv[1])
    await store.create_operation(
        caller="ann", method="CreatePlan", request_bytes=b"q", request_hash="h",
        ttl_s=3600, owner="holder", lease_s=3600)
    await store.begin_request(
        caller="ann", method="SolvePlan", request_id="id-1", request_hash="hash",
        owner="holder", lease_s=3600, ttl_s=3600)
    print("held", flush=True)
    sys.stdin.read()

asyncio.run(main())
"""

CLAIMER = """
import asyncio, sys
from planner.service.store import open_store

async def main():
    store = open_store(sys.argv[1])
    async def claim():
        while operation := await store.claim_operation("other", lease_s=600):
            print(operation.name, flush=True)
    await asyncio.gather(*(claim() for _ in range(4)))
    await store.close()

asyncio.run(main())
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plans.db"


def start(program: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, url],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@in_loop
async def test_what_was_acknowledged_survives_a_kill(file: Path) -> None:
    url = f"sqlite:///{file}"
    killed = start(KILLED, url)
    output, _ = await asyncio.to_thread(killed.communicate)
    assert killed.returncode == -signal.SIGKILL
    store = open_store(url)
    assert len(await every_plan(store, 1000, caller="ann")) == 300
    operation = await store.claim_operation("next", lease_s=60)
    assert operation is not None
    assert (operation.name, operation.attempts) == (output.strip(), 2)
    assert not (await create(store, request_id="r", request_hash="h")).created
    await store.close()


@in_loop
async def test_what_a_dead_process_held_is_free_for_the_next_one_alone(file: Path) -> None:
    url = f"sqlite:///{file}"
    holder = start(HOLDER, url)
    assert holder.stdout is not None
    assert await asyncio.to_thread(holder.stdout.readline) == "held\n"
    second = open_store(url)
    third = open_store(url)
    holder.kill()
    await asyncio.to_thread(holder.communicate)
    fourth = open_store(url)  # two others live on, and might be the ones who hold it
    for store in (second, third, fourth):
        assert (await begin(store, owner="next")).outcome is RequestOutcome.IN_PROGRESS
        assert await store.claim_operation("next", lease_s=60) is None
        await store.close()
    alone = open_store(url)
    assert (await begin(alone, request_hash="x")).outcome is RequestOutcome.CONFLICT
    assert (await begin(alone, owner="next")).outcome is RequestOutcome.FRESH
    operation = await alone.claim_operation("next", lease_s=60)
    assert operation is not None
    assert operation.attempts == 2
    await alone.close()


@in_loop
async def test_without_locks_nobody_is_known_to_be_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    url = f"sqlite:///{file}"
    store = open_store(url)
    await begin(store, lease_s=600)
    await store.close()
    again = open_store(url)
    assert (await begin(again)).outcome is not RequestOutcome.FRESH
    await again.close()


@in_loop
async def test_two_processes_share_the_work_and_nothing_is_done_twice(file: Path) -> None:
    url = f"sqlite:///{file}"
    store = open_store(url)
    names = [(await create(store)).operation.name for _ in range(60)]
    other = start(CLAIMER, url)
    assert other.stdout is not None
    theirs = [(await asyncio.to_thread(other.stdout.readline)).strip()]
    mine = []
    while operation := await store.claim_operation("me", lease_s=600):
        mine.append(operation.name)
    rest, _ = await asyncio.to_thread(other.communicate)
    assert other.returncode == 0
    assert sorted([*mine, *theirs, *rest.split()]) == sorted(names)
    assert (await store.counts()).operations[OperationState.RUNNING] == 60
    await store.close()


@in_loop
async def test_a_writer_shut_out_says_so_while_readers_and_the_loop_go_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SQLITE_BUSY_S", 0.4)
    store = open_store(f"sqlite:///{file}")
    name = (await create(store)).operation.name
    rude = sqlite3.connect(file, isolation_level=None)
    rude.execute("BEGIN IMMEDIATE")
    late: list[float] = []

    async def tick() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            late.append(time.monotonic() - before)

    ticking = asyncio.create_task(tick())
    writing = asyncio.create_task(store.delete_operation(name))
    await asyncio.sleep(0.05)
    assert await store.get_operation(name) is not None
    with pytest.raises(StoreUnavailableError, match="locked"):
        await writing
    ticking.cancel()
    # The loop itself stood still for none of the 0.4 s; a busy machine may be slow.
    assert len(late) > 10
    rude.execute("ROLLBACK")
    rude.close()
    assert await store.delete_operation(name)
    await store.close()


@in_loop
async def test_the_file_is_in_wal_mode_and_nobody_elses_to_read(file: Path) -> None:
    store = open_store(f"sqlite:///{file}")
    await store.put_plans(plans(2), ttl_s=TTL_S)
    for path in (file, file.with_name("plans.db-wal")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with sqlite3.connect(file) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()
    await store.close()


def test_a_file_that_is_no_database_is_left_alone(file: Path, tmp_path: Path) -> None:
    file.write_text("name,type\n" * 200)
    with pytest.raises(StoreError, match="not a database"):
        open_store(f"sqlite:///{file}")
    assert file.read_text() == "name,type\n" * 200
    with pytest.raises(InputError, match="cannot be opened"):
        open_store(f"sqlite:///{tmp_path}")
    with pytest.raises(InputError, match="no such folder"):
        open_store(f"sqlite:///{tmp_path}/absent/plans.db")


def test_a_full_disk_is_a_full_store(file: Path) -> None:
    database = sqlite3.connect(file)
    database.execute("PRAGMA max_page_count = 2")
    database.execute("CREATE TABLE wide (x)")
    with pytest.raises(sqlite3.OperationalError) as caught:
        database.execute("INSERT INTO wide VALUES (zeroblob(99999))")
    database.close()
    wrapped = exc.OperationalError("INSERT", {}, caught.value)
    assert isinstance(engine.translated(wrapped, make_url(f"sqlite:///{file}")), StoreFullError)
