"""Compiled chain programs; the only module that imports numba, itself imported only when asked.

The same definitions as ``chain_probes`` and ``chain_dense`` (where the reasons stand), on the
arrays of ``chain_packed``: one call solves one problem and writes its cuts into ``cuts`` (P+1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from planner.solvers.chain_packed import (
    ABLE,
    AFTER,
    ALL_LEGAL,
    BASE,
    BINDS,
    COMPUTE,
    EXACT,
    EXTRA,
    FLIGHT,
    FULL,
    HIGH,
    IN,
    INFO,
    LAYERS,
    LEAST_IN,
    LEAST_KEPT,
    LEGAL,
    LOG,
    LOW,
    MODES,
    NONE,
    OUT,
    ROOM,
    SHARED,
    STAGES,
    STATIC,
)
from planner.solvers.chain_tables import INFINITE

__all__ = ["greedy", "least_bottleneck", "least_sum", "reachable_sets"]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile without the interpreter lock; keep the code on disk where that is possible."""
    try:
        result: Callable[..., Any] = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no writable place for the file cache
        result = njit(nogil=True)(function)
    return result


@compiled
def workspace(rows, sparse, mode, start, end):  # type: ignore[no-untyped-def]
    if end <= start:
        return 0
    level = rows[LOG, end - start]
    left = sparse[mode, level, start]
    right = sparse[mode, level, end - (1 << level)]
    return left if left > right else right


@compiled
def extra_of(rows, stages, sparse, tied, info, stage, start, end):  # type: ignore[no-untyped-def]
    modes = info[MODES]
    flight = stages[stage, FLIGHT]
    spare = stages[stage, ROOM] - (rows[STATIC, end] - rows[STATIC, start])
    for pair in range(tied.shape[0]):
        if start <= tied[pair, 0] and tied[pair, 1] < end:
            spare += tied[pair, 2]
    best = INFINITE
    for mode in range(modes):
        if info[INFO + mode] == 0:
            continue
        added = rows[EXTRA + mode, end] - rows[EXTRA + mode, start]
        if added < best:
            kept = EXTRA + modes + mode
            held = flight * (rows[kept, end] - rows[kept, start])
            if held + workspace(rows, sparse, mode, start, end) <= spare:
                best = added
    if info[LAYERS] == 0 or best == 0:
        return best
    none, full = info[NONE], info[FULL]
    all_kept, full_kept = EXTRA + modes + none, EXTRA + modes + full
    split = start
    while True:
        added = rows[EXTRA + full, split] - rows[EXTRA + full, start]
        if added >= best:
            return best
        held = flight * (
            rows[full_kept, split] - rows[full_kept, start]
            + rows[all_kept, end] - rows[all_kept, split]
        )  # fmt: skip
        if held <= spare:
            held += max(
                workspace(rows, sparse, full, start, split),
                workspace(rows, sparse, none, split, end),
            )
            if held <= spare:
                return added
        while split < end and rows[ABLE, split] == 0:
            split += 1
        if split >= end:
            return best
        split += 1


@compiled
def price(rows, stages, sparse, tied, info, stage, start, end):  # type: ignore[no-untyped-def]
    extra = extra_of(rows, stages, sparse, tied, info, stage, start, end)
    if extra >= INFINITE:
        return INFINITE
    cost = rows[COMPUTE, end] - rows[COMPUTE, start] + extra
    return cost + rows[stages[stage, IN], start] + rows[stages[stage, OUT], end]


@compiled
def greedy(rows, stages, sparse, tied, info, cuts, lower, upper):  # type: ignore[no-untyped-def]
    """GreedyProber.bisect: (value, bound, probes, states)."""
    number, modes, base = info[STAGES], info[MODES], info[BASE]
    exact, all_legal = info[EXACT] != 0, info[ALL_LEGAL] != 0
    count = rows.shape[1] - 1
    trial = np.zeros(number + 1, np.int64)
    low, high = lower, upper + 1
    limit, step = lower, 0
    found = False
    probes = states = 0
    base_kept = EXTRA + modes + max(base, 0)
    most_workspace = workspace(rows, sparse, max(base, 0), 0, count)
    while low < high:
        probes += 1
        start = 0
        bid = INFINITE
        good = True
        for stage in range(number - 1):
            into, out = stages[stage, IN], stages[stage, OUT]
            most = stages[stage, HIGH]
            spent = limit + rows[COMPUTE, start] - rows[into, start]
            if base >= 0:
                spent += rows[EXTRA + base, start]
            left, right = start, most
            while left < right:
                middle = (left + right + 1) >> 1
                at = middle if all_legal else rows[LEGAL, middle]
                up = rows[COMPUTE, at] + rows[out, at]
                if base >= 0:
                    up += rows[EXTRA + base, at]
                if up <= spent:
                    left = middle
                else:
                    right = middle - 1
            end = left if all_legal else max(start, rows[LEGAL, left])
            states += 1
            # The same tests as the prober's, so that the counts of probes agree, too.
            slow = False
            if end > start and (not exact or stages[stage, BINDS] != 0):
                held = rows[STATIC, end] - rows[STATIC, start]
                held += stages[stage, FLIGHT] * (rows[base_kept, end] - rows[base_kept, start])
                slow = not exact or held > stages[stage, ROOM] - most_workspace
            if slow:
                left, right = start, end
                while left < right:
                    middle = (left + right + 1) >> 1
                    at = rows[LEGAL, middle]
                    states += 1
                    if at <= start or (
                        price(rows, stages, sparse, tied, info, stage, start, at) <= limit
                    ):
                        left = middle
                    else:
                        right = middle - 1
                end = max(start, rows[LEGAL, left])
            if end < most:
                following = end + 1
                while rows[LEGAL, following] != following:
                    following += 1
                if slow:
                    offer = price(rows, stages, sparse, tied, info, stage, start, following)
                else:
                    offer = rows[COMPUTE, following] + rows[out, following] + limit - spent
                    if base >= 0:
                        offer += rows[EXTRA + base, following]
                bid = min(bid, offer)
            if end < stages[stage, LOW]:
                good = False
                break
            trial[stage + 1] = end
            start = end
        if good:
            last = price(rows, stages, sparse, tied, info, number - 1, start, count)
            if last > limit:
                good = False
                bid = min(bid, last)
        if not good:
            low = max(limit + 1, bid)
            if found:
                limit = (low + high) // 2
            else:
                limit = min(low + step, high - 1)
                step = max(1, low >> 7, step * 2)
            continue
        trial[number] = count
        for cut in range(number - 1, 0, -1):
            if trial[cut] >= trial[cut + 1]:
                trial[cut] = rows[LEGAL, max(0, trial[cut + 1] - 1)]
        worst = 0
        for stage in range(number):
            start, end = trial[stage], trial[stage + 1]
            if start >= end or end < stages[stage, LOW] or end > stages[stage, HIGH]:
                worst = INFINITE
                break
            cost = price(rows, stages, sparse, tied, info, stage, start, end)
            worst = max(worst, cost)
        if worst > limit:
            return INFINITE, low, probes, states
        found = True
        cuts[:] = trial
        high = worst
        limit = (low + high) // 2
    if not found:
        return INFINITE, (low if low <= upper else INFINITE), probes, states
    return high, high, probes, states


@compiled
def narrowed(rows, stages, info, limit, low, high):  # type: ignore[no-untyped-def]
    """ChainTables.windows; False if a window is empty."""
    number, count = info[STAGES], rows.shape[1] - 1
    low[0] = high[0] = 0
    for cut in range(1, number + 1):
        low[cut], high[cut] = stages[cut - 1, LOW], stages[cut - 1, HIGH]
    for forward in (True, False):
        for turn in range(number):
            stage = turn if forward else number - 1 - turn
            flight = stages[stage, FLIGHT]
            spare = stages[stage, ROOM] + info[SHARED]
            least_out = stages[stage + 1, LEAST_IN] if stage + 1 < number else 0
            allowance = limit - stages[stage, LEAST_IN] - least_out
            fixed = high[stage] if forward else low[stage + 1]
            near = fixed
            far = high[stage + 1] if forward else low[stage]
            while near != far:
                # Halve towards the far end, which is right of ``near`` going forward.
                middle = (near + far + 1) >> 1 if forward else (near + far) >> 1
                start, end = (fixed, middle) if forward else (middle, fixed)
                held = rows[STATIC, end] - rows[STATIC, start]
                held += flight * (rows[LEAST_KEPT, end] - rows[LEAST_KEPT, start])
                fits = held <= spare and (rows[COMPUTE, end] - rows[COMPUTE, start] <= allowance)
                if fits:
                    near = middle
                else:
                    far = middle - 1 if forward else middle + 1
            if forward:
                high[stage + 1] = rows[LEGAL, near]
            else:
                low[stage] = rows[AFTER, near]
            if low[stage + 1] > high[stage + 1] or low[stage] > high[stage]:
                return False
    for cut in range(number - 1, -1, -1):
        high[cut] = rows[LEGAL, max(0, min(high[cut], high[cut + 1] - 1))]
    for cut in range(1, number + 1):
        low[cut] = rows[AFTER, min(count, max(low[cut], low[cut - 1] + 1))]
    for cut in range(number + 1):  # noqa: SIM110 - compiled
        if low[cut] > high[cut]:
            return False
    return True


@compiled
def reachable_sets(rows, stages, sparse, tied, info, cuts, lower, upper):  # type: ignore[no-untyped-def]
    """Least bottleneck under any cut prices: (value, probes, states).

    For a limit, the positions where each stage can end follow from those of the stage before.
    Of two starts the later one is never worse when its begin is no dearer, so only starts that
    get cheaper towards the left are kept; exact while stages without cuts are monotone.
    """
    number, count = info[STAGES], rows.shape[1] - 1
    low_cut, high_cut = np.zeros(number + 1, np.int64), np.zeros(number + 1, np.int64)
    offsets = np.zeros(number + 2, np.int64)
    stack = np.zeros(count + 1, np.int64)
    origin = np.zeros(0, np.int64)
    low, high = lower, upper + 1
    limit, step = lower, 0
    found = False
    probes = states = 0
    while low < high:
        probes += 1
        bid = INFINITE
        good = found or narrowed(rows, stages, info, limit, low_cut, high_cut)
        if good:
            for cut in range(number + 1):
                offsets[cut + 1] = offsets[cut] + high_cut[cut] - low_cut[cut] + 1
            if len(origin) < offsets[number + 1]:
                origin = np.zeros(2 * offsets[number + 1], np.int64)
            origin[: offsets[number + 1]] = -1
            origin[0] = 0
            for stage in range(number):
                into, out = stages[stage, IN], stages[stage, OUT]
                first, following = low_cut[stage], low_cut[stage + 1]
                top, pushed = 0, first
                good = False
                for end in range(following, high_cut[stage + 1] + 1):
                    # Starts kept: later ones first, each earlier one with a cheaper begin.
                    while pushed < end and pushed <= high_cut[stage]:
                        if origin[offsets[stage] + pushed - first] >= 0:
                            begin = rows[COMPUTE, pushed] - rows[into, pushed]
                            while top > 0 and (
                                rows[COMPUTE, stack[top - 1]] - rows[into, stack[top - 1]] <= begin
                            ):
                                top -= 1
                            stack[top] = pushed
                            top += 1
                        pushed += 1
                    if rows[LEGAL, end] != end:
                        continue
                    need = rows[COMPUTE, end] + rows[out, end] - limit
                    offer = bid
                    for index in range(top - 1, -1, -1):
                        start = stack[index]
                        states += 1
                        begin = rows[COMPUTE, start] - rows[into, start]
                        if begin < need:
                            offer = min(offer, need - begin + limit)
                            continue
                        cost = price(rows, stages, sparse, tied, info, stage, start, end)
                        if cost <= limit:
                            origin[offsets[stage + 1] + end - following] = start
                            offer = bid
                            good = True
                            break
                        if cost >= INFINITE:
                            break
                        offer = min(offer, cost)
                    bid = offer
                if not good:
                    break
        if not good:
            # The same positions are reached up to the bid, as long as the windows stay.
            low = max(limit + 1, bid) if found else limit + 1
            if found:
                limit = (low + high) // 2
            else:
                limit = min(low + step, high - 1)
                step = max(1, lower >> 10, step * 2)
            continue
        found = True
        cuts[number] = count
        worst = 0
        for stage in range(number - 1, -1, -1):
            end = cuts[stage + 1]
            start = origin[offsets[stage + 1] + end - low_cut[stage + 1]]
            cuts[stage] = start
            cost = price(rows, stages, sparse, tied, info, stage, start, end)
            worst = max(worst, cost)
        high = worst
        limit = (low + high) // 2
        # From here on the windows of the best value so far serve every smaller limit.
        if low < high and not narrowed(rows, stages, info, high - 1, low_cut, high_cut):
            break
    return (high if found else INFINITE), probes, states


@compiled
def least_bottleneck(rows, stages, sparse, tied, info, cuts, low, high, limit):  # type: ignore[no-untyped-def]
    """chain_dense.least_bottleneck_within, values above ``limit`` left out: (value, pairs)."""
    number = info[STAGES]
    offsets = np.zeros(number + 2, np.int64)
    for cut in range(number + 1):
        offsets[cut + 1] = offsets[cut] + high[cut] - low[cut] + 1
    best = np.full(offsets[number + 1], INFINITE, np.int64)
    origin = np.full(offsets[number + 1], -1, np.int64)
    best[0] = 0
    pairs = 0
    for stage in range(number):
        into, out = stages[stage, IN], stages[stage, OUT]
        for end in range(low[stage + 1], high[stage + 1] + 1):
            if rows[LEGAL, end] != end:
                continue
            least, where = limit + 1, -1
            floor = rows[COMPUTE, end] + rows[out, end]
            for start in range(min(high[stage], end - 1), low[stage] - 1, -1):
                known = best[offsets[stage] + start - low[stage]]
                bare = floor - rows[COMPUTE, start]
                if bare + stages[stage, LEAST_IN] >= least:
                    break
                if known >= least or bare + rows[into, start] >= least:
                    continue
                pairs += 1
                cost = price(rows, stages, sparse, tied, info, stage, start, end)
                cost = max(cost, known)
                if cost < least:
                    least, where = cost, start
            if where >= 0:
                at = offsets[stage + 1] + end - low[stage + 1]
                best[at] = least
                origin[at] = where
    value = best[offsets[number]]
    if value < INFINITE:
        cuts[number] = high[number]
        for cut in range(number, 0, -1):
            cuts[cut - 1] = origin[offsets[cut] + cuts[cut] - low[cut]]
    return value, pairs


@compiled
def least_sum(rows, stages, sparse, tied, info, cuts, low, high, limit):  # type: ignore[no-untyped-def]
    """Least sum of stage costs, each at most ``limit``: (sum, its largest stage, pairs)."""
    number = info[STAGES]
    offsets = np.zeros(number + 2, np.int64)
    for cut in range(number + 1):
        offsets[cut + 1] = offsets[cut] + high[cut] - low[cut] + 1
    best = np.full(offsets[number + 1], INFINITE, np.int64)
    largest = np.zeros(offsets[number + 1], np.int64)
    origin = np.full(offsets[number + 1], -1, np.int64)
    best[0] = 0
    pairs = 0
    for stage in range(number):
        into, out = stages[stage, IN], stages[stage, OUT]
        for end in range(low[stage + 1], high[stage + 1] + 1):
            if rows[LEGAL, end] != end:
                continue
            least, most, where = INFINITE, INFINITE, -1
            floor = rows[COMPUTE, end] + rows[out, end]
            for start in range(min(high[stage], end - 1), low[stage] - 1, -1):
                at = offsets[stage] + start - low[stage]
                bare = floor - rows[COMPUTE, start]
                if bare + stages[stage, LEAST_IN] > limit:
                    break
                bare += rows[into, start]
                if best[at] + bare > least or bare > limit:
                    continue
                pairs += 1
                cost = price(rows, stages, sparse, tied, info, stage, start, end)
                if cost > limit:
                    continue
                total, worst = best[at] + cost, max(largest[at], cost)
                if total < least or (total == least and worst < most):
                    least, most, where = total, worst, start
            if where >= 0:
                at = offsets[stage + 1] + end - low[stage + 1]
                best[at], largest[at], origin[at] = least, most, where
    value = best[offsets[number]]
    if value < INFINITE:
        cuts[number] = high[number]
        for cut in range(number, 0, -1):
            cuts[cut - 1] = origin[offsets[cut] + cuts[cut] - low[cut]]
    return value, largest[offsets[number]], pairs
