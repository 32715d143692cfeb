"""The memory lane under each rank's row: a step curve of what is held, with its limit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.report.timeline_picture import TimelinePicture, exceeds, format_held, slots_of
from planner.report.timeline_svg_cells import Frame
from planner.report.timeline_svg_style import LIMIT, MEMORY_FILL, MEMORY_LINE, clean, num

__all__ = ["draw_memory", "memory_tops"]

F64 = NDArray[np.float64]

_LARGEST_RATIO = 4.0
_BINS_PER_PIXEL = 2


def memory_tops(pictures: Sequence[TimelinePicture]) -> dict[str, float]:
    """Amount at the top of the lanes by unit, the same for all ranks and pictures.

    A limit of more than four times the largest peak would press every curve flat: it stays
    outside.
    """
    tops: dict[str, float] = {}
    for unit in dict.fromkeys(picture.held_unit for picture in pictures):
        same = [picture for picture in pictures if picture.held_unit == unit]
        peak = max(float(picture.peak.max()) for picture in same) or 1.0
        limits = [most for picture in same for most in picture.limits or ()]
        inside = [most for most in limits if most <= _LARGEST_RATIO * peak]
        tops[unit] = max([peak, *inside]) * 1.12
    return tops


def draw_memory(picture: TimelinePicture, frame: Frame, top: float) -> list[str]:
    """The lanes of a picture.

    Parameters
    ----------
    top
        Amount that fills a lane, from :func:`memory_tops`.
    """
    order = picture.timeline.order
    width = picture.total_ms * frame.pixels_per_ms
    areas: list[str] = []
    lines: list[str] = []
    over: list[str] = []
    dashes: list[str] = []
    grounds: list[str] = []
    for rank in range(order.num_ranks):
        floor = frame.y(rank) + frame.row + frame.memory
        x, amount = _curve(picture, rank, frame, width)
        heights = floor - amount / top * frame.memory
        steps = "".join(
            f"H{num(at)}V{num(y)}"
            for at, y in zip(x[1:].tolist(), heights[1:].tolist(), strict=True)
        )
        end = num(frame.left + width)
        begin = f"M{num(float(x[0]))} {num(float(heights[0]))}{steps}H{end}"
        limit = math.inf if picture.limits is None else picture.limits[rank]
        words = f"rank {rank}: at most {format_held(float(picture.peak[rank]))} {picture.held_unit}"
        words += f" of {format_held(limit)}" if math.isfinite(limit) else ""
        areas.append(
            f'<path d="{begin}V{num(floor)}H{num(frame.left)}z">'
            f"<title>{clean(words)}</title></path>"
        )
        lines.append(begin)
        grounds.append(f"M{num(frame.left)} {num(floor)}h{num(width)}")
        if limit <= top:
            y = floor - limit / top * frame.memory
            dashes.append(f"M{num(frame.left)} {num(y)}h{num(width)}")
            over += _over(x, amount, limit, frame.left + width, y, floor, top, frame)
    parts = [
        f'<g fill="{MEMORY_FILL}">',
        *areas,
        "</g>",
        f'<path d="{"".join(grounds)}" stroke="#B5BAC6" stroke-width="0.6"/>',
        f'<path d="{"".join(lines)}" fill="none" stroke="{MEMORY_LINE}" stroke-width="1"/>',
    ]
    if over:
        parts.append(f'<path d="{"".join(over)}" fill="{LIMIT}"/>')
    if dashes:
        parts.append(
            f'<path d="{"".join(dashes)}" stroke="{LIMIT}" stroke-width="1.1" '
            'stroke-dasharray="5 3"/>'
        )
    return parts


def _curve(picture: TimelinePicture, rank: int, frame: Frame, width: float) -> tuple[F64, F64]:
    """Where the amount changes (pixels), and the amount from there on; first at time 0."""
    timeline = picture.timeline
    begin, end = timeline.order.rank_start[rank : rank + 2].tolist()
    first, _ = slots_of(timeline)
    mine = first[(first >= begin) & (first < end)]
    scale = picture.quantum_ms * frame.pixels_per_ms
    times = np.stack([timeline.start[mine], timeline.end[mine]], axis=1).ravel() * scale
    values = np.stack([picture.held[mine], picture.held_after[mine]], axis=1).ravel()
    fixed = 0.0 if picture.fixed is None else picture.fixed[rank]
    x = np.concatenate(([0.0], times))
    amount = np.concatenate(([fixed], values))
    bins = int(width * _BINS_PER_PIXEL)
    if len(x) > 2 * bins:
        x, amount = _envelope(x, amount, width, bins)
    # Where one operation ends as the next one starts, only what comes after has a length.
    lasting = np.append(np.diff(x) > 0, True)
    x, amount = x[lasting], amount[lasting]
    changes = np.concatenate(([True], np.diff(amount) != 0))
    return frame.left + x[changes], amount[changes]


def _envelope(x: F64, amount: F64, width: float, bins: int) -> tuple[F64, F64]:
    """Largest amount of each of ``bins`` equal slices, so that no peak is lost."""
    place = np.clip((x / width * bins).astype(np.int64), 0, bins - 1)
    most = np.full(bins, -1.0)
    np.maximum.at(most, place, amount)
    # What is held when a slice begins: the last change before it.
    before = np.searchsorted(x, np.arange(bins) * (width / bins), side="left") - 1
    carried = np.where(before >= 0, amount[np.maximum(before, 0)], amount[0])
    edges = np.arange(bins, dtype=np.float64) * np.float64(width / bins)
    largest: F64 = np.maximum(most, carried)
    return edges, largest


def _over(
    x: F64,
    amount: F64,
    limit: float,
    right: float,
    y: float,
    floor: float,
    top: float,
    frame: Frame,
) -> list[str]:
    """What lies above the limit, a box a step."""
    ends = np.append(x[1:], right)
    return [
        f"M{num(float(x[i]))} {num(y)}H{num(float(ends[i]))}"
        f"V{num(floor - float(amount[i]) / top * frame.memory)}H{num(float(x[i]))}z"
        for i, most in enumerate(amount.tolist())
        if exceeds(most, limit)
    ]
