"""SVG timelines: memory lanes, and drawings of many operations."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from svg_reading import NS, cells, curves, filled, root_of, scale_and_left, words
from timeline_examples import gpipe, looped, make_picture, one_f_one_b, split

from planner.report.timeline_picture import TimelinePicture
from planner.report.timeline_svg import timeline_svg
from planner.report.timeline_svg_style import LIMIT
from planner.schedules.memory_curve import held_by_operation, peak_by_rank


def test_memory_lines_are_what_the_ranks_hold() -> None:
    weights = [3.0, 1.0, 2.0, 0.5]
    picture = make_picture("1f1b", uneven=9, weights=weights, limits=(20.0,) * 4, unit="GiB")
    root = root_of(picture)
    scale, left = scale_and_left(root, picture)
    order, timeline = picture.timeline.order, picture.timeline
    peaks = peak_by_rank(order, weights)
    held = held_by_operation(order, weights)
    top = 1.12 * 20.0
    for rank, points in enumerate(curves(root, picture)):
        floor = points[-1][1]
        heights = [(floor - y) / 24.0 * top for _, y in points]
        assert max(heights) == pytest.approx(peaks[rank], abs=0.01)
        assert heights[-1] == 0.0
        for at in range(int(order.rank_start[rank]), int(order.rank_start[rank + 1])):
            middle = left + (timeline.start[at] + timeline.end[at]) / 2 * scale
            now = max(i for i, (x, _) in enumerate(points) if x <= middle)
            assert heights[now] == pytest.approx(held[at], abs=0.01)
        assert len({x for x, _ in points}) == len(points), "no dip without a length"


def test_what_lies_above_the_limit_is_filled() -> None:
    below = root_of(make_picture("gpipe", limits=(4.0,) * 3))
    above = root_of(make_picture("gpipe", limits=(3.0,) * 3))
    assert not filled(below, LIMIT)
    assert len(filled(above, LIMIT)) == 1
    dashed = [p for p in above.iter(f"{NS}path") if p.get("stroke") == LIMIT]
    assert any(p.attrib["d"].count("M") == 3 for p in dashed), "a line a rank"
    assert "over the limit on ranks 0, 1, 2" in (above.find(f"{NS}desc").text or "")  # type: ignore[union-attr]


def test_limits_far_above_or_without_end_are_said_not_drawn() -> None:
    far = root_of(make_picture("gpipe", limits=(80.0, 90.0, float("inf"))))
    assert "The limit of 80 to 90 activations lies far above the memory lanes." in words(far)
    lines = [p.attrib["d"] for p in far.iter(f"{NS}path") if p.get("stroke") == LIMIT]
    assert not lines, "nor is it in the legend"
    assert "peak 4" in words(far)
    assert "peak 4 of 90" in words(far)


@pytest.mark.parametrize(
    ("lists", "tooltips"),
    [(one_f_one_b(16, 64), True), (split(one_f_one_b(16, 64)), True), (looped(16, 4, 64), False)],
    ids=["1f1b", "zb", "looped"],
)
def test_sixteen_ranks_and_64_micro_batches_stay_small(
    lists: list[list[str]], tooltips: bool
) -> None:
    picture = make_picture(lists)
    text = timeline_svg([picture])
    assert len(text) < 1_500_000
    root = ET.fromstring(text)
    assert bool(cells(root)) == tooltips
    assert any("no tooltips" in word for word in words(root)) != tooltips
    if picture.num_chunks == 1:
        assert not any("too narrow" in word for word in words(root)), "every number is there"


def test_very_large_timelines_are_thin_and_say_so() -> None:
    picture = make_picture(gpipe(64, 1024), limits=(2000.0,) * 64)
    text = timeline_svg([picture])
    assert len(text) < 15_000_000
    root = ET.fromstring(text)
    assert any(
        word.startswith("131,072 operations: cells are bare strokes") for word in words(root)
    )
    assert not cells(root)
    strokes = [p for p in root.iter(f"{NS}path") if "0h" in p.attrib["d"] and "m" in p.attrib["d"]]
    assert sum(p.attrib["d"].count("m") for p in strokes) == 131_072
    # Relative moves add up: the strokes of a rank end where its operations end.
    scale, left = scale_and_left(root, picture)
    ends = left + picture.timeline.end[1023::1024] * scale
    drawn = [
        sum(map(float, re.findall(r"(?:m|0h)(-?[\d.]+)", path.attrib["d"]))) for path in strokes
    ]
    np.testing.assert_allclose(sorted(drawn), sorted(ends), atol=0.02)
    assert {len(points) > 1 for points in curves(root, picture)} == {True}


def test_thin_memory_lanes_keep_their_peaks() -> None:
    # One micro-batch of a second stage that lasts a moment and weighs ten times the others.
    cells_of = [[f"{s}{kind}{m}" for m in range(11_000) for s, kind in steps]
                for steps in (((0, "F"), (0, "B")), ((1, "F"), (1, "B")))]  # fmt: skip
    picture = make_picture(cells_of, weights=[1.0, 3.0])
    held = picture.held.copy()
    held[20_000] = 30.0
    picture = TimelinePicture("t", picture.timeline, 1.0, held, "activations")
    root = root_of(picture)
    assert any("44,000 operations" in word for word in words(root))
    points = curves(root, picture)[0]
    heights = [y for _, y in points]
    # The largest of every half pixel: 1 everywhere else, as forwards and backwards take turns.
    assert (max(heights) - min(heights)) / 24.0 * 1.12 * 30.0 == pytest.approx(29.0, abs=0.02)


def test_thin_pairs_are_halves() -> None:
    cells_of = [[f"(0F{m};0B{m - 1})OVERLAP_F_B" for m in range(1, 12_000)]]
    lists = [["0F0", *cells_of[0], "0B11999"]]
    root = root_of(make_picture(lists))
    heights = {
        p.attrib["stroke-width"]: p.attrib["d"].count("m")
        for p in root.iter(f"{NS}path") if " 0h" in p.attrib["d"]
    }  # fmt: skip
    assert heights == {"30": 1, "15": 11_999}
