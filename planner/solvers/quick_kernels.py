"""Loops of the quick layout search: prices, windows, stage terms and timelines of one chain.

The definitions are those of :class:`~planner.cost.stage_table.ChainProblem` (prices),
:mod:`~planner.schedules.simulate` (timelines), :mod:`~planner.schedules.cut_windows`,
:mod:`~planner.schedules.order_bounds` and :mod:`~planner.schedules.stage_terms` (bounds), where
their reasons stand; here they run on flat arrays, compiled where numba is installed and as plain
Python where it is not. Tested against those modules.

Arrays: ``c`` prefix sums over blocks (rows below), ``w`` largest workspace of 2**level blocks
(plain, recomputed in full), ``s`` states, ``e`` edges by direction, tier and position, ``tiers``
the row of each border, ``tied`` (first, second, bytes), ``p`` scalars.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "BLOCKING", "EDGES", "FIXED", "GPIPE", "HAS_FULL", "HAS_NONE", "HAS_SELECTIVE", "LATENCY",
    "LEAST_OPTIMIZER", "MICROBATCHES", "OVERLAP", "ROOM", "SCALARS", "STAGES", "UNREACHABLE",
    "UPDATE", "choice", "compiled", "copied", "describe", "evaluate", "exposed", "fits",
    "minimax", "windows",
]  # fmt: skip

UNREACHABLE = 1 << 60

FORWARD, BACKWARD, SELECTIVE, FULL, KEPT, KEPT_SELECTIVE, KEPT_FULL, LEAST, LOG = range(9)
"""Rows of ``c``; LEAST is F + the backward that no allowed mode undercuts, LOG floor(log2)."""
STATIC, REDUCTION, REDUCTION_BLOCK, UPDATE = range(4)
"""Rows of ``s``."""
(
    STAGES, MICROBATCHES, GPIPE, ROOM, LATENCY, OVERLAP, FIXED, BLOCKING, HAS_NONE,
    HAS_SELECTIVE, HAS_FULL, LEAST_OPTIMIZER, EDGES,
) = range(13)  # fmt: skip
"""Entries of ``p``; EDGES is what all borders cost at least, both ways."""
SCALARS = 13
"""Length of ``p``."""


@cache
def _stamp() -> str:
    """Hash of the source of all quick kernels.

    Compiled code is kept by the stamp of a function's own file, and has what it calls inside.
    """
    here = Path(__file__)
    sources = b"".join(path.read_bytes() for path in sorted(here.parent.glob("quick_*.py")))
    return hashlib.sha256(sources).hexdigest()[:8]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without the interpreter lock, the code kept on disk where that is possible."""
    if find_spec("numba") is None:
        return function
    from numba import njit

    function.__qualname__ = f"{function.__name__}_{_stamp()}"
    try:
        result: Callable[..., Any] = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no writable place for the file cache
        result = njit(nogil=True)(function)
    return result


# --- prices ------------------------------------------------------------------------------------


@compiled
def flight_of(p, stage):  # type: ignore[no-untyped-def]
    """Micro-batches in flight on a rank (:mod:`planner.cost.in_flight`)."""
    if p[GPIPE]:
        return p[MICROBATCHES]
    return min(p[MICROBATCHES], p[STAGES] - stage)


@compiled
def workspace(c, w, kind, start, end):  # type: ignore[no-untyped-def]
    level = c[LOG, end - start]
    return max(w[kind, level, start], w[kind, level, end - (1 << level)])


@compiled
def choice(c, w, s, tied, p, stage, start, end):  # type: ignore[no-untyped-def]
    """(mode 0 none, 1 selective, 2 full, -1 nothing fits; extra; memory without buffers)."""
    flight = flight_of(p, stage)
    fixed = s[STATIC, end] - s[STATIC, start]
    for k in range(tied.shape[0]):
        if start <= tied[k, 0] and tied[k, 1] < end:
            fixed -= tied[k, 2]
    spare = p[ROOM] - fixed
    mode, best, memory = -1, UNREACHABLE, UNREACHABLE
    if p[HAS_NONE]:
        held = flight * (c[KEPT, end] - c[KEPT, start]) + workspace(c, w, 0, start, end)
        if held <= spare:
            return 0, 0, fixed + held
    if p[HAS_SELECTIVE]:
        held = flight * (c[KEPT_SELECTIVE, end] - c[KEPT_SELECTIVE, start])
        held += workspace(c, w, 0, start, end)
        if held <= spare:
            mode, best = 1, c[SELECTIVE, end] - c[SELECTIVE, start]
            memory = fixed + held
    if p[HAS_FULL]:
        extra = c[FULL, end] - c[FULL, start]
        if extra < best:
            held = flight * (c[KEPT_FULL, end] - c[KEPT_FULL, start])
            held += workspace(c, w, 1, start, end)
            if held <= spare:
                mode, best, memory = 2, extra, fixed + held
    return mode, best, memory


@compiled
def exposed(c, s, p, start, end):  # type: ignore[no-untyped-def]
    """Gradient reduction left after a stage's last backward."""
    total = s[REDUCTION, end] - s[REDUCTION, start]
    if total == 0:
        return 0
    if p[OVERLAP]:
        hidden = c[BACKWARD, end] - c[BACKWARD, start + 1]
        total = max(s[REDUCTION_BLOCK, start], total - hidden)
    return p[LATENCY] + total


@compiled
def fits(c, w, s, tied, p):  # type: ignore[no-untyped-def]
    """Whether any cut fits: greedy, since a part of a stage that fits fits too."""
    count, stages = c.shape[1] - 1, p[STAGES]
    at = np.int64(0)
    for stage in range(stages):
        low, high = at, count - (stages - 1 - stage)
        while low < high:
            middle = (low + high + 1) // 2
            if choice(c, w, s, tied, p, stage, at, middle)[0] >= 0:
                low = middle
            else:
                high = middle - 1
        if low == at:
            return False
        at = low
    return at == count


# --- timelines ---------------------------------------------------------------------------------


@compiled
def finish_gpipe(f, b, ef, eb, microbatches, finish):  # type: ignore[no-untyped-def]
    stages = len(f)
    done, largest = 0, f[0]
    for i in range(stages):
        largest = max(largest, f[i])
        done += f[i]
        if i:
            done += ef[i]
    done += (microbatches - 1) * largest
    passed, slowest = 0, 0
    for i in range(stages - 1, -1, -1):
        passed += b[i]
        if i < stages - 1:
            passed += eb[i + 1]
        slowest = max(slowest, b[i])
        finish[i] = done + passed + (microbatches - 1) * slowest


@compiled
def finish_1f1b(f, b, ef, eb, microbatches, finish):  # type: ignore[no-untyped-def]
    """Ends of every rank's last B; edges are those of the cut before each rank.

    A steady state that equals an earlier one up to a shift repeats: whole periods are jumped
    (:func:`~planner.schedules.simulate.simulate`). The state compared with moves up whenever the
    steps since it double (Brent 1980), so that a period of any length is met.
    """
    stages = len(f)
    f_end = np.zeros(stages, np.int64)
    free = np.zeros(stages, np.int64)
    old_f, old_free = np.zeros(stages, np.int64), np.zeros(stages, np.int64)
    step, last = 0, microbatches + stages - 2
    looking = microbatches > stages
    age, most = 0, 0
    while step <= last:
        first = max(0, step - microbatches + 1)
        for i in range(min(step, stages - 1), first - 1, -1):
            begin = free[i]
            if i:
                arrival = f_end[i - 1] + ef[i]
                if arrival > begin:
                    begin = arrival
            f_end[i] = free[i] = begin + f[i]
        if step >= stages - 1:
            arrival = 0
            for i in range(stages - 1, -1, -1):
                if i < stages - 1:
                    arrival += eb[i + 1]
                if free[i] > arrival:
                    arrival = free[i]
                arrival += b[i]
                free[i] = arrival
        if looking and stages - 1 <= step < microbatches - 1:
            same = most > 0
            shift = free[0] - old_free[0]
            if same:
                for i in range(stages):
                    if f_end[i] - old_f[i] != shift or free[i] - old_free[i] != shift:
                        same = False
                        break
            if same:
                period = age + 1
                periods = (microbatches - 1 - step) // period
                for i in range(stages):
                    f_end[i] += periods * shift
                    free[i] += periods * shift
                step += periods * period
                looking = False
            else:
                age += 1
                if age >= most:
                    for i in range(stages):  # slices cost seconds to compile
                        old_f[i] = f_end[i]
                        old_free[i] = free[i]
                    age, most = 0, max(1, 2 * most)
        step += 1
    for i in range(stages):
        finish[i] = free[i]


@compiled
def times_of(c, w, s, e, tiers, tied, p, cuts, f, b, ef, eb):  # type: ignore[no-untyped-def]
    """Fill F, B and the edges of the cut before each stage; False where something fits not."""
    for i in range(p[STAGES]):
        start, end = cuts[i], cuts[i + 1]
        mode, extra, _ = choice(c, w, s, tied, p, i, start, end)
        if mode < 0:
            return False
        f[i] = c[FORWARD, end] - c[FORWARD, start]
        b[i] = c[BACKWARD, end] - c[BACKWARD, start] + extra
        if i:
            ef[i] = e[0, tiers[i - 1], start]
            eb[i] = e[1, tiers[i - 1], start]
    if p[BLOCKING]:
        for i in range(1, p[STAGES]):
            f[i - 1] += ef[i]
            b[i] += eb[i]
            ef[i] = eb[i] = 0
    return True


@compiled
def evaluate(c, w, s, e, tiers, tied, p, cuts):  # type: ignore[no-untyped-def]
    """The step value of a cut; UNREACHABLE where a stage does not fit."""
    stages = p[STAGES]
    f, b = np.zeros(stages, np.int64), np.zeros(stages, np.int64)
    ef, eb = np.zeros(stages, np.int64), np.zeros(stages, np.int64)
    if not times_of(c, w, s, e, tiers, tied, p, cuts, f, b, ef, eb):
        return UNREACHABLE
    finish = np.zeros(stages, np.int64)
    if p[GPIPE]:
        finish_gpipe(f, b, ef, eb, p[MICROBATCHES], finish)
    else:
        finish_1f1b(f, b, ef, eb, p[MICROBATCHES], finish)
    ends, optimizer = 0, 0
    for i in range(stages):
        ends = max(ends, finish[i] + exposed(c, s, p, cuts[i], cuts[i + 1]))
        optimizer = max(optimizer, s[UPDATE, cuts[i + 1]] - s[UPDATE, cuts[i]])
    return ends + optimizer + p[FIXED]


@compiled
def describe(c, w, s, tied, p, cuts):  # type: ignore[no-untyped-def]
    """Of every stage: mode, memory without buffers, load, extra (4, P)."""
    found = np.zeros((4, p[STAGES]), np.int64)
    for i in range(p[STAGES]):
        start, end = cuts[i], cuts[i + 1]
        mode, extra, memory = choice(c, w, s, tied, p, i, start, end)
        load = c[FORWARD, end] - c[FORWARD, start] + c[BACKWARD, end] - c[BACKWARD, start]
        found[0, i], found[1, i], found[2, i], found[3, i] = mode, memory, load + extra, extra
    return found


# --- windows -----------------------------------------------------------------------------------


@compiled
def within(c, w, s, tied, p, stage, start, end, room):  # type: ignore[no-untyped-def]
    """Whether the simplest bounds of a stage stay within ``room`` (:mod:`cut_windows`).

    The stage's own time counts with what it has to recompute; monotone in both ends.
    """
    mode, extra, _ = choice(c, w, s, tied, p, stage, start, end)
    if mode < 0:
        return False
    m_all, total = p[MICROBATCHES], c[LEAST, c.shape[1] - 1]
    f = c[FORWARD, end] - c[FORWARD, start]
    b = c[BACKWARD, end] - c[BACKWARD, start] + extra
    before, after = c[LEAST, start], total - c[LEAST, end]
    once = total + p[EDGES]
    own = max(0, f + b - (c[LEAST, end] - c[LEAST, start]))
    if p[GPIPE]:
        return once + own + (m_all - 1) * (f + b) <= room
    if before + m_all * (f + b) > room:
        return False
    later = p[STAGES] - 1 - stage
    if m_all >= later + 2:
        return before + 2 * after + (m_all - later) * (f + b) + p[EDGES] <= room
    return once + own + (m_all - 1) * max(f, b) <= room


@compiled
def windows(c, w, s, tied, p, ceiling, low, high):  # type: ignore[no-untyped-def]
    """``low[i] <= cut_i <= high[i]`` for every cut of value <= ceiling; False where none is."""
    count, stages = c.shape[1] - 1, p[STAGES]
    room = ceiling - p[FIXED] - p[LEAST_OPTIMIZER]
    low[0] = high[0] = 0
    for i in range(stages):
        last = count - (stages - 1 - i)
        at, far = high[i], last
        while at < far:
            middle = (at + far + 1) // 2
            if middle > high[i] and within(c, w, s, tied, p, i, high[i], middle, room):
                at = middle
            else:
                far = middle - 1
        if at < i + 1 or at <= high[i]:
            return False
        high[i + 1] = at
    if high[stages] != count:
        return False
    low[stages] = count
    for i in range(stages - 1, 0, -1):
        at, far = i, low[i + 1] - 1
        while at < far:
            middle = (at + far) // 2
            if within(c, w, s, tied, p, i, middle, low[i + 1], room):
                far = middle
            else:
                at = middle + 1
        if not within(c, w, s, tied, p, i, at, low[i + 1], room) or at > high[i]:
            return False
        low[i] = at
    return within(c, w, s, tied, p, low[0], low[0], low[1], room)


@compiled
def copied(source, target):  # type: ignore[no-untyped-def]
    """``target[:] = source``, which takes far longer to compile."""
    for i in range(len(source)):
        target[i] = source[i]


@compiled
def minimax(low, high, offset, cells, other, cap_other, cap):  # type: ignore[no-untyped-def]
    """Least over cuts of the largest cell, where ``other`` stays at most ``cap_other``."""
    stages = len(low) - 1
    after = np.zeros(high[stages] - low[stages] + 1, np.int64)
    for i in range(stages - 1, -1, -1):
        width, across = high[i] - low[i] + 1, high[i + 1] - low[i + 1] + 1
        here = np.full(width, UNREACHABLE, np.int64)
        for x in range(width):
            base = offset[i] + x * across
            least = UNREACHABLE
            for y in range(across):
                if other[base + y] <= cap_other:
                    value = cells[base + y]
                    if value <= cap:
                        least = min(least, max(value, after[y]))
            here[x] = least
        after = here
    return after[0]
