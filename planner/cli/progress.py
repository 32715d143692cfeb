"""A line on a terminal's stderr while a search takes longer than about a second."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from types import TracebackType

__all__ = ["Progress"]

_DELAY_S = 1.0
_EVERY_S = 0.5


class Progress:
    """Says on stderr what is going on and for how long; silent where stderr is no terminal.

    Parameters
    ----------
    what
        What is being done, until the search says more.
    delay_s
        How long nothing is shown.
    """

    def __init__(self, what: str, delay_s: float = _DELAY_S) -> None:
        self._text = what
        self._delay_s = delay_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._shown = 0

    def __call__(self, text: str) -> None:
        """Replace the text."""
        self._text = text

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            if self._shown:
                _write("\r" + " " * self._shown + "\r")

    def _run(self) -> None:
        start = time.monotonic()
        wait = self._delay_s
        while not self._stop.wait(wait):
            wait = _EVERY_S
            line = f"{self._text} ({time.monotonic() - start:.0f} s)"[:78]
            _write("\r" + line.ljust(self._shown))
            self._shown = max(self._shown, len(line))


def _write(text: str) -> None:
    # A terminal that went away is no reason to lose the answer.
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
