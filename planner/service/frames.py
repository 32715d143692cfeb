"""What the front and a worker say to each other over a socket pair: framed, pickled tuples.

A frame is four bytes of length (big endian), then a pickle. Only the server and the processes
it started itself hold the sockets, so that unpickling is safe.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Answer",
    "Begun",
    "Failed",
    "Progress",
    "Ready",
    "StopTask",
    "Task",
    "read_frame",
    "receive_frame",
    "send_frame",
    "to_frame",
]

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class Task:
    """A question for a worker."""

    number: int
    method: str
    """Name of the RPC."""
    request: bytes
    """Its request message; models and plans by hash or id are in ``models`` and ``plans``."""
    wall_s: float
    """How long it may take from now."""
    request_hash: str = ""
    """Of the canonical request; the answer repeats it."""
    models: dict[str, bytes] = field(default_factory=dict)
    """Serialised ``ModelSource`` by content hash."""
    plans: dict[str, bytes] = field(default_factory=dict)
    """Plan JSON by id."""
    memory_bytes: int | None = None
    """Address space it may take beyond what the worker holds."""
    with_progress: bool = False
    call_id: str = ""
    """Id of the call that asks, for the log."""


@dataclass(frozen=True)
class StopTask:
    """Answer now with what there is."""

    number: int


@dataclass(frozen=True)
class Ready:
    """A worker has imported and compiled what it needs."""

    pid: int
    planner_version: str
    catalog_revision: str


@dataclass(frozen=True)
class Begun:
    """A worker has taken a question: from now on its death is the question's concern."""

    number: int


@dataclass(frozen=True)
class Progress:
    """A message of a streaming answer, before its end."""

    number: int
    message: bytes


@dataclass(frozen=True)
class Answer:
    """A response message and what the front has to know of it without reading it."""

    number: int
    response: bytes
    final: bool = True
    """Not cut short by time: the same question always has this answer, so it may be cached."""
    revisions: tuple[str, str] = ("", "")
    """Of the model and of the calibration."""
    reason: str = ""
    """Termination reason and limit, and the gap, for the metrics."""
    limit: str = ""
    gap: float | None = None
    plans: tuple[tuple[str, bytes, dict[str, Any]], ...] = ()
    """Plans to keep: id, JSON, labels."""
    solve_s: float = 0.0


@dataclass(frozen=True)
class Failed:
    """A question that has no answer; ``error`` is a ``ServiceError`` as bytes."""

    number: int
    error: bytes
    memory: bool = False
    """The memory cap was met: the worker is to be replaced."""
    solve_s: float = 0.0


def to_frame(item: object) -> bytes:
    """A frame around a pickled object."""
    body = pickle.dumps(item, protocol=5)
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> Any:
    """The next object; ``asyncio.IncompleteReadError`` where the other side is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))


def send_frame(connection: socket.socket, item: object) -> None:
    """Send an object, from the worker's side."""
    connection.sendall(to_frame(item))


def receive_frame(connection: socket.socket) -> Any:
    """The next object, on the worker's side; EOFError where the front is gone."""
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    return pickle.loads(_receive(connection, length))


def _receive(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
