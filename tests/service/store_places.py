"""Where a test keeps a store, and how it opens it again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from planner.service.store import PlanStore, open_store


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

    def close(self) -> None:
        """Close every store that was opened."""

        async def close_all() -> None:
            for store in self._opened:
                await store.close()

        asyncio.run(close_all())
        self._opened.clear()
