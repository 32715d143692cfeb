"""DualPipe and DualPipeV: two streams of micro-batches whose forwards and backwards overlap.

One list of operations serves both. A rank holds two chunks; the first chunk's stream goes down
the ranks, the second's comes up. In DualPipe (DeepSeek-AI 2024, DeepSeek-V3 Technical Report,
section 3.2.1) the up stream is the other half of the micro-batches, which entered at the last
rank, so both halves of the ranks do the same mirrored. In DualPipeV (the DualPipe repository's
README; torch.distributed.pipelining's DualPipeV) it is the same micro-batches on their way back
over a folded model, and P ranks do what one half of DualPipe's 2P does.

The lists equal what DualPipe's step() and torch's schedule run, operation by operation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.operations import Kind, Order
from planner.schedule_rules import check_shape
from planner.schedules.order_phases import order_of_phases, phase, turns
from planner.specs import Schedule

__all__ = ["dualpipe", "dualpipe_v"]

I64 = NDArray[np.int64]


def dualpipe(num_ranks: int, num_microbatches: int) -> Order:
    """DualPipe: stage s on ranks s and P-1-s, both with its parameters; P and M even, M >= 2P.

    Micro-batches 0 .. M/2-1 enter at rank 0 and go down, the rest enter at rank P-1 and go up.
    Every rank holds at most P + 1 activations of its two stages, at any M. With a pair that takes
    as long as its two operations, all ranks idle (P/2 - 1)(F + I) if F = I = W; what ranks idle
    in general is simulated, not (P/2 - 1)(F&B + B - 3W), which needs F = I.

    Raises
    ------
    ScheduleError
        P or M is odd, or M < 2P.

    Examples
    --------
    >>> dualpipe(2, 4).rank_operations(1)
    ['0F2', '1F0', '0F3', '1B0', '(1F1;0B2)OVERLAP_F_B', '1B1', '0I3', '0W3']
    """
    check_shape(Schedule.DUALPIPE, num_ranks, num_microbatches)
    half_ranks, half = num_ranks // 2, num_microbatches // 2
    lists, joined = [], []
    for rank in range(num_ranks):
        turned = rank >= half_ranks
        operations, pairs = _streams(half_ranks, min(rank, num_ranks - 1 - rank), half)
        # Chunk 0 is the stream that entered at this half's end of the pipeline.
        operations[2] += half * ((operations[1] == 1) != turned)
        lists.append(operations)
        joined.append(pairs)
    mirror = [min(rank, num_ranks - 1 - rank) for rank in range(num_ranks)]
    return order_of_phases(
        Schedule.DUALPIPE.value,
        lists,
        [(near, num_ranks - 1 - near) for near in mirror],
        num_stages=num_ranks,
        num_microbatches=num_microbatches,
        joined=joined,
    )


def dualpipe_v(num_ranks: int, num_microbatches: int) -> Order:
    """DualPipeV: rank r has chunks r and 2P-1-r of a folded model; M >= 2P.

    Every rank holds at most 2P + 1 chunk activations, at any M.

    Raises
    ------
    ScheduleError
        M < 2P.

    Examples
    --------
    >>> dualpipe_v(2, 4).rank_operations(0)[5:9]
    ['3W0', '3F1', '(0F3;3B1)OVERLAP_F_B', '(3F2;0B0)OVERLAP_F_B']
    """
    check_shape(Schedule.DUALPIPE_V, num_ranks, num_microbatches)
    made = [_streams(num_ranks, rank, num_microbatches) for rank in range(num_ranks)]
    return order_of_phases(
        Schedule.DUALPIPE_V.value,
        [operations for operations, _ in made],
        [(rank, 2 * num_ranks - 1 - rank) for rank in range(num_ranks)],
        num_stages=2 * num_ranks,
        num_microbatches=num_microbatches,
        joined=[pairs for _, pairs in made],
    )


def _streams(ranks: int, rank: int, count: int) -> tuple[I64, NDArray[np.bool_]]:
    """Operations of one of ``ranks`` ranks that meet two streams of ``count`` micro-batches.

    Returns
    -------
    Kind, chunk (0: going down, 1: coming up) and micro-batch of its own stream, shape (3, n), and
    which operations run as a pair with the next one (n,).
    """
    F, B, I, W = Kind.F, Kind.B, Kind.I, Kind.W  # noqa: E741 - the field's letters
    below = ranks - 1 - rank
    met = rank + 1
    pairs = count - 2 * ranks + met
    """Rounds in which both streams flow."""
    opening = [
        phase(2 * below, (F, 0, 0)),
        phase(met, (F, 0, 2 * below), (F, 1, 0)),
        phase(below, (I, 1, 0), (W, 1, 0), (F, 1, met)),
    ]
    both = phase(pairs, (F, 0, 2 * below + met), (B, 1, below), (F, 1, ranks), (B, 0, 0))
    drained = phase(below, (B, 1, below + pairs), (F, 1, ranks + pairs), (B, 0, pairs))
    # The last backwards of both streams in turn; the second half of them leave their W for the
    # time that the stream going down still needs to come back.
    last = phase(met, (B, 1, count - met), (B, 0, count - ranks))
    last[0, met:] = I
    returning = phase(below, (I, 0, count - ranks + met))
    weights = np.concatenate([last[:, met:], returning], axis=1)
    weights[0] = W
    closing = [last, turns(weights[:, :below], returning), weights[:, below:]]
    operations = np.concatenate([*opening, both, drained, *closing], axis=1)

    joined = np.zeros(operations.shape[1], np.bool_)
    at = sum(part.shape[1] for part in opening)
    joined[at : at + both.shape[1] : 2] = True
    if below == 0:
        joined[at] = False  # the rank where the streams turn or cross: nothing to overlap yet
    at += both.shape[1]
    joined[at + 1 : at + drained.shape[1] : 3] = True
    return operations, joined
