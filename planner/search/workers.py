"""Layouts solved here or elsewhere; worker processes that end with the one that started them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from planner.cost.stage_table import ChainProblem
from planner.deadlines import Deadline, late, within
from planner.errors import PlannerError
from planner.solvers.step_time import StepSolution, solve_step_time

if TYPE_CHECKING:
    from concurrent.futures import Executor, ProcessPoolExecutor

__all__ = ["Task", "solutions_of", "solve_layout", "worker_pool"]

Task = tuple[ChainProblem, tuple[int, ...], int | None, int, Deadline]
"""Problem, seed, upper bound, node limit and deadline of one layout's cuts."""

_POLL_S = 0.03
"""How often a search that waits for other processes looks whether it should stop."""

_PR_SET_PDEATHSIG = 1
"""Of ``prctl``: the signal to get when the parent dies (man 2 prctl)."""


def solve_layout(
    problem: ChainProblem,
    seed: tuple[int, ...],
    upper_bound: int | None,
    node_limit: int,
    deadline: Deadline,
) -> StepSolution:
    """Minimise the step time of one layout over its cuts (runs in any process)."""
    with within(deadline):
        return solve_step_time(
            problem, seeds=[seed], upper_bound=upper_bound, node_limit=node_limit
        )


def solutions_of(tasks: list[Task], executor: Executor | None) -> Iterator[StepSolution]:
    """Solutions in the order of the tasks, as far as time allows.

    Other processes know the deadline's instant alone: what they still compute for a search that
    was stopped is not waited for.
    """
    if executor is None:
        for task in tasks:
            if late():
                return
            yield solve_layout(*task)
        return
    futures = [executor.submit(solve_layout, *task) for task in tasks]
    for future in futures:
        while True:
            try:
                yield future.result(timeout=_POLL_S)
                break
            except TimeoutError:
                if future.done():
                    raise
                if late():
                    for left in futures:
                        left.cancel()
                    return


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
