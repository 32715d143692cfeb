"""SVG timelines: colours every sight tells apart, and text that XML can hold."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.report.timeline_svg_style import clean, fill_of, ink_on, text_width, wrap_words

# Machado, Oliveira, Fernandes 2009, table of severity 1.0, for linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                            [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                              [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                            [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB (D65) of linear RGB."""
    to_xyz = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
                       [0.0193339, 0.1191920, 0.9503041]])  # fmt: skip
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_are_told_apart_by_every_sight(sight: str) -> None:
    colours = {(kind, chunk): fill_of(kind, chunk, 2) for kind in range(4) for chunk in (0, 1)}
    colours[-1, -1] = "#FFFFFF"
    seen = {key: lab(SIGHT[sight] @ linear(colour)) for key, colour in colours.items()}
    keys = list(seen)
    worst = min(
        float(np.linalg.norm(seen[one] - seen[two]))
        for i, one in enumerate(keys)
        for two in keys[i + 1 :]
    )
    assert worst >= 21.0


@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 8])
def test_numbers_have_contrast_on_every_shade(chunks: int) -> None:
    weights = np.array([0.2126, 0.7152, 0.0722])
    for kind in range(4):
        for chunk in range(chunks):
            fill = fill_of(kind, chunk, chunks)
            one, two = (float(weights @ linear(c)) + 0.05 for c in (fill, ink_on(fill)))
            # 4.5 is WCAG's for text; shades between the first and last chunk come close to it.
            assert max(one, two) / min(one, two) >= (4.5 if chunk in (0, chunks - 1) else 4.1)


@given(st.text())
def test_any_text_is_written_as_xml(given_text: str) -> None:
    parsed = ET.fromstring(f"<a>{clean(given_text)}</a>").text or ""
    assert len(parsed) == len(given_text)
    for shown, meant in zip(parsed, given_text, strict=True):
        # Parsers read a carriage return as a line feed.
        assert shown in (meant, "\ufffd") or (shown, meant) == ("\n", "\r")
        assert shown == meant or not meant.isprintable()


@given(
    st.lists(
        st.text(st.characters(codec="ascii", exclude_characters="\n\r"), min_size=1),
        min_size=1,
        max_size=6,
    )
)
def test_lines_of_phrases_keep_to_the_width(phrases: list[str]) -> None:
    for line in wrap_words(phrases, 12, 200, " · "):
        assert text_width(line, 12) <= 200 or len(line) <= 8
