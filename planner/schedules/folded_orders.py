"""Orders of folded models: rank r holds chunks r and 2P-1-r (V placement).

ZB-V stands here; V-Half and V-Min are in :mod:`planner.schedules.controlled_memory`, DualPipeV in
:mod:`planner.schedules.dualpipe_orders`.
"""

from __future__ import annotations

import numpy as np

from planner.operations import Kind, Order
from planner.schedule_rules import check_shape
from planner.schedules.controlled_memory import v_half, v_min
from planner.schedules.dualpipe_orders import dualpipe_v
from planner.schedules.order_phases import order_of_phases, phase
from planner.specs import Schedule

__all__ = ["dualpipe_v", "v_half", "v_min", "zb_v"]


def zb_v(num_ranks: int, num_microbatches: int) -> Order:
    """ZB-V as torch.distributed.pipelining 2.13 runs it (ScheduleZBVZeroBubble); any P and M.

    Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 6. At F = I = W no rank idles
    between its first and last operation once M >= 2P - 1; with fewer micro-batches the order is
    that of 2P - 1 without the missing ones. Rank r holds at most min(M + 1 + r, 2 min(P, M))
    chunk activations until W.

    Examples
    --------
    >>> zb_v(2, 1).rank_lists()
    [['0F0', '3F0', '3I0', '3W0', '0I0', '0W0'], ['1F0', '2F0', '2I0', '2W0', '1I0', '1W0']]
    """
    check_shape(Schedule.ZB_V, num_ranks, num_microbatches)
    F, I, W = Kind.F, Kind.I, Kind.W  # noqa: E741 - the field's letters
    ranks, count = num_ranks, max(num_microbatches, 2 * num_ranks - 1)
    lists = []
    for rank in range(ranks):
        ahead = 2 * ranks - 1 - rank
        """Forwards of the first chunk before its first backward."""
        fed, rounds = count - ahead, count - ranks
        below = ranks - rank
        both = (I, 0, 0), (W, 0, 0), (F, 1, ranks), (I, 1, below), (W, 1, below)
        parts = [
            phase(2 * below - 1, (F, 0, 0)),
            phase(rank, (F, 1, 0), (F, 0, 2 * below - 1)),
            phase(below, (F, 1, rank), (I, 1, 0), (W, 1, 0)),
            phase(fed, (F, 0, ahead), *both),
            phase(rounds - fed, *((kind, chunk, first + fed) for kind, chunk, first in both)),
            phase(rank, (I, 0, rounds), (I, 1, count - rank)),
            phase(below, (I, 0, rounds + rank), (W, 0, rounds)),
            phase(rank, (W, 1, count - rank)),
            phase(rank, (W, 0, count - rank)),
        ]
        operations = np.concatenate(parts, axis=1)
        lists.append(operations[:, operations[2] < num_microbatches])
    return order_of_phases(
        Schedule.ZB_V.value,
        lists,
        [(rank, 2 * ranks - 1 - rank) for rank in range(ranks)],
        num_stages=2 * ranks,
        num_microbatches=num_microbatches,
    )
