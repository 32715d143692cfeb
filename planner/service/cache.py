"""Finished answers by the hash of their question, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["AnswerCache", "CachedAnswer"]

_OVERHEAD_BYTES = 400
"""Of an entry, beside its response."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A response message and the revisions of the model and the calibration it was made from."""

    response: bytes
    revisions: tuple[str, str]
    plan_ids: tuple[str, ...] = ()


class AnswerCache:
    """The most recently used answers that fit.

    Examples
    --------
    >>> cache = AnswerCache(1000)
    >>> cache.put("a", CachedAnswer(b"x" * 300, ("", "")))
    >>> cache.put("b", CachedAnswer(b"y" * 300, ("", "")))
    >>> cache.get("a") is None, cache.get("b").response[:1]
    (True, b'y')
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.size_bytes = 0
        self._entries: OrderedDict[str, CachedAnswer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> CachedAnswer | None:
        """The answer to a question, if it is kept."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: str, answer: CachedAnswer) -> None:
        """Keep an answer; what was not asked for longest makes room."""
        self._drop(key)
        if self._size(answer) > self.capacity_bytes:
            return
        self._entries[key] = answer
        self.size_bytes += self._size(answer)
        while self.size_bytes > self.capacity_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: str) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            self.size_bytes -= self._size(old)

    @staticmethod
    def _size(answer: CachedAnswer) -> int:
        return len(answer.response) + _OVERHEAD_BYTES
