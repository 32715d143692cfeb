"""Operations of a pipeline schedule: which rank runs what, in which order.

An operation is written ``<stage><kind><micro-batch>``: ``2F4`` is the forward of micro-batch 4
on stage 2. Kinds: F forward, B full backward, I backward for the input, W backward for the
weights. Two operations that run as one are written ``(2F4;5B1)OVERLAP_F_B``. This is the grammar
of torch.distributed.pipelining's schedule CSV. "Stage" means a chunk here: with V chunks a rank
there are P V of them, in model order.

An :class:`Order` holds the operations of all ranks in flat arrays, rank after rank, so that
orders of 100,000 operations are built, checked and simulated without touching one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.errors import OrderError

__all__ = ["Kind", "Order", "format_operation", "order_from_lists", "order_from_ranks"]

I64 = NDArray[np.int64]

_OPERATION = re.compile(r"(\d{1,9})([FBIW])(\d{1,9})", re.ASCII)
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")


class Kind(IntEnum):
    """What an operation does."""

    F = 0
    B = 1
    I = 2  # noqa: E741 - the field's letter
    W = 3


def format_operation(stage: int, kind: int, microbatch: int) -> str:
    """One operation in the grammar.

    Examples
    --------
    >>> format_operation(2, Kind.F, 4)
    '2F4'
    """
    return f"{stage}{'FBIW'[kind]}{microbatch}"


@dataclass(frozen=True, eq=False)
class Order:
    """The operations of every rank in execution order; n operations in all, rank after rank.

    ``rank_start[r] : rank_start[r + 1]`` are the operations of rank r. Nothing is promised about
    the content: :func:`planner.schedules.validate.validate_order` judges it.
    """

    schedule: str
    """Name of the schedule, or ``order`` for a foreign one."""
    num_ranks: int
    num_stages: int
    """Chunks of the model, P V (for two-way schedules the P stages that sit on two ranks)."""
    num_microbatches: int
    rank_start: I64
    """Shape (P+1,)."""
    kind: NDArray[np.int8]
    """Shape (n,), a :class:`Kind`."""
    stage: I64
    microbatch: I64
    joined: NDArray[np.bool_] | None = None
    """Shape (n,): this operation and the next one run as one overlapped pair (None: no pairs)."""

    @property
    def num_operations(self) -> int:
        """n."""
        return len(self.kind)

    @cached_property
    def rank(self) -> I64:
        """Rank of every operation, shape (n,)."""
        return np.repeat(np.arange(self.num_ranks), np.diff(self.rank_start))

    @property
    def has_pairs(self) -> bool:
        """Whether any two operations overlap."""
        return self.joined is not None and bool(self.joined.any())

    @property
    def splits_backward(self) -> bool:
        """Whether any backward is split into I and W."""
        return bool((self.kind >= Kind.I).any())

    def rank_operations(self, rank: int) -> list[str]:
        """The list of one rank in the grammar.

        Examples
        --------
        >>> order_from_lists("gpipe", [["0F0", "0B0"], ["1F0", "1B0"]]).rank_operations(1)
        ['1F0', '1B0']
        """
        first, last = int(self.rank_start[rank]), int(self.rank_start[rank + 1])
        words = [
            f"{s}{'FBIW'[k]}{m}"
            for s, k, m in zip(
                self.stage[first:last].tolist(),
                self.kind[first:last].tolist(),
                self.microbatch[first:last].tolist(),
                strict=True,
            )
        ]
        if self.joined is None:
            return words
        cells: list[str] = []
        at = first
        while at < last:
            if self.joined[at] and at + 1 < last:
                cells.append(f"({words[at - first]};{words[at + 1 - first]})OVERLAP_F_B")
                at += 2
            else:
                cells.append(words[at - first])
                at += 1
        return cells

    def rank_lists(self) -> list[list[str]]:
        """The lists of all ranks in the grammar."""
        return [self.rank_operations(rank) for rank in range(self.num_ranks)]

    def name(self, operation: int) -> str:
        """One operation by its index."""
        return format_operation(
            int(self.stage[operation]), int(self.kind[operation]), int(self.microbatch[operation])
        )


def order_from_ranks(
    schedule: str,
    ranks: Sequence[tuple[NDArray[np.int8], I64, I64]],
    *,
    num_stages: int,
    num_microbatches: int,
    joined: Sequence[NDArray[np.bool_]] | None = None,
) -> Order:
    """An order from one (kind, stage, micro-batch) triple of arrays a rank."""
    lengths = [len(kind) for kind, _, _ in ranks]
    rank_start = np.zeros(len(ranks) + 1, np.int64)
    np.cumsum(lengths, out=rank_start[1:])
    return Order(
        schedule=schedule,
        num_ranks=len(ranks),
        num_stages=num_stages,
        num_microbatches=num_microbatches,
        rank_start=rank_start,
        kind=np.concatenate([np.asarray(kind, np.int8) for kind, _, _ in ranks]),
        stage=np.concatenate([np.asarray(stage, np.int64) for _, stage, _ in ranks]),
        microbatch=np.concatenate([np.asarray(m, np.int64) for _, _, m in ranks]),
        joined=None if joined is None else np.concatenate(list(joined)),
    )


def order_from_lists(schedule: str, ranks: Sequence[Sequence[str]]) -> Order:
    """An order from lists in the grammar; stages and micro-batches are counted from them.

    Raises
    ------
    OrderError
        A cell that is no operation, or no operations at all.

    Examples
    --------
    >>> order = order_from_lists("order", [["0F0", "0F1", "0B0", "0B1"]])
    >>> order.num_microbatches, order.num_stages, order.num_ranks
    (2, 1, 1)
    >>> order_from_lists("order", [["0X1"]])
    Traceback (most recent call last):
    ...
    planner.errors.OrderError: rank 0 operation 0: "0X1" is no operation; expected as 2F4, 2B4, \
2I4, 2W4 or (2F4;5B1)OVERLAP_F_B
    """
    kinds: list[int] = []
    stages: list[int] = []
    microbatches: list[int] = []
    joined: list[bool] = []
    starts = [0]
    for rank, cells in enumerate(ranks):
        for at, cell in enumerate(cells):
            text = cell.strip()
            pair = _PAIR.fullmatch(text)
            words = [word.strip() for word in pair.groups()] if pair else [text]
            if pair and sum("F" in word for word in words) != 1:
                raise OrderError(
                    "is no overlapped pair",
                    file=f"rank {rank} operation {at}",
                    value=cell,
                    expected="one forward and one backward, as (2F4;5B1)OVERLAP_F_B",
                )
            for position, word in enumerate(words):
                match = _OPERATION.fullmatch(word)
                if match is None:
                    raise OrderError(
                        "is no operation",
                        file=f"rank {rank} operation {at}",
                        value=cell,
                        expected="as 2F4, 2B4, 2I4, 2W4 or (2F4;5B1)OVERLAP_F_B",
                    )
                stages.append(int(match[1]))
                kinds.append("FBIW".index(match[2]))
                microbatches.append(int(match[3]))
                joined.append(pair is not None and position == 0)
        starts.append(len(kinds))
    if not kinds:
        raise OrderError("there is no operation in this order")
    return Order(
        schedule=schedule,
        num_ranks=len(ranks),
        num_stages=max(stages) + 1,
        num_microbatches=max(microbatches) + 1,
        rank_start=np.array(starts, np.int64),
        kind=np.array(kinds, np.int8),
        stage=np.array(stages, np.int64),
        microbatch=np.array(microbatches, np.int64),
        joined=np.array(joined, np.bool_) if any(joined) else None,
    )
