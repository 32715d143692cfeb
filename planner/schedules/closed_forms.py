"""Closed forms of pipeline schedules: textbook fractions, and estimates that only rank.

None of these is a bound: the popular form exceeds the simulated 1F1B in most uneven cases and
misses waiting for edges altogether.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from planner.specs import Schedule

__all__ = [
    "bubble_estimate",
    "bubble_of_equal_chunks",
    "bubble_of_equal_stages",
    "equal_stage_steps",
    "popular_makespan",
    "steady_period",
    "utilisation_of_equal_stages",
]

I64 = NDArray[np.int64]


def bubble_of_equal_stages(num_stages: int, num_microbatches: int) -> Fraction:
    """Idle share of the makespan, (P-1)/(M+P-1), for GPipe and 1F1B (Huang et al. 2019, 2.3).

    Examples
    --------
    >>> bubble_of_equal_stages(4, 8), bubble_of_equal_stages(4, 4)
    (Fraction(3, 11), Fraction(3, 7))
    """
    return Fraction(num_stages - 1, num_microbatches + num_stages - 1)


def utilisation_of_equal_stages(num_stages: int, num_microbatches: int) -> Fraction:
    """Busy share of the makespan, M/(M+P-1); 1/P with a single micro-batch.

    Examples
    --------
    >>> utilisation_of_equal_stages(4, 1)
    Fraction(1, 4)
    """
    return Fraction(num_microbatches, num_microbatches + num_stages - 1)


def equal_stage_steps(num_stages: int, num_microbatches: int) -> int:
    """Steps of a GPipe timeline whose F and B take one step each, 2 (M + P - 1).

    Examples
    --------
    >>> equal_stage_steps(4, 8)
    22
    """
    return 2 * (num_microbatches + num_stages - 1)


def bubble_of_equal_chunks(
    schedule: Schedule,
    num_ranks: int,
    num_microbatches: int,
    num_chunks: int,
    forward: int,
    input_gradient: int,
    weight_gradient: int,
) -> int | None:
    """Span bubble time of equal chunks with free edges; None outside the form's domain.

    The longest own span of a rank less its work, in the time unit of F, I and W of one chunk. For
    schedules whose last rank works from first to last it is the makespan's bubble too.

    Notes
    -----
    - GPipe, 1F1B, eager 1F1B, any M (M >= P for eager's and 1F1B's first rank to wait in full):
      (P-1)(F+B) (Narayanan et al. 2021, section 2.2).
    - interleaved 1F1B, looped BFS, M >= P and M a multiple of P: (P-1)(F+B) of a chunk, that is
      (P-1)(F+B)/V of a stage (section 2.2).
    - ZB-H1, M >= P, F >= W: (P-1) max(F+I-W, I); ZB-H2, M >= 2P-1, F >= W:
      (P-1) max(F+I-2W, I-F, 0) (Qi et al. 2024, table 2, where I >= W and F >= I).
    - ZB-V, F = I = W, M >= 2P-1: 0 (section 6).

    Examples
    --------
    >>> bubble_of_equal_chunks(Schedule.ZB_H1, 4, 8, 1, 1, 1, 1)
    3
    >>> bubble_of_equal_chunks(Schedule.INTERLEAVED, 4, 8, 2, 1, 1, 1)
    9
    """
    p, m = num_ranks, num_microbatches
    f, i, w = forward, input_gradient, weight_gradient
    if p == 1:
        return 0
    if schedule in (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B):
        return (p - 1) * (f + i + w)
    if schedule in (Schedule.INTERLEAVED, Schedule.LOOPED_BFS) and m >= p and m % p == 0:
        return (p - 1) * (f + i + w)
    if schedule is Schedule.ZB_H1 and m >= p and f >= w:
        return (p - 1) * max(f + i - w, i)
    if schedule is Schedule.ZB_H2 and m >= 2 * p - 1 and f >= w:
        return (p - 1) * max(f + i - 2 * w, i - f, 0)
    if schedule is Schedule.ZB_V and f == i == w and m >= 2 * p - 1:
        return 0
    return None


def bubble_estimate(
    schedule: Schedule, num_ranks: I64, num_microbatches: I64, num_chunks: int
) -> NDArray[np.float64]:
    """Bubble of the makespan in times t = F + B of a balanced rank with F = I = W; ranks only.

    The forms of SCHEDULES and :func:`bubble_of_equal_chunks`, with the fill (P-1)F that a
    synchronous step keeps. With fewer micro-batches than ranks chunks wait for their turn, which
    is allowed for by P / M.
    """
    p, m = np.asarray(num_ranks, float), np.asarray(num_microbatches, float)
    short = np.maximum(1.0, p / m)
    per_rank = {
        Schedule.INTERLEAVED: short / num_chunks,
        Schedule.LOOPED_BFS: short / num_chunks,
        Schedule.INTERLEAVED_ZB: short / (3 * num_chunks),
        Schedule.ZB_H1: 1 / 3,
        Schedule.ZB_H2: 1 / 3,
        Schedule.ZB_AUTO: 1 / 3,
        Schedule.ZB_V: short / 6,
        Schedule.V_HALF: 1 / 2,
        Schedule.V_MIN: 2 / 3,
        Schedule.DUALPIPE: 1 / 3,
        Schedule.DUALPIPE_V: 1 / 3,
        Schedule.CHIMERA: (m / p + 1) / 3,
        Schedule.PIPEDREAM: 0.0,
        Schedule.PIPEDREAM_2BW: 0.0,
    }
    found: NDArray[np.float64] = (p - 1) * per_rank.get(schedule, 1.0)
    return found


def popular_makespan(
    stage_times: Sequence[int] | I64, num_microbatches: int, edge_roundtrip_total: int = 0
) -> int:
    """The popular estimate sum t + edges + (M-1) max t. It ranks; it bounds nothing.

    Parameters
    ----------
    stage_times
        t = f + b of each rank.
    edge_roundtrip_total
        Sum over boundaries of forward and backward edge costs.

    Examples
    --------
    1F1B simulates to 240 here, GPipe to 249 (light stages hide behind a heavy first one).

    >>> popular_makespan([30, 3, 3, 3], 8)
    249
    """
    times = [int(t) for t in stage_times]
    return sum(times) + int(edge_roundtrip_total) + (num_microbatches - 1) * max(times)


def steady_period(
    stage_times: Sequence[int],
    edge_forward: Sequence[int],
    edge_backward: Sequence[int],
) -> Fraction:
    """Time between micro-batches of 1F1B in the steady state, overlapped sends.

    The largest cycle mean of the order's max-plus graph: max over windows s..q of
    (sum_{s..q} t + inner edges both ways) / (q-s+1). A closed walk visits F and B of a rank
    equally often and its level sets are windows, so no other cycle is larger. Without edges it
    is max t; with equal stages and edges c it is t + 2c(P-1)/P.

    Examples
    --------
    >>> steady_period([3, 3, 3, 3], [1, 1, 1], [1, 1, 1])
    Fraction(9, 2)
    >>> steady_period([3, 7, 3], [0, 0], [0, 0])
    Fraction(7, 1)
    """
    best = Fraction(0)
    for first in range(len(stage_times)):
        inside = 0
        for last in range(first, len(stage_times)):
            inside += stage_times[last]
            if last > first:
                inside += edge_forward[last - 1] + edge_backward[last - 1]
            best = max(best, Fraction(inside, last - first + 1))
    return best
