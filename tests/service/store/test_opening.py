"""Opening a store: which URLs, what is missing, and nothing secret in what is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from postgres import PASSWORD, PostgresServer
from store_places import Place, create, in_loop

from planner.errors import InputError
from planner.service.store import StoreUnavailableError, open_store


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:hunter2@host/0", "redis"),
        ("mysql+pymysql://u:hunter2@host/db", "mysql"),
        ("hunter2", "no kind of plan store"),
        ("", "no kind of plan store"),
        ("postgresql+psycopg2://u:hunter2@host/db", "psycopg2"),
        ("sqlite+aiosqlite:///plans.db", "aiosqlite"),
        ("postgresql+psycopg://u:p@hunter2@host/db", "more than one @"),
        ("postgresql+psycopg://u:hunter2@host:port/db", "cannot be read"),
        ("sqlite://", "name of a file"),
        ("sqlite:///:memory:", "name of a file"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        open_store(url)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_an_unreachable_server_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        open_store("postgresql://u:hunter2@127.0.0.1:1/db?application_name=hunter2")
    assert "u@127.0.0.1:1/db" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_wrong_password_is_not_repeated(postgres: PostgresServer) -> None:
    with pytest.raises(StoreUnavailableError, match="authentication failed") as caught:
        open_store(postgres.url("hunter2"))
    assert "hunter2" not in str(caught.value)


@in_loop
async def test_a_failing_statement_shows_neither_values_nor_password(
    postgres: PostgresServer,
) -> None:
    store = open_store(postgres.url())
    postgres.execute("DROP TABLE stageplan_plans, stageplan_operations")
    with pytest.raises(Exception, match="does not exist") as caught:
        await create(store, request_bytes=b"hunter2", caller="hunter2")
    assert "hunter2" not in str(caught.value)
    assert PASSWORD not in str(caught.value)
    await store.close()


@in_loop
async def test_a_server_behind_a_socket_needs_no_password(postgres: PostgresServer) -> None:
    store = open_store(postgres.url(socket=True))
    await store.ping()
    await store.close()


@pytest.mark.parametrize(
    ("url", "package"),
    [("sqlite:///plans.db", "sqlalchemy"), ("postgresql://host/db", "psycopg")],
)
def test_a_missing_package_is_named_with_its_extra(url: str, package: str, tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None
from planner.errors import InputError
from planner.service.store import open_store
open_store(None)
try:
    open_store({url!r})
except InputError as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
        check=True,
    ).stdout
    assert f"needs the package {package}" in said
    assert "pip install 'stageplan[store]'" in said


def test_a_store_in_memory_imports_no_database() -> None:
    program = """
import sys
from planner.service.store import open_store
open_store("memory://")
assert not {"sqlalchemy", "psycopg", "sqlite3"} & set(sys.modules)
"""
    subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).resolve().parents[3], check=True
    )


def test_tables_of_another_version_are_refused(place: Place) -> None:
    if not place.lasts:
        return
    place.open()
    place.execute("UPDATE stageplan_schema SET version = 2")
    with pytest.raises(InputError, match="newer software: its tables have version 2"):
        place.open()
    place.execute("UPDATE stageplan_schema SET version = 0")
    with pytest.raises(InputError, match="older software"):
        place.open()
