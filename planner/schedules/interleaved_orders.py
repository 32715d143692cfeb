"""Orders with V chunks a rank, chunk c of rank r being stage c P + r of the model.

Micro-batches run in groups of G: a chunk runs its forwards of a group, then the next chunk does;
the last group may be smaller. Backwards visit the chunks from the last one back. Which G are legal
is in :mod:`planner.schedule_rules`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.operations import Order
from planner.schedules.one_way_orders import warm_up_order
from planner.specs import Schedule

__all__ = ["interleaved", "interleaved_zero_bubble", "looped_bfs"]

I64 = NDArray[np.int64]


def interleaved(
    num_ranks: int,
    num_microbatches: int,
    num_chunks: int,
    group_size: int,
    *,
    extra_warmup: int = 0,
) -> Order:
    """Interleaved 1F1B, warm-up min(M V, (V-1)G + 2(P-1-s)).

    Narayanan et al. 2021 (Megatron-LM), section 2.2, with groups of G as Megatron-LM's and
    torch's. With V = 1 the warm-up is eager 1F1B's.

    Parameters
    ----------
    extra_warmup
        Forwards more on every rank; 1 where a forward and a backward overlap the expert-parallel
        communication of each other (Megatron-LM's overlap_moe_expert_parallel_comm).

    Examples
    --------
    >>> interleaved(2, 2, 2, 2).rank_lists()
    [['0F0', '0F1', '2F0', '2F1', '2B0', '2B1', '0B0', '0B1'], \
['1F0', '1F1', '3F0', '3B0', '3F1', '3B1', '1B0', '1B1']]
    """
    hops = np.arange(num_ranks - 1, -1, -1)
    forward, backward = _grouped(num_microbatches, num_chunks, group_size)
    return warm_up_order(
        Schedule.INTERLEAVED.value,
        (num_chunks - 1) * group_size + 2 * hops + extra_warmup,
        num_microbatches,
        forward=forward,
        backward=backward,
    )


def interleaved_zero_bubble(
    num_ranks: int, num_microbatches: int, num_chunks: int, group_size: int
) -> Order:
    """Interleaved zero bubble, warm-up min(M V, (V-1)G + P-1-s); W of rank s delayed by s.

    ZB-H1 (Qi et al. 2024, section 2.2) over V chunks, as torch's InterleavedZeroBubble; with
    V = 1 it is ZB-H1. A rank holds at most min(M V, (V-1)G + P) chunks' activations until W.

    Examples
    --------
    >>> interleaved_zero_bubble(2, 2, 2, 2).rank_operations(1)
    ['1F0', '1F1', '3F0', '3I0', '3F1', '3I1', '3W0', '1I0', '3W1', '1I1', '1W0', '1W1']
    """
    hops = np.arange(num_ranks - 1, -1, -1)
    forward, backward = _grouped(num_microbatches, num_chunks, group_size)
    return warm_up_order(
        Schedule.INTERLEAVED_ZB.value,
        (num_chunks - 1) * group_size + hops,
        num_microbatches,
        weight_delay=np.arange(num_ranks),
        forward=forward,
        backward=backward,
    )


def looped_bfs(num_ranks: int, num_microbatches: int, num_chunks: int) -> Order:
    """Breadth first: every micro-batch through a chunk, then the next chunk; back the same way.

    Lamy-Poirier 2023 (Breadth-First Pipeline Parallelism), section 3.3; backwards run from the
    last micro-batch to the first, as torch's LoopedBFS.

    Examples
    --------
    >>> looped_bfs(1, 2, 2).rank_lists()
    [['0F0', '0F1', '1F0', '1F1', '1B1', '1B0', '0B1', '0B0']]
    """
    chunk, microbatch = np.divmod(np.arange(num_chunks * num_microbatches), num_microbatches)
    return warm_up_order(
        Schedule.LOOPED_BFS.value,
        np.full(num_ranks, len(chunk), np.int64),
        num_microbatches,
        forward=(chunk, microbatch),
        backward=(chunk[::-1], microbatch[::-1]),
    )


def _grouped(
    num_microbatches: int, num_chunks: int, group_size: int
) -> tuple[tuple[I64, I64], tuple[I64, I64]]:
    """(Chunk, micro-batch) of the k-th forward and of the k-th backward, shapes (M V,)."""
    group, within = np.divmod(np.arange(num_microbatches * num_chunks), group_size * num_chunks)
    first = group * group_size
    chunk, place = np.divmod(within, np.minimum(group_size, num_microbatches - first))
    microbatch = first + place
    return (chunk, microbatch), (num_chunks - 1 - chunk, microbatch)
