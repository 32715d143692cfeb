"""Prices of all stages inside cut windows as numpy matrices, and the plain programs on them.

Exact for every problem: wild cut prices, any budgets, any way to recompute. The cost is the
number of (start, end) pairs inside the windows, so narrow windows make it fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.cost.stage_table import ChainProblem
from planner.deadlines import poll
from planner.solvers.chain_tables import INFINITE, ChainTables, CutWindows, tables_of
from planner.specs import Recompute

__all__ = ["StagePrices", "least_bottleneck_within", "least_memory", "stage_prices"]

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


class _Way(NamedTuple):
    """One way to recompute, priced on every (start, end) of a window."""

    extra: I64
    """Quanta added; broadcasts to (starts, ends)."""
    memory: I64
    """Bytes without buffers."""
    exists: NDArray[np.bool_] | bool
    """False where the stage has fewer recomputable blocks than this way takes."""


def stage_prices(
    problem: ChainProblem, stage: int, starts: tuple[int, int], ends: tuple[int, int]
) -> StagePrices:
    """Price ``stage`` on every [start, end) with start and end inside inclusive windows.

    Pins are not looked at: they are windows of the cuts. Shapes are (starts, ends).
    """
    tables = tables_of(problem)
    arrays = _dense_arrays(problem, tables)
    rows, columns = slice(starts[0], starts[1] + 1), slice(ends[0], ends[1] + 1)
    valid = _valid(arrays, tables, starts, ends)
    extra = np.full(valid.shape, INFINITE, np.int64)
    memory = np.full(valid.shape, INFINITE, np.int64)
    room = tables.room[stage]
    for way in _ways(tables, arrays, stage, starts, ends, extra):
        better = (way.memory <= room) & (way.extra < extra) & way.exists
        np.copyto(extra, way.extra, where=better)
        np.copyto(memory, way.memory, where=better)
    blocked = ~valid | (extra >= INFINITE)
    compute = arrays.compute[None, columns] - arrays.compute[rows, None] + extra
    cost = compute
    if stage > 0:
        cost = cost + tables.edges[tables.tiers[stage - 1], rows][:, None]
    if stage < tables.num_stages - 1:
        cost = cost + tables.edges[tables.tiers[stage], columns][None, :]
    return StagePrices(
        np.where(blocked, INFINITE, cost),
        np.where(blocked, INFINITE, compute),
        np.where(blocked, INFINITE, memory + tables.buffers),
    )


def least_memory(
    problem: ChainProblem, stage: int, starts: tuple[int, int], ends: tuple[int, int]
) -> I64:
    """Fewest bytes ``stage`` needs on every [start, end), whatever its budget and its time."""
    tables = tables_of(problem)
    arrays = _dense_arrays(problem, tables)
    valid = _valid(arrays, tables, starts, ends)
    memory = np.full(valid.shape, INFINITE, np.int64)
    for way in _ways(tables, arrays, stage, starts, ends, None):
        np.copyto(memory, way.memory, where=(way.memory < memory) & way.exists)
    return np.where(valid, memory + tables.buffers, INFINITE)


def _valid(
    arrays: _DenseArrays, tables: ChainTables, starts: tuple[int, int], ends: tuple[int, int]
) -> NDArray[np.bool_]:
    valid: NDArray[np.bool_] = (
        np.arange(starts[0], starts[1] + 1)[:, None] < np.arange(ends[0], ends[1] + 1)[None, :]
    )
    if not tables.all_legal:
        valid &= arrays.legal[starts[0] : starts[1] + 1, None]
        valid &= arrays.legal[None, ends[0] : ends[1] + 1]
    return valid


def _ways(
    tables: ChainTables,
    arrays: _DenseArrays,
    stage: int,
    starts: tuple[int, int],
    ends: tuple[int, int],
    extra: I64 | None,
) -> Iterator[_Way]:
    """All ways to recompute in the order that breaks ties: none, selective, full, layers.

    ``extra`` is the best so far, read between yields: numbers of layers that cannot beat it
    anywhere are skipped.
    """
    (a, b), (c, d) = starts, ends
    rows, columns = slice(a, b + 1), slice(c, d + 1)
    first, last = np.arange(a, b + 1), np.arange(c, d + 1)
    flight = tables.in_flight[stage]

    def spread(sums: I64) -> I64:
        return sums[None, columns] - sums[rows, None]

    states = spread(arrays.static)
    for pair in tables.tied:
        if a <= pair.first and pair.second < d:
            both = (first[:, None] <= pair.first) & (last[None, :] > pair.second)
            states = states - np.where(both, pair.shared_bytes, 0)
    for mode, (mode_extra, mode_kept, transient) in zip(tables.modes, arrays.modes, strict=True):
        if mode.mode in tables.allowed_modes:
            held = states + flight * spread(mode_kept) + _largest(transient, starts, ends)
            yield _Way(spread(mode_extra), held, True)
    if not tables.layers:
        return
    none, full = _mode_rows(tables, arrays)
    able = np.flatnonzero(arrays.recomputable)
    before = np.searchsorted(able, first)
    # behind[r]: position right behind the r-th recomputable block; far away when there is none.
    behind = np.concatenate((able + 1, np.full(d - a + 1, tables.num_blocks + 1)))
    most = int(np.searchsorted(able, d) - before[0])
    for count in range(most + 1):
        poll()
        split = behind[before + count - 1] if count else first
        exists = split[:, None] <= last[None, :]
        split = np.minimum(split, tables.num_blocks)
        added = np.broadcast_to((full[0][split] - full[0][first])[:, None], exists.shape)
        if extra is not None and not (exists & (added < extra)).any():
            continue
        kept = full[1][split] - full[1][first] - none[1][split]
        held = states + flight * (kept[:, None] + none[1][None, columns])
        yield _Way(added, held + _split_workspace(none[2], full[2], a, split, last), exists)


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
        poll()
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
