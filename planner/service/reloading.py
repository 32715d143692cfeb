"""Files that are looked at again while the server runs: what cannot be used changes nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from planner.errors import FileFormatError, InputError

__all__ = ["ReloadingFiles", "read_small_file"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_BYTES = 8 << 20


def read_small_file(path: Path) -> bytes:
    """Content of a file of certificates, keys or identities.

    Raises
    ------
    planner.errors.FileFormatError
        It is missing, unreadable or far too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise FileFormatError(
            f"cannot be read: {error.strerror or error}", file=str(path)
        ) from None
    if len(content) > _MAX_BYTES:
        raise FileFormatError("is too large", file=str(path), expected="at most 8 MiB")
    return content


class ReloadingFiles(Generic[T]):
    """What some files mean, read again at most every ``every_s`` seconds.

    Contents are compared, not times: replaced links and clocks that jump cannot hide a change.
    When new contents cannot be used, what was read before stays and a warning is logged, once for
    each such content. Safe for several threads.

    Parameters
    ----------
    parse
        From the contents, in the order of ``paths``; raises `InputError` for what cannot be used.

    Raises
    ------
    planner.errors.InputError
        The first contents cannot be used.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        parse: Callable[[Sequence[bytes]], T],
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = tuple(paths)
        self._parse = parse
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = self._read()
        self._value = parse(self._seen)
        self._next = clock() + every_s
        self._trouble: str | None = None

    def _read(self) -> tuple[bytes, ...]:
        return tuple(read_small_file(path) for path in self._paths)

    def current(self) -> T:
        """The newest meaning that could be used."""
        with self._lock:
            now = self._clock()
            if now >= self._next:
                self._next = now + self._every_s
                self._look_again()
            return self._value

    def _look_again(self) -> None:
        names = ", ".join(str(path) for path in self._paths)
        try:
            contents = self._read()
            if contents == self._seen:
                # A bad read may have been warned of in between; the good content is back.
                self._trouble = None
                return
            self._value = self._parse(contents)
        except InputError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.warning("kept what was read before of %s: %s", names, error)
            return
        self._seen = contents
        self._trouble = None
        _log.info("read again: %s", names)
