"""Timelines in a terminal: as wide as asked, true to scale, and each operation where it runs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timeline_examples import ORDERS, make_picture, one_f_one_b

from planner.errors import InputError
from planner.report.timeline_picture import TimelinePicture, critical_runs, tail_of
from planner.report.timeline_text import timeline_text
from planner.schedules.timeline import StageTimes, unit_times
from planner.specs import Sends

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def rows(text: str) -> list[str]:
    """The lines of ranks."""
    return [line for line in text.split("\n") if re.match(r"r\d+ ", line)]


def test_1f1b_to_scale() -> None:
    text = timeline_text(make_picture("1f1b", title="1F1B, P=4, M=8"), width=80)
    assert text.split("\n") == [
        "1F1B, P=4, M=8",
        "makespan 33.00 ms, bubble 27.3 % of it (37.5 % of ideal),",
        "span 33.00 ms (bubble 27.3 %), peak 4 activations on rank 0",
        "",
        "ms 0         5         10        15        20        25        30     idle peak",
        "r0 F0F1F2F3............B0--F4B1--F5B2--F6B3--F7B4--..B5--..B6--..B7--  27%    4",
        "r1 ..F0F1F2........B0--F3B1--F4B2--F5B3--F6B4--F7B5--..B6--..B7--....  27%    3",
        "r2 ....F0F1....B0--F2B1--F3B2--F4B3--F5B4--F6B5--F7B6--..B7--........  27%    2",
        "r3 ......F0B0--F1B1--F2B2--F3B3--F4B4--F5B5--F6B6--F7B7--............  27%    1",
        "",
        "F forward, B backward, . idle, rows r0, r1, ... are ranks",
    ]


def test_1f1b_by_slot_goes_on_in_blocks() -> None:
    text = timeline_text(make_picture(one_f_one_b(2, 10)), width=60, slots=True)
    assert text.split("\n\n", 1)[1].split("\n") == [
        "   0  1  2  3  4  5  6  7  8  9  10 11 12 13 14",
        "r0 F0 F1 .  B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7",
        "r1 .  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6",
        "",
        "   15 16 17 18 19 20 21  idle peak",
        "r0 B6 F8 B7 F9 B8 .  B9    9%    2",
        "r1 F7 B7 F8 B8 F9 B9 .     9%    1",
        "",
        "F forward, B backward, . idle, one cell a slot",
    ]


def test_pairs_and_the_second_way_are_written() -> None:
    text = timeline_text(make_picture("two-way"), width=80, slots=True)
    assert rows(text)[0].split()[:5] == ["r0", "F0", "f2", "F1&b2", "f3&B0"]
    assert "lower case: enters at the last rank, & overlapped pair" in text
    scaled = rows(timeline_text(make_picture("two-way"), width=120))[0]
    assert re.search(r"F1-+&b2-+f3-+&B0-+", scaled)


def test_chunks_are_told_apart_by_case() -> None:
    text = timeline_text(make_picture("folded"), width=80, slots=True)
    assert rows(text)[0].split()[1:4] == ["F0", "F1", "."]
    assert "f0" in rows(text)[0].split()
    assert "lower case: chunk 1," in text
    assert "lower case: chunks 1, 3," in timeline_text(make_picture("looped"), width=80)


@pytest.mark.parametrize("name", ["1f1b", "two-way"])
def test_sends_and_tail_are_drawn(name: str) -> None:
    picture = make_picture(name, uneven=5, sends=Sends.BLOCKING)
    timeline, order = picture.timeline, picture.timeline.order
    text = timeline_text(picture, width=500)
    assert "> blocking send, R gradient reduction, O optimizer" in text
    lines = rows(text)
    columns = len(lines[0]) - 3 - len(re.search(r" +\d+% +\S+$", lines[0])[0])  # type: ignore[index]

    def between(rank: int, begin: int, end: int) -> str:
        first, last = (3 + int(at * columns / picture.total + 0.5) for at in (begin, end))
        return lines[rank][first:last]

    for at in np.flatnonzero(timeline.hold).tolist():
        begin = int(timeline.end[at])
        sent = between(int(order.rank[at]), begin, begin + int(timeline.hold[at]))
        assert set(sent) <= {">"}
        assert sent
    for span in tail_of(timeline):
        letter = {"gradient reduction": "R", "optimizer": "O"}[span.name]
        drawn = between(span.rank, span.start, span.end)
        assert drawn == letter + letter.lower() * (len(drawn) - 1)
    assert ">" not in "".join(rows(timeline_text(picture, width=500, slots=True)))


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("slots", [False, True])
@given(width=st.integers(40, 200), seed=st.integers(0, 50), color=st.booleans())
def test_lines_keep_to_the_width(
    name: str, slots: bool, width: int, seed: int, color: bool
) -> None:
    picture = make_picture(
        name, uneven=seed, sends=list(Sends)[seed % 2], limits=(3.5,) * len(ORDERS[name]),
        title="a rather long title of a timeline that has to be wrapped somewhere",
    )  # fmt: skip
    text = timeline_text(picture, width=width, slots=slots, color=color)
    plain = _ANSI.sub("", text)
    assert max(map(len, plain.split("\n"))) <= width
    assert "\xa0" not in text
    assert not text.endswith("\n")
    assert ("\x1b" in text) == color
    ranks = len(ORDERS[name])
    assert len(rows(plain)) % ranks == 0
    if not slots:
        assert len(rows(plain)) == ranks


@pytest.mark.parametrize("name", ORDERS)
@given(seed=st.integers(0, 200), width=st.sampled_from([120, 200, 1500]))
def test_each_operation_stands_in_its_columns(name: str, seed: int, width: int) -> None:
    picture = make_picture(name, uneven=seed)
    timeline, order = picture.timeline, picture.timeline.order
    text = timeline_text(picture, width=width)
    lines = rows(text)
    hidden = 0
    columns = len(lines[0]) - 3 - len(re.search(r" +\d+% +\S+$", lines[0])[0])  # type: ignore[index]
    for at in range(order.num_operations):
        if order.joined is not None and (order.joined[at] or order.joined[at - 1]):
            continue
        begin, end = (
            3 + int(quanta * columns / picture.total + 0.5)
            for quanta in (timeline.start[at], timeline.end[at])
        )
        cell = lines[int(order.rank[at])][begin:end]
        letter = "FBIW"[int(order.kind[at])]
        letter = letter.lower() if picture.chunk[at] % 2 else letter
        written = f"{letter}{order.microbatch[at]}"
        hidden += not cell
        shown = written if len(written) <= len(cell) else letter[: len(cell)]
        assert cell == shown.ljust(len(cell), "-")
    if order.joined is None:
        assert hidden == int(found[1] if (found := re.search(r"\((\d+) op.* short", text)) else 0)
    # What is neither an operation nor tail is idle.
    busy = sum(len(re.findall(r"[^. ]", line[3 : 3 + columns])) for line in lines)
    tail = sum(
        int(span.sum()) for span in (timeline.times.reduction, timeline.times.optimizer)
        if span is not None
    )  # fmt: skip
    expected = (int(timeline.busy.sum()) + tail) / picture.total * columns
    assert busy == pytest.approx(expected, abs=order.num_operations + 8)


@pytest.mark.parametrize("name", ORDERS)
def test_slots_are_the_longest_chain_before_an_operation(name: str) -> None:
    picture = make_picture(name, uneven=1)
    order, need = picture.timeline.order, picture.timeline.need
    # Relaxation over list order and needs until nothing moves: another way than the walk.
    slot = [0] * order.num_operations
    moved = True
    while moved:
        moved = False
        for at in range(order.num_operations):
            pair = order.joined is not None and at > 0 and bool(order.joined[at - 1])
            least = 0
            if at > order.rank_start[order.rank[at]]:
                least = slot[at - 1] + (not pair)
            if need[at] >= 0:
                least = max(least, slot[int(need[at])] + 1)
            if pair and least > slot[at - 1]:
                slot[at - 1], moved = least, True
            if least > slot[at]:
                slot[at], moved = least, True
    text = timeline_text(picture, width=2000, slots=True)
    lines = rows(text)
    cell = text.split("\n")[text.split("\n").index(lines[0]) - 1].index("1") - 3
    for at in range(order.num_operations):
        place = 3 + slot[at] * cell
        word = lines[int(order.rank[at])][place : place + cell].lower()
        assert f"{'fbiw'[int(order.kind[at])]}{order.microbatch[at]}" in word


def test_several_timelines_may_share_their_columns() -> None:
    gpipe = make_picture("gpipe", limits=(1000.0,) * 3)
    longer = make_picture(one_f_one_b(12, 30))
    other = make_picture("zb", quantum_ms=0.9)
    for pictures in ((gpipe, longer), (gpipe, longer, other)):
        texts = [timeline_text(p, width=150, scale_of=pictures) for p in pictures]
        axes = {next(line for line in text.split("\n") if line.startswith("ms ")) for text in texts}
        assert len(axes) == 1, "one axis"
        assert all(max(map(len, text.split("\n"))) <= 150 for text in texts)
        # GPipe takes 18 of 123 ms: its columns end there, and blanks follow.
        columns = axes.pop().index("idle") - 5
        drawn = rows(texts[0])[0][4 : 4 + columns]
        assert len(drawn.rstrip()) == pytest.approx(columns * 18 / 123, abs=1)


def test_color_marks_kinds_and_the_critical_path() -> None:
    picture = make_picture("1f1b", uneven=3)
    colored = timeline_text(picture, width=200, color=True)
    plain = timeline_text(picture, width=200)
    for one, two in zip(rows(_ANSI.sub("", colored)), rows(plain), strict=True):
        assert one.replace(" ", "").replace("-", "") == two.replace(" ", "").replace("-", "")
    assert colored.count("\x1b[0m") == len(re.findall(r"\x1b\[[^0]", colored))
    path = sum(last - first + 1 for first, last in critical_runs(picture.timeline))
    assert len(re.findall(r"\x1b\[4;", colored)) == path
    assert "underlined: critical path" in colored
    assert "underlined" not in plain
    kinds = set(re.findall(r"48;5;(\d+)m[FB]\d", colored))
    assert len(kinds) == 2


def test_operations_shorter_than_a_column_are_counted() -> None:
    times = unit_times(2)
    times = StageTimes(
        np.array([1, 1000]), np.array([1000, 1000]), np.array([0, 0]),
        times.edge_forward, times.edge_backward,
    )  # fmt: skip
    text = timeline_text(make_picture(one_f_one_b(2, 3), times=times), width=60)
    assert "(3 operations are too short for a column)" in text


def test_large_timelines_are_written_in_time() -> None:
    picture = make_picture(one_f_one_b(16, 64))
    for width in (80, 160):
        text = timeline_text(picture, width=width)
        assert len(rows(text)) == 16
        assert max(map(len, text.split("\n"))) <= width


def test_a_timeline_without_any_time_is_still_written() -> None:
    zero = np.zeros(4, np.int64)
    times = StageTimes(zero, zero, zero, zero[:3], zero[:3])
    picture: TimelinePicture = make_picture("1f1b", times=times)
    assert len(rows(timeline_text(picture, width=80))) == 4
    assert len(rows(timeline_text(picture, width=200, slots=True))) == 4


@pytest.mark.parametrize("width", [39, 0, -5])
def test_narrow_widths_are_refused(width: int) -> None:
    with pytest.raises(InputError, match=f'"{width}" is too narrow .* at least 40 columns'):
        timeline_text(make_picture("1f1b"), width=width)
