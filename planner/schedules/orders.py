"""One function a schedule gives the operations of every rank; this is the table of them.

Each builder stands in its own module with the source of its order; which shapes a schedule
accepts is in :mod:`planner.schedule_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from planner.operations import Order
from planner.schedule_rules import RULES, check_shape, default_chunks, default_group_size
from planner.schedules.timeline import StageTimes
from planner.specs import Schedule, Sends

__all__ = ["build_order", "fixed_order"]


def build_order(
    schedule: Schedule,
    num_ranks: int,
    num_microbatches: int,
    *,
    num_chunks: int | None = None,
    group_size: int | None = None,
    times: StageTimes | None = None,
    activation_limit: Sequence[float] | None = None,
    freed_at_i: float = 0.0,
    aim: Literal["span", "makespan"] = "span",
    sends: Sends = Sends.OVERLAPPED,
    effort: Literal["quick", "full"] = "full",
) -> Order:
    """The order of a schedule.

    Parameters
    ----------
    num_ranks, num_microbatches
        P and M.
    num_chunks
        V; None: 2 for the V schedules, else 1.
    group_size
        Micro-batches of an interleaving group; None: M // max(1, M // P).
    times
        What ``zb-auto`` and ``zb-v`` fit their order to; None: unit times, and torch's order for
        ``zb-v``. The others are fixed lists.
    activation_limit
        Micro-batches' activations each rank may hold (P) for ``zb-auto`` and ``zb-v``; None: P.
    freed_at_i
        Share of an activation freed when I ends (``zb-auto`` and ``zb-v``).
    aim
        What ``zb-auto`` and ``zb-v`` make small first.
    effort
        How long they look.

    Raises
    ------
    ScheduleError
        The schedule does not run this shape.
    """
    check_shape(schedule, num_ranks, num_microbatches, num_chunks, group_size)
    if schedule is Schedule.ZB_AUTO or (schedule is Schedule.ZB_V and times is not None):
        from planner.schedules.zero_bubble import automatic_order

        return automatic_order(
            num_ranks,
            num_microbatches,
            folded=RULES[schedule].folded,
            times=times,
            activation_limit=activation_limit,
            freed_at_i=freed_at_i,
            aim=aim,
            sends=sends,
            effort=effort,
        )
    chunks = default_chunks(schedule) if num_chunks is None else num_chunks
    if RULES[schedule].chunks is None and group_size is None:
        group_size = default_group_size(num_ranks, num_microbatches)
    return fixed_order(schedule, num_ranks, num_microbatches, chunks, group_size)


@lru_cache(maxsize=64)
def fixed_order(
    schedule: Schedule, num_ranks: int, num_microbatches: int, chunks: int, group: int | None
) -> Order:
    """An order that depends on its shape alone; legal shapes only."""
    from planner.schedules import folded_orders, interleaved_orders, one_way_orders, two_way_orders

    p, m = num_ranks, num_microbatches
    match schedule:
        case Schedule.NAIVE | Schedule.GPIPE:
            return one_way_orders.gpipe(p, m)
        case Schedule.ONE_F_ONE_B | Schedule.PIPEDREAM | Schedule.PIPEDREAM_2BW:
            return one_way_orders.one_f_one_b(p, m)
        case Schedule.EAGER_ONE_F_ONE_B:
            return one_way_orders.eager_one_f_one_b(p, m)
        case Schedule.ZB_H1:
            return one_way_orders.zb_h1(p, m)
        case Schedule.ZB_H2:
            return one_way_orders.zb_h2(p, m)
        case Schedule.INTERLEAVED:
            return interleaved_orders.interleaved(p, m, chunks, group or m)
        case Schedule.LOOPED_BFS:
            return interleaved_orders.looped_bfs(p, m, chunks)
        case Schedule.INTERLEAVED_ZB:
            return interleaved_orders.interleaved_zero_bubble(p, m, chunks, group or m)
        case Schedule.ZB_V:
            return folded_orders.zb_v(p, m)
        case Schedule.V_HALF:
            return folded_orders.v_half(p, m)
        case Schedule.V_MIN:
            return folded_orders.v_min(p, m)
        case Schedule.DUALPIPE_V:
            return folded_orders.dualpipe_v(p, m)
        case Schedule.DUALPIPE:
            return two_way_orders.dualpipe(p, m)
        case Schedule.CHIMERA:
            return two_way_orders.chimera(p, m)
    raise AssertionError(f"no fixed order for {schedule}")
