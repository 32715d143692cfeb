"""Orders from files and back: torch's schedule CSV, or JSON lists in the same grammar.

A CSV has one row a rank; a cell is an operation (``3F2``, ``(0F4;7B1)OVERLAP_F_B``), or empty
where the rank idles. Files that torch lowered for execution (``compute_comms``) also name sends,
receives and the sharding of parameters: those follow from the operations and are left out.
JSON is a list of lists of cells, or an object with such ``ranks`` (what ``planner simulate
--format json`` prints). Grammar: torch.distributed.pipelining.schedules, torch 2.13.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from planner.errors import OrderError
from planner.formats.text_files import read_stream, read_text
from planner.operations import Order, order_from_lists

__all__ = [
    "MOST_OPERATIONS",
    "MOST_RANKS",
    "OrderFile",
    "parse_order",
    "read_order",
    "read_order_text",
    "write_torch_csv",
]

I64 = NDArray[np.int64]

MOST_RANKS = 4096
MOST_OPERATIONS = 4_000_000
"""Beyond these an order is a slip of the finger: 4096 ranks with 500 micro-batches have as many."""

_MOVES_DATA = re.compile(
    r"\d+(SEND_F|RECV_F|SEND_B|RECV_B)\d+|\d*(UNSHARD|RESHARD|REDUCE_GRAD)\d*", re.ASCII
)
_PLACE = re.compile(r"rank (\d+) operation (\d+)")
_EXPECTED = (
    "torch's schedule CSV, one row a rank with cells as 0F1, or JSON with a list of such cells a "
    'rank, as [["0F0", "0B0"]] or {"ranks": [["0F0", "0B0"]]}'
)


@dataclass(frozen=True, eq=False)
class OrderFile:
    """An order as read, with where each operation stands in its file."""

    order: Order
    file: str
    lines: tuple[int, ...] | None
    """Line of each rank in a CSV; None: JSON."""
    cells: tuple[I64, ...]
    """By rank, the 0-based cell of each of its operations."""
    left_out: dict[str, int]
    """Communication and sharding actions that were left out, by name."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the answer should know about the file."""
        if not self.left_out:
            return ()
        counted = ", ".join(f"{name} {count}" for name, count in self.left_out.items())
        total = sum(self.left_out.values())
        return (
            f"{self.file}: {total} communication and sharding actions were left out ({counted}); "
            "they follow from the operations",
        )

    def located(self, error: OrderError) -> OrderError:
        """An error about the order, with the place in the file instead of that in the order."""
        place = _PLACE.fullmatch(error.file or "")
        where: dict[str, Any] = {}
        if place is not None:
            rank, operation = int(place[1]), int(place[2])
            where = _place(self.lines, rank, int(self.cells[rank][operation]))
        return OrderError(
            error.problem,
            file=self.file,
            value=error.value,
            expected=error.expected,
            fix=error.fix,
            **where,
        )


def _place(lines: Sequence[int] | None, rank: int, cell: int) -> dict[str, Any]:
    if lines is None:
        return {"key": f"ranks[{rank}][{cell}]"}
    return {"line": lines[rank], "column": str(cell + 1)}


def read_order(source: str, *, stdin: TextIO | None = None) -> OrderFile:
    """An order from a torch schedule CSV or a JSON file; ``-`` reads ``stdin``.

    Raises
    ------
    FileFormatError
        No such file, or no text.
    OrderError
        A cell that is no operation, an empty file or row, or JSON that holds no order; the
        message says where. Whether the order can be executed is not looked at here.
    """
    return parse_order(*read_order_text(source, stdin=stdin))


def read_order_text(source: str, *, stdin: TextIO | None = None) -> tuple[str, str]:
    """The text of an order's file, and what errors are to call it.

    Raises
    ------
    FileFormatError
        No such file, or no text.
    """
    if source == "-" and stdin is not None:
        return read_stream(stdin), "<stdin>"
    return read_text(Path(source)), source


def parse_order(text: str, file: str) -> OrderFile:
    """An order from the text of a file; as :func:`read_order`, which says what is raised."""
    if not text.strip():
        raise OrderError("is empty", file=file, expected=_EXPECTED)
    if text.lstrip()[0] in "[{":
        return _from_cells(_json_ranks(text, file), None, file)
    rows, lines = _csv_rows(text, file)
    return _from_cells(rows, lines, file)


def write_torch_csv(order: Order) -> str:
    """The operations as torch's compute-only schedule CSV, without idle cells.

    torch reads it with ``_load_csv(..., format="compute_only")``, which ignores idle cells.

    Examples
    --------
    >>> write_torch_csv(order_from_lists("gpipe", [["0F0", "0B0"], ["1F0", "1B0"]]))
    '0F0,0B0\\r\\n1F0,1B0\\r\\n'
    """
    return "".join(",".join(cells) + "\r\n" for cells in order.rank_lists())


# --- files to rows of cells --------------------------------------------------------------------


def _csv_rows(text: str, file: str) -> tuple[list[list[str]], list[int]]:
    """Rows of cells and their line numbers; empty rows at the end are none."""
    rows: list[list[str]] = []
    lines: list[int] = []
    reader = csv.reader(text.splitlines(keepends=True))
    try:
        for row in reader:
            rows.append(row)
            lines.append(reader.line_num)
            if len(rows) > MOST_RANKS and any(cell.strip() for cell in row):
                raise OrderError(
                    "has too many rows", file=file, expected=f"at most {MOST_RANKS}, one a rank"
                )
    except csv.Error as error:
        raise OrderError(
            f"is no CSV: {error}", file=file, line=reader.line_num, expected=_EXPECTED
        ) from None
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if not rows:
        raise OrderError("holds no operation", file=file, expected=_EXPECTED)
    return rows, lines


def _json_ranks(text: str, file: str) -> list[list[str]]:
    """The lists of a JSON order."""
    document = _parse_json(text, file)
    key = ""
    if isinstance(document, dict):
        if "ranks" not in document:
            fix = None
            if "layout" in document:
                fix = f"a plan is given without --order: planner simulate {file}"
            for several in ("comparison", "orders"):
                if several in document:
                    fix = f"give one entry of its {several}"
            raise OrderError("holds no order", file=file, expected=_EXPECTED, fix=fix)
        key, document = "ranks", document["ranks"]
    if not isinstance(document, list) or not document:
        raise OrderError("holds no order", file=file, key=key or None, expected=_EXPECTED)
    if any(isinstance(entry, dict) and "ranks" in entry for entry in document):
        count = len(document)
        raise OrderError(
            f"holds {count} orders", file=file, expected="one", fix="give one entry of the list"
        )
    if len(document) > MOST_RANKS:
        raise OrderError(
            "has too many ranks", file=file, value=len(document), expected=f"at most {MOST_RANKS}"
        )
    for rank, cells in enumerate(document):
        if not isinstance(cells, list):
            raise OrderError(
                "is no list of operations", file=file, key=f"{key}[{rank}]", value=cells,
                expected='a list, as ["0F0", "0B0"]',
            )  # fmt: skip
        for at, cell in enumerate(cells):
            if cell is not None and not isinstance(cell, str):
                raise OrderError(
                    "is no operation", file=file, key=f"{key}[{rank}][{at}]", value=cell,
                    expected='text, as "2F4"',
                )  # fmt: skip
    return [[cell or "" for cell in cells] for cells in document]


def _parse_json(text: str, file: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise OrderError(
            f"is not JSON: {error.msg} at column {error.colno}", file=file, line=error.lineno
        ) from None
    except RecursionError:
        raise OrderError("is nested too deeply", file=file) from None
    except ValueError:  # an integer of thousands of digits
        raise OrderError("holds a number that is too long", file=file) from None


# --- rows of cells to an order -----------------------------------------------------------------


def _from_cells(rows: Sequence[Sequence[str]], lines: list[int] | None, file: str) -> OrderFile:
    kept: list[list[str]] = []
    kept_at: list[list[int]] = []
    left_out: Counter[str] = Counter()
    count = 0
    for rank, row in enumerate(rows):
        texts, numbers = _operations(row, left_out)
        if not texts:
            line = None if lines is None else lines[rank]
            raise OrderError(
                f"rank {rank} has no operation", file=file, line=line,
                expected="a row of operations a rank, rank 0 first",
            )  # fmt: skip
        count += len(texts)
        if count > MOST_OPERATIONS:
            raise OrderError(
                "holds too many operations", file=file, expected=f"at most {MOST_OPERATIONS:,}"
            )
        kept.append(texts)
        kept_at.append(numbers)
    try:
        order = order_from_lists("order", kept)
    except OrderError as error:
        place = _PLACE.fullmatch(error.file or "")
        if place is None:
            raise
        rank, at = int(place[1]), int(place[2])
        where = _place(lines, rank, kept_at[rank][at])
        raise OrderError(
            error.problem,
            file=file,
            value=error.value,
            expected=error.expected,
            fix="such a CSV has no header" if lines and rank == at == 0 else None,
            **where,
        ) from None
    return OrderFile(
        order=order,
        file=file,
        lines=None if lines is None else tuple(lines[: len(kept)]),
        cells=_cell_of_operation(order, kept, kept_at),
        left_out=dict(sorted(left_out.items())),
    )


def _operations(row: Iterable[str], left_out: Counter[str]) -> tuple[list[str], list[int]]:
    """The cells of a row that are to be operations, and their numbers."""
    texts: list[str] = []
    numbers: list[int] = []
    for number, cell in enumerate(row):
        text = cell.strip()
        if not text:
            continue
        move = _MOVES_DATA.fullmatch(text)
        if move is not None:
            left_out[move[1] or move[2]] += 1
            continue
        texts.append(text)
        numbers.append(number)
    return texts, numbers


def _cell_of_operation(
    order: Order, kept: Sequence[Sequence[str]], kept_at: Sequence[Sequence[int]]
) -> tuple[I64, ...]:
    """By rank, the cell of every operation: both of an overlapped pair stand in one."""
    cells = []
    for texts, numbers in zip(kept, kept_at, strict=True):
        at = np.array(numbers, np.int64)
        if order.joined is not None:
            at = np.repeat(at, [2 if text.startswith("(") else 1 for text in texts])
        cells.append(at)
    return tuple(cells)
