"""Chunk activations that folded and two-way orders hold, without building a long order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.errors import ScheduleError
from planner.schedule_rules import RULES, check_shape
from planner.schedules.controlled_memory import v_half, v_min
from planner.schedules.memory_curve import in_flight
from planner.specs import Schedule

__all__ = ["in_flight_chunks"]

I64 = NDArray[np.int64]


def in_flight_chunks(schedule: Schedule, num_ranks: int, num_microbatches: int) -> I64:
    """Most chunk activations each rank holds, kept until B or W, shape (P,).

    Exact for ZB-V, V-Half, V-Min, DualPipe, DualPipeV and Chimera as built here. A chunk of a
    two-way schedule is a whole stage; a rank's count is over both stages it holds.

    Raises
    ------
    ScheduleError
        The schedule does not run this shape, or is none of those.

    Examples
    --------
    >>> in_flight_chunks(Schedule.ZB_V, 4, 5).tolist()
    [6, 7, 8, 8]
    >>> in_flight_chunks(Schedule.CHIMERA, 6, 12).tolist()
    [4, 5, 6, 6, 5, 4]
    """
    check_shape(schedule, num_ranks, num_microbatches)
    p, m = num_ranks, num_microbatches
    rank = np.arange(p)
    match schedule:
        case Schedule.ZB_V:
            return np.minimum(m + 1 + rank, 2 * min(p, m))
        case Schedule.V_HALF:
            return in_flight(v_half(p, min(m, 2 * p)))
        case Schedule.V_MIN:
            return in_flight(v_min(p, min(m, 2 * p)))
        case Schedule.DUALPIPE:
            return np.full(p, p + 1)
        case Schedule.DUALPIPE_V:
            return np.full(p, 2 * p + 1)
        case Schedule.CHIMERA:
            return p // 2 + 1 + np.minimum(rank, p - 1 - rank)
    raise ScheduleError(
        f"{RULES[schedule].title} is neither folded nor two-way",
        fix="count its micro-batches by rank",
    )
