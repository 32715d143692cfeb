"""Trying harder on a layout that the stage terms leave open: loops for :mod:`quick_terms`.

Walks over prefixes drop stages that no better cut can have
(:mod:`~planner.schedules.prefix_walks`, where the proof stands); neighbours of the best cut and
cuts at shares that fall or rise evenly (:mod:`~planner.solvers.step_candidates`) are simulated.
"""

from __future__ import annotations

import numpy as np

from planner.solvers.quick_kernels import (
    BLOCKING,
    FIXED,
    MICROBATCHES,
    STAGES,
    UNREACHABLE,
    compiled,
    copied,
    evaluate,
    exposed,
    minimax,
)

__all__ = ["raised", "try_others", "walk"]

FORWARD, BACKWARD = 0, 1
_OPERATIONS = 400_000
"""Operations that one try may simulate."""
_FEWEST = 24
"""Cuts simulated in any case."""
_CLIMBS = 8
_THRESHOLDS = 7
_SLOPES = np.arange(-4, 17, 2) / 40
_SHIFTS = np.array([-0.4, -0.2, 0.0, 0.2, 0.4])


@compiled
def walk(  # type: ignore[no-untyped-def]
    c, s, e, tiers, p, low, high, offset, f, b, possible, before, after, cells, limit
):
    """Clear ``possible`` where no cut below ``limit`` can have a stage.

    Returns how many were cleared, or -1 where no cut is left.
    """
    stages, m_all = p[STAGES], p[MICROBATCHES]
    primary, secondary = cells[0], cells[1]
    floor = minimax(low, high, offset, secondary, primary, UNREACHABLE - 1, UNREACHABLE - 1)
    if floor >= UNREACHABLE:
        return -1
    cleared = 0
    for at in range(offset[stages]):
        if possible[at] and primary[at] + max(secondary[at], floor) >= limit:
            possible[at] = False
            cleared += 1
    first = UNREACHABLE
    for y in range(high[1] - low[1] + 1):
        if possible[y]:
            first = min(first, exposed(c, s, p, low[0], low[1] + y))
    if first >= UNREACHABLE:
        return -1
    room = limit - p[FIXED] - floor - first
    width = 1
    for i in range(stages + 1):
        width = max(width, high[i] - low[i] + 1)
    # Least states over the prefixes that end at a position: largest F and B, sent, tail.
    state = np.full((4, width), UNREACHABLE, np.int64)
    state[0, 0] = state[1, 0] = state[3, 0] = 0
    state[2, 0] = -UNREACHABLE
    reached = np.zeros(width, np.bool_)
    reached[0] = True
    for q in range(stages):
        later = stages - 1 - q
        few = min(later, m_all - 1)
        across = high[q + 1] - low[q + 1] + 1
        new = np.full((4, width), UNREACHABLE, np.int64)
        met = np.zeros(width, np.bool_)
        for x in range(high[q] - low[q] + 1):
            base = offset[q] + x * across
            edge = 0
            if q and not p[BLOCKING]:
                row = tiers[q - 1]
                edge = e[0, row, low[q] + x] + e[1, row, low[q] + x]
            for y in range(across):
                at = base + y
                if not possible[at]:
                    continue
                if not reached[x]:
                    possible[at] = False
                    cleared += 1
                    continue
                t = f[at] + b[at]
                pre, rest = before[q, x], after[q + 1, y]
                most_f, most_b = max(state[0, x], f[at]), max(state[1, x], b[at])
                start, last = max(rest, few * most_f), max(rest, few * most_b)
                behind = max(state[3, x], (m_all - 1) * most_b)
                if m_all >= later + 2:
                    own = pre + (m_all - later) * t + start
                    behind = max(behind, (m_all - 1 - later) * t + last)
                else:
                    own = pre + t + few * most_f
                away = max(state[2, x] + edge + t, own)
                if max(away + last, pre + t + start + behind) >= room:
                    possible[at] = False
                    cleared += 1
                    continue
                met[y] = True
                new[0, y] = min(new[0, y], most_f)
                new[1, y] = min(new[1, y], most_b)
                new[2, y] = min(new[2, y], away)
                new[3, y] = min(new[3, y], behind)
        state, reached = new, met
    if not reached[0]:
        return -1
    leads = np.zeros(width, np.bool_)
    leads[0] = True
    for q in range(stages - 1, -1, -1):
        across = high[q + 1] - low[q + 1] + 1
        able = np.zeros(width, np.bool_)
        for x in range(high[q] - low[q] + 1):
            base = offset[q] + x * across
            for y in range(across):
                if possible[base + y]:
                    if leads[y]:
                        able[x] = True
                    else:
                        possible[base + y] = False
                        cleared += 1
        leads = able
    return cleared if leads[0] else -1


@compiled
def raised(  # type: ignore[no-untyped-def]
    c, s, e, tiers, p, low, high, offset, f, b, possible, before, after, cells, bound, limit
):
    """The largest threshold found, from ``bound`` on, that no cut inside the windows undercuts."""
    if bound >= limit:
        return limit
    least, most = bound, limit
    left = np.zeros(len(possible), np.bool_)
    for _ in range(_THRESHOLDS):
        middle = (least + most) // 2
        if middle <= least:
            break
        copied(possible, left)
        if walk(
            c, s, e, tiers, p, low, high, offset, f, b, left, before, after, cells, middle
        ) < 0:  # fmt: skip
            least = middle
        else:
            most = middle
    return least


@compiled
def promising(low, high, offset, cells, cuts, limit):  # type: ignore[no-untyped-def]
    """Whether a cut lies in the windows and its terms stay below ``limit``."""
    primary, secondary = 0, 0
    for i in range(len(cuts) - 1):
        start, end = cuts[i], cuts[i + 1]
        if end < low[i + 1] or end > high[i + 1] or end <= start:
            return False
        at = offset[i] + (start - low[i]) * (high[i + 1] - low[i + 1] + 1) + end - low[i + 1]
        primary = max(primary, cells[0, at])
        secondary = max(secondary, cells[1, at])
        if primary + secondary >= limit:
            return False
    return True


@compiled
def run_fits(low, high, offset, cells, cuts, first, last, by, limit):  # type: ignore[no-untyped-def]
    """Whether the stages that change where a run of cuts moves may be part of a better cut."""
    for i in range(first - 1, last + 1):
        start = cuts[i] + (by if first <= i else 0)
        end = cuts[i + 1] + (by if i < last else 0)
        if start < low[i] or start > high[i] or end < low[i + 1] or end > high[i + 1]:
            return False
        at = offset[i] + (start - low[i]) * (high[i + 1] - low[i + 1] + 1) + end - low[i + 1]
        if cells[0, at] >= limit:
            return False
    return True


@compiled
def at_shares(c, slope, shift, cuts):  # type: ignore[no-untyped-def]
    """Cuts nearest to shares that fall or rise evenly along the ranks."""
    count, stages = c.shape[1] - 1, len(cuts) - 1
    total = float(c[FORWARD, count] + c[BACKWARD, count])
    whole = 0.0
    for i in range(stages):
        whole += 1 + slope * (1 - 2 * i / max(1, stages - 1))
    share, block = 0.0, 0
    cuts[0] = 0
    for i in range(stages - 1):
        share += 1 + slope * (1 - 2 * i / max(1, stages - 1))
        wanted = total * share / whole + shift
        while block < count:
            here = c[FORWARD, block] + c[BACKWARD, block]
            there = c[FORWARD, block + 1] + c[BACKWARD, block + 1]
            if (here + there) / 2 >= wanted:
                break
            block += 1
        cuts[i + 1] = min(max(block, cuts[i] + 1), count - stages + i + 1)
    cuts[stages] = count


@compiled
def try_others(  # type: ignore[no-untyped-def]
    c, w, s, e, tiers, tied, p, low, high, offset, cells, upper, own, cuts, counts
):
    """Simulate ramps and neighbours of the best cut that may beat what is known; the best value."""
    stages, count = p[STAGES], c.shape[1] - 1
    each = stages * (min(p[MICROBATCHES], 4 * stages) + stages)
    left = max(_FEWEST, _OPERATIONS // each)
    trial, center = np.zeros(stages + 1, np.int64), np.zeros(stages + 1, np.int64)
    typical = float(c[FORWARD, count] + c[BACKWARD, count]) / count
    for k in range(len(_SLOPES) * len(_SHIFTS)):
        at_shares(c, _SLOPES[k // len(_SHIFTS)], _SHIFTS[k % len(_SHIFTS)] * typical, trial)
        if left > 0 and promising(low, high, offset, cells, trial, min(own, upper)):
            left -= 1
            counts[0] += 1
            value = evaluate(c, w, s, e, tiers, tied, p, trial)
            if value < own:
                own = value
                copied(trial, cuts)
    if own >= UNREACHABLE:
        return own
    for _ in range(_CLIMBS):
        copied(cuts, center)
        moved = False
        for length in range(1, stages):
            for i in range(1, stages - length + 1):
                for by in (-1, 1):
                    if left <= 0:
                        return own
                    j = i + length - 1
                    if by < 0 and center[i - 1] >= center[i] - 1:
                        continue
                    if by > 0 and center[j] + 1 >= center[j + 1]:
                        continue
                    limit = min(own, upper)
                    if not run_fits(low, high, offset, cells, center, i, j, by, limit):
                        continue
                    copied(center, trial)
                    for k in range(i, j + 1):
                        trial[k] += by
                    if not promising(low, high, offset, cells, trial, limit):
                        continue
                    left -= 1
                    counts[0] += 1
                    value = evaluate(c, w, s, e, tiers, tied, p, trial)
                    if value < own:
                        own = value
                        copied(trial, cuts)
                        moved = True
        if not moved:
            break
    return own
