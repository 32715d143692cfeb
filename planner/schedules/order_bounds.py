"""Proven lower bounds of one pipeline's makespan, from its stages or from totals alone.

Stage terms of 1F1B (one chunk per rank, w = P-1-j later ranks, e the one-way edges; blocking
sends first become longer operations, see :func:`~planner.schedules.simulate.effective_times`).
With pre_j = sum_{i<j} (t_i + e_i^fwd + e_i^bwd), its forward part pre_j^F, and
R_j = sum_{i>j} t_i + sum_{i>=j} (e_i^fwd + e_i^bwd):

*Span.* From the start of F(0) to the end of B(M-1), rank j works M t_j. B(0) starts no sooner
than R_j after F(0) ends, and in between the rank runs w further F; B(M-1) starts no sooner than
R_j after F(M-1) ends, and in between it runs w earlier B. For M >= w+2 the order puts B(0)
before F(M-1), the two waits are disjoint and add up:
M t + max(0, R - w f) + max(0, R - w b). Otherwise: max(M t, f + R + M b, M f + R + b); either
way F(0) starts at pre^F or later, and after B(M-1) rank 0 still has sum_{i<j}(b_i + e_i^bwd).

*Cycles.* For a window s..q of ranks that holds j, L = q-s+1, the operations
F(j,m) .. F(q,m), B(q, m-(P-1-q)) .. B(s, same), F(s, m+L) .. F(j, m+L) follow each other by
dependency or rank order, for m >= P-1-q. So F(j, m+L) starts at least
sum_{s..q} t_i + inner edges after F(j, m). From the start of F(j,m) the rank still has
(M-m) t + min(w,m) b of work and waits max(0, R - min(w,M-1) b) before B(M-1); also
f + R + (M-m) b. A term of j alone can use the windows j..P-1, 0..j and 0..P-1.

GPipe is exact: sum of all times and edges + (M-1)(max f + max b).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.specs import Schedule, Sends

__all__ = ["layout_bound", "makespan_bound", "span_bound"]

I64 = NDArray[np.int64]


def span_bound(
    num_microbatches: int,
    later_ranks: I64,
    forward: I64,
    backward: I64,
    before: I64,
    after: I64,
    earlier_ranks: I64,
) -> I64:
    """1F1B: least time from the start of a rank's first F to the end of its last B.

    Parameters
    ----------
    later_ranks, earlier_ranks
        w = P-1-j and j.
    forward, backward
        f and b of the rank.
    before, after
        Lower bounds of pre_j and R_j (module docstring).

    Returns
    -------
    Array broadcast from the arguments; the proofs are in the module docstring
    (Time, DESIGN; cycles: max-plus theory of the 1F1B order).
    """
    m_all, w, f, b = num_microbatches, later_ranks, forward, backward
    t = f + b
    apart = m_all * t + np.maximum(0, after - w * f) + np.maximum(0, after - w * b)
    if m_all < int(np.max(w)) + 2:
        together = after + np.maximum(f + m_all * b, m_all * f + b)
        span = np.where(m_all >= w + 2, apart, np.maximum(m_all * t, together))
    else:
        span = apart
    last_wait = np.maximum(0, after - np.minimum(w, m_all - 1) * b)
    nothing = np.zeros_like(w)
    windows = (
        (w + 1, t + after, nothing),
        (earlier_ranks + 1, t + before, w),
        (w + earlier_ranks + 1, before + t + after, nothing),
    )
    for length, gain, first in windows:
        turns = np.maximum(0, (m_all - 1 - first) // length)
        if not turns.any():
            continue
        m = first + turns * length
        rest = np.maximum(
            (m_all - m) * t + np.minimum(w, m) * b + last_wait, f + after + (m_all - m) * b
        )
        span = np.maximum(span, np.where(turns > 0, first * f + turns * gain + rest, 0))
    return span


def makespan_bound(
    schedule: Schedule,
    forward: I64,
    backward: I64,
    edge_forward: I64,
    edge_backward: I64,
    num_microbatches: int,
    sends: Sends = Sends.OVERLAPPED,
) -> int:
    """Proven lower bound on the makespan of one pipeline; exact for GPipe.

    Shapes: P, P, P-1, P-1. For 1F1B the largest stage term, and the cycles of every window.

    Examples
    --------
    >>> ones, none = np.ones(4, np.int64), np.zeros(3, np.int64)
    >>> makespan_bound(Schedule.ONE_F_ONE_B, ones, 2 * ones, none, none, 8)
    33
    """
    f, b = np.array(forward, np.int64), np.array(backward, np.int64)
    ef, eb = np.array(edge_forward, np.int64), np.array(edge_backward, np.int64)
    if sends is Sends.BLOCKING:
        f[:-1] += ef
        b[1:] += eb
        ef[:], eb[:] = 0, 0
    ranks, m_all = len(f), num_microbatches
    t = f + b
    total = int(t.sum() + ef.sum() + eb.sum())
    if schedule is Schedule.GPIPE:
        return total + (m_all - 1) * int(f.max() + b.max())
    rank = np.arange(ranks)
    before = np.concatenate(([0], np.cumsum(t[:-1] + ef + eb)))
    after = total - before - t
    later = ranks - 1 - rank
    best = int((before + span_bound(m_all, later, f, b, before, after, rank)).max())
    for s in range(ranks):
        for q in range(s, ranks):
            length, first = q - s + 1, ranks - 1 - q
            turns = (m_all - 1 - first) // length
            if turns < 1:
                continue
            m, w = first + turns * length, int(later[s])
            gain = int(before[q] + t[q] - before[s])
            waits = max(0, int(after[s]) - min(w, m_all - 1) * int(b[s]))
            rest = max(
                (m_all - m) * int(t[s]) + min(w, m) * int(b[s]) + waits,
                int(f[s] + after[s]) + (m_all - m) * int(b[s]),
            )
            best = max(best, int(before[s]) + first * int(f[s]) + turns * gain + rest)
    return best


def layout_bound(
    schedule: Schedule,
    num_stages: I64 | int,
    num_microbatches: I64 | int,
    total_forward: I64 | int,
    total_backward: I64 | int,
    largest_stage_lower_bound: I64 | int,
    edge_roundtrip_total: I64 | int,
) -> I64:
    """Lower bound of the makespan of every cut, from totals alone; broadcasts over arrays.

    Parameters
    ----------
    total_forward, total_backward
        Sums over the blocks (without recompute) of one micro-batch.
    largest_stage_lower_bound
        A lower bound of max_j t_j over all cuts (0 if unknown).
    edge_roundtrip_total
        A lower bound of sum over boundaries of e^fwd + e^bwd.

    Notes
    -----
    Let mx = max t_j, S = sum t, E the edges both ways. GPipe: S + E + (M-1)(max f + max b), and
    max f + max b >= mx.

    1F1B, j a stage with t_j = mx and M >= P+1, so that the waits add up on every rank:
    its term is pre_j + M mx + max(0, R - w f) + max(0, R - w b) >= pre_j + 2 R + (M-w) mx
    = 2 S - sum_{i<j} t_i + (M-w-2) mx + (edges before j once, behind it twice)
    >= 2 S + E + (M-w-2-j) mx, since t_i <= mx, and w + j = P-1: 2 S + E + (M-P-1) mx. It grows
    with mx, so a lower bound of mx may stand for it. With mx = S/P this is (M+P-1) S/P, which
    is also what weights lambda_{j+1} (M-w_j) = lambda_j (M-w_j-2) on the stage terms give.

    Any M: F(0) reaches j, returns from the last rank, and M backwards run on j before the last
    gradient goes home: pre_j + f_j + R_j + M b_j = S + E + (M-1) b_j, likewise with f_j; the
    largest b is at least the mean, max(f_j, b_j) at least t_j / 2. And M mx is the work of j.

    2 <= M <= P: the waits add up on the last M-1 ranks, j >= j0 = P+1-M. With S_1 the time of
    those ranks and j the one with the largest t among them, the argument above gives
    S + E + S_1 (the mx terms cancel). The first j0 ranks hold S_0 = S - S_1, so one of them has
    max(f, b) >= max(S_0 / 2, S_0 - min(sum f, sum b)) / j0, and the any-M term applies. The two
    cross at the least favourable S_0: with c = (M-1)/j0, at least
    S + E + max(S c / (2 + c), (S - min(sum f, sum b)) c / (1 + c)).
    """
    p, m = np.asarray(num_stages, np.int64), np.asarray(num_microbatches, np.int64)
    total_f, total_b = np.asarray(total_forward, np.int64), np.asarray(total_backward, np.int64)
    edges = np.asarray(edge_roundtrip_total, np.int64)
    total = total_f + total_b
    mx = np.maximum(np.asarray(largest_stage_lower_bound, np.int64), -(-total // p))
    mean_f, mean_b = -(-total_f // p), -(-total_b // p)
    if schedule is Schedule.GPIPE:
        pace = np.maximum(mx, mean_f + mean_b)
        gpipe: I64 = total + edges + (m - 1) * pace
        return gpipe
    one_way = np.maximum(np.maximum(mean_f, mean_b), -(-mx // 2))
    weak = np.maximum(total + edges + (m - 1) * one_way, m * mx)
    strong = np.where(m >= p + 1, 2 * total + edges + (m - p - 1) * mx, 0)
    early = np.maximum(1, p + 1 - m)
    most_even = -(-(total * (m - 1)) // (2 * early + m - 1))
    one_sided = -(-((total - np.minimum(total_f, total_b)) * (m - 1)) // (early + m - 1))
    middle = total + edges + np.maximum(most_even, one_sided)
    weak = np.where((m >= 2) & (m <= p), np.maximum(weak, middle), weak)
    result: I64 = np.maximum(weak, strong)
    return result
