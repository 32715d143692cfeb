"""V-Half and V-Min: folded orders that hold half, or a third, of 1F1B's activations.

Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", section 3: one micro-batch's
operations on all ranks form a building block that is repeated every six slots (F = I = W = 1 for
each of two chunks). How long a block keeps an activation sets the memory; a rank that runs the
block's order never holds more. Tables 8 and 9 give the offsets between successive operations of a
block. They are read here so that both chunks' lifetimes are balanced over the ranks: the first
chunk's forward and the second chunk's I, the two that travel down the ranks, take the large
offset of V-Half, the two that travel up the small one.

The repeated blocks alone waste time at both ends. Here a rank goes through three phases:

* fill: until its first I of the first chunk (V-Min with P mod 3 = 2: the second), it runs of what
  precedes that in the blocks whatever is ready, earliest in the blocks first, so that forwards
  come early while there is memory;
* steady: the blocks' order, strictly;
* drain: from its last forward (or its last forward of the first chunk) on, whatever is ready,
  earliest first, W only when nothing else is.

The choices are tried and the shortest order is kept, of equal ones the one that holds less. What
the phases do depends on P alone once M >= 2P, so a longer order has more of the steady phase and
nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.deadlines import poll
from planner.operations import Kind, Order
from planner.schedule_rules import check_shape
from planner.specs import Schedule

__all__ = ["activation_claim", "v_half", "v_min"]

I64 = NDArray[np.int64]

# Rows of a block. "0" is the first chunk, on rank r, "1" the second, 2P-1-r.
_F0, _F1, _I1, _I0, _W1, _W0 = range(6)
_KIND = np.array([Kind.F, Kind.F, Kind.I, Kind.I, Kind.W, Kind.W], np.int8)
_PERIOD = 6
_NEVER = 1 << 60


def v_half(num_ranks: int, num_microbatches: int) -> Order:
    """V-Half: at most (P+2)//2 stages' activations, two chunks each, until W; any P and M.

    At F = I = W = 1 a chunk and M >= 2P, the makespan is 6M + 3P - 7 for even P >= 4, 6M + 3P - 4
    for odd P >= 3 (6M + 1 for P = 2).

    Examples
    --------
    >>> v_half(2, 2).rank_operations(1)
    ['1F0', '2F0', '1F1', '2F1', '2I0', '1I0', '2W0', '1W0', '2I1', '1I1', '2W1', '1W1']
    """
    check_shape(Schedule.V_HALF, num_ranks, num_microbatches)
    return _order(Schedule.V_HALF, num_ranks, num_microbatches)


def v_min(num_ranks: int, num_microbatches: int) -> Order:
    """V-Min: at most (P+4)//3 stages' activations, two chunks each, until W; any P and M.

    At F = I = W = 1 a chunk and M >= 2P, the makespan is 6M + 4P - 5 where P mod 3 = 1 and
    6M + 4P - 7 elsewhere (P >= 2). With unequal F, I and W it loses time in every micro-batch.

    Examples
    --------
    >>> v_min(3, 2).rank_operations(2)
    ['2F0', '3F0', '2F1', '3F1', '3I0', '2I0', '3W0', '2W0', '3I1', '2I1', '3W1', '2W1']
    """
    check_shape(Schedule.V_MIN, num_ranks, num_microbatches)
    return _order(Schedule.V_MIN, num_ranks, num_microbatches)


def activation_claim(schedule: Schedule, num_ranks: int) -> int:
    """Chunk activations no rank ever exceeds, until W (Qi et al. 2024, Table 1, exact).

    Examples
    --------
    >>> activation_claim(Schedule.V_HALF, 8), activation_claim(Schedule.V_MIN, 8)
    (10, 8)
    """
    if schedule is Schedule.V_HALF:
        return (num_ranks + 2) // 2 * 2
    return (num_ranks + 4) // 3 * 2


def _order(schedule: Schedule, num_ranks: int, num_microbatches: int) -> Order:
    short = min(num_microbatches, 2 * num_ranks)
    walk = _shortest_walk(schedule, num_ranks, short)
    row, microbatch = walk.row, walk.microbatch
    if num_microbatches > short:
        row, microbatch = _lengthen(walk, _block(schedule, num_ranks), short, num_microbatches)
    ranks = np.arange(num_ranks)[:, None]
    down = (row == _F0) | (row == _I0) | (row == _W0)
    return Order(
        schedule=schedule.value,
        num_ranks=num_ranks,
        num_stages=2 * num_ranks,
        num_microbatches=num_microbatches,
        rank_start=np.arange(num_ranks + 1) * _PERIOD * num_microbatches,
        kind=_KIND[row].ravel(),
        stage=np.where(down, ranks, 2 * num_ranks - 1 - ranks).ravel(),
        microbatch=microbatch.ravel(),
    )


def _block(schedule: Schedule, num_ranks: int) -> I64:
    """Slots of one micro-batch's operations, shape (6, P); none of a rank agree modulo 6."""
    if schedule is Schedule.V_HALF:
        down, turn, wait = 2, 2, 4 if num_ranks % 2 == 0 else 1
    else:
        down, turn, wait = 1, 1, 3 if num_ranks % 3 == 0 else 1
    rank = np.arange(num_ranks)
    climb = num_ranks - 1 - rank
    block = np.empty((6, num_ranks), np.int64)
    block[_F0] = down * rank
    block[_F1] = block[_F0, -1] + turn + climb
    block[_I1] = block[_F1, 0] + wait + down * rank
    block[_I0] = block[_I1, -1] + 1 + climb
    # The two slots that are left of six take the W, in the order that frees sooner.
    taken = np.sort(block[:_W1] % _PERIOD, axis=0)
    free = np.array([np.setdiff1d(np.arange(_PERIOD), column) for column in taken.T], np.int64).T
    straight, crossed = (
        np.stack([_next_slot(block[_I1], first), _next_slot(block[_I0], second)])
        for first, second in (free, free[::-1])
    )
    block[_W1:] = np.where(straight.sum(axis=0) <= crossed.sum(axis=0), straight, crossed)
    return block


def _next_slot(after: I64, residue: I64) -> I64:
    """First slot after ``after`` with this residue modulo 6."""
    return after + 1 + (residue - after - 1) % _PERIOD


@dataclass(frozen=True, eq=False)
class _Walk:
    """Every rank's operations, in order; shapes (P, 6M)."""

    row: I64
    microbatch: I64
    filled: I64
    """Operations of the fill phase (P,)."""
    drained: I64
    """Operations before the drain phase (P,)."""
    makespan: int
    span: int
    held: int
    """Sum over the ranks of the most chunk activations each holds."""


@lru_cache(maxsize=64)
def _shortest_walk(schedule: Schedule, num_ranks: int, num_microbatches: int) -> _Walk:
    block = _block(schedule, num_ranks)
    limit = activation_claim(schedule, num_ranks)
    walks = [
        _walk(block, num_microbatches, limit, _Choices(fill, drain, prompt))
        for fill in (1, 2)
        for drain in ((_F0, _F1), (_F0,))
        for prompt in ((False, True) if num_microbatches < 2 * num_ranks else (False,))
    ]
    found = [walk for walk in walks if walk is not None]
    return min(found, key=lambda walk: (walk.makespan, walk.span, walk.held))


@dataclass(frozen=True)
class _Choices:
    """What is tried."""

    fill: int
    """The fill phase ends before this I of the first chunk (1: the first)."""
    drain: tuple[int, ...]
    """The drain phase begins when all operations of these rows have run."""
    prompt: bool
    """Rank 0, where the second chunk's I needs nobody else, runs it and its W before another
    forward of that chunk; it saves memory in short runs."""


def _walk(block: I64, count: int, limit: int, choices: _Choices) -> _Walk | None:
    """Run all ranks slot by slot at F = I = W = 1; None where they get stuck.

    Parameters
    ----------
    block
        Slots of one micro-batch's operations (6, P).
    count
        M.
    limit
        Chunk activations a rank may hold.
    """
    poll()
    ranks = block.shape[1]
    done = np.zeros(6 * ranks + 1, np.int64)
    done[-1] = count  # what the first forward waits for
    table = done[:-1].reshape(6, ranks)
    waits_for = _waits_for(ranks)
    due = block[_I0] + _PERIOD * (choices.fill - 1)
    filling = np.clip(-((block - due) // _PERIOD), 0, count)
    """Operations of the fill phase by row (6, P)."""
    late = np.zeros((6, 1), np.int64)
    late[_W1:] = _NEVER >> 1
    columns = np.arange(ranks)
    drain = list(choices.drain)
    rows, ran, begun = [], [], np.full(ranks, -1, np.int64)
    total, most = 0, np.zeros(ranks, np.int64)
    while total < 6 * count * ranks:
        fills = (table < filling).any(axis=0)
        drains = (table[drain] == count).all(axis=0) & ~fills
        begun = np.where(drains & (begun < 0), table.sum(axis=0), begun)
        ready = (done[waits_for] > table) & (table < np.where(fills, filling, count))
        held = table[: _F1 + 1].sum(axis=0) - table[_W1:].sum(axis=0)
        ready[: _F1 + 1] &= held < limit
        # A slot of memory is left for the second chunk, whose end frees the rest.
        ready[_F0] &= ~fills | (table[_F0] - table[_W0] < limit - 1)
        if choices.prompt:
            ready[_F1, 0] &= table[_F1, 0] == table[_W1, 0]
        slot = np.where(table < count, block + _PERIOD * table, _NEVER)
        strict = ~(fills | drains)
        choice = np.where(
            strict, slot.argmin(axis=0), np.where(ready, slot + late, _NEVER).argmin(axis=0)
        )
        runs = ready[choice, columns]
        if not runs.any():
            return None
        table[choice[runs], columns[runs]] += 1
        total += int(runs.sum())
        most = np.maximum(most, held + (runs & (choice <= _F1)))
        rows.append(choice)
        ran.append(runs)
    row, busy = np.stack(rows, axis=1), np.stack(ran, axis=1)
    ends = busy.shape[1] - busy[:, ::-1].argmax(axis=1)
    row = row[busy].reshape(ranks, 6 * count)
    return _Walk(
        row=row,
        microbatch=_numbered(row),
        filled=filling.sum(axis=0),
        drained=begun,
        makespan=busy.shape[1],
        span=int((ends - busy.argmax(axis=1)).max()),
        held=int(most.sum()),
    )


def _waits_for(ranks: int) -> I64:
    """Cell of the table of counts (6 x P) each operation waits for, shape (6, P)."""
    cell = np.arange(6 * ranks).reshape(6, ranks)
    waits = np.empty((6, ranks), np.int64)
    waits[_F0] = np.concatenate([[6 * ranks], cell[_F0, :-1]])
    waits[_F1] = np.concatenate([cell[_F1, 1:], [cell[_F0, -1]]])
    waits[_I1] = np.concatenate([[cell[_F1, 0]], cell[_I1, :-1]])
    waits[_I0] = np.concatenate([cell[_I0, 1:], [cell[_I1, -1]]])
    waits[_W1:] = cell[_I1 : _I0 + 1]
    return waits


def _numbered(row: I64) -> I64:
    """Micro-batch of each operation: each row of a block runs them in turn."""
    microbatch = np.empty_like(row)
    for number in range(6):
        same = row == number
        microbatch[same] = (np.cumsum(same, axis=1) - 1)[same]
    return microbatch


def _lengthen(walk: _Walk, block: I64, short: int, count: int) -> tuple[I64, I64]:
    """Rows and micro-batches (P, 6M) with more of the blocks between fill and drain."""
    more = count - short
    slots = block.T[:, :, None] + _PERIOD * np.arange(count)
    ranks = block.shape[1]
    steady = np.argsort(slots.reshape(ranks, -1), axis=1)
    row, microbatch = np.divmod(steady, count)
    at = np.arange(_PERIOD * count)
    opening = at < walk.filled[:, None]
    closing = at >= walk.drained[:, None] + _PERIOD * more
    for rank in range(ranks):
        first, last = opening[rank], closing[rank]
        row[rank, first] = walk.row[rank, : walk.filled[rank]]
        microbatch[rank, first] = walk.microbatch[rank, : walk.filled[rank]]
        row[rank, last] = walk.row[rank, walk.drained[rank] :]
        microbatch[rank, last] = walk.microbatch[rank, walk.drained[rank] :] + more
    return row, microbatch
