"""SVG timelines: valid, self-contained, true to scale, readable, honest about what is left."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from svg_reading import BOX, NS, boxes, cells, filled, root_of, scale_and_left, words
from timeline_examples import ORDERS, make_picture, one_f_one_b

from planner.errors import InputError
from planner.operations import Kind
from planner.report.timeline_picture import critical_runs, nice_ticks, tail_of
from planner.report.timeline_svg import timeline_svg
from planner.report.timeline_svg_style import (
    CRITICAL,
    LIMIT,
    OPTIMIZER,
    REDUCTION,
    SEND,
    TRANSFER,
    TRANSFER_EARLY,
    fill_of,
    ink_on,
    text_width,
)
from planner.schedules.timeline import StageTimes, unit_times
from planner.specs import Sends

# --- the document --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("sends", Sends)
def test_every_order_gives_a_self_contained_document(name: str, sends: Sends) -> None:
    picture = make_picture(name, uneven=3, sends=sends, limits=(2.0,) * len(ORDERS[name]))
    text = timeline_svg([picture])
    root = ET.fromstring(text)
    assert root.tag == f"{NS}svg"
    tags = {element.tag.removeprefix(NS) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "defs", "pattern", "rect", "path", "g", "text"}
    for element in root.iter():
        for key, value in element.attrib.items():
            assert "href" not in key
            assert not key.startswith("on")
            assert re.fullmatch(r"(?!.*url\((?!#)).*", value), "nothing is loaded from elsewhere"
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    assert all(one in ids for one in root.attrib["aria-labelledby"].split())
    assert "nan" not in text
    assert "inf" not in text


def test_the_same_timelines_give_the_same_bytes() -> None:
    first = timeline_svg([make_picture("1f1b", uneven=1), make_picture("two-way")])
    assert first == timeline_svg([make_picture("1f1b", uneven=1), make_picture("two-way")])


def test_two_drawings_can_stand_in_one_page() -> None:
    first, second = (
        {e.attrib["id"] for e in root_of(make_picture(name)).iter() if "id" in e.attrib}
        for name in ("1f1b", "gpipe")
    )
    assert first
    assert first.isdisjoint(second)


def test_titles_are_escaped_and_characters_xml_cannot_hold_replaced() -> None:
    title = "<script>&\"quoted' \x00\x1b\ud800 \N{GREEK SMALL LETTER ALPHA}"
    root = root_of(make_picture("1f1b", title=title))
    shown = "<script>&\"quoted' \ufffd\ufffd\ufffd \N{GREEK SMALL LETTER ALPHA}"
    title_element = root.find(f"{NS}title")
    assert title_element is not None
    assert title_element.text == shown
    assert shown in words(root)


def test_long_titles_are_cut_to_the_width() -> None:
    root = root_of(make_picture("1f1b", title="word " * 200))
    heading = words(root)[0]
    assert heading.endswith("…")
    assert text_width(heading, 16) <= float(root.attrib["width"])


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(InputError, match="no timeline to draw; expected at least one"):
        timeline_svg([])


@pytest.mark.parametrize("name", ORDERS)
def test_words_stay_inside_the_picture_and_off_each_other(name: str) -> None:
    picture = make_picture(
        name, uneven=2, sends=Sends.BLOCKING, unit="GiB", weights=None,
        limits=(123.25,) * len(ORDERS[name]), fixed=(100.5,) * len(ORDERS[name]),
    )  # fmt: skip
    root = root_of(picture)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    rows: dict[float, list[tuple[float, float, str]]] = {}
    moved = float((root.find(f"{NS}g[@transform]").attrib["transform"])[12:-1])  # type: ignore[union-attr]
    inside = set(root.find(f"{NS}g[@transform]").iter(f"{NS}text"))  # type: ignore[union-attr,arg-type]
    for element in root.iter(f"{NS}text"):
        if "font-size" not in element.attrib:
            continue  # numbers in cells, and ticks
        size, x = float(element.attrib["font-size"]), float(element.attrib["x"])
        y = float(element.attrib["y"]) + (moved if element in inside else 0)
        long = text_width(element.text or "", size)
        begin = {"end": x - long, "middle": x - long / 2}.get(element.get("text-anchor", ""), x)
        assert begin >= 0
        assert begin + long <= width
        assert 0 < y < height
        rows.setdefault(y, []).append((begin, begin + long, element.text or ""))
    for same_line in rows.values():
        same_line.sort()
        for (_, end, one), (begin, _, two) in pairwise(same_line):
            assert end <= begin, f"{one!r} runs into {two!r}"


# --- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ORDERS)
def test_cells_are_true_to_scale(name: str) -> None:
    picture = make_picture(name, uneven=5, quantum_ms=0.37)
    timeline, order = picture.timeline, picture.timeline.order
    found = cells(root_of(picture))
    assert len(found) == order.num_operations
    left = min(x for x, _, _, _ in found.values())
    scale = max(x + w for x, _, w, _ in found.values()) - left
    scale /= float(timeline.end.max() - timeline.start.min())
    paired = np.zeros(order.num_operations, bool)
    if order.joined is not None:
        paired[order.joined] = True
        paired[1:] |= order.joined[:-1]
    bands: dict[int, list[tuple[float, float]]] = {}
    for at in range(order.num_operations):
        rank = int(order.rank[at])
        x, y, width, height = found[order.name(at), rank]
        start, end = int(timeline.start[at]), int(timeline.end[at])
        assert x == pytest.approx(left + start * scale, abs=0.02)
        assert width == pytest.approx((end - start) * scale, abs=0.02)
        assert height == (15.0 if paired[at] else 30.0)
        bands.setdefault(rank, []).append((y, y + height))
    tops = [min(y for y, _ in bands[rank]) for rank in range(order.num_ranks)]
    floors = [max(y for _, y in bands[rank]) for rank in range(order.num_ranks)]
    assert [low - high for high, low in zip(tops, floors, strict=True)] == [30.0] * len(tops)
    assert all(low < high for low, high in zip(floors, tops[1:], strict=False))


def test_pairs_are_halves_with_one_border() -> None:
    picture = make_picture("two-way")
    found = cells(root_of(picture))
    x, y, width, height = found["0F1", 0]
    below = found["1B2", 0]
    assert below == (x, y + height, width, height)
    borders = [
        box
        for path in root_of(picture).iter(f"{NS}path")
        if path.get("stroke-width") == "1.1" and path.get("fill") == "none"
        for box in boxes(path.attrib["d"])
    ]
    assert len(borders) == 4
    assert (x, y, width, 2 * height) in borders


def test_operations_without_time_have_no_cell_and_the_picture_says_so() -> None:
    times = unit_times(4)
    times = StageTimes(
        forward=times.forward, input_gradient=np.array([0, 1, 1, 1]),
        weight_gradient=times.weight_gradient, edge_forward=times.edge_forward,
        edge_backward=times.edge_backward,
    )  # fmt: skip
    root = root_of(make_picture("zb", times=times))
    assert ("0I0", 0) not in cells(root)
    assert ("1I0", 1) in cells(root)
    assert "6 operations take no time and have no cell." in words(root)


def test_a_timeline_without_any_time_is_still_a_picture() -> None:
    zero = np.zeros(4, np.int64)
    times = StageTimes(zero, zero, zero, zero[:3], zero[:3])
    root = root_of(make_picture("1f1b", times=times))
    assert "64 operations take no time and have no cell." in words(root)


def test_numbers_are_those_of_the_micro_batches() -> None:
    root = root_of(make_picture("1f1b"))
    numbers = [word for word in words(root) if word.isdigit()]
    for m in range(8):
        # Once a forward and a backward of four stages; 0 and 5 are ticks of the axis too.
        assert numbers.count(str(m)) == 8 + (m in (0, 5))


@pytest.mark.parametrize("name", ORDERS)
def test_every_cell_has_its_number_in_an_ink_that_is_seen(name: str) -> None:
    picture = make_picture(name)
    root = root_of(picture)
    numbers = [
        (float(e.attrib["x"]), float(e.attrib["y"]), e.text, group.get("fill"))
        for group in root.iter(f"{NS}g")
        for e in group.findall(f"{NS}text")
        if group.get("text-anchor") == "middle"
    ]
    order = picture.timeline.order
    for at in range(order.num_operations):
        x, y, width, height = cells(root)[order.name(at), int(order.rank[at])]
        (found,) = (
            (word, ink)
            for text_x, base, word, ink in numbers
            if abs(text_x - x - width / 2) < 0.02 and y + 5 < base < y + height
        )
        fill = fill_of(int(order.kind[at]), int(picture.chunk[at]), picture.num_chunks)
        assert found == (str(order.microbatch[at]), ink_on(fill))


def test_numbers_hide_where_the_cell_is_narrow_and_the_picture_counts_them() -> None:
    times = unit_times(2)
    times = StageTimes(
        np.array([1, 1000]), np.array([1, 1000]), np.array([1, 0]),
        times.edge_forward, times.edge_backward,
    )  # fmt: skip
    root = root_of(make_picture(one_f_one_b(2, 12), times=times))
    assert "24 cells are too narrow for their number." in words(root)


def test_numbers_fit_their_cells() -> None:
    picture = make_picture(one_f_one_b(8, 60), uneven=4)
    root = root_of(picture)
    found = sorted(cells(root).values())
    checked = 0
    for group in root.iter(f"{NS}g"):
        if group.get("text-anchor") != "middle" or "font-size" not in group.attrib:
            continue
        size = float(group.attrib["font-size"])
        for number in group.iter(f"{NS}text"):
            x, y = float(number.attrib["x"]), float(number.attrib["y"])
            inside = [b for b in found if b[0] <= x <= b[0] + b[2] and b[1] < y <= b[1] + b[3]]
            if not inside:
                continue  # a tick of the axis
            long = 0.6 * size * len(number.text or "")
            assert any(long <= w and x - long / 2 >= bx - 0.01 for bx, _, w, _ in inside)
            checked += 1
    assert checked > 500


def test_chunks_have_shades_and_numbers_of_another_colour() -> None:
    root = root_of(make_picture("folded"))
    fills = {
        group.attrib["fill"] for group in root.iter(f"{NS}g")
        if group.find(f"{NS}path") is not None and "fill" in group.attrib
    }  # fmt: skip
    for kind in (Kind.F, Kind.I, Kind.W):
        first, second = fill_of(kind, 0, 2), fill_of(kind, 1, 2)
        assert {first, second} <= fills
        assert ink_on(first) != ink_on(second)
    assert "chunk 0" in words(root)
    assert "chunk 1" in words(root)


def test_the_shade_of_two_way_orders_is_the_end_where_a_micro_batch_enters() -> None:
    picture = make_picture("two-way")
    assert picture.two_way
    entered = [int(m >= 2) for m in picture.timeline.order.microbatch]
    assert picture.chunk.tolist() == entered
    assert "enters at the last rank" in words(root_of(picture))


# --- everything around the cells -----------------------------------------------------------------


def test_idle_shares_and_peaks_stand_at_the_end_of_each_rank() -> None:
    picture = make_picture("1f1b", uneven=7, limits=(4.0, 3.0, 2.0, 0.5))
    timeline = picture.timeline
    found = words(root_of(picture))
    for rank in range(4):
        share = 1 - int(timeline.busy[rank]) / timeline.makespan
        assert f"idle {100 * share:.1f} %" in found
    for peak, limit in ((4, 4), (3, 3), (2, 2), (1, 0.5)):
        assert f"peak {peak} of {limit}" in found
    loud = [e.text for e in root_of(picture).iter(f"{NS}text") if e.get("fill") == LIMIT]
    assert loud == ["peak 1 of 0.5"]


def test_the_caption_has_makespan_bubble_span_peak_and_tail() -> None:
    caption = "  ·  ".join(words(root_of(make_picture("1f1b", quantum_ms=2.0)))[1:2])
    assert "makespan 66.00 ms" in caption
    assert "bubble 27.3 % of it (37.5 % of ideal)" in caption
    assert "span 66.00 ms (bubble 27.3 %)" in caption
    assert "peak 4 activations on rank 0" in caption
    picture = make_picture("1f1b", uneven=1)
    step = f"step {picture.timeline.step:.1f} ms with gradient reduction and optimizer"
    description = root_of(picture).find(f"{NS}desc")
    assert description is not None
    assert step in (description.text or "")


@pytest.mark.parametrize("name", ["1f1b", "zb", "two-way"])
def test_blocking_sends_fill_the_time_the_rank_is_busy(name: str) -> None:
    picture = make_picture(name, uneven=2, sends=Sends.BLOCKING)
    timeline = picture.timeline
    root = root_of(picture)
    scale, left = scale_and_left(root, picture)
    (drawn,) = (b for path in filled(root, SEND) if (b := boxes(path.attrib["d"])))
    hold = timeline.hold.copy()
    if timeline.order.joined is not None:
        first = np.flatnonzero(timeline.order.joined)
        # The sends of a pair run side by side.
        hold[first] = np.maximum(hold[first], hold[first + 1])
        hold[first + 1] = 0
    assert sum(w for _, _, w, _ in drawn) == pytest.approx(hold.sum() * scale, abs=0.5)
    at = int(timeline.hold.argmax())
    assert any(
        x == pytest.approx(left + timeline.end[at] * scale, abs=0.02) for x, _, _, _ in drawn
    )
    assert "blocking send" in words(root)
    assert "blocking send" not in words(root_of(make_picture(name, uneven=2)))


def test_the_tail_follows_each_rank_and_the_optimizer_waits_for_all() -> None:
    picture = make_picture("1f1b", uneven=6)
    root = root_of(picture)
    scale, left = scale_and_left(root, picture)
    spans = tail_of(picture.timeline)
    assert max(span.end for span in spans) == picture.timeline.step
    for name, fill in (("gradient reduction", REDUCTION), ("optimizer", OPTIMIZER)):
        drawn = [box for path in filled(root, fill) for box in boxes(path.attrib["d"])]
        wanted = [span for span in spans if span.name == name]
        assert len(drawn) == len(wanted) == 4
        for (x, _, width, _), span in zip(drawn, wanted, strict=True):
            assert x == pytest.approx(left + span.start * scale, abs=0.02)
            assert width == pytest.approx((span.end - span.start) * scale, abs=0.02)
    assert len({span.start for span in spans if span.name == "optimizer"}) == 1


def test_transfers_go_from_the_end_of_one_to_their_arrival() -> None:
    picture = make_picture("1f1b", uneven=8)
    timeline = picture.timeline
    root = root_of(picture)
    scale, left = scale_and_left(root, picture)
    drawn = {}
    for group in root.iter(f"{NS}g"):
        if group.get("stroke") in (TRANSFER, TRANSFER_EARLY):
            for path in group.iter(f"{NS}path"):
                title = path.find(f"{NS}title")
                assert title is not None
                key = tuple(re.findall(r"\d+[FB]\d+", title.text or ""))
                drawn[key] = group.attrib["stroke"], path.attrib["d"], title.text or ""
    waiting = np.flatnonzero(timeline.need >= 0)
    assert len(drawn) == len(waiting) == 2 * 3 * 8
    colours = set()
    for at in waiting.tolist():
        source = int(timeline.need[at])
        names = timeline.order.name(source), timeline.order.name(at)
        colour, path, title = drawn[names]
        colours.add(colour)
        x0, y0, x1, y1 = map(float, re.findall(r"-?[\d.]+", path)[:4])
        arrival = int(timeline.end[source] + timeline.lag[at])
        assert x0 == pytest.approx(left + timeline.end[source] * scale, abs=0.02)
        assert x1 == pytest.approx(left + arrival * scale, abs=0.02)
        assert (y1 > y0) == (timeline.order.rank[at] > timeline.order.rank[source])
        # Dark where the receiver was kept waiting, pale where it came early.
        assert (colour == TRANSFER) == (arrival == timeline.start[at])
        assert ("before it is needed" in title) == (arrival != timeline.start[at])
    assert colours == {TRANSFER, TRANSFER_EARLY}


def test_free_edges_have_no_arrows_and_too_many_are_counted_instead() -> None:
    assert not [w for w in words(root_of(make_picture("1f1b"))) if "transfer" in w]
    many = make_picture(one_f_one_b(4, 120), uneven=1)
    found = words(root_of(many))
    assert "720 transfers between ranks are not drawn." in " ".join(found)
    assert "transfer a rank waits for" not in found


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("sends", Sends)
def test_the_critical_path_is_outlined_from_start_to_end(name: str, sends: Sends) -> None:
    picture = make_picture(name, uneven=11, sends=sends)
    timeline = picture.timeline
    root = root_of(picture)
    scale, left = scale_and_left(root, picture)
    (group,) = (
        g for g in root.iter(f"{NS}g")
        if (title := g.find(f"{NS}title")) is not None and "critical path" in (title.text or "")
    )  # fmt: skip
    outlines = next(
        boxes(path.attrib["d"])
        for path in group.iter(f"{NS}path")
        if path.get("stroke") == CRITICAL and BOX.search(path.attrib["d"])
    )
    runs = critical_runs(timeline)
    assert len(outlines) == len(runs)
    assert outlines[0][0] == pytest.approx(left, abs=0.02)
    x, _, width, _ = outlines[-1]
    assert x + width == pytest.approx(left + timeline.makespan * scale, abs=0.03)
    for (x, _, width, _), (first, last) in zip(outlines, runs, strict=True):
        assert x == pytest.approx(left + timeline.start[first] * scale, abs=0.02)
        assert x + width >= left + timeline.end[last] * scale - 0.03


def test_the_axis_has_round_ticks_in_the_unit_of_the_times() -> None:
    for quantum, unit, last in ((1.0, "ms", "30"), (0.001, "us", "30"), (1e3, "s", "30")):
        found = words(root_of(make_picture("1f1b", quantum_ms=quantum)))
        assert unit in found
        assert last in found
    assert [v for v, _ in nice_ticks(0.0, 5)] == [0.0]


# --- one scale -----------------------------------------------------------------------------------


def test_several_timelines_share_one_scale() -> None:
    coarse = make_picture("gpipe", title="coarse", quantum_ms=2.0)
    fine = make_picture("gpipe", title="fine", times=unit_times(3, 4, 8, 4), quantum_ms=0.5)
    longer = make_picture("1f1b", title="longer", quantum_ms=2.0)
    root = root_of(coarse, fine, longer)
    grounds = [
        (float(r.attrib["x"]), float(r.attrib["width"]))
        for r in root.iter(f"{NS}rect") if r.find(f"{NS}title") is not None
    ]  # fmt: skip
    assert grounds[0] == grounds[3]
    assert grounds[6][1] == pytest.approx(grounds[0][1] * 66 / 36, abs=0.02)
    found = words(root)
    assert "3 timelines on one time scale" in found
    assert [w for w in found if w in ("coarse", "fine", "longer")] == ["coarse", "fine", "longer"]
    assert found.count("F forward") == 1
    assert found.count("makespan 36.00 ms") == 2
    assert found.count("makespan 66.00 ms") == 1


def test_timelines_under_each_other_do_not_overlap() -> None:
    root = root_of(*(make_picture(name) for name in ("gpipe", "zb", "two-way")))
    tops = [
        float(g.attrib["transform"][12:-1]) for g in root.iter(f"{NS}g") if "transform" in g.attrib
    ]
    heights = []
    for group in (g for g in root.iter(f"{NS}g") if "transform" in g.attrib):
        heights.append(max(float(t.attrib["y"]) for t in group.iter(f"{NS}text")))
    for top, height, following in zip(tops, heights, tops[1:], strict=False):
        assert top + height + 30 < following
    assert tops[-1] + heights[-1] < float(root.attrib["height"])
