"""Whether an order can be executed: complete, placed, ordered and free of deadlock.

What an operation waits for: F of a stage and micro-batch for F of the stage before; B or I for
B or I of the stage after (on the last stage for its own F); W for its I. A rank runs its list in
order, so what lies on the same rank must come earlier in the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from planner.errors import OrderError
from planner.operations import Kind, Order

__all__ = ["Links", "deadlock_error", "links_of", "validate_order"]

I64 = NDArray[np.int64]

_NOUNS = ("forward", "backward", "input backward", "weight backward")


@dataclass(frozen=True, eq=False)
class Links:
    """Dependencies of a valid order. Shapes (n,)."""

    need: I64
    """Operation on another rank whose end this one waits for; -1: none."""
    sends: NDArray[np.bool_]
    """Whether another rank waits for this operation."""
    mirrored: NDArray[np.bool_]
    """Runs on the mirror rank of its stage: a two-way schedule's micro-batch that entered at the
    last rank."""


_CACHE: WeakKeyDictionary[Order, Links] = WeakKeyDictionary()


def links_of(order: Order) -> Links:
    """The dependencies of an order, made once and kept as long as the order.

    Raises
    ------
    OrderError
        The order is not valid (:func:`validate_order`).
    """
    found = _CACHE.get(order)
    if found is None:
        found = _CACHE[order] = validate_order(order)
    return found


def validate_order(order: Order) -> Links:
    """Check everything but deadlock, which only a run shows; returns the dependencies.

    Raises
    ------
    OrderError
        The first operation that is missing, doubled, on the wrong rank or too early.
    """
    stages, count = order.num_stages, order.num_microbatches
    kind, stage, microbatch, rank = order.kind, order.stage, order.microbatch, order.rank
    _check_size(order)
    # One cell per (F | B or I | W, stage, micro-batch): the operation that does it.
    row = np.array([0, 1, 1, 2])[kind]
    cell = (row * stages + stage) * count + microbatch
    seen = np.full(3 * stages * count, -1, np.int64)
    numbers = np.arange(order.num_operations)
    seen[cell[::-1]] = numbers[::-1]  # the first one wins
    doubled = np.flatnonzero(seen[cell] != numbers)
    if len(doubled):
        at = int(doubled[0])
        first = int(seen[cell[at]])
        both = {int(kind[at]), int(kind[first])}
        if both == {int(Kind.B), int(Kind.I)}:
            _refuse(order, at, f"is a second backward: {order.name(first)} runs on rank "
                    f"{rank[first]} already", "either B, or I and W")  # fmt: skip
        _refuse(order, at, f"runs twice: first on rank {rank[first]}", "each operation once")
    table = seen.reshape(3, stages, count)
    _check_complete(order, table)
    split = kind[table[1]] == Kind.I
    at_w = table[2]
    wrong = np.argwhere(~split & (at_w >= 0))
    if len(wrong):
        _refuse(order, int(at_w[tuple(wrong[0])]), "has a full backward B already",
                "W only after I")  # fmt: skip
    home = rank[table[0]]
    for row_number in (1, 2):
        present = table[row_number] >= 0
        away = np.argwhere(present & (rank[table[row_number]] != home))
        if len(away):
            s, m = away[0].tolist()
            problem = f"is away from its forward on rank {home[s, m]}"
            expected = "all operations of a stage and micro-batch on one rank"
            _refuse(order, int(table[row_number, s, m]), problem, expected)
    need = np.full(order.num_operations, -1, np.int64)
    need[table[0, 1:]] = table[0, :-1]
    need[table[1, :-1]] = table[1, 1:]
    need[table[1, -1]] = table[0, -1]
    waits_w = at_w[split]
    need[waits_w] = table[1][split]
    own = (need >= 0) & (rank[need] == rank)
    # The partner of an overlapped pair starts with it, so it is no sooner than what it needs.
    early = np.flatnonzero(own & (need >= numbers))
    if order.joined is not None:
        partner = np.flatnonzero(own & (need == numbers - 1) & order.joined[numbers - 1])
        early = np.union1d(early, partner)
    # A backward before its own forward would otherwise look like a deadlock of other ranks.
    backward_first = table[1][table[1] < table[0]]
    early = np.union1d(early, backward_first)
    if len(early):
        at = int(early[0])
        before = int(need[at]) if own[at] and need[at] >= at - 1 else None
        if before is None:
            before = int(table[0, int(stage[at]), int(microbatch[at])])
        _refuse(order, at, f"comes before {order.name(before)} on its rank", "it after that")
    return Links(
        need=np.where(own, -1, need),
        sends=_is_needed(need, own),
        mirrored=_mirrored(order),
    )


def _is_needed(need: I64, own: NDArray[np.bool_]) -> NDArray[np.bool_]:
    needed = np.zeros(len(need), np.bool_)
    needed[need[(need >= 0) & ~own]] = True
    return needed


def _mirrored(order: Order) -> NDArray[np.bool_]:
    """On rank P-1-s while its stage also runs on rank s: only two-way orders have those."""
    if order.num_stages != order.num_ranks:
        return np.zeros(order.num_operations, np.bool_)
    mirror = order.num_ranks - 1 - order.stage
    mirrored: NDArray[np.bool_] = (order.rank != order.stage) & (order.rank == mirror)
    return mirrored


def _check_size(order: Order) -> None:
    cells = order.num_stages * order.num_microbatches
    if cells * 2 > order.num_operations:
        # Fewer operations than an F and a B each: name one that is missing, without a table.
        present = set(
            zip(order.stage.tolist(), order.kind.tolist(), order.microbatch.tolist(), strict=True)
        )
        for s in range(order.num_stages):
            for m in range(order.num_microbatches):
                if (s, int(Kind.F), m) not in present:
                    _missing(order, s, Kind.F, m)
                if (s, int(Kind.B), m) not in present and (s, int(Kind.I), m) not in present:
                    _missing(order, s, Kind.B, m)


def _check_complete(order: Order, table: I64) -> None:
    for row, kind in ((0, Kind.F), (1, Kind.B)):
        gaps = np.argwhere(table[row] < 0)
        if len(gaps):
            _missing(order, int(gaps[0][0]), kind, int(gaps[0][1]))
    split = order.kind[table[1]] == Kind.I
    gaps = np.argwhere(split & (table[2] < 0))
    if len(gaps):
        _missing(order, int(gaps[0][0]), Kind.W, int(gaps[0][1]))


def _missing(order: Order, stage: int, kind: Kind, microbatch: int) -> None:
    word = f"{stage}{kind.name}{microbatch}"
    raise OrderError(
        f"the order lacks {word}, the {_NOUNS[kind]} of micro-batch {microbatch} on stage {stage}",
        expected=f"every stage 0..{order.num_stages - 1} to run F and B (or I and W) of every "
        f"micro-batch 0..{order.num_microbatches - 1}",
    )


def _refuse(order: Order, operation: int, problem: str, expected: str) -> None:
    rank = int(order.rank[operation])
    raise OrderError(
        problem,
        file=f"rank {rank} operation {operation - int(order.rank_start[rank])}",
        value=order.name(operation),
        expected=expected,
    )


def deadlock_error(order: Order, need: I64, position: list[int], done: list[bool]) -> OrderError:
    """Who waits for whom, once no rank can go on.

    Parameters
    ----------
    position
        The operation each rank stands at (its end where it is done).
    done
        Whether each operation has run.
    """
    waits: dict[int, tuple[int, int]] = {}
    for r in range(order.num_ranks):
        at = position[r]
        if at >= int(order.rank_start[r + 1]):
            continue
        slot = [at]
        if order.joined is not None and order.joined[at]:
            slot.append(at + 1)
        for operation in slot:
            wanted = int(need[operation])
            if wanted >= 0 and not done[wanted]:
                waits[r] = (operation, wanted)
    rank = min(waits)
    walked: list[int] = []
    while rank not in walked:
        walked.append(rank)
        rank = int(order.rank[waits[rank][1]])
    circle = walked[walked.index(rank) :]
    steps = [
        f"rank {r} waits at {order.name(waits[r][0])} for {order.name(waits[r][1])} of rank "
        f"{int(order.rank[waits[r][1]])}"
        for r in circle
    ]
    shown = steps if len(steps) <= 4 else [*steps[:3], f"({len(steps) - 4} more)", steps[-1]]
    return OrderError("the order deadlocks: " + "; ".join(shown))
