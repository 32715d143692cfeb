"""The legend of SVG timelines: only what the pictures show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.report.timeline_picture import KIND_WORDS, TimelinePicture, chunk_words, tail_of
from planner.report.timeline_svg_memory import memory_tops
from planner.report.timeline_svg_style import (
    CRITICAL,
    INK,
    LIMIT,
    MEMORY_FILL,
    MEMORY_LINE,
    OPTIMIZER,
    REDUCTION,
    SEND,
    TRANSFER,
    TRANSFER_EARLY,
    fill_of,
    num,
    text,
    text_width,
)

__all__ = ["Entry", "draw_legend", "legend_entries"]

_SIZE = 11.0
_SWATCH, _HEIGHT = 22.0, 12.0
_LINE = 19.0
_SPACE = 13.0


@dataclass(frozen=True)
class Entry:
    """One sample with its words; the sample is drawn from its upper left corner."""

    words: str
    draw: Callable[[float, float], str]


def legend_entries(
    pictures: Sequence[TimelinePicture], *, pattern: str, transfers: bool
) -> list[Entry]:
    """What the pictures show, in the order in which a reader meets it.

    Parameters
    ----------
    pattern
        Id of the hatch of idle time.
    transfers
        Whether arrows are drawn.
    """
    chunks = max(picture.num_chunks for picture in pictures)
    orders = [picture.timeline.order for picture in pictures]
    kinds = sorted({int(kind) for order in orders for kind in np.unique(order.kind)})
    entries = [Entry(f"{'FBIW'[kind]} {KIND_WORDS[kind]}", _shades(kind, chunks)) for kind in kinds]
    if chunks > 1:
        entries += _chunk_entries(pictures)
    if any(order.has_pairs for order in orders):
        entries.append(Entry("overlapped pair", _pair(chunks)))
    tails = {span.name for picture in pictures for span in tail_of(picture.timeline)}
    if any(bool((picture.timeline.hold > 0).any()) for picture in pictures):
        entries.append(Entry("blocking send", _box(SEND)))
    if "gradient reduction" in tails:
        entries.append(Entry("gradient reduction", _box(REDUCTION)))
    if "optimizer" in tails:
        entries.append(Entry("optimizer", _box(OPTIMIZER)))
    entries.append(Entry("idle (share of the makespan)", _box(f"url(#{pattern})", "#B5B5B5")))
    if transfers:
        entries.append(Entry("transfer a rank waits for", _arrow(TRANSFER, 1.1)))
        entries.append(Entry("transfer that comes early", _arrow(TRANSFER_EARLY, 0.8)))
    entries.append(Entry("critical path", _outline))
    units = list(dict.fromkeys(picture.held_unit for picture in pictures))
    entries.append(Entry(f"held on the rank ({', '.join(units)})", _lane))
    tops = memory_tops(pictures)
    if any(min(p.limits) <= tops[p.held_unit] for p in pictures if p.limits is not None):
        entries.append(Entry("limit", _dashes))
    return entries


def draw_legend(entries: Sequence[Entry], x: float, y: float, width: float) -> tuple[str, float]:
    """The legend in lines of at most ``width`` pixels from (x, y), and its height."""
    parts: list[str] = []
    at, line = x, 0
    for entry in entries:
        needed = _SWATCH + 6 + text_width(entry.words, _SIZE)
        if at > x and at + needed > x + width:
            at, line = x, line + 1
        top = y + line * _LINE
        parts.append(entry.draw(at, top))
        parts.append(text(at + _SWATCH + 6, top + _HEIGHT - 2, entry.words, _SIZE, fill=INK))
        at += needed + _SPACE
    return "\n".join(parts), (line + 1) * _LINE


def _rect(x: float, y: float, width: float, height: float, fill: str, stroke: str = "") -> str:
    line = f' stroke="{stroke}" stroke-width="1"' if stroke else ""
    return (
        f'<rect x="{num(x)}" y="{num(y)}" width="{num(width)}" height="{num(height)}" '
        f'fill="{fill}"{line}/>'
    )


def _box(fill: str, stroke: str = "") -> Callable[[float, float], str]:
    return lambda x, y: _rect(x, y, _SWATCH, _HEIGHT, fill, stroke)


def _shades(kind: int, chunks: int) -> Callable[[float, float], str]:
    """The shades of all chunks beside each other."""

    def draw(x: float, y: float) -> str:
        width = _SWATCH / chunks
        return "".join(
            _rect(x + chunk * width, y, width, _HEIGHT, fill_of(kind, chunk, chunks))
            for chunk in range(chunks)
        )

    return draw


def _chunk_entries(pictures: Sequence[TimelinePicture]) -> list[Entry]:
    """What the shades mean; two-way and chunked pictures may stand together."""
    greys = ("#D9D9D9", "#4A4A4A")
    entries = []
    for two_way in (False, True):
        shown = [p for p in pictures if p.two_way is two_way and p.num_chunks > 1]
        if not shown:
            continue
        words = max((chunk_words(picture) for picture in shown), key=len)
        if len(words) == 2:
            entries += [Entry(word, _box(grey)) for word, grey in zip(words, greys, strict=True)]
        else:
            entries.append(Entry(f"light to dark: {words[0]} to {len(words) - 1}", _ramp))
    return entries


def _ramp(x: float, y: float) -> str:
    greys = ("#D9D9D9", "#A9A9A9", "#7A7A7A", "#4A4A4A")
    width = _SWATCH / len(greys)
    return "".join(_rect(x + i * width, y, width, _HEIGHT, grey) for i, grey in enumerate(greys))


def _pair(chunks: int) -> Callable[[float, float], str]:
    def draw(x: float, y: float) -> str:
        half = _HEIGHT / 2
        return (
            _rect(x, y, _SWATCH, half, fill_of(0, 0, chunks))
            + _rect(x, y + half, _SWATCH, half, fill_of(1, 0, chunks))
            + _rect(x, y, _SWATCH, _HEIGHT, "none", INK)
        )

    return draw


def _outline(x: float, y: float) -> str:
    return (
        f'<rect x="{num(x + 1)}" y="{num(y + 1)}" width="{num(_SWATCH - 2)}" '
        f'height="{num(_HEIGHT - 2)}" fill="none" stroke="{CRITICAL}" stroke-width="2"/>'
    )


def _arrow(colour: str, width: float) -> Callable[[float, float], str]:
    def draw(x: float, y: float) -> str:
        tip = f"{num(x + _SWATCH - 2)} {num(y + _HEIGHT - 1)}"
        return (
            f'<path d="M{num(x + 2)} {num(y + 1)}L{tip}m-4.6 0L{tip}l-2.4 -3.6" fill="none" '
            f'stroke="{colour}" stroke-width="{num(width)}"/>'
        )

    return draw


def _lane(x: float, y: float) -> str:
    steps = f"M{num(x)} {num(y + 8)}h6v-3h5v-4h5v5h6"
    return (
        f'<path d="{steps}V{num(y + _HEIGHT)}H{num(x)}z" fill="{MEMORY_FILL}"/>'
        f'<path d="{steps}" fill="none" stroke="{MEMORY_LINE}" stroke-width="1"/>'
    )


def _dashes(x: float, y: float) -> str:
    return (
        f'<path d="M{num(x)} {num(y + _HEIGHT / 2)}h{num(_SWATCH)}" stroke="{LIMIT}" '
        'stroke-width="1.3" stroke-dasharray="5 3"/>'
    )
