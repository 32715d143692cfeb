"""When to stop: an instant and a flag, asked by every loop that may run long.

The deadline in force is that of the calling thread (a context variable), so that a loop deep in
a simulator can ask without every signature between it and the caller naming a deadline. A loop
that holds an answer asks :func:`late` and returns it; one that holds none calls :func:`poll`,
whose exception ends at whoever does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ["NEVER", "Deadline", "OutOfTimeError", "in_force", "late", "poll", "within"]


class OutOfTimeError(Exception):
    """The deadline in force has passed. Solvers catch it and return what they have."""


@dataclass(frozen=True)
class Deadline:
    """An instant, a flag that another thread may raise, or both; whichever comes first."""

    at: float | None = None
    """Instant of ``time.monotonic()``."""
    stopped: Callable[[], bool] | None = None
    """Whether somebody wants the answer now. Asked very often, so it has to be cheap."""

    def passed(self) -> str | None:
        """Why it is time to stop, as a plan's termination says it: ``stopped``, ``time_limit``."""
        if self.stopped is not None and self.stopped():
            return "stopped"
        return "time_limit" if self.at is not None and time.monotonic() >= self.at else None

    def __getstate__(self) -> dict[str, float | None]:
        """Only the instant goes to another process, whose parent watches the flag."""
        return {"at": self.at, "stopped": None}


NEVER = Deadline()

_IN_FORCE: ContextVar[Deadline] = ContextVar("deadline", default=NEVER)


@contextmanager
def within(deadline: Deadline) -> Iterator[None]:
    """Put a deadline in force for this thread, in place of the one there was."""
    before = _IN_FORCE.set(deadline)
    try:
        yield
    finally:
        _IN_FORCE.reset(before)


def in_force() -> Deadline:
    """The deadline that this thread works under."""
    return _IN_FORCE.get()


def late() -> str | None:
    """Why the deadline in force has passed (:meth:`Deadline.passed`); None where it has not."""
    return _IN_FORCE.get().passed()


def poll() -> None:
    """Go on, or raise OutOfTimeError where the deadline in force has passed."""
    if _IN_FORCE.get().passed():
        raise OutOfTimeError
