"""ZB-V, DualPipeV, V-Half and V-Min: the dumped orders, their memory and their bubbles."""

from __future__ import annotations

from itertools import pairwise

import dumped_orders
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ScheduleError
from planner.operations import Kind
from planner.schedules import controlled_memory
from planner.schedules.chunk_claims import in_flight_chunks
from planner.schedules.controlled_memory import activation_claim
from planner.schedules.folded_orders import dualpipe_v, v_half, v_min, zb_v
from planner.schedules.memory_curve import in_flight
from planner.schedules.timeline import StageTimes, run_order, unit_times
from planner.schedules.validate import validate_order
from planner.specs import Schedule

DUMPS = {
    "torch_ZBVZeroBubble": ("ZBVZeroBubble", zb_v),
    "torch_DualPipeV": ("DualPipeV", dualpipe_v),
}
CONTROLLED = {Schedule.V_HALF: v_half, Schedule.V_MIN: v_min}
TITLES = {"V-Half": v_half, "V-Min": v_min}


def folded_times(ranks, forward, input_gradient, weight_gradient, pair=None):
    stages = 2 * ranks
    free = np.zeros(stages - 1, np.int64)
    each = [np.full(stages, x, np.int64) for x in (forward, input_gradient, weight_gradient)]
    return StageTimes(*each, edge_forward=free, edge_backward=free, pair=pair)


def bubble_times(order):
    """Makespan and longest own span at F = I = W = 1, less a rank's work of 6 M."""
    timeline = run_order(order, unit_times(order.num_stages))
    work = 6 * order.num_microbatches
    return timeline.makespan - work, timeline.span - work


@pytest.mark.parametrize("name", DUMPS)
def test_equals_torch(shared_dir, name):
    build = DUMPS[name][1]
    entries = dumped_orders.load(shared_dir, name)
    assert len(entries) > 10
    for entry in entries:
        assert build(entry["P"], entry["M"]).rank_lists() == entry["ranks"], entry["M"]


@pytest.mark.parametrize("name", DUMPS)
def test_has_the_metrics_of_orders_that_are_not_in_the_dump(shared_dir, name):
    title, build = DUMPS[name]
    checked = 0
    for (source, schedule, ranks, count, _), rows in dumped_orders.metrics(shared_dir).items():
        if (source, schedule) != (name, title):
            continue
        order = build(ranks, count)
        timeline = run_order(order, unit_times(order.num_stages))
        assert timeline.makespan == rows[0]["makespan_F1_I1_W1"]
        assert timeline.span_bubble == pytest.approx(rows[0]["span_bubble_F1_I1_W1"], abs=1e-6)
        assert in_flight(order).tolist() == rows[0]["peak_F_to_W"]
        assert in_flight(order, Kind.I).tolist() == rows[0]["peak_F_to_B"]
        checked += 1
    assert checked > len(dumped_orders.load(shared_dir, name))


def test_zb_v_of_two_ranks():
    """torch 2.13 ScheduleZBVZeroBubble, P=2, M=5, retyped."""
    assert " ".join(zb_v(2, 5).rank_operations(1)) == (
        "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1F4 1I2 1W2 "
        "2F4 2I3 2W3 1I3 2I4 1I4 1W3 2W4 1W4"
    )


def test_dualpipe_v_of_two_ranks():
    """torch 2.13 ScheduleDualPipeV, P=2, M=4, retyped; its last rank does not overlap the turn."""
    ranks = [
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1)OVERLAP_F_B (3F2;0B0)OVERLAP_F_B 3B2 "
        "(3F3;0B1)OVERLAP_F_B 3B3 0I2 0W2 0I3 0W3",
        "1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0)OVERLAP_F_B (1F3;2B1)OVERLAP_F_B "
        "(2F3;1B1)OVERLAP_F_B 2B2 1B2 2I3 1I3 2W3 1W3",
    ]
    assert dualpipe_v(2, 4).rank_lists() == [rank.split() for rank in ranks]


@pytest.mark.parametrize("ranks", range(1, 13))
def test_every_shape_runs_and_holds_what_is_claimed(ranks):
    for count in sorted({*range(1, 9), ranks, 2 * ranks, 2 * ranks + 1, 40}):
        for schedule, build in {Schedule.ZB_V: zb_v, Schedule.DUALPIPE_V: dualpipe_v}.items():
            if schedule is Schedule.DUALPIPE_V and count < 2 * ranks:
                continue
            order = build(ranks, count)
            validate_order(order)
            run_order(order, unit_times(order.num_stages))
            assert in_flight(order).tolist() == in_flight_chunks(schedule, ranks, count).tolist()


@pytest.mark.parametrize("ranks", range(1, 9))
def test_zb_v_idles_inside_no_span_from_2p_less_1_micro_batches_on(ranks):
    """Qi et al. 2024, section 6; the makespan keeps the first rank's lead, (P-1) F."""
    for count in (2 * ranks - 1, 2 * ranks, 5 * ranks):
        assert bubble_times(zb_v(ranks, count)) == (ranks - 1, 0)
    if ranks > 1:
        assert bubble_times(zb_v(ranks, 2 * ranks - 2))[1] == 2
    assert in_flight(zb_v(ranks, 2 * ranks)).tolist() == [2 * ranks] * ranks


def test_dualpipe_v_holds_one_chunk_more_than_there_are_stages():
    """DualPipe README: PP + 1 activations of PP stages on PP/2 ranks."""
    for ranks in (1, 2, 5, 8):
        assert in_flight(dualpipe_v(ranks, 2 * ranks + 3)).tolist() == [2 * ranks + 1] * ranks


@pytest.mark.parametrize(
    ("ranks", "times", "idle", "readme"),
    [
        (2, (4, 2, 2, 8), 8, 6),
        (2, (2, 3, 1, 6), 6, 7),
        (4, (2, 2, 2, 6), 12, 12),
        (4, (2, 3, 1, 6), 19, 21),
    ],
)
def test_dualpipe_v_idles_other_than_its_readme_says(ranks, times, idle, readme):
    """(PP/2-1)(F&B + B - 3W) with B the full backward is exact only at F = I = W."""
    forward, input_gradient, weight_gradient, pair = times
    order = dualpipe_v(ranks, 2 * ranks)
    timeline = run_order(order, folded_times(ranks, *times[:3], pair))
    assert timeline.idle.max() == idle
    backward = input_gradient + weight_gradient
    assert readme == (ranks - 1) * (pair + backward - 3 * weight_gradient)
    exact = (ranks - 1) * (pair + forward - 2 * weight_gradient)
    assert idle == exact or (times, idle) == ((2, 3, 1, 6), exact + 1)  # more where I >> F


def test_controlled_memory_is_never_worse_than_sail_sg(shared_dir):
    """Every shape of metrics.csv, also those whose orders are not in the dump."""
    checked, shorter = 0, 0
    for (source, title, ranks, count, _), rows in dumped_orders.metrics(shared_dir).items():
        if source != "sailsg_v_half_min":
            continue
        order = TITLES[title](ranks, count)
        timeline = run_order(order, unit_times(order.num_stages))
        theirs = rows[0]
        assert timeline.makespan <= theirs["makespan_F1_I1_W1"]
        assert timeline.span_bubble <= theirs["span_bubble_F1_I1_W1"] + 1e-6
        held, their_held = in_flight(order), np.array(theirs["peak_F_to_W"])
        assert held.max() <= their_held.max()
        gained = timeline.makespan < theirs["makespan_F1_I1_W1"]
        assert gained or (held <= their_held).all()
        checked += 1
        shorter += gained
    assert checked == 60
    assert shorter >= 15


@pytest.mark.parametrize("ranks", [*range(1, 13), 17, 24])
def test_controlled_memory_reaches_the_claims(ranks):
    """SCHEDULES.md section 4, and V-Min gains two more where P mod 3 = 2."""
    half = {1: 0, 2: 1}.get(ranks, 3 * ranks - (4 if ranks % 2 else 7))
    least = 0 if ranks == 1 else 4 * ranks - (5 if ranks % 3 == 1 else 7)
    for build, expected in ((v_half, half), (v_min, least)):
        for count in (2 * ranks, 2 * ranks + 1, 4 * ranks + 3):
            makespan, span = bubble_times(build(ranks, count))
            assert (makespan, span <= makespan) == (expected, True)
    assert activation_claim(Schedule.V_HALF, ranks) == 2 * ((ranks + 2) // 2)
    assert activation_claim(Schedule.V_MIN, ranks) == 2 * ((ranks + 4) // 3)


@pytest.mark.parametrize("schedule", CONTROLLED)
@pytest.mark.parametrize("ranks", range(1, 11))
def test_controlled_memory_keeps_its_limit_at_every_m(schedule, ranks):
    limit = activation_claim(schedule, ranks)
    counts = range(1, 2 * ranks + 4) if ranks < 7 else (1, 2, ranks - 1, ranks, ranks + 1, 40)
    for count in counts:
        order = CONTROLLED[schedule](ranks, count)
        validate_order(order)
        run_order(order, unit_times(order.num_stages))
        held = in_flight(order)
        assert held.max() <= limit
        assert held.tolist() == in_flight_chunks(schedule, ranks, count).tolist()


@pytest.mark.parametrize("schedule", CONTROLLED)
def test_longer_orders_are_the_same_walk(schedule):
    """Lengthening the steady phase gives what walking all micro-batches gives."""
    for ranks in (1, 2, 3, 4, 5, 6, 7, 11):
        for count in (2 * ranks + 1, 3 * ranks + 1):
            walk = controlled_memory._shortest_walk(schedule, ranks, count)
            order = CONTROLLED[schedule](ranks, count)
            assert np.array_equal(order.microbatch, walk.microbatch.ravel())
            assert np.array_equal(order.kind, controlled_memory._KIND[walk.row].ravel())


@pytest.mark.parametrize("schedule", CONTROLLED)
def test_no_choice_gets_stuck(schedule):
    """The slot that the fill phase leaves for the second chunk is what keeps ranks going."""
    for ranks in range(1, 12):
        block = controlled_memory._block(schedule, ranks)
        limit = activation_claim(schedule, ranks)
        for count in (1, ranks, ranks + 3):
            for fill in (1, 2):
                choices = controlled_memory._Choices(fill, (0,), False)
                assert controlled_memory._walk(block, count, limit, choices) is not None


def test_one_micro_batch_takes_its_latency():
    """F, I and the last W in a row: 4P + 1 slots of a chunk."""
    for build in (v_half, v_min):
        for ranks in range(1, 8):
            makespan, _ = bubble_times(build(ranks, 1))
            assert makespan + 6 == (4 * ranks + 1 if ranks > 1 else 6)


def test_v_min_loses_time_in_every_micro_batch_where_times_differ():
    """P=4, F2 I3 W2: 40, 56, 72, 88 idle at M = 4, 8, 12, 16; V-Half's does not grow."""
    times = folded_times(4, 2, 3, 2)
    idle = [int(run_order(v_min(4, count), times).idle.max()) for count in (4, 8, 12, 16)]
    assert idle == [40, 56, 72, 88]
    half = [int(run_order(v_half(4, count), times).idle.max()) for count in (8, 12, 16)]
    assert all(after == before for before, after in pairwise(half))


def test_large_orders_are_complete():
    for build in (zb_v, dualpipe_v, v_half, v_min):
        validate_order(build(64, 1024))


@given(st.integers(1, 9), st.integers(1, 30), st.data())
def test_uneven_stages_run_without_deadlock(ranks, count, data):
    builds = [zb_v, v_half, v_min, *([dualpipe_v] if count >= 2 * ranks else [])]
    order = data.draw(st.sampled_from(builds))(ranks, count)
    stages = 2 * ranks
    draw = st.lists(st.integers(0, 9), min_size=stages, max_size=stages)
    rows = [np.array(data.draw(draw), np.int64) for _ in range(5)]
    times = StageTimes(*rows[:3], edge_forward=rows[3][:-1], edge_backward=rows[4][:-1])
    timeline = run_order(order, times)
    work = count * sum(row.sum() for row in rows[:3])
    assert timeline.makespan * ranks >= work
    assert timeline.busy.sum() == work


@pytest.mark.parametrize("build", [zb_v, v_half, v_min, dualpipe_v])
@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (-1, 4)])
def test_refuses_no_ranks_and_no_micro_batches(build, shape):
    with pytest.raises(ScheduleError, match="numbers >= 1"):
        build(*shape)


def test_dualpipe_v_refuses_too_few_micro_batches():
    with pytest.raises(ScheduleError, match=r"M >= 2P = 8, not M=7; use --microbatches 8"):
        dualpipe_v(4, 7)


def test_claims_are_for_folded_and_two_way_schedules():
    with pytest.raises(ScheduleError, match="GPipe is neither folded nor two-way"):
        in_flight_chunks(Schedule.GPIPE, 2, 2)
    with pytest.raises(ScheduleError, match="even number of stages"):
        in_flight_chunks(Schedule.CHIMERA, 3, 3)
