"""What one picture's rank rows hold: cells, numbers, transfers, tail and the critical path."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.report.timeline_picture import (
    KIND_WORDS,
    TimelinePicture,
    critical_runs,
    format_held,
    idle_shares,
    sends_of,
    slots_of,
    tail_of,
    time_scale,
)
from planner.report.timeline_svg_style import (
    CRITICAL,
    INK,
    OPTIMIZER,
    REDUCTION,
    SEND,
    TRANSFER,
    TRANSFER_EARLY,
    clean,
    fill_of,
    ink_on,
    num,
)

__all__ = ["Detail", "Frame", "draw_idle", "draw_rows", "transfer_count"]

F64 = NDArray[np.float64]

_LABEL_SIZES = (11.0, 9.5, 8.0, 7.0, 6.0)
_SMALLEST_OUTLINED = 3.0
_SMALL_CAPTION = 8.0
_TAIL_FILLS = {"gradient reduction": REDUCTION, "optimizer": OPTIMIZER}
_TAIL_LABELS = {"gradient reduction": ("reduction", "red."), "optimizer": ("optimizer", "opt.")}


@dataclass(frozen=True)
class Frame:
    """Where things stand, in pixels."""

    left: float
    """Of time 0."""
    top: float
    """Of the first rank's row."""
    pixels_per_ms: float
    row: float
    """Height of a rank's row."""
    memory: float
    """Height of the memory lane under it."""
    gap: float
    """Under the lane."""

    @property
    def pitch(self) -> float:
        """From one rank to the next."""
        return self.row + self.memory + self.gap

    def y(self, rank: int) -> float:
        """Top of a rank's row."""
        return self.top + rank * self.pitch


@dataclass(frozen=True)
class Detail:
    """What is left out of a large drawing."""

    thin: bool
    """Bare strokes: no tooltip, number or border."""
    tooltips: bool
    transfers: bool


def transfer_count(picture: TimelinePicture) -> int:
    """Transfers between ranks that take time."""
    timeline = picture.timeline
    return int(((timeline.need >= 0) & (timeline.lag > 0)).sum())


def draw_idle(picture: TimelinePicture, frame: Frame, pattern: str) -> list[str]:
    """Hatched ground of every row: what no cell covers is idle."""
    width = picture.total_ms * frame.pixels_per_ms
    idle = picture.timeline.idle.tolist()
    parts = [f'<g fill="url(#{pattern})">']
    for rank, share in enumerate(idle_shares(picture.timeline)):
        words = f"rank {rank}: idle {_ms(idle[rank], picture)}, {100 * share:.1f} % of the makespan"
        parts.append(
            f'<rect x="{num(frame.left)}" y="{num(frame.y(rank))}" width="{num(width)}" '
            f'height="{num(frame.row)}"><title>{clean(words)}</title></rect>'
        )
    return [*parts, "</g>"]


def draw_rows(picture: TimelinePicture, frame: Frame, detail: Detail) -> tuple[list[str], int]:
    """The rows of a picture, and how many numbers were too wide for their cells."""
    scale = frame.pixels_per_ms * picture.quantum_ms
    left = np.asarray(frame.left + picture.timeline.start * scale, np.float64)
    right = np.asarray(frame.left + picture.timeline.end * scale, np.float64)
    labels: list[str] = []
    if detail.thin:
        parts = _strokes(picture, frame, left, right)
        hidden = picture.timeline.order.num_operations
    else:
        parts = _cells(picture, frame, detail, left, right)
        labels, hidden = _labels(picture, frame, left, right)
    parts += _sends(picture, frame, right, scale)
    parts += _tail(picture, frame, scale)
    if detail.transfers:
        parts += _transfers(picture, frame, detail, right, scale)
    parts += _critical_path(picture, frame, left, right, scale)
    return parts + labels, hidden


def _ms(quanta: int, picture: TimelinePicture) -> str:
    unit, ms = time_scale(picture.total_ms)
    return f"{quanta * picture.quantum_ms / ms:.6g} {unit}"


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{num(x)} {num(y)}h{num(width)}v{num(height)}h{num(-width)}z"


def _cells(
    picture: TimelinePicture, frame: Frame, detail: Detail, left: F64, right: F64
) -> list[str]:
    """One path a cell, grouped by colour; the two of a pair share the height."""
    order = picture.timeline.order
    groups: dict[tuple[int, int, bool], list[str]] = {}
    borders: list[str] = []
    joined = order.joined.tolist() if order.joined is not None else [False] * order.num_operations
    kinds, chunks, ranks = order.kind.tolist(), picture.chunk.tolist(), order.rank.tolist()
    after = False
    for at, (x0, x1) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        first, second = joined[at], after
        after = first
        width = x1 - x0
        if width <= 0:
            continue
        top, height = frame.y(ranks[at]), frame.row
        if first or second:
            height /= 2
            top += height if second else 0
        path = _box(x0, top, width, height)
        if first:
            borders.append(_box(x0, top, width, frame.row))
        title = f"<title>{clean(_tooltip(picture, at))}</title>" if detail.tooltips else ""
        body = f'<path d="{path}">{title}</path>' if title else f'<path d="{path}"/>'
        key = (kinds[at], chunks[at], width >= _SMALLEST_OUTLINED)
        groups.setdefault(key, []).append(body)
    parts = []
    for (kind, chunk, outlined), cells in sorted(groups.items()):
        line = ' stroke="#FFFFFF" stroke-width="0.8"' if outlined else ""
        fill = fill_of(kind, chunk, picture.num_chunks)
        parts += [f'<g fill="{fill}"{line}>', *cells, "</g>"]
    if borders:
        parts.append(
            f'<path d="{"".join(borders)}" fill="none" stroke="{INK}" stroke-width="1.1"/>'
        )
    return parts


def _tooltip(picture: TimelinePicture, at: int) -> str:
    timeline, order = picture.timeline, picture.timeline.order
    stage, microbatch = int(order.stage[at]), int(order.microbatch[at])
    unit, ms = time_scale(picture.total_ms)
    begin, end = (
        f"{int(quanta) * picture.quantum_ms / ms:.6g}"
        for quanta in (timeline.start[at], timeline.end[at])
    )
    words = KIND_WORDS[int(order.kind[at])]
    return (
        f"{order.name(at)} on rank {order.rank[at]}: {words}, stage {stage}, micro-batch "
        f"{microbatch}; {begin} to {end} {unit}; held {format_held(float(picture.held[at]))}"
    )


def _strokes(picture: TimelinePicture, frame: Frame, left: F64, right: F64) -> list[str]:
    """All cells of one colour and rank as one dashed line as thick as the row."""
    order = picture.timeline.order
    half = np.zeros(order.num_operations, np.int64)  # 0 all of the row, 1 upper half, 2 lower
    if order.joined is not None:
        first = np.flatnonzero(order.joined)
        half[first], half[first + 1] = 1, 2
    key = (((half * 4 + order.kind) * picture.num_chunks) + picture.chunk) * order.num_ranks
    key += order.rank
    # Hundredths of a pixel in whole numbers: relative moves then add up exactly.
    begin, end = np.rint(100 * left).astype(np.int64), np.rint(100 * right).astype(np.int64)
    parts = []
    by_key = np.argsort(key, kind="stable")
    for rows in np.split(by_key, np.flatnonzero(np.diff(key[by_key])) + 1):
        at = int(rows[0])
        part = int(half[at])
        height = frame.row / 2 if part else frame.row
        middle = frame.y(int(order.rank[at])) + height * (1.5 if part == 2 else 0.5)
        moves = np.diff(begin[rows], prepend=0) - np.concatenate(([0], (end - begin)[rows][:-1]))
        steps = [
            f"m{move / 100:.6g} 0h{width / 100:.6g}"
            for move, width in zip(moves.tolist(), (end - begin)[rows].tolist(), strict=True)
        ]
        fill = fill_of(int(order.kind[at]), int(picture.chunk[at]), picture.num_chunks)
        parts.append(
            f'<path d="M0 {num(middle)}{"".join(steps)}" fill="none" stroke="{fill}" '
            f'stroke-width="{num(height)}"/>'
        )
    return parts


def _labels(picture: TimelinePicture, frame: Frame, left: F64, right: F64) -> tuple[list[str], int]:
    """Micro-batch numbers, as large as their cell allows; hidden where it is too narrow.

    All count as long as the longest: 9 would stand in a cell where 10 does not fit.
    """
    order = picture.timeline.order
    digits = len(str(order.num_microbatches - 1))
    groups: dict[tuple[float, str], list[str]] = {}
    hidden = 0
    first, second = slots_of(picture.timeline)
    for one, two in zip(first.tolist(), second.tolist(), strict=True):
        pair = one != two
        # The outline of the critical path takes 3 pixels at each edge of the row.
        room = frame.row / 2 - 5 if pair else frame.row - 6
        for place, at in enumerate((one, two) if pair else (one,)):
            width = float(right[at] - left[at])
            size = _label_size(digits, width, room)
            if size is None:
                hidden += int(width > 0)
                continue
            x = float(left[at]) + width / 2
            middle = frame.row / 2 + ((place - 0.5) * (frame.row / 2 - 3) if pair else 0)
            y = frame.y(int(order.rank[at])) + middle + 0.36 * size
            ink = ink_on(fill_of(int(order.kind[at]), int(picture.chunk[at]), picture.num_chunks))
            groups.setdefault((size, ink), []).append(
                f'<text x="{num(x)}" y="{num(y)}">{order.microbatch[at]}</text>'
            )
    parts = []
    for (size, ink), texts in sorted(groups.items()):
        head = f'<g font-size="{num(size)}" fill="{ink}" text-anchor="middle">'
        parts += [head, *texts, "</g>"]
    return parts, hidden


def _label_size(digits: int, width: float, room: float) -> float | None:
    """Largest size that fits: a digit is at most 0.64 em wide and 0.72 em high."""
    for size in _LABEL_SIZES:
        if digits * 0.64 * size + 1.2 <= width and 0.72 * size <= room:
            return size
    return None


def _sends(picture: TimelinePicture, frame: Frame, right: F64, scale: float) -> list[str]:
    """Blocking sends: the rank is busy after the operation."""
    timeline = picture.timeline
    first, _ = slots_of(timeline)
    hold = sends_of(timeline)
    busy = np.flatnonzero(hold > 0)
    if not len(busy):
        return []
    boxes = [
        _box(float(right[first[i]]), frame.y(int(timeline.order.rank[first[i]])),
             float(hold[i]) * scale, frame.row)
        for i in busy.tolist()
    ]  # fmt: skip
    return [f'<path d="{"".join(boxes)}" fill="{SEND}"/>']


def _tail(picture: TimelinePicture, frame: Frame, scale: float) -> list[str]:
    """Gradient reduction and optimizer after each rank's end."""
    parts: list[str] = []
    for span in tail_of(picture.timeline):
        x, width = frame.left + span.start * scale, (span.end - span.start) * scale
        y = frame.y(span.rank)
        fill = _TAIL_FILLS[span.name]
        words = f"{span.name} of rank {span.rank}: {_ms(span.end - span.start, picture)}"
        parts.append(
            f'<path d="{_box(x, y, width, frame.row)}" fill="{fill}" stroke="#FFFFFF" '
            f'stroke-width="0.8"><title>{clean(words)}</title></path>'
        )
        size = min(10.0, frame.row - 2)
        label = next((w for w in _TAIL_LABELS[span.name] if len(w) * 0.6 * size < width - 2), None)
        if label is not None and size >= _SMALL_CAPTION:
            parts.append(
                f'<text x="{num(x + width / 2)}" y="{num(y + frame.row / 2 + 0.36 * size)}" '
                f'font-size="{num(size)}" fill="{ink_on(fill)}" text-anchor="middle">{label}</text>'
            )
    return parts


def _edge_points(
    picture: TimelinePicture, frame: Frame, source: int, target: int
) -> tuple[float, float]:
    """Heights at which a line from one operation's row to another's leaves and arrives."""
    ranks = picture.timeline.order.rank
    y0, y1 = frame.y(int(ranks[source])), frame.y(int(ranks[target]))
    return (y0 + frame.row, y1) if y1 > y0 else (y0, y1 + frame.row)


def _transfers(
    picture: TimelinePicture, frame: Frame, detail: Detail, right: F64, scale: float
) -> list[str]:
    """An arrow a transfer, from the end of an operation to its arrival on the other rank.

    Dark where the receiver starts at that very moment, pale where it came earlier than needed.
    """
    timeline = picture.timeline
    waited: list[str] = []
    early: list[str] = []
    for at in np.flatnonzero((timeline.need >= 0) & (timeline.lag > 0)).tolist():
        source = int(timeline.need[at])
        x0 = float(right[source])
        x1 = x0 + float(timeline.lag[at]) * scale
        y0, y1 = _edge_points(picture, frame, source, at)
        arrival = int(timeline.end[source] + timeline.lag[at])
        title = ""
        if detail.tooltips:
            words = (
                f"{timeline.order.name(source)} to {timeline.order.name(at)}: "
                f"{_ms(int(timeline.lag[at]), picture)}"
            )
            spare = int(timeline.start[at]) - arrival
            words += f", {_ms(spare, picture)} before it is needed" if spare else ""
            title = f"<title>{clean(words)}</title>"
        path = f"M{num(x0)} {num(y0)}L{num(x1)} {num(y1)}{_arrow_head(x0, y0, x1, y1)}"
        body = f'<path d="{path}">{title}</path>'
        (waited if arrival == timeline.start[at] else early).append(body)
    parts: list[str] = []
    for paths, colour, width in ((early, TRANSFER_EARLY, "0.8"), (waited, TRANSFER, "1.1")):
        if paths:
            parts += [f'<g fill="none" stroke="{colour}" stroke-width="{width}">', *paths, "</g>"]
    return parts


def _arrow_head(x0: float, y0: float, x1: float, y1: float) -> str:
    """Two short strokes that end at the tip."""
    length = float(np.hypot(x1 - x0, y1 - y0)) or 1.0
    along, across = (x1 - x0) / length, (y1 - y0) / length
    size = min(4.5, length / 2)
    points = []
    for side in (-0.5, 0.5):
        points.append(
            (
                x1 - size * (along - side * across),
                y1 - size * (across + side * along),
            )
        )
    (ax, ay), (bx, by) = points
    return f"M{num(ax)} {num(ay)}L{num(x1)} {num(y1)}L{num(bx)} {num(by)}"


def _critical_path(
    picture: TimelinePicture, frame: Frame, left: F64, right: F64, scale: float
) -> list[str]:
    """One outline a run of the path, and a line to the run that waits for its end."""
    timeline = picture.timeline
    boxes: list[str] = []
    near: list[str] = []
    far: list[str] = []
    before: int | None = None
    runs = critical_runs(timeline)
    for number, (first, last) in enumerate(runs):
        y = frame.y(int(timeline.order.rank[first]))
        end = float(right[last])
        if number == len(runs) - 1:
            end = frame.left + timeline.makespan * scale
        boxes.append(_box(float(left[first]), y + 1, end - float(left[first]), frame.row - 2))
        if before is not None:
            y0, y1 = _edge_points(picture, frame, before, first)
            # A line that crosses other ranks is dashed, or it would look like their outline.
            passes = abs(int(timeline.order.rank[first] - timeline.order.rank[before])) > 1
            (far if passes else near).append(
                f"M{num(float(right[before]))} {num(y0)}L{num(float(left[first]))} {num(y1)}"
            )
        before = last
    outline = "".join(boxes)
    width = 2.0 if frame.row >= 14 else 1.2
    return [
        f'<g fill="none" stroke-linejoin="round"><title>critical path, {len(runs)} runs</title>',
        f'<path d="{outline}" stroke="#FFFFFF" stroke-width="{num(width + 1.8)}"/>',
        f'<path d="{outline}" stroke="{CRITICAL}" stroke-width="{num(width)}"/>',
        f'<path d="{"".join(near)}" stroke="{CRITICAL}" stroke-width="{num(width * 0.8)}"/>',
        f'<path d="{"".join(far)}" stroke="{CRITICAL}" stroke-width="{num(width * 0.6)}" '
        'stroke-dasharray="4 3"/>',
        "</g>",
    ]
