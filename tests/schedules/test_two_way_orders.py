"""DualPipe and Chimera: the dumped orders, their memory and their bubbles."""

from __future__ import annotations

import dumped_orders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ScheduleError
from planner.operations import Kind
from planner.schedules.chunk_claims import in_flight_chunks
from planner.schedules.memory_curve import in_flight
from planner.schedules.timeline import StageTimes, run_order, unit_times
from planner.schedules.two_way_orders import chimera, dualpipe
from planner.schedules.validate import validate_order
from planner.specs import Schedule

BUILDS = {"dualpipe": ("DualPipe", dualpipe), "chimera": ("Chimera", chimera)}


def even_times(stages, forward, input_gradient, weight_gradient, pair=None):
    free = np.zeros(stages - 1, np.int64)
    each = [np.full(stages, x, np.int64) for x in (forward, input_gradient, weight_gradient)]
    return StageTimes(*each, edge_forward=free, edge_backward=free, pair=pair)


def is_whole(entry):
    """Whether Chimera's generator neither put two operations in one slot nor dropped any."""
    complete = all(len(rank) == 2 * entry["M"] for rank in entry["ranks"])
    return complete and not entry["slot_conflicts"]


def test_dualpipe_equals_the_dump(shared_dir):
    entries = dumped_orders.load(shared_dir, "dualpipe")
    assert len(entries) > 5
    for entry in entries:
        assert dualpipe(entry["P"], entry["M"]).rank_lists() == entry["ranks"]


def test_chimera_equals_the_dump_where_that_is_whole(shared_dir):
    whole = [entry for entry in dumped_orders.load(shared_dir, "chimera") if is_whole(entry)]
    assert len(whole) > 5
    for entry in whole:
        assert chimera(entry["P"], entry["M"]).rank_lists() == entry["ranks"]


def test_chimera_is_right_where_its_generator_is_not(shared_dir):
    """Two operations in one slot and work that is dropped; ours keeps the formula's slots."""
    broken = [entry for entry in dumped_orders.load(shared_dir, "chimera") if not is_whole(entry)]
    assert broken
    for entry in broken:
        ranks, count = entry["P"], entry["M"]
        assert sum(map(len, entry["ranks"])) < 2 * ranks * count
        order = chimera(ranks, count)
        validate_order(order)
        assert run_order(order, unit_times(ranks, 1, 1, 0)).makespan == 2 * count + ranks - 2
        # The slots its generator fills once are filled alike: the first unit is the same.
        first = chimera(ranks, ranks).rank_lists()
        for mine, theirs in zip(first, entry["ranks"], strict=True):
            assert mine[:ranks] == theirs[:ranks]


@pytest.mark.parametrize("name", BUILDS)
def test_has_the_metrics_of_orders_that_are_not_in_the_dump(shared_dir, name):
    title, build = BUILDS[name]
    checked = 0
    for (source, schedule, ranks, count, _), rows in dumped_orders.metrics(shared_dir).items():
        broken = name == "chimera" and count > 2 * ranks and ranks != 4
        if (source, schedule) != (name, title) or broken or (name, ranks) == ("chimera", 2):
            continue
        order = build(ranks, count)
        timeline = run_order(order, unit_times(ranks))
        assert timeline.makespan == rows[0]["makespan_F1_I1_W1"]
        assert timeline.bubble_fraction == pytest.approx(rows[0]["bubble_F1_I1_W1"], abs=1e-6)
        assert in_flight(order).tolist() == rows[0]["peak_F_to_W"]
        assert in_flight(order, Kind.I).tolist() == rows[0]["peak_F_to_B"]
        checked += 1
    assert checked >= 8


def test_dualpipe_of_two_ranks():
    """DualPipe's step() at commit 3da1bbea, P=2, M=6, retyped."""
    ranks = [
        "0F0 1F3 0F1 1B3 (1F4;0B0)OVERLAP_F_B (0F2;1B4)OVERLAP_F_B (1F5;0B1)OVERLAP_F_B 1B5 "
        "0I2 0W2",
        "0F3 1F0 0F4 1B0 (1F1;0B3)OVERLAP_F_B (0F5;1B1)OVERLAP_F_B (1F2;0B4)OVERLAP_F_B 1B2 "
        "0I5 0W5",
    ]
    assert dualpipe(2, 6).rank_lists() == [rank.split() for rank in ranks]


def test_chimera_of_four_ranks():
    """Two units of four micro-batches; the next unit starts between the last backwards."""
    ranks = [
        "0F0 0F1 3F2 3B2 3F3 3B3 0B0 0F4 0B1 0F5 3F6 3B6 3F7 3B7 0B4 0B5",
        "1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1 1F4 2F6 1F5 2F7 2B6 1B4 2B7 1B5",
    ]
    assert chimera(4, 8).rank_lists()[:2] == [rank.split() for rank in ranks]


@pytest.mark.parametrize("ranks", range(2, 13, 2))
def test_every_shape_runs_and_holds_what_is_claimed(ranks):
    for count in range(2, 41, 2):
        if count >= 2 * ranks:
            order = dualpipe(ranks, count)
            run_order(order, unit_times(ranks))
            assert in_flight(order).tolist() == [ranks + 1] * ranks
            assert in_flight_chunks(Schedule.DUALPIPE, ranks, count).tolist() == [ranks + 1] * ranks
        if count % ranks == 0:
            order = chimera(ranks, count)
            run_order(order, unit_times(ranks))
            claim = in_flight_chunks(Schedule.CHIMERA, ranks, count)
            assert in_flight(order).tolist() == claim.tolist()
            assert (claim.min(), claim.max()) == (ranks // 2 + 1, ranks)
            assert claim.argmax() == ranks // 2 - 1


@pytest.mark.parametrize("ranks", range(2, 13, 2))
def test_chimera_takes_the_slots_of_the_formula_at_any_m(ranks):
    """Li and Hoefler 2021, Table 2: bubble (D-2)/(2N+D-2) at F = B; ours also for N > 2D."""
    for units in (1, 2, 3, 4, 7):
        count = units * ranks
        timeline = run_order(chimera(ranks, count), unit_times(ranks, 1, 1, 0))
        assert timeline.makespan == 2 * count + ranks - 2
        assert timeline.bubble_fraction == pytest.approx((ranks - 2) / (2 * count + ranks - 2))
        longer = run_order(chimera(ranks, count), unit_times(ranks, 1, 2, 1))
        assert longer.idle.tolist() == [(ranks - 2) * (units + 1)] * ranks


def test_chimera_units_cost_more_where_the_backward_is_longer():
    """D=4, N=8: 0.111 at F = B, 0.20 at B = 2F."""
    equal = run_order(chimera(4, 8), unit_times(4, 1, 1, 0)).bubble_fraction
    double = run_order(chimera(4, 8), unit_times(4, 1, 2, 1)).bubble_fraction
    assert (round(equal, 3), round(double, 3)) == (0.111, 0.2)


@pytest.mark.parametrize(
    ("ranks", "times", "idle", "readme"),
    [
        (4, (4, 2, 2, 8), 8, 6),  # F2 I1 W1 F&B4 in halves: 4, the README's formula 3
        (4, (2, 3, 1, 6), 6, 7),  # F1 I1.5 W.5 F&B3: 3, the formula 3.5
        (8, (2, 3, 1, 6), 19, 21),  # 9.5 where (P/2-1)(F&B+F-2W) is 9
        (8, (2, 2, 2, 6), 12, 12),
    ],
)
def test_dualpipe_idles_other_than_its_readme_says(ranks, times, idle, readme):
    """(P/2-1)(F&B + B - 3W) with B the full backward is exact only at F = I = W."""
    forward, input_gradient, weight_gradient, pair = times
    half = ranks // 2 - 1
    for count in (2 * ranks, 2 * ranks + 2, 40):
        timeline = run_order(dualpipe(ranks, count), even_times(ranks, *times[:3], pair))
        assert timeline.idle.max() == idle
    backward = input_gradient + weight_gradient
    assert readme == half * (pair + backward - 3 * weight_gradient)
    exact = half * (pair + forward - 2 * weight_gradient)
    assert idle == exact or (ranks, idle) == (8, exact + 1)


def test_both_ends_of_dualpipe_mirror_each_other():
    order = dualpipe(6, 12)
    swap = (order.microbatch + 6) % 12
    for near in range(3):
        far = 5 - near
        a = slice(order.rank_start[near], order.rank_start[near + 1])
        b = slice(order.rank_start[far], order.rank_start[far + 1])
        assert np.array_equal(order.stage[a], order.stage[b])
        assert np.array_equal(order.kind[a], order.kind[b])
        assert np.array_equal(swap[a], order.microbatch[b])


def test_large_orders_are_complete():
    for build in (dualpipe, chimera):
        validate_order(build(64, 1024))


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_uneven_stages_run_without_deadlock(half_ranks, units, data):
    ranks = 2 * half_ranks
    build = data.draw(st.sampled_from([dualpipe, chimera]))
    order = build(ranks, ranks * (units + 1))
    draw = st.lists(st.integers(0, 9), min_size=ranks, max_size=ranks)
    rows = [np.array(data.draw(draw), np.int64) for _ in range(5)]
    times = StageTimes(*rows[:3], edge_forward=rows[3][:-1], edge_backward=rows[4][:-1])
    timeline = run_order(order, times)
    work = order.num_microbatches * sum(row.sum() for row in rows[:3])
    assert timeline.busy.sum() == work
    assert timeline.makespan * ranks >= work


@pytest.mark.parametrize(
    ("build", "shape", "message"),
    [
        (dualpipe, (3, 8), r"even number of stages, not P=3; use --stages 2 or 4"),
        (dualpipe, (2, 5), r"even M, not M=5; use --microbatches 4 or 6"),
        (dualpipe, (4, 6), r"M >= 2P = 8, not M=6; use --microbatches 8"),
        (dualpipe, (0, 6), "numbers >= 1"),
        (chimera, (5, 5), r"even number of stages, not P=5; use --stages 4 or 6"),
        (chimera, (4, 6), r"multiple of P=4, not M=6; use --microbatches 4 or 8"),
        (chimera, (4, 0), "numbers >= 1"),
    ],
)
def test_refuses_other_shapes_by_name(build, shape, message):
    with pytest.raises(ScheduleError, match=message):
        build(*shape)
