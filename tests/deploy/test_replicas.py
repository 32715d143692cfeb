"""Several replicas behind one name: calls are spread, and go on while replicas come and go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from server_process import ServerProcess, running_server

from planner.client import PlannerClient, RemoteCancelledError


@pytest.fixture
def replicas() -> Iterator[list[ServerProcess]]:
    flags = ("--slots", "1", "--spare-workers", "0")
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        starting = [pool.submit(stack.enter_context, running_server(*flags)) for _ in range(2)]
        yield [each.result() for each in starting]


def calls_of(server: ServerProcess) -> int:
    return sum(entry.get("message") == "call ended" for entry in list(server.log))


def shares_of(replicas: list[ServerProcess], total: int) -> list[int]:
    """Calls of each, once their logs tell of all of them."""
    end = time.monotonic() + 10.0
    while sum(shares := [calls_of(server) for server in replicas]) < total:
        assert time.monotonic() < end, shares
        time.sleep(0.01)
    return shares


def test_calls_are_spread_and_survive_their_replica(replicas: list[ServerProcess]) -> None:
    first, second = replicas
    # As dns:/// would resolve the headless Service.
    name = "ipv4:" + ",".join(server.address for server in replicas)
    with PlannerClient(name) as planner:

        def ask() -> str:
            return planner.catalog("dgx-h100")[0].name

        # Connections are made one after the other; then turns are taken.
        total = 0
        while not all(map(calls_of, replicas)):
            assert ask()
            total += 1
            assert total < 1_000
        before = shares_of(replicas, total)
        for _ in range(20):
            assert ask()
        shares = shares_of(replicas, total + 20)
        assert [now - then for now, then in zip(shares, before, strict=True)] == [10, 10]

        first.terminate()  # as in a rolling update
        failed = 0
        for _ in range(30):
            try:
                assert ask()
            except RemoteCancelledError:
                failed += 1
        # gRPC's server cancels what reaches it just as it closes (grpc/grpc#41785), instead of
        # saying that it is unavailable, which would be asked again.
        assert failed <= 1
        assert first.wait() == 0
        assert second.process.poll() is None
