"""Prices of all stages inside cut windows as numpy matrices, and the plain programs on them.

Exact for every problem: wild cut prices, any budgets, any way to recompute. The cost is the
number of (start, end) pairs inside the windows, so narrow windows make it fast.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem
from planner.solvers.chain_tables import INFINITE, ChainTables, CutWindows, tables_of
from planner.specs import Recompute

__all__ = ["StagePrices", "least_bottleneck_within", "stage_prices"]

I64 = NDArray[np.int64]


class StagePrices(NamedTuple):
    """Prices of stage s on [start, end) for all starts (rows) and ends (columns) of a window."""

    cost: I64
    """Bottleneck term t + c in quanta; ``INFINITE`` where not allowed or not fitting."""
    compute: I64
    """The same without communication (recompute included); ``INFINITE`` likewise."""
    memory: I64
    """Peak bytes of the least-extra way to recompute that fits; ``INFINITE`` likewise."""


class _DenseArrays(NamedTuple):
    legal: NDArray[np.bool_]
    compute: I64
    static: I64
    modes: list[tuple[I64, I64, I64]]
    recomputable: NDArray[np.bool_]


def _dense_arrays(problem: ChainProblem, tables: ChainTables) -> _DenseArrays:
    arrays = tables.__dict__.get("_dense")
    if arrays is None:
        arrays = _DenseArrays(
            problem.legal_cut,
            np.array(tables.compute, np.int64),
            np.array(tables.static, np.int64),
            [
                (
                    np.array(mode.extra, np.int64),
                    np.array(mode.kept, np.int64),
                    np.array(mode.transient, np.int64),
                )
                for mode in tables.modes
            ],
            problem.recomputable,
        )
        tables.__dict__["_dense"] = arrays
    return arrays


def _largest(values: I64, starts: tuple[int, int], ends: tuple[int, int]) -> I64:
    """Largest of values[start:end] for every start and end of the windows (0 where empty)."""
    (a, b), (c, d) = starts, ends
    segment = values[a:d]
    if segment.size and (segment == segment[0]).all():
        return np.full((1, 1), segment[0], np.int64)
    rows = np.arange(a, b + 1)[:, None]
    running = np.where(np.arange(a, d)[None, :] >= rows, segment[None, :], 0)
    np.maximum.accumulate(running, axis=1, out=running)
    columns = np.arange(c, d + 1) - 1 - a
    return np.where(columns[None, :] >= 0, running[:, np.maximum(columns, 0)], 0)


def stage_prices(
    problem: ChainProblem,
    stage: int,
    starts: tuple[int, int],
    ends: tuple[int, int],
    *,
    ignore_memory: bool = False,
) -> StagePrices:
    """Price ``stage`` on every [start, end) with start and end inside inclusive windows.

    Pins are not looked at: they are windows of the cuts. Shapes are (starts, ends).
    """
    tables = tables_of(problem)
    arrays = _dense_arrays(problem, tables)
    (a, b), (c, d) = starts, ends
    rows, columns = slice(a, b + 1), slice(c, d + 1)
    valid = np.arange(a, b + 1)[:, None] < np.arange(c, d + 1)[None, :]
    if not tables.all_legal:
        valid &= arrays.legal[rows, None] & arrays.legal[None, columns]

    def spread(sums: I64) -> I64:
        return sums[None, columns] - sums[rows, None]

    base = spread(arrays.compute)
    room = INFINITE if ignore_memory else tables.room[stage]
    flight = tables.in_flight[stage]
    states = spread(arrays.static)
    for pair in tables.tied:
        if a <= pair.first and pair.second < d:
            both = (np.arange(a, b + 1)[:, None] <= pair.first) & (
                np.arange(c, d + 1)[None, :] > pair.second
            )
            states = states - np.where(both, pair.shared_bytes, 0)
    extra = np.full(base.shape, INFINITE, np.int64)
    memory = np.full(base.shape, INFINITE, np.int64)

    def offer(held: I64, added: I64, where: NDArray[np.bool_] | bool = True) -> None:
        better = (held <= room) & (added < extra) & where
        np.copyto(extra, np.broadcast_to(added, extra.shape), where=better)
        np.copyto(memory, np.broadcast_to(held, memory.shape), where=better)

    # The order of offers is the order in which ties are broken: none, selective, full, layers
    # as the enumeration of Recompute has them.
    for mode, (mode_extra, mode_kept, transient) in zip(tables.modes, arrays.modes, strict=True):
        if mode.mode in tables.allowed_modes:
            held = states + flight * spread(mode_kept) + _largest(transient, starts, ends)
            offer(held, spread(mode_extra))
    if tables.layers:
        _offer_layers(tables, arrays, stage, starts, ends, states, offer, extra)
    memory += tables.buffers
    blocked = ~valid | (extra >= INFINITE)
    compute = np.where(blocked, INFINITE, base + extra)
    memory[blocked] = INFINITE
    cost = compute
    into = tables.edges[tables.tiers[stage - 1], rows] if stage > 0 else None
    out = tables.edges[tables.tiers[stage], columns] if stage < tables.num_stages - 1 else None
    if into is not None:
        cost = cost + into[:, None]
    if out is not None:
        cost = cost + out[None, :]
    return StagePrices(np.where(blocked, INFINITE, cost), compute, memory)


def _offer_layers(
    tables: ChainTables,
    arrays: _DenseArrays,
    stage: int,
    starts: tuple[int, int],
    ends: tuple[int, int],
    states: I64,
    offer: object,
    extra: I64,
) -> None:
    """Offer every number r of leading recomputable blocks, fewest first.

    For r = 0, 1, .. the blocks before ``split[start, r]`` are recomputed, the others keep all;
    extra time rises with r, so later offers change only pairs that nothing fitted yet, or that
    an additive mode fitted at a higher price.
    """
    (a, b), (c, d) = starts, ends
    none, full = _mode_rows(tables, arrays)
    able = np.flatnonzero(arrays.recomputable)
    first_able = np.searchsorted(able, np.arange(a, b + 1))
    flight = tables.in_flight[stage]
    columns = np.arange(c, d + 1)
    most = int(np.searchsorted(able, d) - np.searchsorted(able, a))
    for count in range(most + 1):
        # The split lies right behind the count-th recomputable block from the start.
        last = first_able + count - 1
        exists = (last < len(able)) if count else np.ones(len(last), bool)
        split = np.where(
            exists & (count > 0),
            able[np.clip(last, 0, max(len(able) - 1, 0))] + 1 if len(able) else 0,
            np.arange(a, b + 1),
        )
        inside = exists[:, None] & (split[:, None] <= columns[None, :])
        if not inside.any():
            break
        added = (full[0][split] - full[0][np.arange(a, b + 1)])[:, None]
        open_pairs = inside & (added < extra)
        if not open_pairs.any():
            continue
        kept = full[1][split] - full[1][np.arange(a, b + 1)] - none[1][split]
        held = states + flight * (kept[:, None] + none[1][None, columns])
        held = held + _split_workspace(none[2], full[2], a, split, columns)
        offer(held, added + np.zeros_like(extra), open_pairs)  # type: ignore[operator]


def _mode_rows(
    tables: ChainTables, arrays: _DenseArrays
) -> tuple[tuple[I64, I64, I64], tuple[I64, I64, I64]]:
    by_mode = {mode.mode: rows for mode, rows in zip(tables.modes, arrays.modes, strict=True)}
    return by_mode[Recompute.NONE], by_mode[Recompute.FULL]


def _split_workspace(
    plain: I64, redone: I64, a: int, split: I64, columns: NDArray[np.int64]
) -> I64:
    """Largest workspace where row i recomputes blocks a+i .. split[i]-1 and keeps the rest."""
    last = int(columns[-1])
    positions = np.arange(a, last)[None, :]
    rows = np.arange(a, a + len(split))[:, None]
    workspace = np.where(positions < split[:, None], redone[a:last], plain[a:last])
    workspace = np.where(positions >= rows, workspace, 0)
    np.maximum.accumulate(workspace, axis=1, out=workspace)
    index = columns - 1 - a
    result: I64 = np.where(index[None, :] >= 0, workspace[:, np.maximum(index, 0)], 0)
    return result


def least_bottleneck_within(
    problem: ChainProblem, windows: CutWindows
) -> tuple[int, tuple[int, ...], int] | None:
    """Least bottleneck over all cuts inside the windows, by dynamic program over (cut, stage).

    ``best[k] = min over j of max(best'[j], cost_s(j, k))``. Returns value, cuts and the number
    of pairs priced; None where no cuts inside the windows are feasible.
    """
    low, high = windows
    stages = len(low) - 1
    best = np.zeros(1, np.int64)
    origins: list[I64] = []
    pairs = 0
    for stage in range(stages):
        starts, ends = (low[stage], high[stage]), (low[stage + 1], high[stage + 1])
        cost = stage_prices(problem, stage, starts, ends).cost
        pairs += cost.size
        worst = np.maximum(best[:, None], cost)
        origin = worst.argmin(axis=0)
        origins.append(origin)
        best = worst[origin, np.arange(worst.shape[1])]
    if int(best[0]) >= INFINITE:
        return None
    cuts = [high[stages]]
    for stage in range(stages - 1, -1, -1):
        row = int(origins[stage][cuts[-1] - low[stage + 1]])
        cuts.append(low[stage] + row)
    return int(best[0]), tuple(reversed(cuts)), pairs
