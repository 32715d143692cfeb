"""Orders written as phases: a few operations that a rank repeats for successive micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.operations import Kind, Order, order_from_ranks

__all__ = ["order_of_phases", "phase", "turns"]

I64 = NDArray[np.int64]


def phase(times: int, *steps: tuple[Kind, int, int]) -> I64:
    """Operations repeated for successive micro-batches.

    Parameters
    ----------
    times
        Repetitions; none where it is not positive.
    steps
        (kind, chunk, micro-batch of the first repetition) of each operation of one repetition.

    Returns
    -------
    Kind, chunk and micro-batch of every operation, shape (3, times x steps).

    Examples
    --------
    >>> phase(2, (Kind.F, 0, 3), (Kind.F, 1, 0)).tolist()
    [[0, 0, 0, 0], [0, 1, 0, 1], [3, 0, 4, 1]]
    """
    count = max(times, 0)
    block = np.repeat(np.array(steps, np.int64).T[:, None, :], count, axis=1)
    block[2] += np.arange(count)[:, None]
    return block.reshape(3, -1)


def turns(*parts: I64) -> I64:
    """Operations of several phases of one length in turn, shape (3, n x parts)."""
    return np.stack(parts, axis=2).reshape(3, -1)


def order_of_phases(
    schedule: str,
    ranks: Sequence[I64],
    stages: Sequence[Sequence[int]],
    *,
    num_stages: int,
    num_microbatches: int,
    joined: Sequence[NDArray[np.bool_]] | None = None,
) -> Order:
    """An order from each rank's operations by chunk, shape (3, n).

    Parameters
    ----------
    stages
        Stage of each chunk, by rank.
    joined
        Operations that run as one pair with the next one, by rank (n,).
    """
    return order_from_ranks(
        schedule,
        [
            (kind.astype(np.int8), np.asarray(of_chunk, np.int64)[chunk], microbatch)
            for (kind, chunk, microbatch), of_chunk in zip(ranks, stages, strict=True)
        ],
        num_stages=num_stages,
        num_microbatches=num_microbatches,
        joined=joined,
    )
