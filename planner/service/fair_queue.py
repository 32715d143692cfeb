"""Who goes next: waiting items of many callers, each caller getting its share of the time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["FairQueue", "TokenBucket"]

T = TypeVar("T")


@dataclass
class _Line(Generic[T]):
    items: deque[T] = field(default_factory=deque)
    used: float = 0.0
    """Seconds of work got, over its weight."""
    weight: float = 1.0


class FairQueue(Generic[T]):
    """First come, first served within a caller; between callers, least served first.

    A caller who was away starts level with the least served of those who wait: idleness is not
    saved up (start-time fair queueing; Goyal, Vin and Cheng, SIGCOMM 1996).

    Examples
    --------
    >>> queue = FairQueue()
    >>> for item in ("a1", "a2", "a3"):
    ...     queue.push("a", item)
    >>> queue.push("b", "b1")
    >>> first = queue.pop(); queue.charge("a", 1.0)
    >>> first, queue.pop(), queue.pop()
    ('a1', 'b1', 'a2')
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line[T]] = {}
        self._level = 0.0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def waiting(self, caller: str) -> int:
        """Items of one caller."""
        line = self._lines.get(caller)
        return len(line.items) if line else 0

    def ahead_of(self, caller: str) -> int:
        """Items that would be served before the next one of a caller, were all of equal work."""
        own = self.waiting(caller)
        return own + sum(
            min(len(line.items), own + 1) for name, line in self._lines.items() if name != caller
        )

    def push(self, caller: str, item: T, weight: float = 1.0, *, first: bool = False) -> None:
        """Add an item; ``first`` puts it before the caller's others (a retry)."""
        line = self._lines.setdefault(caller, _Line())
        line.weight = max(weight, 1e-6)
        if not line.items:
            line.used = max(line.used, self._level)
        if first:
            line.items.appendleft(item)
        else:
            line.items.append(item)
        self._length += 1

    def pop(self) -> T:
        """The next item (IndexError where there is none)."""
        waiting = [(line.used, name) for name, line in self._lines.items() if line.items]
        if not waiting:
            raise IndexError("pop from an empty queue")
        self._level, name = min(waiting)
        self._length -= 1
        return self._lines[name].items.popleft()

    def charge(self, caller: str, seconds: float) -> None:
        """Count work done for a caller."""
        line = self._lines.get(caller)
        if line is None:
            return
        line.used += seconds / line.weight
        if not line.items and line.used <= self._level:
            del self._lines[caller]

    def remove(self, caller: str, item: T) -> bool:
        """Take an item out before its turn; whether it was still there."""
        line = self._lines.get(caller)
        if line is None or item not in line.items:
            return False
        line.items.remove(item)
        self._length -= 1
        return True

    def clear(self) -> list[T]:
        """Take out everything."""
        items = [item for line in self._lines.values() for item in line.items]
        self._lines.clear()
        self._length = 0
        return items

    def forget_idle(self) -> None:
        """Drop callers who wait for nothing and are not ahead of the others."""
        idle = [n for n, line in self._lines.items() if not line.items and line.used <= self._level]
        for name in idle:
            del self._lines[name]


class TokenBucket:
    """A quota: ``rate`` requests a second on average, ``burst`` at once.

    Examples
    --------
    >>> now = [0.0]
    >>> bucket = TokenBucket(rate=2.0, burst=2, clock=lambda: now[0])
    >>> bucket.take(), bucket.take(), bucket.take()
    (0.0, 0.0, 0.5)
    >>> now[0] = 0.5
    >>> bucket.take()
    0.0
    """

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens, self._at = float(burst), clock()

    def take(self) -> float:
        """Take one token; 0.0, or the seconds until there will be one."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._rate
