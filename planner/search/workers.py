"""Worker processes that end with the process that started them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from planner.deadlines import late
from planner.errors import PlannerError

if TYPE_CHECKING:
    from concurrent.futures import Executor, ProcessPoolExecutor

__all__ = ["worker_pool"]

_PR_SET_PDEATHSIG = 1
"""Of ``prctl``: the signal to get when the parent dies (man 2 prctl)."""


@contextmanager
def worker_pool(workers: int) -> Iterator[Executor | None]:
    """A pool of processes for the length of a ``with`` block.

    Parameters
    ----------
    workers
        Processes wanted; no more than the machine has cores are started.

    Yields
    ------
    Executor or None
        None where one process is enough: the caller then works in its own.

    Raises
    ------
    PlannerError
        A worker was killed from outside.
    """
    count = min(workers, os.cpu_count() or 1)
    if count < 2:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(count, initializer=_start_worker, initargs=(os.getpid(),))
    try:
        yield pool
        if late():
            _stop(pool)
        pool.shutdown(cancel_futures=True)
    except BrokenProcessPool:
        _stop(pool)
        raise PlannerError("a worker process was killed (out of memory?)") from None
    except BaseException:
        _stop(pool)
        raise


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the workers now: what they still compute is of no use to anybody."""
    # The pool has no public way before Python 3.14, and waits for running calls otherwise.
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.terminate()
    pool.shutdown(cancel_futures=True)


def _start_worker(parent_pid: int) -> None:
    """First thing in a worker: the parent decides about interrupts, and takes it along."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The parent's own handler may have come along with the fork.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform != "linux":
        return
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    import multiprocessing

    # A parent that died before the line above sends no signal.
    if multiprocessing.get_start_method() == "fork" and os.getppid() != parent_pid:
        os._exit(1)
