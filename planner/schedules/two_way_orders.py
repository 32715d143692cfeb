"""Two-way orders: stage s sits on ranks s and P-1-s, micro-batches enter at both ends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.operations import Kind, Order
from planner.schedule_rules import check_shape
from planner.schedules.dualpipe_orders import dualpipe
from planner.specs import Schedule

__all__ = ["chimera", "dualpipe"]

I64 = NDArray[np.int64]


def chimera(num_ranks: int, num_microbatches: int) -> Order:
    """Chimera: two 1F1B-like pipelines in opposite directions; P even, M a multiple of P.

    Li and Hoefler 2021, "Chimera: Efficiently Training Large-Scale Neural Networks with
    Bidirectional Pipelines", section 3.1: in a unit of P micro-batches the first half go down and
    the rest up. In slots of F = B, micro-batch m = 0 .. P/2-1 of a direction runs F on stage s in
    slot s + 2m and B in slot 2P-1-s + 2m; the directions never claim one slot, since P is even.
    Units follow each other every 2P slots (section 3.5, direct concatenation), where they fit
    without a conflict and without idle slots between: any M takes 2M + P - 2 slots, a bubble of
    (P-2)/(2M+P-2). Where B is longer than F the borders of units idle too: with B = 2F every rank
    idles (P-2)(M/P + 1) F. Micro-batches are numbered unit by unit, those going down first.

    Rank r holds at most P/2 + 1 + min(r, P-1-r) activations at any M (section 3.1: P/2+1 to P).

    Raises
    ------
    ScheduleError
        P is odd or M no multiple of P.

    Examples
    --------
    >>> chimera(2, 4).rank_operations(0)
    ['0F0', '1F1', '1B1', '0B0', '0F2', '1F3', '1B3', '0B2']
    """
    check_shape(Schedule.CHIMERA, num_ranks, num_microbatches)
    unit, at = np.divmod(np.arange(num_microbatches), num_ranks)
    up, number = np.divmod(at, num_ranks // 2)
    ranks = np.arange(num_ranks)[:, None]
    stage = np.where(up, num_ranks - 1 - ranks, ranks)
    begin = 2 * (num_ranks * unit + number)
    slots = np.concatenate([begin + stage, begin + 2 * num_ranks - 1 - stage], axis=1)
    which = np.argsort(slots, axis=1)
    kind = np.where(which < num_microbatches, Kind.F, Kind.B).astype(np.int8)
    microbatch = which % num_microbatches
    return Order(
        schedule=Schedule.CHIMERA.value,
        num_ranks=num_ranks,
        num_stages=num_ranks,
        num_microbatches=num_microbatches,
        rank_start=np.arange(num_ranks + 1) * 2 * num_microbatches,
        kind=kind.ravel(),
        stage=np.take_along_axis(stage, microbatch, axis=1).ravel(),
        microbatch=microbatch.ravel(),
    )
