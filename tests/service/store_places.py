"""Where a test keeps a store, how it opens it again, and what it puts there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from sqlalchemy import create_engine, text

from planner.service.store import (
    BegunRequest,
    Creation,
    NewPlan,
    PlanLabels,
    PlanStore,
    open_store,
)

REQUEST = {"caller": "ann", "method": "SolvePlan", "request_id": "id-1"}
TTL_S = 3600.0


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: float = 1_700_000_000.25

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@dataclass
class Place:
    """A database to open stores on; each is a replica's. In memory there is only one."""

    kind: str
    url: str
    clock: Clock = field(default_factory=Clock)
    _opened: list[PlanStore] = field(default_factory=list)

    @property
    def lasts(self) -> bool:
        """Whether a closed store can be opened again."""
        return self.kind != "memory"

    def open(self) -> PlanStore:
        """A store on this place; in memory always the same."""
        if self._opened and not self.lasts:
            return self._opened[0]
        store = open_store(self.url, clock=self.clock)
        self._opened.append(store)
        return store

    def execute(self, statement: str) -> None:
        """Run a statement behind the stores' backs."""
        engine = create_engine(self.url)
        with engine.begin() as connection:
            connection.execute(text(statement))
        engine.dispose()

    def close(self) -> None:
        """Close every store that was opened."""

        async def close_all() -> None:
            for store in self._opened:
                await store.close()

        asyncio.run(close_all())
        self._opened.clear()


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))  # type: ignore[arg-type]

    return run


async def create(store: PlanStore, **changes: Any) -> Creation:
    """Create an operation; what is not said is the same each time."""
    values: dict[str, Any] = {
        "caller": "ann",
        "method": "CreatePlan",
        "request_bytes": b"request",
        "request_hash": "hash",
        "ttl_s": TTL_S,
    }
    return await store.create_operation(**{**values, **changes})


async def begin(store: PlanStore, **changes: Any) -> BegunRequest:
    """Begin the request; what is not said is the same each time."""
    values: dict[str, Any] = {
        **REQUEST,
        "request_hash": "hash",
        "owner": "call-1",
        "lease_s": 10,
        "ttl_s": TTL_S,
    }
    return await store.begin_request(**{**values, **changes})


def plans(count: int, caller: str = "ann", **labels: Any) -> list[NewPlan]:
    """Make plans to be stored."""
    return [
        NewPlan(
            plan_id=f"plan-{index:03d}",
            caller=caller,
            content=b"plan %d" % index,
            labels=PlanLabels(**{"num_gpus": 8 * index, "step_time_ms": index / 3, **labels}),
        )
        for index in range(count)
    ]


async def every_plan(store: PlanStore, size: int, **filters: Any) -> list[str]:
    """Read a listing page by page."""
    found: list[str] = []
    token = ""
    while True:
        page = await store.list_plans(page_size=size, page_token=token, **filters)
        found += [plan.plan_id for plan in page.items]
        token = page.next_page_token
        if not token:
            return found
