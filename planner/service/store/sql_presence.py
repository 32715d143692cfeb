"""Whether a server is alone with its SQLite file, so that whoever held something there is gone."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, update

from planner.service.store.records import OperationState
from planner.service.store.sql_schema import OPERATIONS, REQUESTS

__all__ = ["Presence", "let_go"]


class Presence:
    """A lock beside a file that all who use the file share; the system lets go of a dead one's.

    It is a file of its own: locks on the database's would be mixed up with SQLite's. Where the
    file system has no locks nobody is known to be alone, and leases have to lapse.
    """

    def __init__(self, file: Path) -> None:
        self.alone = False
        """Nobody else has the file open, and nobody can before `share`."""
        self._descriptor: int | None = None
        lock = file.with_name(f"{file.name}.lock")
        try:
            self._descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        self.alone = True

    def share(self) -> None:
        """Let others in."""
        if self._descriptor is None:
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        except OSError:
            self.close()

    def close(self) -> None:
        """Be gone."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def let_go(connection: Connection) -> None:
    """Free the operations and request ids of owners who are all gone."""
    running: Any = OPERATIONS.c.state == OperationState.RUNNING.value
    connection.execute(update(OPERATIONS).where(running).values(lease_until=None))
    begun: Any = REQUESTS.c.response_bytes.is_(None)
    connection.execute(update(REQUESTS).where(begun).values(lease_until=0.0))
