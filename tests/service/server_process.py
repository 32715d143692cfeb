"""A real ``planner serve`` for tests: started, asked, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from planner.v1 import planner_service_pb2_grpc

_START_S = 240.0
"""After an installation the first worker compiles for half a minute, longer on busy machines."""


class ServerProcess:
    """A server in a process of its own."""

    def __init__(self, *flags: str, environment: dict[str, str] | None = None) -> None:
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "planner", "serve", "--port", "0", *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.log: list[dict[str, Any]] = []
        self.other_lines: list[str] = []
        self._serving = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        deadline = time.monotonic() + _START_S
        while not self._serving.wait(0.05):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server did not start: {self.other_lines} {self.log}")

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            self._note(lines)

    def _note(self, lines: Iterable[str]) -> None:
        for line in lines:
            try:
                entry = json.loads(line)
            except ValueError:
                self.other_lines.append(line)
                continue
            self.log.append(entry)
            if entry.get("message") == "serving":
                self._serving.set()

    @property
    def address(self) -> str:
        """Where it listens."""
        return next(e["address"] for e in self.log if e.get("message") == "serving")

    @property
    def pid(self) -> int:
        """Of the front."""
        return self.process.pid

    def workers(self) -> list[int]:
        """Process ids of the living workers."""
        return [pid for pid in _children(self.pid) if "spawn_main" in _command(pid)]

    def orphans(self, pids: list[int]) -> list[int]:
        """Which of some processes live on."""
        return [pid for pid in pids if _alive(pid)]

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()
        self._reader.join(5.0)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Exit status."""
        status = self.process.wait(timeout_s)
        self._reader.join(5.0)
        return status

    def channel(self, **options: Any) -> grpc.Channel:
        """A channel to it."""
        return grpc.insecure_channel(self.address, options=list(options.items()))

    def stub(self) -> planner_service_pb2_grpc.PlannerServiceStub:
        """A stub on a channel of its own."""
        return planner_service_pb2_grpc.PlannerServiceStub(self.channel())


@contextmanager
def running_server(*flags: str, **options: Any) -> Iterator[ServerProcess]:
    """A server for the length of a ``with`` block; no worker may outlive it."""
    server = ServerProcess(*flags, **options)
    try:
        yield server
    finally:
        workers = server.workers()
        if server.process.poll() is None:
            server.terminate()
            try:
                server.wait(40.0)
            except subprocess.TimeoutExpired:
                server.kill()
        end = time.monotonic() + 10.0
        while server.orphans(workers) and time.monotonic() < end:
            time.sleep(0.05)
        assert not server.orphans(workers)


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
