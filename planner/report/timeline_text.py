"""Timelines for a terminal: one row a rank, true to scale or one cell a slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError
from planner.report.text import counted, wrap
from planner.report.timeline_picture import (
    KIND_WORDS,
    TimelinePicture,
    caption_of,
    critical_runs,
    format_held,
    idle_shares,
    nice_ticks,
    sends_of,
    slots_of,
    tail_of,
    time_scale,
)
from planner.schedules.timeline_kernel import walk

__all__ = ["timeline_text"]

I64 = NDArray[np.int64]

_NARROWEST = 40
_IDLE = "."
_TAIL = {"gradient reduction": "R", "optimizer": "O"}

# 256-colour backgrounds near those of the SVG: even and odd chunks of F, B, I, W.
_BACKGROUNDS = ((110, 18), (215, 130), (227, 58), (79, 23))
_INKS = (16, 231)
_GREYS = {">": (231, 240), "R": (16, 250), "O": (231, 236)}
_UNDERLINE, _RESET = "4;", "\x1b[0m"


@dataclass(frozen=True)
class _Mark:
    """What fills columns ``begin`` to ``end`` of a row."""

    begin: int
    end: int
    words: str
    """Its first letter alone where it does not fit, then filled up."""
    fill: str
    style: str
    """What turns its colour on."""


@dataclass(frozen=True)
class _Scale:
    """Columns that mean the same time in every picture of one scale."""

    left: int
    room: int
    """Characters between names and figures."""
    columns: int
    """Of the longest time, at most ``room``."""
    total_ms: float
    beside: tuple[int, int]
    """Widths of the idle and peak columns."""

    def borders(self, picture: TimelinePicture, moments: I64) -> I64:
        """Nearest column border of each moment; in floats, as 64-bit products could overflow."""
        per_quantum = self.columns / self.total_ms * picture.quantum_ms
        borders: I64 = np.floor(moments * per_quantum + 0.5).astype(np.int64)
        return borders


def timeline_text(
    picture: TimelinePicture,
    *,
    width: int,
    slots: bool = False,
    color: bool = False,
    scale_of: Sequence[TimelinePicture] = (),
) -> str:
    """A timeline in plain text, lines of at most ``width`` characters, no newline at the end.

    Kinds are F, B, I and W with the micro-batch's number where it fits. A rank's second chunk (any
    odd one; of two-way schedules the micro-batches that enter at the last rank) is in lower case.

    Parameters
    ----------
    width
        Characters of a line, at least 40.
    slots
        One cell an operation, after the cell it waits for: the order without its times. Long
        orders go on in further blocks.
    color
        Write ANSI colours of 256, and underline the critical path.
    scale_of
        Pictures to be compared with this one: texts of the same ``width`` and ``scale_of`` have
        the same time in each column.

    Raises
    ------
    InputError
        A width below 40.
    """
    if width < _NARROWEST:
        raise InputError(
            "is too narrow for a timeline", value=width, expected=f"at least {_NARROWEST} columns"
        )
    lines = [*wrap(picture.title, width), *_phrases(caption_of(picture), width), ""]
    scale = _scale([picture, *scale_of], width)
    if slots:
        lines += _by_slot(picture, scale, color)
    else:
        lines += _to_scale(picture, scale, width, color)
    return "\n".join([*lines, "", *_phrases(_legend(picture, slots, color), width)])


def _phrases(phrases: list[str], width: int) -> list[str]:
    """Lines that break between phrases, inside one only where it is as long as a line."""
    glued = [p.replace(" ", "\xa0") if len(p) < width - 2 else p for p in phrases]
    return wrap(", ".join(glued), width)


def _scale(pictures: Sequence[TimelinePicture], width: int) -> _Scale:
    """Room for the widest rank names and figures, and the longest time in what is left.

    A whole number of columns a common unit of all times, where that uses the room well.
    """
    cells = [cell for picture in pictures for cell in _figures(picture)]
    beside = max(len(idle) for idle, _ in cells), max(len(peak) for _, peak in cells)
    ranks = max(picture.timeline.order.num_ranks for picture in pictures)
    left = len(f"r{ranks - 1}") + 1
    room = width - left - sum(beside) - 2
    columns = room
    if len({picture.quantum_ms for picture in pictures}) == 1:
        units = max(picture.total for picture in pictures) // _common_unit(pictures)
        whole = room // units * units
        columns = whole if 5 * whole >= 3 * room else room
    return _Scale(left, room, columns, max(picture.total_ms for picture in pictures), beside)


def _common_unit(pictures: Sequence[TimelinePicture]) -> int:
    """Largest time of which every moment is a multiple, in quanta."""
    moments: list[I64] = []
    for picture in pictures:
        timeline = picture.timeline
        tail = [at for span in tail_of(timeline) for at in (span.start, span.end)]
        moments += [timeline.start, timeline.end, timeline.hold]
        moments.append(np.array([*tail, picture.total], np.int64))
    return int(np.gcd.reduce(np.concatenate(moments)))


def _figures(picture: TimelinePicture) -> list[tuple[str, str]]:
    """Idle share and peak at the end of every rank's row, under a heading."""
    rows = [("idle", "peak")]
    for rank, share in enumerate(idle_shares(picture.timeline)):
        peak = format_held(float(picture.peak[rank]))
        if picture.limits is not None:
            peak += f"/{format_held(picture.limits[rank])}"
        rows.append((f"{100 * share:.0f}%", peak))
    return rows


def _beside(picture: TimelinePicture, scale: _Scale) -> list[str]:
    """The figures as text, heading first."""
    one, two = scale.beside
    return [f" {idle:>{one}} {peak:>{two}}" for idle, peak in _figures(picture)]


def _to_scale(picture: TimelinePicture, scale: _Scale, width: int, color: bool) -> list[str]:
    """Axis and rows whose columns are equal times."""
    timeline = picture.timeline
    first, second = slots_of(timeline)
    hold = sends_of(timeline)
    begin = scale.borders(picture, timeline.start[first]).tolist()
    end = scale.borders(picture, timeline.end[first]).tolist()
    sent = scale.borders(picture, timeline.end[first] + hold).tolist()
    rows: list[list[_Mark]] = [[] for _ in range(timeline.order.num_ranks)]
    critical = _critical(picture) if color else set()
    lost = 0
    fill = " " if color else "-"
    for at, one in enumerate(first.tolist()):
        row = rows[int(timeline.order.rank[one])]
        if begin[at] == end[at]:
            lost += int(timeline.end[one] > timeline.start[one])
        elif int(second[at]) == one:
            row.append(_operation(picture, one, begin[at], end[at], fill, color, critical))
        else:
            row += _pair(picture, one, begin[at], end[at], fill, color, critical)
        if sent[at] > end[at]:
            row.append(_Mark(end[at], sent[at], ">", ">", _grey(">", color)))
    for span in tail_of(timeline):
        ends = np.array([span.start, span.end], np.int64)
        from_column, to_column = scale.borders(picture, ends).tolist()
        letter = _TAIL[span.name]
        if to_column > from_column:
            rows[span.rank].append(
                _Mark(from_column, to_column, letter, letter.lower(), _grey(letter, color))
            )
    figures = _beside(picture, scale)
    last = int(scale.borders(picture, np.array([picture.total], np.int64))[0])
    lines = [_axis(scale) + figures[0]]
    for rank, marks in enumerate(rows):
        body = _row(marks, last) + " " * (scale.columns - last)
        lines.append(f"{f'r{rank}':<{scale.left}}{body}{figures[rank + 1]}")
    if lost:
        verb = "is" if lost == 1 else "are"
        lines += wrap(f"({counted(lost, 'operation')} {verb} too short for a column)", width)
    return lines


def _axis(scale: _Scale) -> str:
    unit, ms = time_scale(scale.total_ms)
    line = f"{unit:<{scale.left}}"
    end = scale.left + scale.columns
    for value, label in nice_ticks(scale.total_ms / ms, scale.columns // 8):
        at = scale.left + round(value * ms / scale.total_ms * scale.columns)
        if (at > len(line) or at == scale.left) and at + len(label) <= end:
            line = line.ljust(at) + label
    return line.ljust(end)


def _by_slot(picture: TimelinePicture, scale: _Scale, color: bool) -> list[str]:
    """Blocks of cells: every operation in the first slot after those it waits for."""
    order = picture.timeline.order
    first, second = slots_of(picture.timeline)
    slot = _slots(picture)
    names = [_name(picture, at) for at in range(order.num_operations)]
    words = [
        names[one] if one == two else f"{names[one]}&{names[two]}"
        for one, two in zip(first.tolist(), second.tolist(), strict=True)
    ]
    count = max(slot) + 1
    cell = max(len(str(count - 1)), *map(len, words)) + 1
    each = max(min(scale.room // cell, count), 1)
    critical = _critical(picture) if color else set()
    blocks: list[list[list[_Mark]]] = [
        [[] for _ in range(order.num_ranks)] for _ in range(-(-count // each))
    ]
    for at, one in enumerate(first.tolist()):
        block, place = divmod(slot[at], each)
        style = _style(picture, one, color, critical)
        mark = _Mark(place * cell, place * cell + cell - 1, words[at], " ", style)
        blocks[block][int(order.rank[one])].append(mark)
    figures = _beside(picture, scale)
    lines = []
    for block, rows in enumerate(blocks):
        numbers = range(block * each, min((block + 1) * each, count))
        last = block == len(blocks) - 1
        head = "".join(f"{number:<{cell}}" for number in numbers)
        lines.append(f"{'':<{scale.left}}{head}{figures[0] if last else ''}".rstrip())
        for rank, marks in enumerate(rows):
            row = _row(marks, len(numbers) * cell, cell)
            after = figures[rank + 1] if last else ""
            lines.append(f"{f'r{rank}':<{scale.left}}{row}{after}".rstrip())
        if not last:
            lines.append("")
    return lines


def _slots(picture: TimelinePicture) -> list[int]:
    """Slot of each operation or pair where all take one slot and transfers none."""
    timeline = picture.timeline
    order = timeline.order
    count = order.num_operations
    ends, waiters, starts = [-1] * count, [-1] * count, [-1] * count
    joined = [] if order.joined is None else order.joined.tolist()
    walk(
        order.rank_start.tolist(), timeline.need.tolist(), [0] * count, [1] * count, [],
        joined, order.rank_start[:-1].tolist(), waiters, starts, ends,
    )  # fmt: skip
    return [starts[at] for at in slots_of(timeline)[0].tolist()]


def _name(picture: TimelinePicture, at: int) -> str:
    order = picture.timeline.order
    letter = "FBIW"[int(order.kind[at])]
    return f"{letter.lower() if picture.chunk[at] % 2 else letter}{order.microbatch[at]}"


def _critical(picture: TimelinePicture) -> set[int]:
    """Operations of the critical path."""
    return {at for first, last in critical_runs(picture.timeline) for at in range(first, last + 1)}


def _style(picture: TimelinePicture, at: int, color: bool, critical: set[int]) -> str:
    if not color:
        return ""
    odd = int(picture.chunk[at]) % 2
    background = _BACKGROUNDS[int(picture.timeline.order.kind[at])][odd]
    line = _UNDERLINE if at in critical else ""
    return f"\x1b[{line}38;5;{_INKS[odd]};48;5;{background}m"


def _grey(letter: str, color: bool) -> str:
    ink, background = _GREYS[letter]
    return f"\x1b[38;5;{ink};48;5;{background}m" if color else ""


def _operation(
    picture: TimelinePicture, at: int, begin: int, end: int, fill: str, color: bool,
    critical: set[int],
) -> _Mark:  # fmt: skip
    style = _style(picture, at, color, critical)
    return _Mark(begin, end, _name(picture, at), fill, style)


def _pair(
    picture: TimelinePicture, at: int, begin: int, end: int, fill: str, color: bool,
    critical: set[int],
) -> list[_Mark]:  # fmt: skip
    """Two halves; a single column shows that there are two."""
    if at in critical or at + 1 in critical:
        critical = critical | {at, at + 1}
    if end - begin < 2:
        return [_Mark(begin, end, "&", fill, _style(picture, at, color, critical))]
    middle = (begin + end) // 2
    one = _operation(picture, at, begin, middle, fill, color, critical)
    style = _style(picture, at + 1, color, critical)
    two = _Mark(middle, end, f"&{_name(picture, at + 1)}", fill, style)
    return [one, two]


def _row(marks: list[_Mark], columns: int, cell: int = 1) -> str:
    """Marks in their columns; idle time as dots, one a cell."""
    parts: list[str] = []
    at = 0
    for mark in [*marks, _Mark(columns, columns, "", "", "")]:
        idle = f"{_IDLE:<{cell}}" * -(-(mark.begin - at) // cell)
        parts.append(idle[len(idle) - (mark.begin - at) :] if cell > 1 else idle)
        width = mark.end - mark.begin
        fits = len(mark.words) <= width
        body = mark.words if fits else mark.words[:1] if width else ""
        body = body.ljust(width, mark.fill or " ")
        parts.append(f"{mark.style}{body}{_RESET}" if mark.style else body)
        at = mark.end
    return "".join(parts)


def _legend(picture: TimelinePicture, slots: bool, color: bool) -> list[str]:
    order = picture.timeline.order
    phrases = [f"{'FBIW'[kind]} {KIND_WORDS[kind]}" for kind in np.unique(order.kind).tolist()]
    if picture.two_way:
        phrases.append("lower case: enters at the last rank")
    elif picture.num_chunks > 1:
        odd = ", ".join(str(chunk) for chunk in range(1, min(picture.num_chunks, 9), 2))
        more = ", ..." if picture.num_chunks > 9 else ""
        phrases.append(f"lower case: chunk{'s' if picture.num_chunks > 2 else ''} {odd}{more}")
    if order.has_pairs:
        phrases.append("& overlapped pair")
    if not slots:
        if bool((picture.timeline.hold > 0).any()):
            phrases.append("> blocking send")
        present = {span.name for span in tail_of(picture.timeline)}
        phrases += [f"{letter} {name}" for name, letter in _TAIL.items() if name in present]
    phrases.append(f"{_IDLE} idle")
    phrases.append("one cell a slot" if slots else "rows r0, r1, ... are ranks")
    if color:
        phrases.append("underlined: critical path")
    return phrases
