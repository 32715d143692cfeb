"""Plain text for terminals: lines that break between phrases, numbers that line up."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

__all__ = ["aligned", "bytes_column", "counted", "ms_column", "spread", "wrap"]

_NO_BREAK = "\xa0"
# A number and its unit, "dp 8", "rank 3", "x pp" stay on one line.
_GLUED = (
    re.compile(r"(?<=\d) (?=(?:%|[munµ]?s|[KMGT]?i?B|[KMGT]B|bytes?|GPUs?|x|of)\b|%)"),
    re.compile(r"(?<=\b(?:dp|pp|tp)) (?=\d)"),
    re.compile(r"(?<=\brank) (?=\d)|(?<=\branks) (?=\d)"),
    re.compile(r"(?<=[=+x]) (?=\S)"),
)
_TIME_UNITS = (("s", 1e3, 10_000.0), ("ms", 1.0, 1.0), ("us", 1e-3, 1e-3), ("ns", 1e-6, 0.0))
_SIZE_UNITS = (("TiB", 2**40, 4 * 2**40), ("GiB", 2**30, 2**29), ("MiB", 2**20, 2**19),
               ("KiB", 2**10, 2**9), ("B", 1, 0))  # fmt: skip


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most ``width`` characters; numbers keep their units, words stay whole.

    Parameters
    ----------
    text
        Words with single spaces.
    width
        Characters of a line; a longer word gets a line of its own.
    indent
        Before every line but the first.

    Examples
    --------
    >>> wrap("step time 19.07 s, makespan 18.26 s", 21)
    ['step time 19.07 s,', 'makespan 18.26 s']
    """
    for pattern in _GLUED:
        text = pattern.sub(_NO_BREAK, text)
    lines = textwrap.wrap(
        text,
        max(width, 20),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines] or [""]


def ms_column(values: Sequence[float | None]) -> tuple[str, list[str]]:
    """One unit for a column of milliseconds, and its cells with one number of decimals.

    Examples
    --------
    >>> ms_column([110.3, 9.5, None])
    ('ms', ['110.3', '9.5', ''])
    >>> ms_column([19070.0, 20100.0])
    ('s', ['19.07', '20.10'])
    """
    return _column(values, _TIME_UNITS)


def bytes_column(values: Sequence[float | None]) -> tuple[str, list[str]]:
    """One binary unit for a column of bytes, and its cells with one number of decimals.

    Examples
    --------
    >>> bytes_column([2**30, 3 * 2**29])
    ('GiB', ['1.00', '1.50'])
    """
    return _column(values, _SIZE_UNITS)


def _column(
    values: Sequence[float | None], units: Sequence[tuple[str, float, float]]
) -> tuple[str, list[str]]:
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    unit, scale, _ = next((row for row in units if largest >= row[2] and largest > 0), units[1])
    top = largest / scale
    decimals = 0 if unit == "B" or top >= 1000 else 1 if top >= 100 else 2
    return unit, ["" if value is None else f"{value / scale:.{decimals}f}" for value in values]


def spread(first: str, last: str) -> str:
    """A range in one cell.

    Examples
    --------
    >>> spread("7", "2"), spread("1", "1")
    ('7-2', '1')
    """
    return first if first == last else f"{first}-{last}"


def counted(number: int, noun: str) -> str:
    """A count with its noun in the right number.

    Examples
    --------
    >>> counted(1, "GPU"), counted(1024, "GPU")
    ('1 GPU', '1024 GPUs')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def aligned(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int], gap: int = 2
) -> list[str]:
    """Lines of a table, header first: ``gap`` spaces between columns that are right-justified.

    Columns in ``left`` are left-justified.

    Examples
    --------
    >>> print("\\n".join(aligned(["a", "n"], [["xx", "1"], ["y", "10"]], left=[0])))
    a    n
    xx   1
    y   10
    """
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    return [
        (" " * gap)
        .join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        .rstrip()
        for row in table
    ]
