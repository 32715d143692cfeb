"""A PostgreSQL server of the test's own: a cluster in a temporary folder, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import psycopg
import pytest

PASSWORD = "s3cret/with@signs"
_USER = "stageplan"
_START_S = 60.0


def postgres_binaries() -> Path | None:
    """Folder of initdb and postgres, or None where PostgreSQL is not installed."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    whole = [folder for folder in folders if (folder / "initdb").exists()]
    return max(whole, key=lambda folder: float(folder.parent.name), default=None)


class PostgresServer:
    """A running server; stops and leaves nothing when its block ends."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._user = _unprivileged_user()
        # A socket's path is short, so not in pytest's own folders.
        self._folder = Path(tempfile.mkdtemp(prefix="stageplan-pg-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> PostgresServer:
        try:
            self._create()
            for left in (2, 1, 0):
                self.port = _free_port()
                try:
                    self.start()
                except RuntimeError:
                    if not left:
                        raise
                else:
                    break
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, password: str = PASSWORD, *, socket: bool = False) -> str:
        """Where the store connects to: over TCP with a password, or the Unix socket."""
        if socket:
            return f"postgresql+psycopg://{_USER}@/postgres?host={self._folder}&port={self.port}"
        quoted = password.replace("/", "%2F").replace("@", "%40")
        return f"postgresql+psycopg://{_USER}:{quoted}@127.0.0.1:{self.port}/postgres"

    def execute(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements behind the store's back; the rows of the last one."""
        with self.connect() as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
            return list(cursor.fetchall()) if cursor.description else []

    def empty(self) -> None:
        """Drop everything that a test made."""
        self.execute(
            "SET client_min_messages = warning",
            "DROP SCHEMA public CASCADE",
            "CREATE SCHEMA public",
        )

    def start(self) -> None:
        """Start the server and wait until it answers."""
        log = self._folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    self._binaries / "postgres",
                    *("-D", self._folder / "data", "-p", str(self.port), "-k", self._folder),
                    *("-c", "listen_addresses=127.0.0.1", "-c", "max_connections=80"),
                    *("-c", "shared_buffers=16MB", "-c", "fsync=off"),
                ],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                **self._as_user(),
            )
        end = time.monotonic() + _START_S
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise RuntimeError(log.read_text()[-2000:]) from error
                time.sleep(0.05)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT drops its clients, SIGQUIT is a crash to recover from."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _create(self) -> None:
        word = self._folder / "password"
        word.write_text(PASSWORD)
        if self._user is not None:
            for path in (self._folder, word):
                shutil.chown(path, *self._user)
        done = subprocess.run(
            [
                self._binaries / "initdb",
                *("-D", self._folder / "data", "-U", _USER, "--pwfile", word, "--no-sync"),
                # A language's order, not the bytes': nothing may rest on the database's own.
                *("-E", "UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en"),
                *("--auth-local=trust", "--auth-host=scram-sha-256"),
            ],
            capture_output=True,
            text=True,
            cwd=self._folder,
            check=False,
            **self._as_user(),
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection behind the store's back."""
        return psycopg.connect(
            host=str(self._folder),
            port=self.port,
            user=_USER,
            dbname="postgres",
            autocommit=True,
            connect_timeout=5,
        )

    def _as_user(self) -> dict[str, object]:
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        if self._user is None:
            return {"env": environment}
        uid, gid = self._user
        return {"env": environment, "user": uid, "group": gid, "extra_groups": []}


def start_or_skip() -> PostgresServer:
    """A server to be entered; skips where there is no PostgreSQL, which CI must not lack."""
    binaries = postgres_binaries()
    if binaries is not None:
        return PostgresServer(binaries)
    if os.environ.get("CI") == "true":
        pytest.fail("PostgreSQL is not installed, and CI=true wants its tests")
    pytest.skip("PostgreSQL is not installed (initdb neither on PATH nor in /usr/lib/postgresql)")


def _unprivileged_user() -> tuple[int, int] | None:
    """PostgreSQL refuses to run as root: who runs it instead."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return found.pw_uid, found.pw_gid
    pytest.fail("running as root, and neither user postgres nor nobody exists")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
