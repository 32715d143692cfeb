"""How many micro-batches' activations a rank holds at its peak, for schedules of one stage a rank.

Activations are held until B, or until W where the backward is split (the release rule of the
planner's memory; tools that free at I hold fewer). Tested against the orders themselves.
Schedules with several stages a rank are counted from their orders
(:mod:`planner.schedules.grouping`).
"""

from __future__ import annotations

from planner.schedule_rules import RULES
from planner.specs import Recompute, Schedule

__all__ = ["allowed_recompute", "in_flight_microbatches"]


def in_flight_microbatches(schedule: Schedule, num_stages: int, num_microbatches: int) -> list[int]:
    """Micro-batches whose activations each rank holds at its peak (P).

    GPipe keeps all M; 1F1B min(M, P-s) on rank s (PipeDream-Flush, Narayanan et al. 2021, section
    2.2), asynchronous schedules P-s, since their stream never drains; eager 1F1B 2(P-1-s)+1; ZB-H1
    P and ZB-H2 2P-1 on every rank (Qi et al. 2024, table 2). ``zb-auto`` needs no more than 1F1B
    and uses what memory is left. Where a rank holds several stages: 1 of each, which every order
    needs.

    Examples
    --------
    >>> in_flight_microbatches(Schedule.ONE_F_ONE_B, 4, 8)
    [4, 3, 2, 1]
    >>> in_flight_microbatches(Schedule.GPIPE, 4, 8)
    [8, 8, 8, 8]
    >>> in_flight_microbatches(Schedule.ZB_H2, 4, 8)
    [7, 7, 7, 7]
    """
    p, m = num_stages, num_microbatches
    if schedule in (Schedule.GPIPE, Schedule.NAIVE):
        return [m] * p
    if RULES[schedule].several_stages:
        return [1] * p
    if schedule is Schedule.EAGER_ONE_F_ONE_B:
        return [min(m, 2 * (p - 1 - rank) + 1) for rank in range(p)]
    if RULES[schedule].asynchronous:  # a stream that never drains, whatever M
        return [p - rank for rank in range(p)]
    if schedule is Schedule.ZB_H1:
        return [min(m, p)] * p
    if schedule is Schedule.ZB_H2:
        return [min(m, 2 * p - 1)] * p
    return [min(m, p - rank) for rank in range(p)]


def allowed_recompute(schedule: Schedule, modes: tuple[Recompute, ...]) -> tuple[Recompute, ...]:
    """The recompute modes that a schedule can run.

    A split backward keeps what W reads until W: after a full recompute that is the whole
    activation again, for every micro-batch whose W is pending, so that nothing is saved. Only
    ``none`` and ``selective`` (whose recomputed part W does not read) remain.

    Examples
    --------
    >>> allowed_recompute(Schedule.ZB_H1, (Recompute.NONE, Recompute.FULL))
    (<Recompute.NONE: 'none'>,)
    """
    if not RULES[schedule].splits_backward:
        return modes
    kept = (Recompute.NONE, Recompute.SELECTIVE)
    return tuple(mode for mode in modes if mode in kept)
