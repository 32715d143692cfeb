"""Compiled chain programs; the only module that imports numba, and only when it is asked for.

The same definitions as ``chain_probes`` and ``chain_dense`` (where the reasons stand), on
packed int64 arrays: one call solves one problem.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.solvers.chain_tables import INFINITE, ChainTables
from planner.specs import Recompute

__all__ = ["Kernels", "Packed", "kernels", "numba_installed", "packed"]

I64 = NDArray[np.int64]

# Rows of Packed.rows before the extras, the kept bytes and the edge prices.
_COMPUTE, _STATIC, _LEGAL, _ABLE, _LOG, _AFTER, _LEAST_KEPT, _EXTRA = range(8)
# Entries of Packed.info.
_STAGES, _MODES, _LAYERS, _BASE, _EXACT, _NONE, _FULL, _ALL_LEGAL, _SHARED = range(9)
_INFO = 9
# Columns of Packed.stages.
_ROOM, _FLIGHT, _IN, _OUT, _LOW, _HIGH, _BINDS, _LEAST_IN = range(8)


class Packed(NamedTuple):
    """A problem as the kernels read it."""

    rows: I64
    """(R, N+1): compute, static, legal position before, recomputable, floor(log2), legal position
    after, fewest kept bytes, then per mode the extras, per mode the kept bytes, and per tier
    the edge prices (last row: zero)."""
    stages: I64
    """(P, 8): room, in flight, edge row in, edge row out, window of the end, binds, cheapest in."""
    sparse: I64
    """(modes, levels, N): largest workspace of 2**level blocks from each block."""
    tied: I64
    """(pairs, 3)."""
    info: I64
    cuts: I64
    """Room for the answer (P+1)."""


class Kernels(NamedTuple):
    """The compiled functions."""

    greedy: Callable[..., tuple[int, int, int, int]]
    """(packed.., lower, upper) -> value, bound, probes, states; cuts in ``packed.cuts``."""
    reachable_sets: Callable[..., tuple[int, int, int]]
    """(packed.., lower, upper) -> value, probes, states; cuts in ``packed.cuts``."""
    least_bottleneck: Callable[..., tuple[int, int]]
    """(packed.., low, high, limit) -> value, pairs; cuts in ``packed.cuts``."""
    least_sum: Callable[..., tuple[int, int, int]]
    """(packed.., low, high, limit) -> sum, largest stage, pairs; cuts in ``packed.cuts``."""


@cache
def numba_installed() -> bool:
    """Whether numba could be imported, without importing it."""
    return importlib.util.find_spec("numba") is not None


def packed(tables: ChainTables) -> Packed:
    """The packed arrays of some tables, made once and kept with them."""
    known: Packed | None = tables.__dict__.get("_packed")
    if known is None:
        known = tables.__dict__["_packed"] = _pack(tables)
    return known


def _pack(tables: ChainTables) -> Packed:
    count, stages, modes = tables.num_blocks, tables.num_stages, len(tables.modes)
    tiers = len(tables.edge_rows)
    rows = np.zeros((_EXTRA + 2 * modes + tiers + 1, count + 1), np.int64)
    rows[_COMPUTE] = tables.compute
    rows[_STATIC] = tables.static
    rows[_LEGAL] = tables.legal_before
    rows[_AFTER] = tables.legal_after
    rows[_LEAST_KEPT] = tables.least_kept
    rows[_ABLE, :count] = tables.recomputable
    rows[_LOG, 1:] = np.log2(np.arange(1, count + 1) + 0.5).astype(np.int64)
    levels = int(rows[_LOG, count]) + 1
    sparse = np.zeros((modes, levels, count), np.int64)
    for number, mode in enumerate(tables.modes):
        rows[_EXTRA + number] = mode.extra
        rows[_EXTRA + modes + number] = mode.kept
        sparse[number, 0] = mode.transient
        for level in range(1, levels):
            half = 1 << (level - 1)
            length = count - 2 * half + 1
            np.maximum(
                sparse[number, level - 1, :length],
                sparse[number, level - 1, half : half + length],
                out=sparse[number, level, :length],
            )
    first_edge = _EXTRA + 2 * modes
    rows[first_edge : first_edge + tiers] = tables.edges
    pinned = tables.pinned
    assert pinned is not None
    per_stage = np.zeros((stages, 8), np.int64)
    free = first_edge + tiers
    tier_rows = [first_edge + tier for tier in tables.tiers]
    per_stage[:, _ROOM] = tables.room
    per_stage[:, _FLIGHT] = tables.in_flight
    per_stage[:, _IN] = [free, *tier_rows]
    per_stage[:, _OUT] = [*tier_rows, free]
    per_stage[:, _LOW] = pinned.low[1:]
    per_stage[:, _HIGH] = pinned.high[1:]
    per_stage[:, _BINDS] = tables.memory_can_bind
    per_stage[:, _LEAST_IN] = [0, *tables.least_edge]
    position = {mode.mode: number for number, mode in enumerate(tables.modes)}
    base, exact = position.get(Recompute.NONE, -1), True
    if not tables.layers and Recompute.NONE not in tables.allowed_modes:
        base, exact = (0, True) if modes == 1 else (-1, False)
    info = np.zeros(_INFO + modes, np.int64)
    info[:_INFO] = (
        stages, modes, tables.layers, base, exact, position.get(Recompute.NONE, 0),
        position.get(Recompute.FULL, 0), tables.all_legal,
        sum(pair.shared_bytes for pair in tables.tied),
    )  # fmt: skip
    info[_INFO:] = [mode.mode in tables.allowed_modes for mode in tables.modes]
    tied = np.array(tables.tied, np.int64).reshape(len(tables.tied), 3)
    return Packed(rows, per_stage, sparse, tied, info, np.zeros(stages + 1, np.int64))


@cache
def kernels() -> Kernels:
    """Compile the kernels (some seconds the first time; then from numba's file cache)."""
    from numba import njit

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            result: Callable[..., Any] = njit(cache=True, nogil=True)(function)
        except RuntimeError:  # no writable place for numba's cache
            result = njit(nogil=True)(function)
        return result

    infinite = INFINITE

    @compiled
    def workspace(rows, sparse, mode, start, end):  # type: ignore[no-untyped-def]
        if end <= start:
            return 0
        level = rows[_LOG, end - start]
        left = sparse[mode, level, start]
        right = sparse[mode, level, end - (1 << level)]
        return left if left > right else right

    @compiled
    def extra_of(rows, stages, sparse, tied, info, stage, start, end):  # type: ignore[no-untyped-def]
        modes = info[_MODES]
        flight = stages[stage, _FLIGHT]
        spare = stages[stage, _ROOM] - (rows[_STATIC, end] - rows[_STATIC, start])
        for pair in range(tied.shape[0]):
            if start <= tied[pair, 0] and tied[pair, 1] < end:
                spare += tied[pair, 2]
        best = infinite
        for mode in range(modes):
            if info[_INFO + mode] == 0:
                continue
            added = rows[_EXTRA + mode, end] - rows[_EXTRA + mode, start]
            if added < best:
                kept = _EXTRA + modes + mode
                held = flight * (rows[kept, end] - rows[kept, start])
                if held + workspace(rows, sparse, mode, start, end) <= spare:
                    best = added
        if info[_LAYERS] == 0 or best == 0:
            return best
        none, full = info[_NONE], info[_FULL]
        all_kept, full_kept = _EXTRA + modes + none, _EXTRA + modes + full
        split = start
        while True:
            added = rows[_EXTRA + full, split] - rows[_EXTRA + full, start]
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
            while split < end and rows[_ABLE, split] == 0:
                split += 1
            if split >= end:
                return best
            split += 1

    @compiled
    def price(rows, stages, sparse, tied, info, stage, start, end):  # type: ignore[no-untyped-def]
        extra = extra_of(rows, stages, sparse, tied, info, stage, start, end)
        if extra >= infinite:
            return infinite
        cost = rows[_COMPUTE, end] - rows[_COMPUTE, start] + extra
        return cost + rows[stages[stage, _IN], start] + rows[stages[stage, _OUT], end]

    @compiled
    def greedy(rows, stages, sparse, tied, info, cuts, lower, upper):  # type: ignore[no-untyped-def]
        number, modes, base = info[_STAGES], info[_MODES], info[_BASE]
        exact, all_legal = info[_EXACT] != 0, info[_ALL_LEGAL] != 0
        count = rows.shape[1] - 1
        trial = np.zeros(number + 1, np.int64)
        low, high = lower, upper + 1
        limit, step = lower, 0
        found = False
        probes = states = 0
        base_kept = _EXTRA + modes + max(base, 0)
        while low < high:
            probes += 1
            start = 0
            bid = infinite
            good = True
            for stage in range(number - 1):
                into, out = stages[stage, _IN], stages[stage, _OUT]
                most = stages[stage, _HIGH]
                spent = limit + rows[_COMPUTE, start] - rows[into, start]
                if base >= 0:
                    spent += rows[_EXTRA + base, start]
                left, right = start, most
                while left < right:
                    middle = (left + right + 1) >> 1
                    at = middle if all_legal else rows[_LEGAL, middle]
                    up = rows[_COMPUTE, at] + rows[out, at]
                    if base >= 0:
                        up += rows[_EXTRA + base, at]
                    if up <= spent:
                        left = middle
                    else:
                        right = middle - 1
                end = left if all_legal else max(start, rows[_LEGAL, left])
                states += 1
                slow = not exact
                if exact and end > start and stages[stage, _BINDS] != 0:
                    held = rows[_STATIC, end] - rows[_STATIC, start]
                    held += stages[stage, _FLIGHT] * (rows[base_kept, end] - rows[base_kept, start])
                    held += workspace(rows, sparse, max(base, 0), start, end)
                    slow = held > stages[stage, _ROOM]
                if slow:
                    left, right = start, end
                    while left < right:
                        middle = (left + right + 1) >> 1
                        at = rows[_LEGAL, middle]
                        states += 1
                        if at <= start or (
                            price(rows, stages, sparse, tied, info, stage, start, at) <= limit
                        ):
                            left = middle
                        else:
                            right = middle - 1
                    end = max(start, rows[_LEGAL, left])
                if end < most:
                    following = end + 1
                    while rows[_LEGAL, following] != following:
                        following += 1
                    if slow:
                        offer = price(rows, stages, sparse, tied, info, stage, start, following)
                    else:
                        offer = rows[_COMPUTE, following] + rows[out, following] + limit - spent
                        if base >= 0:
                            offer += rows[_EXTRA + base, following]
                    bid = min(bid, offer)
                if end < stages[stage, _LOW]:
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
                    trial[cut] = rows[_LEGAL, max(0, trial[cut + 1] - 1)]
            worst = 0
            for stage in range(number):
                start, end = trial[stage], trial[stage + 1]
                if start >= end or end < stages[stage, _LOW] or end > stages[stage, _HIGH]:
                    worst = infinite
                    break
                cost = price(rows, stages, sparse, tied, info, stage, start, end)
                worst = max(worst, cost)
            if worst > limit:
                return infinite, low, probes, states
            found = True
            cuts[:] = trial
            high = worst
            limit = (low + high) // 2
        if not found:
            return infinite, (low if low <= upper else infinite), probes, states
        return high, high, probes, states

    @compiled
    def narrowed(rows, stages, info, limit, low, high):  # type: ignore[no-untyped-def]
        """ChainTables.windows; False if a window is empty."""
        number, count = info[_STAGES], rows.shape[1] - 1
        low[0] = high[0] = 0
        for cut in range(1, number + 1):
            low[cut], high[cut] = stages[cut - 1, _LOW], stages[cut - 1, _HIGH]
        for forward in (True, False):
            for turn in range(number):
                stage = turn if forward else number - 1 - turn
                flight = stages[stage, _FLIGHT]
                spare = stages[stage, _ROOM] + info[_SHARED]
                least_out = stages[stage + 1, _LEAST_IN] if stage + 1 < number else 0
                allowance = limit - stages[stage, _LEAST_IN] - least_out
                fixed = high[stage] if forward else low[stage + 1]
                near = fixed
                far = high[stage + 1] if forward else low[stage]
                while near != far:
                    # Halve towards the far end, which is right of ``near`` going forward.
                    middle = (near + far + 1) >> 1 if forward else (near + far) >> 1
                    start, end = (fixed, middle) if forward else (middle, fixed)
                    held = rows[_STATIC, end] - rows[_STATIC, start]
                    held += flight * (rows[_LEAST_KEPT, end] - rows[_LEAST_KEPT, start])
                    fits = held <= spare and (
                        rows[_COMPUTE, end] - rows[_COMPUTE, start] <= allowance
                    )
                    if fits:
                        near = middle
                    else:
                        far = middle - 1 if forward else middle + 1
                if forward:
                    high[stage + 1] = rows[_LEGAL, near]
                else:
                    low[stage] = rows[_AFTER, near]
                if low[stage + 1] > high[stage + 1] or low[stage] > high[stage]:
                    return False
        for cut in range(number - 1, -1, -1):
            high[cut] = rows[_LEGAL, max(0, min(high[cut], high[cut + 1] - 1))]
        for cut in range(1, number + 1):
            low[cut] = rows[_AFTER, min(count, max(low[cut], low[cut - 1] + 1))]
        for cut in range(number + 1):  # noqa: SIM110 - compiled
            if low[cut] > high[cut]:
                return False
        return True

    @compiled
    def reachable_sets(rows, stages, sparse, tied, info, cuts, lower, upper):  # type: ignore[no-untyped-def]
        number, count = info[_STAGES], rows.shape[1] - 1
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
            bid = infinite
            good = found or narrowed(rows, stages, info, limit, low_cut, high_cut)
            if good:
                for cut in range(number + 1):
                    offsets[cut + 1] = offsets[cut] + high_cut[cut] - low_cut[cut] + 1
                if len(origin) < offsets[number + 1]:
                    origin = np.zeros(2 * offsets[number + 1], np.int64)
                origin[: offsets[number + 1]] = -1
                origin[0] = 0
                for stage in range(number):
                    into, out = stages[stage, _IN], stages[stage, _OUT]
                    first, following = low_cut[stage], low_cut[stage + 1]
                    top, pushed = 0, first
                    good = False
                    for end in range(following, high_cut[stage + 1] + 1):
                        # Starts kept: later ones first, each earlier one with a cheaper begin.
                        while pushed < end and pushed <= high_cut[stage]:
                            if origin[offsets[stage] + pushed - first] >= 0:
                                begin = rows[_COMPUTE, pushed] - rows[into, pushed]
                                while top > 0 and (
                                    rows[_COMPUTE, stack[top - 1]] - rows[into, stack[top - 1]]
                                    <= begin
                                ):
                                    top -= 1
                                stack[top] = pushed
                                top += 1
                            pushed += 1
                        if rows[_LEGAL, end] != end:
                            continue
                        need = rows[_COMPUTE, end] + rows[out, end] - limit
                        offer = bid
                        for index in range(top - 1, -1, -1):
                            start = stack[index]
                            states += 1
                            begin = rows[_COMPUTE, start] - rows[into, start]
                            if begin < need:
                                offer = min(offer, need - begin + limit)
                                continue
                            cost = price(rows, stages, sparse, tied, info, stage, start, end)
                            if cost <= limit:
                                origin[offsets[stage + 1] + end - following] = start
                                offer = bid
                                good = True
                                break
                            if cost >= infinite:
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
        return (high if found else infinite), probes, states

    @compiled
    def least_bottleneck(rows, stages, sparse, tied, info, cuts, low, high, limit):  # type: ignore[no-untyped-def]
        number = info[_STAGES]
        offsets = np.zeros(number + 2, np.int64)
        for cut in range(number + 1):
            offsets[cut + 1] = offsets[cut] + high[cut] - low[cut] + 1
        best = np.full(offsets[number + 1], infinite, np.int64)
        origin = np.full(offsets[number + 1], -1, np.int64)
        best[0] = 0
        pairs = 0
        for stage in range(number):
            into, out = stages[stage, _IN], stages[stage, _OUT]
            for end in range(low[stage + 1], high[stage + 1] + 1):
                if rows[_LEGAL, end] != end:
                    continue
                least, where = limit + 1, -1
                floor = rows[_COMPUTE, end] + rows[out, end]
                for start in range(min(high[stage], end - 1), low[stage] - 1, -1):
                    known = best[offsets[stage] + start - low[stage]]
                    bare = floor - rows[_COMPUTE, start]
                    if bare + stages[stage, _LEAST_IN] >= least:
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
        if value < infinite:
            cuts[number] = high[number]
            for cut in range(number, 0, -1):
                cuts[cut - 1] = origin[offsets[cut] + cuts[cut] - low[cut]]
        return value, pairs

    @compiled
    def least_sum(rows, stages, sparse, tied, info, cuts, low, high, limit):  # type: ignore[no-untyped-def]
        number = info[_STAGES]
        offsets = np.zeros(number + 2, np.int64)
        for cut in range(number + 1):
            offsets[cut + 1] = offsets[cut] + high[cut] - low[cut] + 1
        best = np.full(offsets[number + 1], infinite, np.int64)
        largest = np.zeros(offsets[number + 1], np.int64)
        origin = np.full(offsets[number + 1], -1, np.int64)
        best[0] = 0
        pairs = 0
        for stage in range(number):
            into, out = stages[stage, _IN], stages[stage, _OUT]
            for end in range(low[stage + 1], high[stage + 1] + 1):
                if rows[_LEGAL, end] != end:
                    continue
                least, most, where = infinite, infinite, -1
                floor = rows[_COMPUTE, end] + rows[out, end]
                for start in range(min(high[stage], end - 1), low[stage] - 1, -1):
                    at = offsets[stage] + start - low[stage]
                    bare = floor - rows[_COMPUTE, start]
                    if bare + stages[stage, _LEAST_IN] > limit:
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
        if value < infinite:
            cuts[number] = high[number]
            for cut in range(number, 0, -1):
                cuts[cut - 1] = origin[offsets[cut] + cuts[cut] - low[cut]]
        return value, largest[offsets[number]], pairs

    return Kernels(greedy, reachable_sets, least_bottleneck, least_sum)
