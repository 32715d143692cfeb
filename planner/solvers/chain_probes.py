"""Greedy feasibility probes of a chain in plain Python, and the bisection over them.

Probing by farthest reach and bidding for the next limit follow Pinar and Aykanat, "Fast optimal
load balancing algorithms for 1D partitioning", JPDC 64 (2004), sections 3.1 and 4.4; here a
stage also pays for its two cuts, must fit in memory, and may recompute.

Why greedy is exact: if a stage never costs less when either end moves outward, then starting a
stage later never hurts, so the farthest reach dominates every other end. That holds for any
budgets and in-flight counts that depend on the stage alone, with stages allowed to be empty.
Empty stages are filled afterwards; where that fails the caller must use another program.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from planner.deadlines import poll
from planner.solvers.chain_tables import INFINITE, ChainTables, ModeTable
from planner.specs import Recompute

__all__ = ["GreedyOutcome", "GreedyProber", "prober_of"]


class GreedyOutcome(NamedTuple):
    """Result of the bisection over greedy probes."""

    cuts: tuple[int, ...] | None
    """Optimal cuts, or None where none exist or none could be repaired."""
    value: int
    """Their bottleneck."""
    bound: int
    """No cuts have a smaller bottleneck; ``INFINITE`` if none are feasible."""
    probes: int
    states: int


class GreedyProber:
    """Probes of one problem; keeps what memory allows at each (way, stage, start) it met."""

    def __init__(self, tables: ChainTables) -> None:
        self.tables = tables
        self.states = 0
        allowed = [mode for mode in tables.modes if mode.mode in tables.allowed_modes]
        self.ways = allowed
        by_mode = {mode.mode: mode for mode in tables.modes}
        self.none = by_mode.get(Recompute.NONE)
        self.full = by_mode.get(Recompute.FULL)
        # The base way is the quickest everywhere; its reach bounds that of every other way.
        zero = [0] * (tables.num_blocks + 1)
        self.base_exact = tables.layers or Recompute.NONE in tables.allowed_modes
        base_extra = zero
        if not self.base_exact and len(allowed) == 1:
            self.base_exact, base_extra = True, allowed[0].extra
        self.base = self.none or allowed[0]
        self._binds = [not self.base_exact or binds for binds in tables.memory_can_bind]
        self._ups: dict[tuple[int, int], list[int]] = {}
        self._held: dict[tuple[int, int], list[int]] = {}
        self._ends: dict[tuple[int, int, int], int] = {}
        self._others = [mode for mode in allowed if mode is not self.base or not self.base_exact]
        self._stages = self._arrange(base_extra)
        if tables.layers and self.full is not None and self.none is not None:
            able = tables.recomputable
            self._able = [block for block, yes in enumerate(able) if yes]
            self._saved = [a - b for a, b in zip(self.none.kept, self.full.kept, strict=True)]
            pairs = zip(self._saved, self._saved[1:], strict=False)
            self._saving_rises = all(a <= b for a, b in pairs)

    def _arrange(self, base_extra: list[int]) -> list[tuple[int, list[int], list[int], int, int]]:
        """One row a stage but the last: number, rising end prices, start prices, end window."""
        tables = self.tables
        times = [a + b for a, b in zip(tables.compute, base_extra, strict=True)]
        ups: dict[int, list[int]] = {}
        downs: dict[int, list[int]] = {}
        for tier in set(tables.tiers):
            row = tables.edge_rows[tier]
            if any(row):
                up = [a + b for a, b in zip(times, row, strict=True)]
                if not tables.all_legal:
                    # Illegal positions take the price of the legal one before: still sorted.
                    up = [up[p] for p in tables.legal_before]
                ups[tier], downs[tier] = up, [a - b for a, b in zip(times, row, strict=True)]
            else:
                up = times if tables.all_legal else [times[p] for p in tables.legal_before]
                ups[tier], downs[tier] = up, times
        pinned = tables.pinned
        assert pinned is not None
        rows = []
        down = times
        for stage, tier in enumerate(tables.tiers):
            rows.append((stage, ups[tier], down, pinned.low[stage + 1], pinned.high[stage + 1]))
            down = downs[tier]
        return rows

    # --- exact prices -------------------------------------------------------------------------

    def extra(self, stage: int, start: int, end: int) -> int:
        """Least quanta that recompute adds to [start, end) so that it fits; INFINITE if none."""
        tables = self.tables
        self.states += 1
        flight = tables.in_flight[stage]
        spare = tables.room[stage] - (tables.static[end] - tables.static[start])
        for pair in tables.tied:
            if start <= pair.first and pair.second < end:
                spare += pair.shared_bytes
        best = INFINITE
        for way in self.ways:
            added = way.extra[end] - way.extra[start]
            if added < best:
                held = flight * (way.kept[end] - way.kept[start])
                if held + way.largest_transient <= spare or (
                    held <= spare and held + max(way.transient[start:end]) <= spare
                ):
                    best = added
        if tables.layers and best > 0:
            best = min(best, self._layers_extra(stage, start, end, spare, best))
        return best

    def _layers_extra(self, stage: int, start: int, end: int, spare: int, best: int) -> int:
        """Extra of the fewest leading blocks whose full recompute fits; INFINITE if none."""
        none, full, able = self.none, self.full, self._able
        assert none is not None
        assert full is not None
        flight = self.tables.in_flight[stage]
        first = bisect_left(able, start)
        last = bisect_left(able, end)
        kept_all = none.kept[end] - none.kept[start]
        index = first
        if self._saving_rises and flight:
            # Blocks before the split must give back what is missing even without workspace.
            missing = -((spare - flight * kept_all) // flight)
            if missing > 0:
                split = bisect_left(self._saved, self._saved[start] + missing)
                index = max(first, bisect_left(able, split))
        for count in range(index, last + 1):
            split = able[count - 1] + 1 if count > first else start
            added = full.extra[split] - full.extra[start]
            if added >= best:
                break
            kept = kept_all - (self._saved[split] - self._saved[start])
            space = max(full.transient[start:split], default=0)
            space = max(space, max(none.transient[split:end], default=0))
            if flight * kept + space <= spare:
                return added
        return INFINITE

    def price(self, stage: int, start: int, end: int) -> int:
        """Bottleneck term of [start, end) on ``stage``; INFINITE where it fits in no way."""
        extra = self.extra(stage, start, end)
        if extra >= INFINITE:
            return INFINITE
        tables = self.tables
        cost = tables.compute[end] - tables.compute[start] + extra
        if stage > 0:
            cost += tables.edge_rows[tables.tiers[stage - 1]][start]
        if stage < tables.num_stages - 1:
            cost += tables.edge_rows[tables.tiers[stage]][end]
        return cost

    # --- reach where memory may bind ----------------------------------------------------------

    def _memory_end(self, number: int, way: ModeTable, stage: int, start: int) -> int:
        """Farthest end at which [start, end) fits on ``stage`` under one way; start if none."""
        key = (number, stage, start)
        known = self._ends.get(key)
        if known is not None:
            return known
        tables = self.tables
        flight = tables.in_flight[stage]
        held = self._held.get((number, flight))
        if held is None:
            held = [a + flight * b for a, b in zip(tables.static, way.kept, strict=True)]
            self._held[(number, flight)] = held
        room = held[start] + tables.room[stage]
        shared = sum(pair.shared_bytes for pair in tables.tied if pair.first >= start)
        workspace = way.transient[start]
        high = bisect_right(held, room + shared - workspace) - 1
        if high > start and (shared or way.largest_transient > workspace):
            low = max(start, bisect_right(held, room - way.largest_transient) - 1)
            middle = high
            while low < high:
                need = held[middle] + max(way.transient[start:middle])
                for pair in tables.tied:
                    if start <= pair.first and pair.second < middle:
                        need -= pair.shared_bytes
                if need <= room:
                    low = middle
                else:
                    high = middle - 1
                middle = (low + high + 1) // 2
            high = low
        high = max(high, start)
        self._ends[key] = high
        return high

    def _up(self, number: int, way: ModeTable, tier: int) -> list[int]:
        """End prices of one way over one tier, sorted."""
        known = self._ups.get((number, tier))
        if known is None:
            tables = self.tables
            rows = zip(tables.compute, way.extra, tables.edge_rows[tier], strict=True)
            known = [a + b + c for a, b, c in rows]
            if not tables.all_legal:
                known = [known[p] for p in tables.legal_before]
            self._ups[(number, tier)] = known
        return known

    def _reach(self, stage: int, start: int, limit: int, time_end: int) -> int:
        """Farthest legal end <= ``time_end`` at which some way is within limit and memory."""
        tables = self.tables
        self.states += 1
        best = start
        if self.base_exact:
            best = min(time_end, self._memory_end(-1, self.base, stage, start))
        if best < time_end:
            spent = tables.compute[start]
            if stage > 0:
                spent -= tables.edge_rows[tables.tiers[stage - 1]][start]
            for number, way in enumerate(self._others):
                allowance = limit + spent + way.extra[start]
                up = self._up(number, way, tables.tiers[stage])
                end = bisect_right(up, allowance, best, time_end + 1) - 1
                if end > best:
                    best = max(best, min(end, self._memory_end(number, way, stage, start)))
        best = tables.legal_before[best]
        if tables.layers:
            low, high = best, time_end
            while low < high:
                middle = (low + high + 1) // 2
                end = tables.legal_before[middle]
                if end <= best or self.price(stage, start, end) <= limit:
                    low = middle
                else:
                    high = middle - 1
            best = max(best, tables.legal_before[low])
        return max(best, start)

    # --- the probe ----------------------------------------------------------------------------

    def probe(self, limit: int) -> tuple[list[int] | None, int]:
        """Greedy cuts within ``limit`` (stages may be empty), or the next limit worth a probe.

        Returns ``(cuts, 0)`` or ``(None, bid)``: every limit below ``bid`` makes the same cuts
        and fails again; ``INFINITE`` when no limit helps.
        """
        tables = self.tables
        binds, room, flights = self._binds, tables.room, tables.in_flight
        static, kept = tables.static, self.base.kept
        legal = None if tables.all_legal else tables.legal_before
        workspace = self.base.largest_transient if self.base_exact else INFINITE
        start = 0
        bid = INFINITE
        cuts = [0]
        for stage, up, down, low, high in self._stages:
            spent = down[start]
            end = bisect_right(up, limit + spent, start, high + 1) - 1
            if legal is not None:
                end = legal[end]
            if end < start:
                end = start
            if (
                binds[stage]
                and end > start
                and static[end] - static[start] + flights[stage] * (kept[end] - kept[start])
                > room[stage] - workspace
            ):
                end = self._reach(stage, start, limit, end)
                if end < high:
                    bid = min(bid, self._extension(stage, start, end))
            elif end < high:
                offer = up[end + 1 if legal is None else tables.legal_after[end + 1]] - spent
                if offer < bid:
                    bid = offer
            if end < low:
                return None, bid
            cuts.append(end)
            start = end
        self.states += len(cuts)
        last = tables.num_blocks
        cost = self.price(tables.num_stages - 1, start, last)
        if cost > limit:
            return None, min(bid, cost)
        cuts.append(last)
        return cuts, 0

    def _extension(self, stage: int, start: int, end: int) -> int:
        return self.price(stage, start, self.tables.legal_after[end + 1])

    def filled(self, cuts: list[int]) -> tuple[tuple[int, ...], int]:
        """Cuts with every stage given a block, and their realised bottleneck."""
        tables = self.tables
        cuts = list(cuts)
        for i in range(tables.num_stages - 1, 0, -1):
            if cuts[i] >= cuts[i + 1]:
                cuts[i] = tables.legal_before[max(0, cuts[i + 1] - 1)]
        worst = 0
        static, kept = tables.static, self.base.kept
        workspace = self.base.largest_transient if self.base_exact else INFINITE
        for stage, up, down, low, high in self._stages:
            start, end = cuts[stage], cuts[stage + 1]
            if start >= end or not low <= end <= high:
                return tuple(cuts), INFINITE
            if not self._binds[stage] or (
                static[end] - static[start] + tables.in_flight[stage] * (kept[end] - kept[start])
                <= tables.room[stage] - workspace
            ):
                cost = up[end] - down[start]
            else:
                cost = self.price(stage, start, end)
            if cost > worst:
                worst = cost
        if cuts[-2] >= cuts[-1]:
            return tuple(cuts), INFINITE
        worst = max(worst, self.price(tables.num_stages - 1, cuts[-2], cuts[-1]))
        return tuple(cuts), worst

    def bisect(self, lower: int, upper: int) -> GreedyOutcome:
        """Least feasible limit in [lower, upper] by bids, galloping and exact bisection."""
        low, high = lower, upper + 1
        best: tuple[int, ...] | None = None
        step = 0
        probes = 0
        limit = low
        while low < high:
            poll()
            cuts, bid = self.probe(limit)
            probes += 1
            if cuts is None:
                low = max(limit + 1, bid)
                if best is None:
                    limit = min(low + step, high - 1)
                    step = max(1, low >> 7, step * 2)
                else:
                    limit = (low + high) // 2
                continue
            best, value = self.filled(cuts)
            if value > limit:
                # The empty stages could not be filled within the limit.
                return GreedyOutcome(None, INFINITE, low, probes, self.states)
            high = value
            limit = (low + high) // 2
        if best is None:
            bound = low if low <= upper else INFINITE
            return GreedyOutcome(None, INFINITE, bound, probes, self.states)
        return GreedyOutcome(best, high, high, probes, self.states)


def prober_of(tables: ChainTables) -> GreedyProber:
    """The prober of some tables, made once and kept with them."""
    prober: GreedyProber | None = tables.__dict__.get("_prober")
    if prober is None:
        prober = tables.__dict__["_prober"] = GreedyProber(tables)
    return prober
