"""Timelines as SVG: several under each other on one time scale, no script, no stylesheet.

From top to bottom: title, figures and legend; then the ranks of each timeline (cells above,
memory lane below) and its time axis. The same timelines give the same bytes.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import InputError
from planner.report.timeline_picture import (
    TimelinePicture,
    caption_of,
    exceeds,
    format_held,
    held_words,
    idle_shares,
    nice_ticks,
    time_scale,
)
from planner.report.timeline_svg_cells import (
    Detail,
    Frame,
    draw_idle,
    draw_rows,
    transfer_count,
)
from planner.report.timeline_svg_legend import draw_legend, legend_entries
from planner.report.timeline_svg_memory import draw_memory, memory_tops
from planner.report.timeline_svg_style import (
    FONT,
    GREY,
    HATCH,
    INK,
    LIMIT,
    clean,
    num,
    text,
    text_width,
    wrap_words,
)
from planner.units import format_ms

__all__ = ["timeline_svg"]

_NARROWEST, _WIDEST, _WIDEST_THIN = 960.0, 3600.0, 2600.0
_SHORT_CELL = 12.0
_MOST_OPERATIONS = 20_000
_MOST_TOOLTIPS = 7_000
_MOST_TRANSFERS = 600
_MARGIN = 16.0
_AXIS = 36.0
_BETWEEN = 14.0

# Row, memory lane, gap and text size by number of ranks, in pixels.
_ROWS = ((8, 30.0, 24.0, 7.0, 12.0), (16, 22.0, 17.0, 5.0, 11.0), (32, 17.0, 11.0, 4.0, 10.0))
_THIN_ROWS = (12.0, 8.0, 2.0, 9.0)


@dataclass(frozen=True)
class _Canvas:
    """Horizontal measures that all pictures share, in pixels."""

    left: float
    plot: float
    right: float
    longest_ms: float

    @property
    def width(self) -> float:
        return self.left + self.plot + self.right

    @property
    def text_width(self) -> float:
        return self.width - 2 * _MARGIN


def timeline_svg(pictures: Sequence[TimelinePicture]) -> str:
    """Timelines as one SVG document, under each other on one time scale.

    Above 20,000 operations cells are bare strokes without numbers, above 7,000 they have no
    tooltips, above 600 transfers none is drawn; the picture says what it leaves out.

    Raises
    ------
    InputError
        There is no timeline.
    """
    if not pictures:
        raise InputError("there is no timeline to draw", expected="at least one")
    count = sum(picture.timeline.order.num_operations for picture in pictures)
    detail = Detail(
        thin=count > _MOST_OPERATIONS,
        tooltips=count <= _MOST_TOOLTIPS,
        transfers=0 < sum(map(transfer_count, pictures)) <= _MOST_TRANSFERS,
    )
    canvas = _canvas(pictures, _WIDEST_THIN if detail.thin else _WIDEST)
    identity = f"timeline-{_fingerprint(pictures):08x}"
    entries = legend_entries(pictures, pattern=f"{identity}-idle", transfers=detail.transfers)
    several = len(pictures) > 1
    head = f"{len(pictures)} timelines on one time scale" if several else pictures[0].title
    tops = memory_tops(pictures)
    body: list[str] = []
    told: list[str] = []
    y = _MARGIN
    if several:
        y += 16
        body.append(text(_MARGIN, y, head, 16, font_weight="bold"))
        legend, height = draw_legend(entries, _MARGIN, y + 12, canvas.text_width)
        body.append(legend)
        y += 12 + height + 6
    for number, picture in enumerate(pictures):
        rows, size = _rows_of(picture)
        frame = Frame(canvas.left, 0.0, canvas.plot / canvas.longest_ms, *rows)
        drawing, hidden = draw_rows(picture, frame, detail)
        notes = _notes(picture, detail, hidden, tops[picture.held_unit])
        captions = caption_of(picture)
        told.append(f"{picture.title}: {'; '.join(captions)}. {' '.join(notes)}".strip())
        y += 16 if number == 0 else 16 + _BETWEEN
        title = wrap_words([picture.title], 16, canvas.text_width, " ")[0]
        body.append(text(_MARGIN, y, title, 16, font_weight="bold"))
        for line in wrap_words(captions, 12, canvas.text_width, "  ·  "):
            y += 18
            body.append(text(_MARGIN, y, line, 12))
        for line in wrap_words(notes, 11, canvas.text_width, " "):
            y += 16
            body.append(text(_MARGIN, y, line, 11, fill=GREY, font_style="italic"))
        if not several:
            legend, height = draw_legend(entries, _MARGIN, y + 12, canvas.text_width)
            body.append(legend)
            y += 6 + height
        y += 14
        body.append(f'<g transform="translate(0 {num(y)})">')
        body += draw_idle(picture, frame, f"{identity}-idle")
        body += _grid(picture, frame, canvas)
        body += draw_memory(picture, frame, tops[picture.held_unit])
        body += drawing
        body += _row_words(picture, frame, canvas, size)
        body.append("</g>")
        y += frame.pitch * picture.timeline.order.num_ranks + _AXIS
    height = y + 4
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{num(canvas.width)}" '
            f'height="{num(height)}" viewBox="0 0 {num(canvas.width)} {num(height)}" role="img" '
            f'aria-labelledby="{identity}-title {identity}-desc" font-family="{FONT}" '
            f'fill="{INK}">',
            f'<title id="{identity}-title">{clean(head)}</title>',
            f'<desc id="{identity}-desc">{clean(" ".join(told))}</desc>',
            f'<defs><pattern id="{identity}-idle" width="6" height="6" '
            'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            '<rect width="6" height="6" fill="#FFFFFF"/>'
            f'<path d="M0 0v6" stroke="{HATCH}" stroke-width="2"/></pattern></defs>',
            f'<rect width="{num(canvas.width)}" height="{num(height)}" fill="#FFFFFF"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _fingerprint(pictures: Sequence[TimelinePicture]) -> int:
    """Keeps the ids of two drawings in one page apart."""
    value = 0
    for picture in pictures:
        value = zlib.crc32(picture.title.encode("utf-8", "replace"), value)
        value = zlib.crc32(np.ascontiguousarray(picture.timeline.end).tobytes(), value)
    return value


def _canvas(pictures: Sequence[TimelinePicture], widest: float) -> _Canvas:
    longest_ms = max(picture.total_ms for picture in pictures)
    short = math.inf
    for picture in pictures:
        lengths = picture.timeline.end - picture.timeline.start
        lengths = lengths[lengths > 0]
        if len(lengths):
            quartile = float(np.quantile(lengths, 0.25, method="lower"))
            short = min(short, quartile * picture.quantum_ms)
    wanted = 0.0 if math.isinf(short) else _SHORT_CELL * longest_ms / short
    labels, figures = 0.0, 0.0
    for picture in pictures:
        size = _rows_of(picture)[1]
        ranks = picture.timeline.order.num_ranks
        labels = max(labels, text_width(f"rank {ranks - 1}", size))
        figures = max(
            [figures, *(text_width(word, size) for row in _figures(picture) for word in row)]
        )
    return _Canvas(
        left=_MARGIN + labels + 8,
        plot=min(max(wanted, _NARROWEST), widest),
        right=8 + figures + _MARGIN,
        longest_ms=longest_ms,
    )


def _rows_of(picture: TimelinePicture) -> tuple[tuple[float, float, float], float]:
    """(row, memory lane, gap) and text size by the number of ranks."""
    ranks = picture.timeline.order.num_ranks
    for most, row, memory, gap, size in _ROWS:
        if ranks <= most:
            return (row, memory, gap), size
    return _THIN_ROWS[:3], _THIN_ROWS[3]


def _figures(picture: TimelinePicture) -> list[tuple[str, ...]]:
    """What stands at the end of each rank: idle share, peak; one line where ranks are low."""
    rows: list[tuple[str, ...]] = []
    for rank, share in enumerate(idle_shares(picture.timeline)):
        idle = f"idle {100 * share:.1f} %"
        peak = f"peak {format_held(float(picture.peak[rank]))}"
        if picture.limits is not None and math.isfinite(picture.limits[rank]):
            peak += f" of {format_held(picture.limits[rank])}"
        low = picture.timeline.order.num_ranks > _ROWS[-1][0]
        rows.append((f"{idle}  ·  {peak}",) if low else (idle, peak))
    return rows


def _row_words(picture: TimelinePicture, frame: Frame, canvas: _Canvas, size: float) -> list[str]:
    """Rank names before the rows, figures after them."""
    parts = []
    after = canvas.left + canvas.plot + 8
    for rank, figures in enumerate(_figures(picture)):
        middle = frame.y(rank) + frame.row / 2 + 0.36 * size
        parts.append(text(canvas.left - 8, middle, f"rank {rank}", size, text_anchor="end"))
        over = picture.limits is not None and exceeds(
            float(picture.peak[rank]), picture.limits[rank]
        )
        below = frame.y(rank) + frame.row + frame.memory / 2 + 0.36 * size
        for word, y in zip(figures, (middle, below), strict=False):
            loud = over and "peak" in word
            style = {"fill": LIMIT, "font_weight": "bold"} if loud else {}
            parts.append(text(after, y, word, size, **style))
    return parts


def _grid(picture: TimelinePicture, frame: Frame, canvas: _Canvas) -> list[str]:
    """Axis of round times under the ranks, and lines at the end of makespan and step."""
    unit, ms = time_scale(canvas.longest_ms)
    bottom = frame.y(picture.timeline.order.num_ranks) - frame.gap + 4
    per_unit = frame.pixels_per_ms * ms
    ticks = nice_ticks(canvas.longest_ms / ms, int(canvas.plot / 70))
    marks = "".join(f"M{num(frame.left + v * per_unit)} {num(bottom)}v5" for v, _ in ticks)
    lines = "".join(f"M{num(frame.left + v * per_unit)} 0v{num(bottom)}" for v, _ in ticks)
    parts = [
        f'<path d="{lines}" stroke="#E3E3E3" stroke-width="0.8"/>',
        f'<path d="M{num(frame.left)} {num(bottom)}h{num(canvas.plot)}{marks}" fill="none" '
        f'stroke="{GREY}" stroke-width="1"/>',
        f'<g font-size="11" text-anchor="middle" fill="{INK}">',
        *(
            f'<text x="{num(frame.left + v * per_unit)}" y="{num(bottom + 16)}">{label}</text>'
            for v, label in ticks
        ),
        "</g>",
        text(
            canvas.left - 5 - text_width(ticks[0][1], 11) / 2,
            bottom + 16,
            unit,
            11,
            text_anchor="end",
        ),
    ]
    timeline = picture.timeline
    ends = [(timeline.makespan, "makespan", "end")]
    if timeline.step > timeline.makespan:
        ends.append((timeline.step, "tail ends" if picture.overhead_ms else "step", "start"))
    for quanta, name, anchor in ends:
        x = frame.left + quanta * picture.quantum_ms * frame.pixels_per_ms
        words = f"{name} {format_ms(quanta * picture.quantum_ms)}"
        parts.append(
            f'<path d="M{num(x)} -5V{num(bottom + 7)}" stroke="{INK}" stroke-width="1" '
            'stroke-dasharray="2 2"/>'
        )
        parts.append(text(x, bottom + 29, words, 11, text_anchor=anchor, font_weight="bold"))
    return parts


def _notes(picture: TimelinePicture, detail: Detail, hidden: int, top: float) -> list[str]:
    """What the drawing leaves out, a sentence each."""
    timeline = picture.timeline
    count = timeline.order.num_operations
    notes = []
    if detail.thin:
        notes.append(
            f"{count:,} operations: cells are bare strokes without numbers, borders or tooltips, "
            "and memory lanes show the largest amount of every half pixel."
        )
    else:
        if hidden:
            notes.append(f"{hidden:,} cells are too narrow for their number.")
        if not detail.tooltips:
            notes.append("Cells have no tooltips.")
    timeless = int((timeline.end == timeline.start).sum())
    if timeless:
        notes.append(f"{timeless:,} operations take no time and have no cell.")
    transfers = transfer_count(picture)
    if transfers and not detail.transfers:
        notes.append(f"{transfers:,} transfers between ranks are not drawn.")
    outside = [most for most in picture.limits or () if math.isfinite(most) and most > top]
    if outside:
        few, many = min(outside), max(outside)
        words = held_words(many, picture.held_unit)
        words = words if few == many else f"{format_held(few)} to {words}"
        notes.append(f"The limit of {words} lies far above the memory lanes.")
    return notes
