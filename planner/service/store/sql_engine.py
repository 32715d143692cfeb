"""The connection to the plan store's database, and what its failures mean."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url

from planner.errors import InputError
from planner.service.store.errors import StoreError, StoreFullError, StoreUnavailableError

__all__ = ["begin", "is_conflict", "make_engine", "readable_url", "translated"]

SQLITE_BUSY_S = 10.0
_POSTGRES_ARGUMENTS: dict[str, str | int | None] = {
    "application_name": "stageplan",
    "connect_timeout": 5,
    # A peer that vanished is noticed within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    # Prepared statements outlive a transaction, which connection poolers do not allow.
    "prepare_threshold": None,
}


def readable_url(url: URL) -> str:
    """Return a URL to be shown: without password and without options, which may hold one."""
    shown = URL.create(
        url.drivername,
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
    )
    return shown.render_as_string(hide_password=True)


def make_engine(text: str, *, pool_size: int) -> Engine:
    """Return an engine for a store's URL; nothing is connected yet, but an SQLite file is made.

    Raises
    ------
    InputError
        If the URL cannot be read or its file cannot be made. The message holds no password.
    """
    try:
        url = make_url(text)
    except (exc.ArgumentError, ValueError):
        raise InputError(
            "the plan store's URL cannot be read",
            fix="percent-encode special characters in its user name and password",
        ) from None
    backend, _, driver = url.drivername.partition("+")
    if backend == "sqlite" and driver in ("", "pysqlite"):
        return _sqlite_engine(url.set(drivername="sqlite+pysqlite"), pool_size)
    if backend in ("postgres", "postgresql") and driver in ("", "psycopg"):
        return _postgres_engine(url.set(drivername="postgresql+psycopg"), pool_size)
    raise InputError(
        "is no driver of the plan store",
        value=url.drivername,
        expected="sqlite or postgresql+psycopg",
    )


def begin(engine: Engine, *, write: bool) -> Connection:
    """Return a connection whose transaction, in SQLite, takes the write lock at once or never."""
    return engine.connect().execution_options(stageplan_write=write)


def translated(error: exc.SQLAlchemyError, url: URL) -> StoreError:
    """Return what a database error means to the server, without statement, values, password."""
    where = readable_url(url)
    if not isinstance(error, exc.DBAPIError):
        return StoreUnavailableError(f"{where}: no connection is free ({type(error).__name__})")
    cause = error.orig
    lines = str(cause).splitlines()
    said = lines[0] if lines else type(cause).__name__
    if url.password:
        said = said.replace(str(url.password), "***")
    sqlstate = getattr(cause, "sqlstate", None)
    code = getattr(cause, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary == sqlite3.SQLITE_FULL or sqlstate == "53100":
        return StoreFullError(f"{where}: {said}")
    if (
        error.connection_invalidated
        or primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        or (isinstance(error, exc.OperationalError) and sqlstate is None and primary is None)
        or (sqlstate is not None and _is_passing(sqlstate))
    ):
        return StoreUnavailableError(f"{where}: {said}")
    return StoreError(f"{where}: {said}")


def is_conflict(error: exc.SQLAlchemyError) -> bool:
    """Whether the database rolled a transaction back that would succeed if run again."""
    cause = error.orig if isinstance(error, exc.DBAPIError) else None
    return getattr(cause, "sqlstate", None) in ("40001", "40P01")


def _is_passing(sqlstate: str) -> bool:
    # Connection lost, shutting down or starting up, out of connections, rolled back, lock waits,
    # a session that idled too long, a standby that is read-only until it is promoted.
    return sqlstate[:2] in ("08", "40", "53", "57") or sqlstate in ("55P03", "25P03", "25006")


def _postgres_engine(url: URL, pool_size: int) -> Engine:
    if url.host is not None and "@" in url.host:
        # What follows the first @ of a password would be taken, and shown, as the host.
        raise InputError(
            "the plan store's URL has more than one @",
            fix="percent-encode special characters in its user name and password",
        )
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={
            key: value for key, value in _POSTGRES_ARGUMENTS.items() if key not in url.query
        },
    )

    @event.listens_for(engine, "connect")
    def set_limits(connection: Any, _record: object) -> None:
        # A replica that froze inside a transaction must not hold the others up.
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '10s'")
            cursor.execute("SET idle_in_transaction_session_timeout = '30s'")
        connection.commit()

    return engine


def _sqlite_engine(url: URL, pool_size: int) -> Engine:
    name = url.database
    if not name or name == ":memory:" or name.startswith("file:"):
        raise InputError(
            "an SQLite plan store needs the name of a file",
            expected="sqlite:///FILE",
            fix="use memory:// for one that ends with the process",
        )
    path = Path(name)
    if not path.parent.is_dir():
        raise InputError("no such folder for the plan store", value=path.parent)
    try:
        # What callers send is nobody else's business; SQLite gives its other files this mode.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise InputError(
            f"the plan store's file cannot be opened: {error.strerror}", value=path
        ) from None
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        hide_parameters=True,
        connect_args={"timeout": SQLITE_BUSY_S, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def set_up(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin below, and nowhere else
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Another process is switching this moment; the mode belongs to the file.
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        write = connection.get_execution_options().get("stageplan_write", True)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine
