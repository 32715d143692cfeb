"""Orders with one chunk a rank and one direction: GPipe, 1F1B, eager 1F1B, ZB-H1, ZB-H2.

All of them, and the interleaved ones, are one shape: a rank runs some forwards ahead, its warm-up,
then one forward and one backward in turn, then the backwards that are left. Where the backward is
split, W follows its I by a fixed number of backwards, its delay, and the rest of the W come last.
Warm-up and delay of every rank are all that differs, so the place of each operation is known
without walking (:func:`warm_up_order`).

Every P >= 1 and M >= 1 is legal here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.operations import Kind, Order
from planner.specs import Schedule

__all__ = ["eager_one_f_one_b", "gpipe", "one_f_one_b", "warm_up_order", "zb_h1", "zb_h2"]

I64 = NDArray[np.int64]


def warm_up_order(
    schedule: str,
    warm_up: I64,
    num_microbatches: int,
    *,
    weight_delay: I64 | None = None,
    forward: tuple[I64, I64] | None = None,
    backward: tuple[I64, I64] | None = None,
) -> Order:
    """Warm-up forwards, then a forward and a backward in turn, then the remaining backwards.

    Parameters
    ----------
    schedule
        Name of the schedule.
    warm_up
        Forwards rank r runs before its one-and-one phase, shape (P,); as many as there are, if
        fewer. Its first backward comes after one more forward.
    num_microbatches
        M.
    weight_delay
        Splits backwards: W of a rank's k-th backward follows its I number k + delay, or comes
        last where there is none, shape (P,). None: whole backwards B.
    forward, backward
        (Chunk, micro-batch) of a rank's k-th forward and backward, shapes (M V,); None: micro-
        batch k of the only chunk.
    """
    ranks = len(warm_up)
    if forward is None:
        microbatch = np.arange(num_microbatches)
        forward = (np.zeros_like(microbatch), microbatch)
    if backward is None:
        backward = forward
    count = len(forward[0])
    each = np.arange(count)
    ahead = np.minimum(warm_up, count)[:, None]
    # Step k + ahead runs forward k + ahead, if there is one, then backward k, then the W that is
    # due. What precedes an operation is counted by kind.
    if weight_delay is None:
        places = {
            Kind.F: each + np.maximum(each - ahead, 0),
            Kind.B: np.minimum(each + ahead + 1, count) + each,
        }
    else:
        due = weight_delay[:, None]
        places = {
            Kind.F: each + np.maximum(each - ahead, 0) + np.maximum(each - ahead - due, 0),
            Kind.I: np.minimum(each + ahead + 1, count) + each + np.maximum(each - due, 0),
            Kind.W: np.minimum(each + ahead + due + 1, count)
            + np.minimum(each + due + 1, count)
            + each,
        }
    length = len(places) * count
    rank = np.arange(ranks)[:, None]
    kind = np.empty(ranks * length, np.int8)
    stage = np.empty(ranks * length, np.int64)
    microbatch = np.empty(ranks * length, np.int64)
    for name, place in places.items():
        chunk, number = forward if name is Kind.F else backward
        at = place + rank * length
        kind[at] = name
        stage[at] = chunk * ranks + rank
        microbatch[at] = number
    return Order(
        schedule=schedule,
        num_ranks=ranks,
        num_stages=ranks * (int(forward[0].max()) + 1),
        num_microbatches=num_microbatches,
        rank_start=np.arange(ranks + 1) * length,
        kind=kind,
        stage=stage,
        microbatch=microbatch,
    )


def _hops_to_last(num_ranks: int) -> I64:
    hops: I64 = np.arange(num_ranks - 1, -1, -1, dtype=np.int64)
    return hops


def gpipe(num_ranks: int, num_microbatches: int) -> Order:
    """All forwards, then all backwards, both in order (Huang et al. 2019, section 2.2).

    Examples
    --------
    >>> gpipe(2, 2).rank_lists()
    [['0F0', '0F1', '0B0', '0B1'], ['1F0', '1F1', '1B0', '1B1']]
    """
    warm_up = np.full(num_ranks, num_microbatches, np.int64)
    return warm_up_order(Schedule.GPIPE.value, warm_up, num_microbatches)


def one_f_one_b(num_ranks: int, num_microbatches: int) -> Order:
    """1F1B with a flush, warm-up min(M, P-1-s); PipeDream's steady order without it.

    Narayanan et al. 2021 (PipeDream-2BW), section 3.2; rank s holds at most min(M, P-s)
    micro-batches.

    Examples
    --------
    >>> one_f_one_b(2, 3).rank_lists()
    [['0F0', '0F1', '0B0', '0F2', '0B1', '0B2'], ['1F0', '1B0', '1F1', '1B1', '1F2', '1B2']]
    """
    return warm_up_order(Schedule.ONE_F_ONE_B.value, _hops_to_last(num_ranks), num_microbatches)


def eager_one_f_one_b(num_ranks: int, num_microbatches: int) -> Order:
    """1F1B with the warm-up min(M, 2(P-1-s)): hides the transfers, for twice the activations.

    Zhuang et al. 2023 (arXiv 2211.05322), eager 1F1B. Rank s holds at most min(M, 2(P-1-s)+1)
    micro-batches.

    Examples
    --------
    >>> eager_one_f_one_b(2, 4).rank_operations(0)
    ['0F0', '0F1', '0F2', '0B0', '0F3', '0B1', '0B2', '0B3']
    """
    warm_up = 2 * _hops_to_last(num_ranks)
    return warm_up_order(Schedule.EAGER_ONE_F_ONE_B.value, warm_up, num_microbatches)


def zb_h1(num_ranks: int, num_microbatches: int) -> Order:
    """ZB-H1: 1F1B's warm-up, and W of rank s delayed by s backwards.

    Qi et al. 2024 (Zero Bubble), section 2.2: at most min(M, P) micro-batches until W on every
    rank; bubble (P-1)(F+I-W) with equal stages.

    Examples
    --------
    >>> zb_h1(2, 2).rank_lists()
    [['0F0', '0F1', '0I0', '0W0', '0I1', '0W1'], ['1F0', '1I0', '1F1', '1I1', '1W0', '1W1']]
    """
    return warm_up_order(
        Schedule.ZB_H1.value,
        _hops_to_last(num_ranks),
        num_microbatches,
        weight_delay=np.arange(num_ranks),
    )


def zb_h2(num_ranks: int, num_microbatches: int) -> Order:
    """ZB-H2: warm-up 2(P-1-s), and W of rank s delayed by 2s backwards.

    Qi et al. 2024 (Zero Bubble), section 2.3 and Table 2: rank s holds 2(P-s)-1 micro-batches
    until I and the residue of 2s more until W, so at most min(M, 2P-1) until W on every rank.
    With equal stages, free edges and M >= 2P-1 the longest own span of a rank exceeds its work by
    (P-1) max(F+I-2W, I-F, 0): the paper's (P-1)(F+I-2W) where F >= W and F+I >= 2W. Where I > F
    rank 0 waits (P-1)(I-F) for its first I whatever the order, having run the 2P-1 forwards it
    may.

    Examples
    --------
    >>> zb_h2(2, 3).rank_lists()
    [['0F0', '0F1', '0F2', '0I0', '0W0', '0I1', '0W1', '0I2', '0W2'], \
['1F0', '1I0', '1F1', '1I1', '1F2', '1I2', '1W0', '1W1', '1W2']]
    """
    return warm_up_order(
        Schedule.ZB_H2.value,
        2 * _hops_to_last(num_ranks),
        num_microbatches,
        weight_delay=2 * np.arange(num_ranks),
    )
