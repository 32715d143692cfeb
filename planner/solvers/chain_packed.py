"""A chain problem packed into int64 arrays for the compiled kernels; numba stays unloaded."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planner.solvers.chain_tables import ChainTables
from planner.specs import Recompute

__all__ = ["Packed", "numba_installed", "packed"]

I64 = NDArray[np.int64]

# Rows of Packed.rows before the extras, the kept bytes and the edge prices.
COMPUTE, STATIC, LEGAL, ABLE, LOG, AFTER, LEAST_KEPT, EXTRA = range(8)
# Entries of Packed.info.
STAGES, MODES, LAYERS, BASE, EXACT, NONE, FULL, ALL_LEGAL, SHARED = range(9)
INFO = 9
# Columns of Packed.stages.
ROOM, FLIGHT, IN, OUT, LOW, HIGH, BINDS, LEAST_IN = range(8)


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
    """Scalars, then whether each mode is allowed."""


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
    rows = np.zeros((EXTRA + 2 * modes + tiers + 1, count + 1), np.int64)
    rows[COMPUTE] = tables.compute
    rows[STATIC] = tables.static
    rows[LEGAL] = tables.legal_before
    rows[AFTER] = tables.legal_after
    rows[LEAST_KEPT] = tables.least_kept
    rows[ABLE, :count] = tables.recomputable
    rows[LOG, 1:] = np.log2(np.arange(1, count + 1) + 0.5).astype(np.int64)
    levels = int(rows[LOG, count]) + 1
    sparse = np.zeros((modes, levels, count), np.int64)
    for number, mode in enumerate(tables.modes):
        rows[EXTRA + number] = mode.extra
        rows[EXTRA + modes + number] = mode.kept
        sparse[number, 0] = mode.transient
        for level in range(1, levels):
            half = 1 << (level - 1)
            length = count - 2 * half + 1
            np.maximum(
                sparse[number, level - 1, :length],
                sparse[number, level - 1, half : half + length],
                out=sparse[number, level, :length],
            )
    first_edge = EXTRA + 2 * modes
    rows[first_edge : first_edge + tiers] = tables.edges
    pinned = tables.pinned
    assert pinned is not None
    per_stage = np.zeros((stages, 8), np.int64)
    free = first_edge + tiers
    tier_rows = [first_edge + tier for tier in tables.tiers]
    per_stage[:, ROOM] = tables.room
    per_stage[:, FLIGHT] = tables.in_flight
    per_stage[:, IN] = [free, *tier_rows]
    per_stage[:, OUT] = [*tier_rows, free]
    per_stage[:, LOW] = pinned.low[1:]
    per_stage[:, HIGH] = pinned.high[1:]
    per_stage[:, BINDS] = tables.memory_can_bind
    per_stage[:, LEAST_IN] = [0, *tables.least_edge]
    position = {mode.mode: number for number, mode in enumerate(tables.modes)}
    base, exact = position.get(Recompute.NONE, -1), True
    if not tables.layers and Recompute.NONE not in tables.allowed_modes:
        base, exact = (0, True) if modes == 1 else (-1, False)
    info = np.zeros(INFO + modes, np.int64)
    info[:INFO] = (
        stages, modes, tables.layers, base, exact, position.get(Recompute.NONE, 0),
        position.get(Recompute.FULL, 0), tables.all_legal,
        sum(pair.shared_bytes for pair in tables.tied),
    )  # fmt: skip
    info[INFO:] = [mode.mode in tables.allowed_modes for mode in tables.modes]
    tied = np.array(tables.tied, np.int64).reshape(len(tables.tied), 3)
    return Packed(rows, per_stage, sparse, tied, info)
