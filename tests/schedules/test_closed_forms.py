"""Closed forms against the textbook and against simulation."""

from __future__ import annotations

import random
from itertools import product

import pytest

from planner.schedule_rules import shape_problem
from planner.schedules.closed_forms import (
    bubble_of_equal_chunks,
    bubble_of_equal_stages,
    equal_stage_steps,
    popular_makespan,
    steady_period,
    utilisation_of_equal_stages,
)
from planner.schedules.orders import build_order
from planner.schedules.simulate import RECURRENT, bubble_fraction, simulate
from planner.schedules.timeline import run_order, unit_times
from planner.specs import Schedule


def test_equal_stages_match_simulation_exactly():
    for schedule in RECURRENT:
        for ranks in (1, 2, 4, 7):
            for microbatches in (1, 2, 4, 8, 33):
                edges = [0] * (ranks - 1)
                timing = simulate(schedule, [1] * ranks, [1] * ranks, edges, edges, microbatches)
                assert timing.makespan == equal_stage_steps(ranks, microbatches)
                bubble = bubble_of_equal_stages(ranks, microbatches)
                assert abs(bubble_fraction(timing, ranks) - float(bubble)) < 1e-12
                assert bubble + utilisation_of_equal_stages(ranks, microbatches) == 1


def test_utilisation_list_of_eight_stages():
    printed = [12.5, 22.2, 36.4, 53.3, 69.6, 82.1, 90.1, 94.8]
    got = [round(100 * float(utilisation_of_equal_stages(8, 2**i)), 1) for i in range(8)]
    assert got == printed


def test_bubble_shrinks_towards_zero_like_stages_over_microbatches():
    large = bubble_of_equal_stages(8, 10_000)
    assert abs(float(large) / (7 / 10_000) - 1) < 1e-3


def test_popular_form_is_no_bound():
    def one_f_one_b(f, b, microbatches):
        edges = [0] * (len(f) - 1)
        return simulate(Schedule.ONE_F_ONE_B, f, b, edges, edges, microbatches).makespan

    def popular(f, b, microbatches):
        return popular_makespan([x + y for x, y in zip(f, b, strict=True)], microbatches)

    first_heavy = ([10, 1, 1, 1], [20, 2, 2, 2], 8)
    assert popular(*first_heavy) == 249 > one_f_one_b(*first_heavy) == 240
    opposite = ([5, 1, 1], [1, 5, 1], 6)
    assert popular(*opposite) == 44 < one_f_one_b(*opposite) == 46
    assert popular_makespan([3] * 4, 8, 6) == 39


def test_steady_period_is_the_simulated_rate():
    rng = random.Random(2)
    for _ in range(60):
        ranks = rng.randint(1, 6)
        f = [rng.randint(1, 9) for _ in range(ranks)]
        b = [rng.randint(1, 9) for _ in range(ranks)]
        ef = [rng.randint(0, 5) for _ in range(ranks - 1)]
        eb = [rng.randint(0, 5) for _ in range(ranks - 1)]
        period = steady_period([x + y for x, y in zip(f, b, strict=True)], ef, eb)
        # 60 micro-batches are a multiple of every window length up to 6.
        spans = [simulate(Schedule.ONE_F_ONE_B, f, b, ef, eb, m).makespan for m in (1200, 1260)]
        assert spans[1] - spans[0] == 60 * period


CLOSED = [
    Schedule.GPIPE,
    Schedule.ONE_F_ONE_B,
    Schedule.EAGER_ONE_F_ONE_B,
    Schedule.INTERLEAVED,
    Schedule.LOOPED_BFS,
    Schedule.ZB_H1,
    Schedule.ZB_H2,
    Schedule.ZB_V,
]


@pytest.mark.parametrize("schedule", CLOSED)
def test_bubbles_of_equal_chunks_are_those_of_the_simulator(schedule):
    inside = 0
    for ranks, microbatches, chunks, f, i, w in product(
        range(1, 6), range(1, 14), (1, 2, 3), (1, 2, 4), (1, 2, 5), (1, 3)
    ):
        if shape_problem(schedule, ranks, microbatches, chunks) is not None:
            continue
        if schedule is Schedule.INTERLEAVED and chunks == 1:
            continue
        claimed = bubble_of_equal_chunks(schedule, ranks, microbatches, chunks, f, i, w)
        if claimed is None:
            continue
        inside += 1
        order = build_order(schedule, ranks, microbatches, num_chunks=chunks)
        times = unit_times(ranks * chunks, f, i + w, w)
        timeline = run_order(order, times)
        assert timeline.span - microbatches * chunks * (f + i + w) == claimed
    assert inside >= 30


def test_closed_forms_say_nothing_outside_their_domain():
    assert bubble_of_equal_chunks(Schedule.INTERLEAVED, 4, 3, 2, 1, 1, 1) is None
    assert bubble_of_equal_chunks(Schedule.ZB_H2, 4, 6, 1, 1, 1, 1) is None
    assert bubble_of_equal_chunks(Schedule.ZB_V, 4, 8, 2, 2, 1, 1) is None
    assert bubble_of_equal_chunks(Schedule.V_MIN, 4, 8, 2, 1, 1, 1) is None
