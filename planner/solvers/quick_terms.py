"""The best cut of one layout below a value, by stage terms: loops for :mod:`quick_kernels`.

For every cut inside the windows of a ceiling, the step value is at least the largest primary
plus the largest secondary cell (:class:`~planner.schedules.stage_terms.StageTerms`). The least of
that over all cuts is found by walking the staircase of the two maxima; each corner's cut is
simulated, and where the two values meet the layout is solved.
"""

from __future__ import annotations

import numpy as np

from planner.solvers.quick_improve import raised, try_others, walk
from planner.solvers.quick_kernels import (
    BLOCKING,
    FIXED,
    GPIPE,
    LEAST_OPTIMIZER,
    MICROBATCHES,
    STAGES,
    UNREACHABLE,
    UPDATE,
    choice,
    compiled,
    copied,
    evaluate,
    exposed,
    minimax,
    windows,
)

__all__ = ["MOST_CELLS", "improve", "solve"]

FORWARD, BACKWARD, LEAST = 0, 1, 7
MOST_CELLS = 120_000
"""Stages of all cuts that are priced at once; wider windows leave the layout open."""
_STAIRS = 12
_WALKS = 4
_TRIES = 3


@compiled
def span(m_all, later, earlier, f, b, before, after):  # type: ignore[no-untyped-def]
    """Least time from a rank's first F to its last B under 1F1B (:func:`span_bound`)."""
    t = f + b
    if m_all >= later + 2:
        best = m_all * t + max(0, after - later * f) + max(0, after - later * b)
    else:
        best = max(m_all * t, after + max(f + m_all * b, m_all * f + b))
    wait = max(0, after - min(later, m_all - 1) * b)
    for kind in range(3):
        if kind == 0:
            length, gain, first = later + 1, t + after, 0
        elif kind == 1:
            length, gain, first = earlier + 1, t + before, later
        else:
            length, gain, first = later + earlier + 1, before + t + after, 0
        turns = (m_all - 1 - first) // length
        if turns > 0:
            m = first + turns * length
            rest = max((m_all - m) * t + min(later, m) * b + wait, f + after + (m_all - m) * b)
            best = max(best, first * f + turns * gain + rest)
    return best


@compiled
def balanced(  # type: ignore[no-untyped-def]
    low, high, offset, f, b, first, first_cap, second, second_cap, cuts
):
    """Cuts with cells at most the caps and the least sum of squared loads."""
    stages = len(low) - 1
    width = 1
    for i in range(stages + 1):
        width = max(width, high[i] - low[i] + 1)
    step = np.zeros((stages, width), np.int64)
    after = np.full(width, np.inf)
    after[0] = 0.0
    for i in range(stages - 1, -1, -1):
        here = np.full(width, np.inf)
        across = high[i + 1] - low[i + 1] + 1
        for x in range(high[i] - low[i] + 1):
            base = offset[i] + x * across
            for y in range(across):
                if first[base + y] <= first_cap and second[base + y] <= second_cap:
                    value = float(f[base + y] + b[base + y]) ** 2 + after[y]
                    if value < here[x]:
                        here[x] = value
                        step[i, x] = y
        after = here
    x = 0
    cuts[0] = 0
    for i in range(stages):
        x = step[i, x]
        cuts[i + 1] = low[i + 1] + x


@compiled
def fill(c, w, s, e, tiers, tied, p, low, high, offset, f, b, possible):  # type: ignore[no-untyped-def]
    """F and B of every stage inside the windows, blocking sends included."""
    stages = p[STAGES]
    for i in range(stages):
        across = high[i + 1] - low[i + 1] + 1
        for start in range(low[i], high[i] + 1):
            base = offset[i] + (start - low[i]) * across - low[i + 1]
            for end in range(max(start + 1, low[i + 1]), high[i + 1] + 1):
                mode, extra, _ = choice(c, w, s, tied, p, i, start, end)
                if mode < 0:
                    break  # no longer stage fits either
                at = base + end
                possible[at] = True
                f[at] = c[FORWARD, end] - c[FORWARD, start]
                b[at] = c[BACKWARD, end] - c[BACKWARD, start] + extra
                if p[BLOCKING]:
                    if i < stages - 1:
                        f[at] += e[0, tiers[i], end]
                    if i:
                        b[at] += e[1, tiers[i - 1], start]


@compiled
def edge_at(e, tiers, p, cut, position, both):  # type: ignore[no-untyped-def]
    """Forward edge of a cut, or both ways; free at the ends and where sends block."""
    if cut == 0 or cut == p[STAGES] or p[BLOCKING]:
        return 0
    row = tiers[cut - 1]
    return e[0, row, position] + (e[1, row, position] if both else 0)


@compiled
def shortest(e, tiers, p, low, high, offset, f, b, possible):  # type: ignore[no-untyped-def]
    """Least sums by (cut, position in its window): before, forward part before, after."""
    stages = p[STAGES]
    width = 1
    for i in range(stages + 1):
        width = max(width, high[i] - low[i] + 1)
    before = np.full((stages + 1, width), UNREACHABLE, np.int64)
    ahead = np.full((stages + 1, width), UNREACHABLE, np.int64)
    after = np.full((stages + 1, width), UNREACHABLE, np.int64)
    before[0, 0] = ahead[0, 0] = after[stages, 0] = 0
    for i in range(stages):
        across = high[i + 1] - low[i + 1] + 1
        for x in range(high[i] - low[i] + 1):
            base = offset[i] + x * across
            for y in range(across):
                if possible[base + y]:
                    cost = before[i, x] + f[base + y] + b[base + y]
                    before[i + 1, y] = min(before[i + 1, y], cost)
                    ahead[i + 1, y] = min(ahead[i + 1, y], ahead[i, x] + f[base + y])
        for y in range(across):
            position = low[i + 1] + y
            if before[i + 1, y] < UNREACHABLE:
                before[i + 1, y] += edge_at(e, tiers, p, i + 1, position, True)
                ahead[i + 1, y] += edge_at(e, tiers, p, i + 1, position, False)
    for i in range(stages - 1, -1, -1):
        across = high[i + 1] - low[i + 1] + 1
        for x in range(high[i] - low[i] + 1):
            base = offset[i] + x * across
            least = UNREACHABLE
            for y in range(across):
                if possible[base + y]:
                    least = min(least, f[base + y] + b[base + y] + after[i + 1, y])
            if least < UNREACHABLE:
                least += edge_at(e, tiers, p, i, low[i] + x, True)
            after[i, x] = least
    return before, ahead, after


@compiled
def terms(  # type: ignore[no-untyped-def]
    c, s, p, low, high, offset, f, b, possible, before, ahead, after, cells
):
    """Fill the four rows of ``cells``: primary, secondary, and GPipe's other pair."""
    stages, m_all, fixed = p[STAGES], p[MICROBATCHES], p[FIXED]
    first = UNREACHABLE
    for end in range(low[1], high[1] + 1):
        if possible[end - low[1]]:
            first = min(first, exposed(c, s, p, low[0], end))
    count = c.shape[1] - 1
    most_f, most_b = 0, 0
    for k in range(count):
        most_f = max(most_f, c[FORWARD, k + 1] - c[FORWARD, k])
        whole = c[LEAST, k + 1] - c[LEAST, k]
        most_b = max(most_b, whole - (c[FORWARD, k + 1] - c[FORWARD, k]))
    total_b = c[LEAST, count] - c[FORWARD, count]
    least_f = max(-(-c[FORWARD, count] // stages), most_f)
    least_b = max(-(-total_b // stages), most_b)
    rounds = m_all - 1
    for i in range(stages):
        across = high[i + 1] - low[i + 1] + 1
        for start in range(low[i], high[i] + 1):
            pre, pre_f = before[i, start - low[i]], ahead[i, start - low[i]]
            base = offset[i] + (start - low[i]) * across - low[i + 1]
            for end in range(low[i + 1], high[i + 1] + 1):
                at = base + end
                post = after[i + 1, end - low[i + 1]]
                if not possible[at] or pre >= UNREACHABLE or post >= UNREACHABLE:
                    cells[0, at] = cells[1, at] = cells[2, at] = cells[3, at] = UNREACHABLE
                    continue
                reduced = exposed(c, s, p, start, end)
                optimizer = s[UPDATE, end] - s[UPDATE, start]
                if not p[GPIPE]:
                    length = span(m_all, stages - 1 - i, i, f[at], b[at], pre, post)
                    cells[0, at] = max(pre + length + first, pre_f + length + reduced) + fixed
                    cells[1, at] = optimizer
                    continue
                through = f[at] + b[at] + post
                ends = pre + through + rounds * max(b[at], least_b) + first
                own = pre_f + through + rounds * b[at] + reduced
                cells[0, at] = max(ends, own) + max(optimizer, p[LEAST_OPTIMIZER]) + fixed
                cells[1, at] = rounds * f[at]
                pace = rounds * max(f[at] + b[at], max(b[at], least_b) + least_f)
                whole = max(pre + through + first + pace, own + rounds * f[at])
                cells[2, at], cells[3, at] = whole + fixed, optimizer


@compiled
def staircase(  # type: ignore[no-untyped-def]
    c,
    w,
    s,
    e,
    tiers,
    tied,
    p,
    low,
    high,
    offset,
    f,
    b,
    primary,
    secondary,
    upper,
    own,
    cuts,
    counts,
):
    """(bound over the cuts inside, value of the best cut known); the cut goes to ``cuts``.

    The bound is UNREACHABLE where no cut is inside.
    """
    floor = minimax(low, high, offset, secondary, primary, UNREACHABLE - 1, UNREACHABLE - 1)
    if floor >= UNREACHABLE:
        return UNREACHABLE, own
    bound, cap = UNREACHABLE, UNREACHABLE - 1
    trial = np.zeros(len(cuts), np.int64)
    for _ in range(_STAIRS):
        least = minimax(low, high, offset, primary, secondary, cap, UNREACHABLE - 1)
        if least >= UNREACHABLE or least + floor >= bound:
            return bound, own
        if least + floor >= min(own, upper):
            return min(bound, own, upper), own
        beside = minimax(low, high, offset, secondary, primary, least, cap)
        balanced(low, high, offset, f, b, primary, least, secondary, beside, trial)
        bound = min(bound, least + beside)
        counts[0] += 1
        value = evaluate(c, w, s, e, tiers, tied, p, trial)
        if value < own:
            own = value
            copied(trial, cuts)
        if beside <= floor:
            return bound, own
        cap = beside - 1
    least = minimax(low, high, offset, primary, secondary, cap, UNREACHABLE - 1)
    if least < UNREACHABLE:
        bound = min(bound, least + floor)
    return bound, own


@compiled
def both_stairs(  # type: ignore[no-untyped-def]
    c, w, s, e, tiers, tied, p, low, high, offset, f, b, cells, upper, own, cuts, counts
):
    """``staircase`` over the pairs of cells that the schedule has: the larger bound."""
    bound, own = staircase(
        c, w, s, e, tiers, tied, p, low, high, offset, f, b, cells[0], cells[1], upper, own, cuts,
        counts,
    )  # fmt: skip
    if p[GPIPE] and s[UPDATE, -1]:
        other, own = staircase(
            c, w, s, e, tiers, tied, p, low, high, offset, f, b, cells[2], cells[3], upper, own,
            cuts, counts,
        )  # fmt: skip
        bound = max(bound, other)
    return bound, own


@compiled
def below(  # type: ignore[no-untyped-def]
    c, w, s, e, tiers, tied, p, ceiling, upper, own, cuts, counts, deep
):
    """(bound, value of the best cut known): no cut is below the bound, at most ceiling + 1.

    The bound is -1 where the windows are too wide to be priced. ``deep`` also walks prefixes and
    tries neighbours of the best cut.
    """
    stages = p[STAGES]
    low, high = np.zeros(stages + 1, np.int64), np.zeros(stages + 1, np.int64)
    if not windows(c, w, s, tied, p, ceiling, low, high):
        return ceiling + 1, own
    offset = np.zeros(stages + 1, np.int64)
    for i in range(stages):
        cell = (high[i] - low[i] + 1) * (high[i + 1] - low[i + 1] + 1)
        offset[i + 1] = offset[i] + cell
    size = offset[stages]
    if size > MOST_CELLS:
        return -1, own
    f, b = np.zeros(size, np.int64), np.zeros(size, np.int64)
    possible = np.zeros(size, np.bool_)
    cells = np.zeros((4, size), np.int64)
    fill(c, w, s, e, tiers, tied, p, low, high, offset, f, b, possible)
    before, ahead, after = shortest(e, tiers, p, low, high, offset, f, b, possible)
    terms(c, s, p, low, high, offset, f, b, possible, before, ahead, after, cells)
    if deep and not p[GPIPE]:
        for _ in range(_WALKS):
            left = walk(
                c, s, e, tiers, p, low, high, offset, f, b, possible, before, after, cells,
                ceiling + 1,
            )  # fmt: skip
            if left < 0:
                return ceiling + 1, own
            if left == 0:
                break
            before, ahead, after = shortest(e, tiers, p, low, high, offset, f, b, possible)
            terms(c, s, p, low, high, offset, f, b, possible, before, ahead, after, cells)
    bound, own = both_stairs(
        c, w, s, e, tiers, tied, p, low, high, offset, f, b, cells, upper, own, cuts, counts
    )
    bound = min(bound, ceiling + 1)
    if deep and bound < min(own, upper):
        own = try_others(
            c, w, s, e, tiers, tied, p, low, high, offset, cells, upper, own, cuts, counts
        )
        if not p[GPIPE]:
            bound = raised(
                c, s, e, tiers, p, low, high, offset, f, b, possible, before, after, cells, bound,
                min(own, upper),
            )  # fmt: skip
    return bound, own


@compiled
def solve(c, w, s, e, tiers, tied, p, least, upper, cuts, counts):  # type: ignore[no-untyped-def]
    """(value, bound) of a layout whose cuts fit; ``cuts`` is its best cut known.

    Parameters
    ----------
    least
        A value that no cut undercuts: the ceilings tried rise from there.
    upper
        Values from here on do not matter; the bound is at most this.
    counts
        Simulations are added to its first entry.

    Returns
    -------
    The value is UNREACHABLE where no cut was met; it may exceed ``upper``.
    """
    own, bound = np.int64(UNREACHABLE), min(least, upper)
    share, width = 256, 1
    while bound < min(own, upper):
        # The least ceiling under which the windows hold a cut; then the best cut itself.
        ceiling = min(own, upper) - 1
        if share:
            ceiling = min(ceiling, least + least * width // share + 1)
        before = own
        found, own = below(c, w, s, e, tiers, tied, p, ceiling, upper, own, cuts, counts, False)
        if found < 0:
            return own, bound
        bound = max(bound, min(found, own, upper))
        if own < min(before, upper):
            share = 0
        elif share and ceiling < min(before, upper) - 1:
            width *= 4
            if width > 1024:
                share = 0
        else:
            break
    return own, bound


@compiled
def improve(  # type: ignore[no-untyped-def]
    c, w, s, e, tiers, tied, p, bound, upper, own, cuts, counts
):
    """(value, bound) of a layout that ``solve`` left open, after trying harder."""
    for _ in range(_TRIES):
        limit = min(own, upper)
        if bound >= limit:
            break
        found, own = below(c, w, s, e, tiers, tied, p, limit - 1, upper, own, cuts, counts, True)
        if found < 0:
            break
        bound = max(bound, min(found, own, upper))
        if min(own, upper) >= limit:
            break
    return own, bound
