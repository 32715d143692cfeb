"""What each rank holds while it runs an order: activations in flight and what W still needs.

An activation is taken when its F starts. A full backward frees it when it ends; of a split one,
``freed_at_i`` is freed when I ends and the rest, the residue that W reads, when W ends. With
``freed_at_i`` = 0 everything stays until W, as in the Zero Bubble paper's memory limits; with 1,
tools that free at I are followed (Qi et al. 2024, section 2.3 and Table 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.operations import Kind, Order

__all__ = ["held_by_operation", "in_flight", "peak_by_rank"]

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


def held_by_operation(
    order: Order, weights: Sequence[float] | F64 | None = None, freed_at_i: float = 0.0
) -> F64:
    """Amount held on an operation's rank while the operation runs.

    Parameters
    ----------
    weights
        Amount one micro-batch's activation of each stage (chunk) holds, shape (S,); None: 1.
    freed_at_i
        Share freed when I ends, 0 to 1.

    Returns
    -------
    Shape (n,), one entry an operation.

    Raises
    ------
    InputError
        ``freed_at_i`` is not a share, or there are not S weights.
    """
    if not 0.0 <= freed_at_i <= 1.0:
        raise InputError("is no share", value=freed_at_i, expected="a number from 0 to 1")
    if weights is not None and len(weights) != order.num_stages:
        raise InputError(
            "activation sizes do not match the order",
            value=len(weights),
            expected=f"{order.num_stages}, one a stage",
        )
    sizes = np.ones(order.num_stages) if weights is None else np.asarray(weights, np.float64)
    taken_share = np.array([1.0, 0.0, 0.0, 0.0])[order.kind]
    freed_share = np.array([0.0, 1.0, freed_at_i, 1.0 - freed_at_i])[order.kind]
    size = sizes[order.stage]
    taken, freed = taken_share * size, freed_share * size
    after = np.concatenate(([0.0], np.cumsum(taken - freed)))
    base = after[:-1] - after[order.rank_start[order.rank]]
    held: F64 = base + taken
    if order.joined is not None:
        first = np.flatnonzero(order.joined)
        both = base[first] + taken[first] + taken[first + 1]
        held[first] = both
        held[first + 1] = both
    return held


def peak_by_rank(
    order: Order, weights: Sequence[float] | F64 | None = None, freed_at_i: float = 0.0
) -> F64:
    """Largest amount each rank holds at any time, shape (P,); arguments as above."""
    return _largest_of_rank(order, held_by_operation(order, weights, freed_at_i))


def in_flight(order: Order, until: Kind = Kind.W) -> I64:
    """Chunk activations each rank holds at its peak, kept until B or I, or until B or W (P,).

    Examples
    --------
    >>> from planner.operations import order_from_lists
    >>> ranks = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    >>> in_flight(order_from_lists("1f1b", ranks)).tolist()
    [2, 1]
    """
    share = 1.0 if until is Kind.I else 0.0
    return np.rint(peak_by_rank(order, None, share)).astype(np.int64)


def _largest_of_rank(order: Order, held: F64) -> F64:
    peaks = np.zeros(order.num_ranks)
    filled = np.flatnonzero(np.diff(order.rank_start) > 0)
    if len(filled):
        peaks[filled] = np.maximum.reduceat(held, order.rank_start[filled])
    return peaks
