"""The three kinds of store; PostgreSQL is started once a worker, where a test needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import PostgresServer, start_or_skip
from store_places import Place


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with start_or_skip() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> PostgresServer:
    """The server with nothing in it."""
    postgres_server.empty()
    return postgres_server


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind: str = request.param
    if kind == "memory":
        url = "memory://"
    elif kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'plans.db'}"
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url()
    found = Place(kind, url)
    yield found
    found.close()
