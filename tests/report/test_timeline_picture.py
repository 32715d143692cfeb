"""What all drawings need to know of a timeline."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from svg_reading import root_of, words
from timeline_examples import ORDERS, make_picture

from planner.errors import InputError
from planner.report.timeline_picture import TimelinePicture, critical_runs, format_held, nice_ticks
from planner.specs import Sends


def test_the_shade_follows_the_chunk_of_the_rank() -> None:
    picture = make_picture("folded")
    order = picture.timeline.order
    assert picture.chunk.tolist() == [int(stage >= 2) for stage in order.stage]
    assert make_picture("looped").chunk.tolist() == [
        int(stage) // 2 for stage in make_picture("looped").timeline.order.stage
    ]
    assert "light to dark: chunk 0 to 3" in words(root_of(make_picture("looped")))


def test_a_run_of_the_critical_path_has_no_gap_and_waits_for_the_one_before() -> None:
    for name in ORDERS:
        for sends in Sends:
            timeline = make_picture(name, uneven=12, sends=sends).timeline
            runs = critical_runs(timeline)
            for first, last in runs:
                busy = timeline.end[first:last] + timeline.hold[first:last]
                # Between the two of a pair nothing passes.
                gaps = timeline.start[first + 1 : last + 1] - busy
                assert (gaps <= 0).all()
            for (_, before), (after, _) in pairwise(runs):
                sent = set(np.flatnonzero(timeline.need == before).tolist())
                if timeline.order.joined is not None and timeline.order.joined[before - 1]:
                    sent |= set(np.flatnonzero(timeline.need == before - 1).tolist())
                # Of a pair either operation may be named; both start together.
                (waits,) = sent & {after - 1, after, after + 1}
                assert timeline.start[waits] == timeline.start[after]
                assert timeline.start[after] == timeline.end[before] + timeline.lag[waits]


@given(longest=st.floats(1e-9, 1e12), most=st.integers(4, 40))
def test_ticks_are_few_evenly_spaced_and_inside(longest: float, most: int) -> None:
    ticks = nice_ticks(longest, most)
    values = [value for value, _ in ticks]
    assert 2 <= len(ticks) <= most
    assert values[0] == 0
    assert values[-1] <= longest * (1 + 1e-6)
    assert longest < values[-1] + 1.001 * values[1]
    for value, label in ticks:
        assert float(label) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("name", ORDERS)
@given(seed=st.integers(0, 2**16), share=st.sampled_from([0.0, 0.25, 1.0]), fixed=st.booleans())
def test_what_is_held_between_operations_is_worked_out(
    name: str, seed: int, share: float, fixed: bool
) -> None:
    draw = np.random.default_rng(seed)
    stages = make_picture(name).timeline.order.num_stages
    weights = draw.integers(1, 50, stages) / 8
    static = tuple((draw.integers(0, 40, len(ORDERS[name])) / 8).tolist()) if fixed else None
    picture = make_picture(name, weights=weights, freed_at_i=share, fixed=static)
    order = picture.timeline.order
    size = weights[order.stage]
    change = np.array([1.0, -1.0, -share, share - 1.0])[order.kind] * size
    for rank in range(order.num_ranks):
        rows = slice(int(order.rank_start[rank]), int(order.rank_start[rank + 1]))
        after = np.cumsum(change[rows]) + (static[rank] if static else 0.0)
        if order.joined is not None:
            first = np.flatnonzero(order.joined[rows])
            after[first] = after[first + 1]
        np.testing.assert_allclose(picture.held_after[rows], after, atol=1e-9)


@pytest.mark.parametrize(
    ("amount", "shown"), [(0.0, "0"), (100.0, "100"), (0.126, "0.13"), (float("inf"), "any")]
)
def test_amounts_have_no_needless_zeros(amount: float, shown: str) -> None:
    assert format_held(amount) == shown


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quantum_ms": 0.0}, '"0.0" is no time quantum; expected milliseconds > 0'),
        ({"quantum_ms": float("nan")}, "is no time quantum"),
        (
            {"held": np.zeros(3)},
            "amounts held do not match the order; expected 24, one an operation",
        ),
        ({"held": np.full(24, np.nan)}, "an amount held is no number >= 0"),
        ({"held": np.full(24, -1.0)}, "an amount held is no number >= 0"),
        ({"limits": (1.0,)}, '"1" limits do not match the order; expected 3, one a rank'),
        ({"limits": (1.0, -2.0, 1.0)}, '"-2.0" limits: is no amount; expected a number >= 0'),
        ({"limits": (1.0, float("nan"), 1.0)}, '"nan" limits: is no amount'),
        ({"fixed": (float("inf"), 0.0, 0.0)}, '"inf" fixed: is no amount'),
    ],
)
def test_pictures_that_make_no_sense_are_refused(change: dict[str, object], message: str) -> None:
    picture = make_picture("gpipe")
    fields = {
        "title": "t", "timeline": picture.timeline, "quantum_ms": 1.0, "held": picture.held,
        "held_unit": "activations",
    }  # fmt: skip
    with pytest.raises(InputError, match=re.escape(message)):
        TimelinePicture(**{**fields, **change})  # type: ignore[arg-type]
