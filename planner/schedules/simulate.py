"""Exact timelines of GPipe and 1F1B with uneven stages and edge latencies.

Operation orders on rank s of P: GPipe runs F(0)..F(M-1), then B(0)..B(M-1) (Huang et al. 2019);
1F1B runs w = min(M, P-1-s) forwards, then F, B in turns, then the remaining backwards
(PipeDream-Flush, Narayanan et al. 2021, section 2.2). An operation starts when its rank is free
and its input has arrived: F of rank s needs F of rank s-1 plus the forward edge, B needs B of
rank s+1 plus the backward edge (on the last rank its own F).

Overlapped sends make an edge pure latency. Blocking sends keep the sending rank busy for the
edge's cost after the operation while the receiver only waits, which is the same timeline as free
edges with every sender's operation longer by the edge (:func:`effective_times`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.deadlines import poll
from planner.errors import InputError
from planner.schedules.recurrence_kernel import compiled_recurrence, pays
from planner.specs import Schedule, Sends

__all__ = [
    "RECURRENT",
    "Timing",
    "bubble_fraction",
    "effective_times",
    "finishes",
    "simulate",
    "simulate_many",
]

I64 = NDArray[np.int64]

RECURRENT = (Schedule.GPIPE, Schedule.ONE_F_ONE_B)
"""Schedules whose timeline is a recurrence (the others are simulated by their order)."""

# States remembered while looking for a period; more would cost memory, never exactness.
_MAX_REMEMBERED = 4096

# Steps of many candidates between two looks at the clock.
_STEPS_A_POLL = 64

# Up to here the plain recurrence, which finds periods of any length, beats numpy.
_FEW = 12


@dataclass(frozen=True)
class Timing:
    """When each rank works, in the time unit of the input.

    ``finish[s]`` is the end of rank s's last operation (its blocking send included), ``start[s]``
    the start of its first, ``busy[s]`` the time it spends in operations, ``makespan`` the largest
    finish.
    """

    finish: tuple[int, ...]
    makespan: int
    busy: tuple[int, ...]
    start: tuple[int, ...]


def effective_times(
    forward: Sequence[int],
    backward: Sequence[int],
    edge_forward: Sequence[int],
    edge_backward: Sequence[int],
    sends: Sends,
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Operation times and latencies (f, b, e_fwd, e_bwd) of the equivalent overlapped timeline.

    Blocking sends: f_s grows by the forward edge out of s, b_s by the backward edge into s's
    upstream neighbour, and the edges cost nothing. Shapes: P, P, P-1, P-1.

    Examples
    --------
    >>> effective_times([5, 5], [7, 7], [1], [2], Sends.BLOCKING)
    ([6, 5], [7, 9], [0], [0])
    """
    if sends is Sends.OVERLAPPED:
        return list(forward), list(backward), list(edge_forward), list(edge_backward)
    free = [0] * len(edge_forward)
    sending = [f + e for f, e in zip(forward, [*edge_forward, 0], strict=True)]
    returning = [b + e for b, e in zip(backward, [0, *edge_backward], strict=True)]
    return sending, returning, free, list(free)


def simulate(
    schedule: Schedule,
    forward: Sequence[int],
    backward: Sequence[int],
    edge_forward: Sequence[int],
    edge_backward: Sequence[int],
    num_microbatches: int,
    sends: Sends = Sends.OVERLAPPED,
) -> Timing:
    """The exact timeline of one step in integers.

    Parameters
    ----------
    schedule
        Order of the operations.
    forward, backward
        Time of F and of the full backward per micro-batch, one entry a rank (P).
    edge_forward, edge_backward
        One-way cost of the boundary after rank s, s = 0 .. P-2.
    num_microbatches
        M >= 1.
    sends
        Whether sends run beside compute.

    Raises
    ------
    InputError
        When the lengths do not match or M < 1.

    Notes
    -----
    1F1B, step k = 0 .. M+P-2: first F_s(k-s) on every rank, then B_s(k-P+1) from the last rank
    to the first; everything an operation waits for lies in this step or the one before. In the
    steady steps k = P .. M-1 both operations exist on every rank and every end is a maximum of
    sums of ends of step k-1 (or earlier in step k): the vector x_k of all 2P ends is a max-plus
    linear map A of x_{k-1}. Such a map is homogeneous, A(x + c) = A(x) + c, so as soon as
    x_k = x_{k-p} + c in every component, x_{k+p} = x_k + c holds for all later steady steps, and
    whole periods are jumped without losing exactness. The drain is simulated.

    Examples
    --------
    Four equal stages, eight micro-batches: (M + P - 1)(f + b).

    >>> simulate(Schedule.ONE_F_ONE_B, [1] * 4, [2] * 4, [0] * 3, [0] * 3, 8).makespan
    33
    """
    _check(forward, backward, edge_forward, edge_backward, num_microbatches)
    f, b, ef, eb = effective_times(forward, backward, edge_forward, edge_backward, sends)
    if schedule is Schedule.GPIPE:
        finish = _gpipe_finish(f, b, ef, eb, num_microbatches)
    elif pays(len(f), num_microbatches + len(f), 1):
        one = [np.array(row, np.int64).reshape(-1, 1) for row in (f, b, ef, eb)]
        ends = _compiled_finish(
            one[0], one[1], one[2], one[3], num_microbatches, 0, np.zeros(1, np.int64)
        )
        finish = ends[:, 0].tolist()
    else:
        finish = _one_f_one_b_finish(f, b, ef, eb, num_microbatches)
    start = [0] * len(f)
    for s in range(1, len(f)):
        start[s] = start[s - 1] + f[s - 1] + ef[s - 1]
    return Timing(
        finish=tuple(finish),
        makespan=max(finish),
        busy=tuple(num_microbatches * (x + y) for x, y in zip(f, b, strict=True)),
        start=tuple(start),
    )


def bubble_fraction(timing: Timing, num_stages: int) -> float:
    """Idle share of the makespan over all ranks.

    Examples
    --------
    >>> timing = simulate(Schedule.GPIPE, [1] * 4, [1] * 4, [0] * 3, [0] * 3, 8)
    >>> round(bubble_fraction(timing, 4) * 11, 9)
    3.0
    """
    whole = timing.makespan * num_stages
    return (whole - sum(timing.busy)) / whole if whole else 0.0


def _check(
    forward: Sequence[int],
    backward: Sequence[int],
    edge_forward: Sequence[int],
    edge_backward: Sequence[int],
    num_microbatches: int,
) -> None:
    ranks = len(forward)
    if num_microbatches < 1:
        raise InputError(
            "is no number of micro-batches", value=num_microbatches, expected="an integer >= 1"
        )
    if ranks == 0 or len(backward) != ranks:
        raise InputError(
            "backward times for as many forward times",
            value=len(backward),
            expected=f"{max(ranks, 1)}, one a rank",
        )
    if len(edge_forward) != ranks - 1 or len(edge_backward) != ranks - 1:
        raise InputError(
            "edge costs do not match the ranks",
            value=f"{len(edge_forward)} and {len(edge_backward)}",
            expected=f"{ranks - 1} each, one a boundary",
        )


def _gpipe_finish(
    f: list[int], b: list[int], ef: list[int], eb: list[int], microbatches: int
) -> list[int]:
    """Ends of the last B of each rank.

    Both waves are tandem queues with constant service times: the last micro-batch leaves a
    queue of stages after the sum of their times plus (M-1) times the largest. The backward wave
    starts when the last rank has finished all forwards; no earlier rank is still busy then.
    """
    forwards_done = sum(f) + sum(ef) + (microbatches - 1) * max(f)
    finish = [0] * len(f)
    passed, slowest = 0, 0
    for s in range(len(f) - 1, -1, -1):
        passed += b[s] + (eb[s] if s < len(f) - 1 else 0)
        slowest = max(slowest, b[s])
        finish[s] = forwards_done + passed + (microbatches - 1) * slowest
    return finish


def _one_f_one_b_finish(
    f: list[int], b: list[int], ef: list[int], eb: list[int], microbatches: int
) -> list[int]:
    ranks = len(f)
    into = [0, *ef]
    back = [*eb, 0]
    f_end = [0] * ranks
    free = [0] * ranks  # end of the rank's latest operation
    step, last_step = 0, microbatches + ranks - 2
    seen: dict[tuple[int, ...], tuple[int, int]] = {}
    looking = microbatches > ranks
    while step <= last_step:
        # Descending, so that rank s still sees what rank s-1 ended in the step before.
        first = max(0, step - microbatches + 1)
        for s in range(min(step, ranks - 1), first - 1, -1):
            begin = free[s]
            if s:
                arrival = f_end[s - 1] + into[s]
                if arrival > begin:
                    begin = arrival
            f_end[s] = free[s] = begin + f[s]
        if step >= ranks - 1:
            arrival = 0
            for s in range(ranks - 1, -1, -1):
                arrival += back[s]
                if free[s] > arrival:
                    arrival = free[s]
                arrival += b[s]
                free[s] = arrival
        if looking and ranks - 1 <= step < microbatches - 1:
            base = free[0]
            state = tuple([x - base for x in f_end] + [x - base for x in free])
            known = seen.get(state)
            if known is not None:
                period = step - known[0]
                shift = base - known[1]
                periods = (microbatches - 1 - step) // period
                f_end = [x + periods * shift for x in f_end]
                free = [x + periods * shift for x in free]
                step += periods * period
                looking = False
            elif len(seen) < _MAX_REMEMBERED:
                seen[state] = (step, base)
            else:
                looking = False
        step += 1
    return free


def simulate_many(
    schedule: Schedule,
    forward: I64,
    backward: I64,
    edge_forward: I64,
    edge_backward: I64,
    num_microbatches: int,
    sends: Sends = Sends.OVERLAPPED,
    *,
    later_ranks: int = 0,
    turnaround: I64 | None = None,
) -> I64:
    """Finish of every rank for K candidates at once, shape (K, P), int64.

    ``forward`` and ``backward`` are (K, P), the edges (K, P-1). With ``later_ranks`` = R > 0 the
    P ranks are the first of a pipeline of P + R whose other ranks are unknown: they run the 1F1B
    order of the long pipeline (GPipe's is the same), and B of a micro-batch reaches the last
    known rank no sooner than ``turnaround`` (K) after its F left there. Dropping the later
    ranks' own queues only removes constraints, so these finishes are lower bounds of the full
    simulation. With blocking sends the caller folds the edges of the boundary after the last
    known rank into its forward and the turnaround.
    """
    f, b = forward.T.copy(), backward.T.copy()  # (P, K): one rank is one contiguous row
    ef, eb = edge_forward.T.copy(), edge_backward.T.copy()
    if sends is Sends.BLOCKING:
        f[:-1] += ef
        b[1:] += eb
        ef[:], eb[:] = 0, 0
    if turnaround is None:
        turnaround = np.zeros(len(forward), np.int64)
    if schedule is Schedule.GPIPE:
        finish = _gpipe_finish_many(f, b, ef, eb, num_microbatches, turnaround)
    else:
        depth, count = len(f) + later_ranks, f.shape[1]
        compiled = pays(len(f), num_microbatches + depth, count)
        program = _compiled_finish if compiled else _one_f_one_b_finish_many
        finish = program(f, b, ef, eb, num_microbatches, later_ranks, turnaround)
    return np.ascontiguousarray(finish.T)


def finishes(
    schedule: Schedule,
    forward: I64,
    backward: I64,
    edge_forward: I64,
    edge_backward: I64,
    num_microbatches: int,
    sends: Sends = Sends.OVERLAPPED,
) -> I64:
    """:func:`simulate_many` that takes a few candidates one by one, which is faster."""
    costs = (forward, backward, edge_forward, edge_backward)
    ranks = forward.shape[1]
    if len(forward) > _FEW or pays(ranks, ranks + num_microbatches, len(forward)):
        return simulate_many(schedule, *costs, num_microbatches, sends)
    rows = zip(*(cost.tolist() for cost in costs), strict=True)
    ends = [
        simulate(schedule, f, b, ef, eb, num_microbatches, sends).finish for f, b, ef, eb in rows
    ]
    return np.array(ends, np.int64).reshape(forward.shape)


def _compiled_finish(
    f: I64, b: I64, ef: I64, eb: I64, microbatches: int, later: int, turnaround: I64
) -> I64:
    finish = np.empty_like(f)
    compiled_recurrence()(f, b, ef, eb, microbatches, later, turnaround, finish)
    return finish


def _gpipe_finish_many(f: I64, b: I64, ef: I64, eb: I64, microbatches: int, turnaround: I64) -> I64:
    done = f.sum(0) + ef.sum(0) + (microbatches - 1) * f.max(0) + turnaround
    passed = b[::-1].cumsum(0)
    passed[1:] += eb[::-1].cumsum(0)
    slowest = np.maximum.accumulate(b[::-1], axis=0)
    finish: I64 = (done + passed + (microbatches - 1) * slowest)[::-1]
    return finish


def _one_f_one_b_finish_many(
    f: I64, b: I64, ef: I64, eb: I64, microbatches: int, later: int, turnaround: I64
) -> I64:
    """The recurrence of :func:`simulate` on (P, K) arrays, with jumps of period one.

    A candidate jumps when its whole state (ends on every rank, and the F ends on the last known
    rank that later backwards still wait for) moved by one constant over one steady step.
    """
    ranks, count = f.shape
    depth, slots = ranks + later, later + 1
    f_end, free = np.zeros_like(f), np.zeros_like(f)
    history = np.zeros((slots, count), np.int64)  # F ends on the last known rank, by step
    rows: I64 | slice = slice(None)  # candidates still stepped, in the order of the state
    parked: list[tuple[I64, I64, I64, I64]] = []
    step = 0
    while True:
        if parked and (step == microbatches or f_end.shape[1] == 0):
            parts = [*parked, (np.arange(count)[rows], f_end, free, history)]
            rows = np.concatenate([part[0] for part in parts])
            f_end, free, history = (
                np.concatenate([part[i] for part in parts], axis=1) for i in (1, 2, 3)
            )
            parked, step = [], microbatches
        if step == microbatches + depth - 1:
            break
        if step % _STEPS_A_POLL == 0:
            poll()
        steady = depth <= step < microbatches - 1
        if steady:
            old_f_end, old_free = f_end.copy(), free.copy()
        first, top = max(0, step - microbatches + 1), min(step, ranks - 1)
        if top >= first:
            begin = free[first : top + 1].copy()
            low = max(first, 1)
            if top >= low:
                arrivals = f_end[low - 1 : top] + ef[low - 1 : top, rows]
                np.maximum(begin[low - first :], arrivals, out=begin[low - first :])
            begin += f[first : top + 1, rows]
            f_end[first : top + 1] = begin
            free[first : top + 1] = begin
            if top == ranks - 1:
                history[step % slots] = begin[-1]
        if step >= depth - 1:
            # F of this micro-batch left the last known rank `later` steps ago.
            arrival = history[(step - later) % slots] + turnaround[rows]
            for s in range(ranks - 1, -1, -1):
                if s < ranks - 1:
                    arrival = arrival + eb[s, rows]
                arrival = np.maximum(arrival, free[s]) + b[s, rows]
                free[s] = arrival
        if steady:
            shift = free[0] - old_free[0]
            moved = (f_end - old_f_end == shift).all(0) & (free - old_free == shift).all(0)
            for age in range(later):
                moved &= history[(step - age) % slots] - history[(step - age - 1) % slots] == shift
            if moved.any():
                skipped = microbatches - 1 - step
                ahead = skipped * shift[moved]
                turned = np.roll(history[:, moved] + ahead, skipped, axis=0)
                names = np.arange(count)[rows]
                parked.append(
                    (names[moved], f_end[:, moved] + ahead, free[:, moved] + ahead, turned)
                )
                rows, f_end, free = names[~moved], f_end[:, ~moved], free[:, ~moved]
                history = history[:, ~moved]
        step += 1
    finish = np.empty_like(free)
    finish[:, rows] = free
    return finish
