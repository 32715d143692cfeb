"""What introductions to pipeline parallelism state about schedules, read off simulated orders.

``tests/test_textbook.py`` has what they state about partitions, layouts and memory in bytes.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from planner.cost.weight_versions import staleness, weight_versions
from planner.operations import Kind, Order
from planner.schedules.memory_curve import held_by_operation, in_flight, peak_by_rank
from planner.schedules.one_way_orders import warm_up_order
from planner.schedules.orders import build_order
from planner.schedules.timeline import StageTimes, Timeline, run_order, unit_times
from planner.specs import Schedule, Sends

BOTH = (Schedule.GPIPE, Schedule.ONE_F_ONE_B)
SPLIT = (Schedule.ZB_H1, Schedule.ZB_H2)


def simulated(schedule: Schedule, stages: int, microbatches: int, **times) -> Timeline:
    """Equal stages, F = B = 1 unless said."""
    costs = {"forward": 1, "backward": 1, "weight": 0} | times
    return run_order(build_order(schedule, stages, microbatches), unit_times(stages, **costs))


def with_edges(stages: int, forward: int, backward: int, edge: int) -> StageTimes:
    return StageTimes(
        np.full(stages, forward),
        np.full(stages, backward),
        np.zeros(stages, np.int64),
        np.full(stages - 1, edge),
        np.full(stages - 1, edge),
    )


def starts(timeline: Timeline) -> dict[str, int]:
    return {timeline.order.name(at): int(start) for at, start in enumerate(timeline.start)}


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", BOTH)
def test_total_time_is_compute_and_communication_whose_share_grows_with_stages(schedule):
    """A model of 32 units of F and of B on ever finer stages, each edge costing 1."""
    shares = []
    for stages in (1, 2, 4, 8, 16, 32):
        order = build_order(schedule, stages, 8)
        work = 32 // stages
        without = run_order(order, with_edges(stages, work, work, 0)).makespan
        total = run_order(order, with_edges(stages, work, work, 1)).makespan
        shares.append(Fraction(total - without, total))
    assert shares[0] == 0
    assert all(coarse < fine for coarse, fine in pairwise(shares))


def test_gpipe_pays_each_edge_once_each_way():
    for stages in (2, 4, 8):
        order = build_order(Schedule.GPIPE, stages, 8)
        total = run_order(order, with_edges(stages, 2, 3, 1)).makespan
        assert total == (8 + stages - 1) * 5 + 2 * (stages - 1)


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_one_batch_uses_one_stage_in_p(stages):
    timeline = simulated(Schedule.NAIVE, stages, 1)
    assert timeline.makespan == 2 * stages
    assert 1 - timeline.bubble_fraction == pytest.approx(1 / stages, abs=1e-15)


@pytest.mark.parametrize(("stages", "microbatches", "steps"), [(4, 8, 22), (4, 4, 14), (1, 5, 10)])
@pytest.mark.parametrize("schedule", BOTH)
def test_fill_and_drain_take_2_times_m_plus_p_less_1(schedule, stages, microbatches, steps):
    timeline = simulated(schedule, stages, microbatches)
    assert timeline.makespan == steps == 2 * (microbatches + stages - 1)
    assert timeline.busy.tolist() == [2 * microbatches] * stages


@pytest.mark.parametrize("schedule", BOTH)
def test_bubble_and_utilisation(schedule):
    assert simulated(schedule, 4, 8).bubble_fraction == pytest.approx(3 / 11, abs=1e-15)
    assert simulated(schedule, 4, 4).bubble_fraction == pytest.approx(3 / 7, abs=1e-15)
    for stages in (1, 2, 3, 8):
        for microbatches in (1, 2, 7, 64):
            timeline = simulated(schedule, stages, microbatches)
            bubble = (stages - 1) / (microbatches + stages - 1)
            assert timeline.bubble_fraction == pytest.approx(bubble, abs=1e-15)
            assert timeline.bubble_of_ideal == pytest.approx((stages - 1) / microbatches)


@pytest.mark.parametrize("schedule", BOTH)
def test_bubble_tends_to_0_as_stages_over_microbatches(schedule):
    bubbles = [simulated(schedule, 8, 4**power).bubble_fraction for power in range(7)]
    assert all(fewer > more for fewer, more in pairwise(bubbles))
    assert bubbles[-1] == pytest.approx(7 / 4**6, rel=0.002)


@pytest.mark.parametrize("schedule", BOTH)
def test_utilisation_of_eight_stages(schedule):
    # One introduction prints 94.4 for 128; 128/135 is 94.8.
    printed = {1: 12.5, 2: 22.2, 4: 36.4, 8: 53.3, 16: 69.6, 32: 82.1, 64: 90.1, 128: 94.8}
    for microbatches, percent in printed.items():
        timeline = simulated(schedule, 8, microbatches)
        assert round(100 * (1 - timeline.bubble_fraction), 1) == percent


def test_steps_of_gpipe():
    """F of micro-batch j on stage s at step s + j, B at M + P - 1 + (P - 1 - s) + j."""
    stages, microbatches = 4, 8
    at = starts(simulated(Schedule.GPIPE, stages, microbatches))
    for s in range(stages):
        for j in range(microbatches):
            assert at[f"{s}F{j}"] == s + j
            assert at[f"{s}B{j}"] == microbatches + stages - 1 + (stages - 1 - s) + j


@pytest.mark.parametrize("schedule", BOTH)
def test_pace_is_the_slowest_stage(schedule):
    """One more micro-batch costs the largest f + b (GPipe: the largest f and the largest b)."""
    times = StageTimes(
        np.array([3, 5, 4]), np.array([6, 10, 9]), np.zeros(3, np.int64), *np.zeros((2, 2), int)
    )
    for microbatches in (8, 9, 20):
        now, more = (
            run_order(build_order(schedule, 3, m), times).makespan
            for m in (microbatches, microbatches + 1)
        )
        assert more - now == 15


def test_pace_is_a_stage_and_its_communication_where_sends_block():
    """max (t_i + c_i): a middle stage sends its output on and its gradient back."""
    times = with_edges(3, 4, 8, 2)
    for schedule in BOTH:
        now, more = (
            run_order(build_order(schedule, 3, m), times, Sends.BLOCKING).makespan for m in (12, 13)
        )
        assert more - now == (4 + 8) + (2 + 2)


def test_serving_one_batch_is_slower_on_a_pipeline():
    """The forwards of one batch: the same work in a row, and the transfers on top."""
    one = run_order(build_order(Schedule.NAIVE, 1, 1), with_edges(1, 8, 0, 0))
    four = run_order(build_order(Schedule.NAIVE, 4, 1), with_edges(4, 2, 0, 1))
    assert int(four.end[four.order.kind == Kind.F].max()) == 8 + 3
    assert int(one.end[one.order.kind == Kind.F].max()) == 8


# --- memory ---------------------------------------------------------------------------------------


def test_activations_kept():
    gpipe = build_order(Schedule.GPIPE, 4, 8)
    one_f_one_b = build_order(Schedule.ONE_F_ONE_B, 4, 8)
    assert in_flight(gpipe).tolist() == [8, 8, 8, 8]
    assert in_flight(one_f_one_b).tolist() == [4, 3, 2, 1]
    assert Fraction(int(in_flight(one_f_one_b).max()), int(in_flight(gpipe).max())) == Fraction(
        1, 2
    )
    for stages, microbatches in ((8, 64), (16, 256)):
        most = int(in_flight(build_order(Schedule.ONE_F_ONE_B, stages, microbatches)).max())
        assert Fraction(most, microbatches) == Fraction(stages, microbatches)


def test_activations_of_a_fixed_batch_fall_to_a_p_th():
    """A batch of 64 samples in M micro-batches of 64/M; the whole model's activations weigh 1."""
    for stages in (2, 4, 8):
        for microbatches in (8, 64):
            weights = [64 / microbatches / stages] * stages
            gpipe = peak_by_rank(build_order(Schedule.GPIPE, stages, microbatches), weights)
            assert gpipe.tolist() == [64 / stages] * stages
            one_f_one_b = peak_by_rank(
                build_order(Schedule.ONE_F_ONE_B, stages, microbatches), weights
            )
            assert one_f_one_b.max() == gpipe.max() * min(stages, microbatches) / microbatches
            zero_bubble = peak_by_rank(build_order(Schedule.ZB_H1, stages, microbatches), weights)
            assert zero_bubble.max() == one_f_one_b.max()


def test_1f1b_and_zero_bubble_release_before_the_last_forward():
    """GPipe's curve climbs through all forwards; the others level off after the warm-up."""
    stages, microbatches = 4, 16
    for schedule, level in (
        (Schedule.GPIPE, None),
        (Schedule.ONE_F_ONE_B, stages),
        (Schedule.ZB_H1, stages),
        (Schedule.ZB_H2, 2 * stages - 1),
    ):
        order = build_order(schedule, stages, microbatches)
        held = held_by_operation(order)
        forwards = held[(order.rank == 0) & (order.kind == Kind.F)]
        climb = range(1, microbatches + 1)
        assert forwards.tolist() == [j if level is None else min(j, level) for j in climb]


def test_pipedream_keeps_p_less_s_versions():
    versions = weight_versions(Schedule.PIPEDREAM, 8, 64)
    assert versions.tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert versions.max() == 8  # O(P x W) on the first stage
    assert staleness(Schedule.PIPEDREAM, 8).tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    # As many as it has micro-batches in flight.
    assert versions.tolist() == in_flight(build_order(Schedule.PIPEDREAM, 8, 64)).tolist()
    for schedule in (*BOTH, *SPLIT):
        assert weight_versions(schedule, 8, 64).tolist() == [1] * 8


# --- I and W --------------------------------------------------------------------------------------


def split_1f1b(stages: int, microbatches: int, delay: int) -> Order:
    """1F1B's warm-up with I and W apart, W ``delay`` backwards late on every rank."""
    hops = np.arange(stages - 1, -1, -1)
    return warm_up_order("split", hops, microbatches, weight_delay=np.full(stages, delay))


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_i_must_not_wait_and_w_can(stages):
    """F = I = W = 1, so that the whole backward takes twice the forward."""
    microbatches, work = 3 * stages, 9 * stages
    times = unit_times(stages, forward=1, backward=2, weight=1)
    whole = run_order(build_order(Schedule.ONE_F_ONE_B, stages, microbatches), times)
    assert whole.makespan == work + 3 * (stages - 1)
    # I goes on its way before W: each stage hears of it sooner by W, and nothing else changed.
    early = run_order(split_1f1b(stages, microbatches, 0), times)
    assert early.makespan == work + 2 * (stages - 1)
    # W waits: it fills what was idle while the last gradients travel.
    h1 = run_order(build_order(Schedule.ZB_H1, stages, microbatches), times)
    assert h1.makespan == work + (stages - 1)
    # More of it can wait for more memory: nothing is idle between a rank's first and last work.
    h2 = run_order(build_order(Schedule.ZB_H2, stages, microbatches), times)
    assert h2.span == work
    assert h2.makespan == work + (stages - 1)  # filling the pipeline still takes (P-1) F


def test_zero_bubble_costs_the_same_memory_or_twice_it():
    one_f_one_b, h1, h2 = (
        int(in_flight(build_order(schedule, 4, 16)).max())
        for schedule in (Schedule.ONE_F_ONE_B, *SPLIT)
    )
    assert (one_f_one_b, h1, h2) == (4, 4, 7)


# --- misconceptions -------------------------------------------------------------------------------


def test_more_microbatches_are_not_always_better():
    """The bubble falls, GPipe's memory grows with M, 1F1B's does not."""
    bubbles, gpipe, one_f_one_b = [], [], []
    for microbatches in (4, 8, 16, 32):
        bubbles.append(simulated(Schedule.GPIPE, 4, microbatches).bubble_fraction)
        gpipe.append(int(in_flight(build_order(Schedule.GPIPE, 4, microbatches)).max()))
        one_f_one_b.append(int(in_flight(build_order(Schedule.ONE_F_ONE_B, 4, microbatches)).max()))
    assert bubbles == sorted(bubbles, reverse=True)
    assert gpipe == [4, 8, 16, 32]
    assert one_f_one_b == [4, 4, 4, 4]


def test_small_microbatches_that_run_less_efficiently_lose_what_the_bubble_gave():
    """64 samples at 1 a sample and 2 a micro-batch (launches, small matrices)."""
    totals = {
        m: simulated(Schedule.GPIPE, 4, m, forward=64 // m + 2, backward=2 * (64 // m + 2)).makespan
        for m in (1, 2, 4, 8, 16, 32, 64)
    }
    assert min(totals, key=totals.__getitem__) not in (1, 64)
    assert totals[64] > totals[8]


def test_1f1b_is_not_faster_than_gpipe():
    for stages, microbatches in ((4, 8), (8, 8), (8, 32)):
        gpipe, one_f_one_b = (
            simulated(s, stages, microbatches, forward=1, backward=2).makespan for s in BOTH
        )
        assert gpipe == one_f_one_b
    # And with transfers that nothing hides it is slower: each round trip is on its path.
    times = with_edges(4, 1, 2, 1)
    gpipe, one_f_one_b = (run_order(build_order(s, 4, 8), times).makespan for s in BOTH)
    assert (gpipe, one_f_one_b) == (39, 49)
    # What it gains is memory.
    assert int(in_flight(build_order(Schedule.ONE_F_ONE_B, 4, 8)).max()) == 4


def test_32_stages_with_16_microbatches():
    """The worked case of 175B parameters: 1F1B saves nothing on the first 17 stages."""
    order = build_order(Schedule.ONE_F_ONE_B, 32, 16)
    kept = in_flight(order).tolist()
    assert kept == [min(16, 32 - s) for s in range(32)]
    assert kept[:17] == [16] * 17
    assert kept[17] == 15
    assert in_flight(build_order(Schedule.GPIPE, 32, 16)).tolist() == [16] * 32
    used = 1 - simulated(Schedule.ONE_F_ONE_B, 32, 16).bubble_fraction
    assert used == pytest.approx(16 / 47, abs=1e-15)
    assert round(100 * used) == 34
    used = 1 - simulated(Schedule.ONE_F_ONE_B, 32, 96).bubble_fraction
    assert used == pytest.approx(96 / 127, abs=1e-15)
    assert round(100 * used, 1) == 75.6
