"""A mapping with a cap on entries and bytes that forgets what was used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from planner.service.store.errors import StoreFullError

__all__ = ["BoundedMapping"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedMapping(Generic[K, V]):
    """Least recently used entries leave first; entries that must stay are never evicted.

    Parameters
    ----------
    what
        What the values are, for the error.
    size
        Bytes that a value counts for.
    stays
        Whether a value must not be evicted.

    Examples
    --------
    >>> kept = BoundedMapping("texts", max_entries=2, max_bytes=10, size=len)
    >>> for text in ("a", "b", "c"):
    ...     kept.put(text, text)
    >>> list(kept.values())
    ['b', 'c']
    """

    def __init__(
        self,
        what: str,
        *,
        max_entries: int,
        max_bytes: int,
        size: Callable[[V], int],
        stays: Callable[[V], bool] = lambda _: False,
    ) -> None:
        self._what = what
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._size = size
        self._stays = stays
        self._values: OrderedDict[K, V] = OrderedDict()
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> Iterator[V]:
        """Every value, least recently used first."""
        return iter(self._values.values())

    def items(self) -> Iterator[tuple[K, V]]:
        """Every key and value, least recently used first."""
        return iter(self._values.items())

    def get(self, key: K) -> V | None:
        """Look up a value, without using it."""
        return self._values.get(key)

    def use(self, key: K) -> None:
        """Make an entry the most recently used."""
        self._values.move_to_end(key)

    def put(self, key: K, value: V) -> None:
        """Add or replace a value, as the most recently used; evict what no longer fits.

        Raises
        ------
        StoreFullError
            If it does not fit beside the values that must stay. Nothing has changed then.
        """
        old = self._values.get(key)
        entries = len(self) + (old is None)
        total = self.total_bytes + self._size(value) - (0 if old is None else self._size(old))
        leaving: list[K] = []
        for other, held in self._values.items():
            if entries <= self._max_entries and total <= self._max_bytes:
                break
            if other != key and not self._stays(held):
                leaving.append(other)
                entries -= 1
                total -= self._size(held)
        if entries > self._max_entries or total > self._max_bytes:
            raise StoreFullError(
                f"no room for more {self._what}: this server keeps at most {self._max_entries} "
                f"of them and {self._max_bytes} bytes in memory"
            )
        for other in leaving:
            del self._values[other]
        self._values[key] = value
        self._values.move_to_end(key)
        self.total_bytes = total

    def pop(self, key: K) -> V | None:
        """Remove a value, if it is there."""
        value = self._values.pop(key, None)
        if value is not None:
            self.total_bytes -= self._size(value)
        return value
