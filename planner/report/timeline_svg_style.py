"""Colours, numbers and text of SVG timelines: plain strings, no stylesheet, no script.

Everything is a presentation attribute, so that several pictures can stand in one page without
touching each other, and mail programs and printers show them too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

__all__ = [
    "CRITICAL",
    "FONT",
    "GREY",
    "HATCH",
    "INK",
    "LIMIT",
    "MEMORY_FILL",
    "MEMORY_LINE",
    "OPTIMIZER",
    "REDUCTION",
    "SEND",
    "TRANSFER",
    "TRANSFER_EARLY",
    "clean",
    "fill_of",
    "ink_on",
    "num",
    "text",
    "text_width",
    "wrap_words",
]

FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
INK = "#1A1A1A"
GREY = "#595959"
HATCH = "#C4C4C4"
CRITICAL = "#000000"
SEND = "#6E6E6E"
TRANSFER = "#333333"
TRANSFER_EARLY = "#8C8C8C"
REDUCTION = "#B9B9B9"
OPTIMIZER = "#4D4D4D"
MEMORY_FILL = "#DDE1EA"
MEMORY_LINE = "#4A5573"
LIMIT = "#B3124A"

# First chunk light with dark numbers, last chunk dark with white ones. Any two of the eight, and
# each against white, differ by 21 or more in CIELAB for normal sight and for the three kinds of
# colour blindness (Machado et al. 2009, severity 1); the tests measure it.
_ENDS = (
    ("#94A9EA", "#2A3A72"),  # F blue
    ("#EBA06A", "#AE5A0C"),  # B orange
    ("#F5DA66", "#4A3F16"),  # I yellow
    ("#66C4AF", "#1B7262"),  # W teal
)

# Characters XML 1.0 has no way to write.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# Widths of Helvetica in 1/1000 em where they are far from the usual; Liberation and Arial share
# them, other fonts are up to a seventh wider.
_NARROW = dict.fromkeys("iljtfI.,:;'|!()[] -", 320)
_WIDE = dict.fromkeys("mwMW@%", 880)


def fill_of(kind: int, chunk: int, num_chunks: int) -> str:
    """Colour of a kind of operation on one of a rank's chunks.

    Examples
    --------
    >>> fill_of(0, 0, 1), fill_of(0, 1, 2)
    ('#94A9EA', '#2A3A72')
    """
    light, dark = (_channels(colour) for colour in _ENDS[kind])
    share = chunk / (num_chunks - 1) if num_chunks > 1 else 0.0
    mixed = (round(a + share * (b - a)) for a, b in zip(light, dark, strict=True))
    return "#" + "".join(f"{value:02X}" for value in mixed)


def ink_on(fill: str) -> str:
    """Dark or white text, whichever is read better on a colour.

    Examples
    --------
    >>> ink_on("#94A9EA"), ink_on("#2A3A72")
    ('#1A1A1A', '#FFFFFF')
    """
    # Relative luminance and contrast ratio of WCAG 2.1.
    below = _luminance(fill) + 0.05
    return "#FFFFFF" if 1.05 / below > below / (_luminance(INK) + 0.05) else INK


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    linear = [
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
        for c in (value / 255 for value in _channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def num(value: float) -> str:
    """A coordinate with at most two decimals.

    Examples
    --------
    >>> num(3.0), num(2.506), num(-0.001)
    ('3', '2.51', '0')
    """
    written = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if written == "-0" else written


def clean(words: str) -> str:
    """Text that XML may hold, escaped.

    Examples
    --------
    >>> clean('a<b & "c"')
    'a&lt;b &amp; &quot;c&quot;'
    """
    return escape(_ILLEGAL.sub("\ufffd", words))


def text(x: float, y: float, words: str, size: float, **attributes: str) -> str:
    """A text element; underscores of attribute names become hyphens.

    Examples
    --------
    >>> text(1, 2, "a & b", 11, text_anchor="end")
    '<text x="1" y="2" font-size="11" text-anchor="end">a &amp; b</text>'
    """
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{num(x)}" y="{num(y)}" font-size="{num(size)}"{more}>{clean(words)}</text>'


def text_width(words: str, size: float) -> float:
    """Width of a text in the widest of the usual fonts; an estimate that is rather too large."""
    units = sum(_NARROW.get(c) or _WIDE.get(c) or (720 if c.isupper() else 590) for c in words)
    return units * size / 1000 * 1.06


def wrap_words(phrases: Sequence[str], size: float, width: float, joint: str) -> list[str]:
    """Lines of whole phrases joined by ``joint``; a phrase that is too long is cut short."""
    lines: list[str] = []
    for phrase in phrases:
        while text_width(phrase, size) > width and len(phrase) > 8:
            keep = max(int(len(phrase) * width / text_width(phrase, size)) - 2, 6)
            phrase = phrase[: min(keep, len(phrase) - 2)] + "…"
        longer = f"{lines[-1]}{joint}{phrase}" if lines else phrase
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(phrase)
    return lines
