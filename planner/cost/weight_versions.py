"""Copies of its weights a rank keeps, and how old the weights are that a gradient is taken at.

Synchronous schedules keep one copy: every micro-batch of a step uses it. Asynchronous pipelines
update while micro-batches are in flight, and a backward needs the weights its forward used:

* PipeDream (Narayanan et al. 2019, "PipeDream: Generalized Pipeline Parallelism for DNN Training",
  section 3.3) updates after every micro-batch and stashes the weights of each one in flight.
* PipeDream-2BW (Narayanan et al. 2021, "Memory-Efficient Pipeline-Parallel DNN Training", section
  3.1) updates after every M micro-batches, by gradients taken at the weights before the last
  update: W(t+1) = W(t) - v grad f(W(t-1)). The micro-batches between two updates use the same
  weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.errors import ScheduleError
from planner.specs import Schedule

__all__ = ["pipedream_versions_with_replicas", "staleness", "weight_versions"]

I64 = NDArray[np.int64]


def weight_versions(schedule: Schedule, num_ranks: int, num_microbatches: int) -> I64:
    """Copies of its weights each rank keeps, the newest included (P,).

    Parameters
    ----------
    num_ranks
        P.
    num_microbatches
        M: micro-batches of one update of 2BW; the others do not depend on it.

    Returns
    -------
    1 where the schedule is synchronous. PipeDream: one a micro-batch in flight, P-s on rank s,
    whatever M is, since the stream of micro-batches never drains. 2BW: 2 on every rank where
    M >= P-1, which every published use of it has; with fewer the micro-batches in flight on rank s
    reach back ceil((P-1-s)/M) updates, and all copies from there to the newest are kept. A pipeline
    of one rank has nothing in flight and keeps 1.

    Raises
    ------
    ScheduleError
        P or M below 1.

    Examples
    --------
    >>> weight_versions(Schedule.PIPEDREAM, 4, 8).tolist()
    [4, 3, 2, 1]
    >>> weight_versions(Schedule.PIPEDREAM_2BW, 4, 8).tolist()
    [2, 2, 2, 2]
    >>> weight_versions(Schedule.PIPEDREAM_2BW, 4, 2).tolist()
    [3, 2, 2, 2]
    """
    _check_counts(num_ranks, num_microbatches)
    if schedule is Schedule.PIPEDREAM:
        return _hops_to_last(num_ranks) + 1
    return staleness(schedule, num_ranks, num_microbatches) + 1


def staleness(schedule: Schedule, num_ranks: int, num_microbatches: int | None = None) -> I64:
    """Updates between the weights a gradient is taken at and those it is added to (P,).

    Parameters
    ----------
    num_microbatches
        M, micro-batches of one update, for 2BW; None: enough of them, P-1 or more. PipeDream
        updates after every micro-batch whatever M is.

    Returns
    -------
    0 where the schedule is synchronous; P-1-s for PipeDream; for 2BW 1 on every rank, the last
    included, so that a micro-batch meets the same weights everywhere, and with M < P-1 up to
    ceil((P-1-s)/M).

    Raises
    ------
    ScheduleError
        P or M below 1.

    Examples
    --------
    >>> staleness(Schedule.PIPEDREAM, 4).tolist()
    [3, 2, 1, 0]
    >>> staleness(Schedule.PIPEDREAM_2BW, 4).tolist()
    [1, 1, 1, 1]
    """
    _check_counts(num_ranks, 1 if num_microbatches is None else num_microbatches)
    hops = _hops_to_last(num_ranks)
    if schedule is Schedule.PIPEDREAM:
        return hops
    if schedule is Schedule.PIPEDREAM_2BW and num_ranks > 1:
        update = num_ranks - 1 if num_microbatches is None else num_microbatches
        return np.maximum(1, -(-hops // update))
    return np.zeros(num_ranks, np.int64)


def pipedream_versions_with_replicas(replicas: Sequence[int]) -> I64:
    """Copies of its weights each stage of PipeDream keeps when stages are replicated (S,).

    Each rank of a stage of n_s ranks takes every n_s-th micro-batch. It warms up by
    floor((ranks from its stage on, less 1) / n_s) forwards, as the PipeDream runtime does, and
    keeps one copy more: ceil(ranks from its stage on / n_s), NOAM for the first stage (Narayanan
    et al. 2019, section 3.2).

    Parameters
    ----------
    replicas
        Ranks of each stage, first to last.

    Raises
    ------
    ScheduleError
        No stage, or a stage without a rank.

    Examples
    --------
    >>> pipedream_versions_with_replicas([1, 1, 1, 1]).tolist()
    [4, 3, 2, 1]
    >>> pipedream_versions_with_replicas([2, 1]).tolist()
    [2, 1]
    """
    sizes = np.asarray(replicas, np.int64)
    if not len(sizes) or (sizes < 1).any():
        raise ScheduleError(
            "every stage has a rank or more, and there is a stage or more",
            value=list(replicas),
            expected="the number of ranks of each stage, as 2,1,1",
        )
    earlier = np.cumsum(sizes) - sizes
    warm_up = (sizes.sum() - 1 - earlier) // sizes
    versions: I64 = warm_up + 1
    return versions


def _hops_to_last(num_ranks: int) -> I64:
    hops: I64 = np.arange(num_ranks - 1, -1, -1, dtype=np.int64)
    return hops


def _check_counts(num_ranks: int, num_microbatches: int) -> None:
    if min(num_ranks, num_microbatches) < 1:
        raise ScheduleError(
            "stages and micro-batches are numbers >= 1",
            value=f"P={num_ranks}, M={num_microbatches}",
            fix="use at least 1",
        )
