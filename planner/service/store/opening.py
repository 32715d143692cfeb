"""From a URL to a store."""

from __future__ import annotations

import time
from collections.abc import Callable

from planner.errors import InputError
from planner.service.store.memory import MemoryCaps, MemoryStore
from planner.service.store.protocol import PlanStore

__all__ = ["open_store"]

_EXPECTED = "memory://, sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"


def open_store(
    url: str | None,
    *,
    clock: Callable[[], float] = time.time,
    caps: MemoryCaps | None = None,
) -> PlanStore:
    """Open a store, creating its tables where there are none.

    This connects, and may take seconds where a database is slow to answer.

    Parameters
    ----------
    url
        None or ``memory://``; ``sqlite:///FILE`` (``sqlite:////FILE`` for an absolute path);
        ``postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE``. The password may be left to
        PostgreSQL's own means (``PGPASSFILE``, ``PGPASSWORD``).
    clock
        Seconds since the epoch.
    caps
        How much a store in memory may hold; the others do not read it.

    Raises
    ------
    InputError
        If the URL is none of these, its database is of a newer version, or the packages of the
        extra ``stageplan[store]`` are not installed.
    StoreUnavailableError
        If the database cannot be reached.

    Examples
    --------
    >>> import asyncio
    >>> store = open_store(None)
    >>> asyncio.run(store.counts()).plans
    0
    """
    scheme = (url or "memory://").split(":", 1)[0]
    if url in (None, "memory:", "memory://"):
        return MemoryStore(caps, clock=clock)
    # The URL may hold a password: no message shows more of it than its scheme.
    if scheme.split("+", 1)[0] not in ("sqlite", "postgresql", "postgres") or url is None:
        shown = scheme if scheme.replace("+", "").isalnum() and scheme != url else None
        raise InputError("is no kind of plan store", value=shown, expected=_EXPECTED)
    try:
        from planner.service.store.sql import open_sql_store

        return open_sql_store(url, clock=clock)
    except ImportError as error:
        # Without a name: psycopg is there and finds no libpq, which psycopg[binary] brings.
        package = (error.name or "psycopg[binary]").partition(".")[0]
        if package not in ("sqlalchemy", "psycopg", "psycopg[binary]"):
            raise
        raise InputError(
            f"a {scheme} plan store needs the package {package}",
            fix="pip install 'stageplan[store]'",
        ) from None
