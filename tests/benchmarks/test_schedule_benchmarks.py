"""Orders built and simulated. Run with --benchmark-only -s: figures and ratios of one run."""

from __future__ import annotations

import time

import numpy as np
import pytest
from slow_simulator import Costs
from slow_simulator import simulate as simulate_slowly

from planner.schedule_rules import RULES
from planner.schedules.order_batch import BatchTimes, finishes_of_order
from planner.schedules.orders import build_order, fixed_order
from planner.schedules.timeline import StageTimes, run_order, unit_times
from planner.specs import Schedule

RANKS, MICROBATCHES = 64, 1024
FIXED = [s for s in Schedule if s not in (Schedule.NAIVE, Schedule.ZB_AUTO)]


def large(schedule: Schedule):
    chunks = 2 if RULES[schedule].chunks is None else None
    return build_order(schedule, RANKS, MICROBATCHES, num_chunks=chunks)


@pytest.mark.parametrize("schedule", FIXED)
def test_build(benchmark, schedule):
    def build():
        fixed_order.cache_clear()
        return large(schedule)

    order = benchmark.pedantic(build, rounds=3, warmup_rounds=1)
    print(f"\n{schedule.value}: {order.num_operations} operations")


@pytest.mark.parametrize("schedule", FIXED)
def test_simulate_compiled(benchmark, schedule):
    pytest.importorskip("numba")
    order = large(schedule)
    times = unit_times(order.num_stages)
    timeline = benchmark.pedantic(run_order, args=(order, times), rounds=5, warmup_rounds=2)
    assert timeline.makespan > 0
    print(f"\n{schedule.value}: {order.num_operations} operations")


def test_against_an_event_simulator(benchmark):
    """The loop in plain Python and compiled against a heap of events, the same order."""
    order = build_order(Schedule.ZB_H1, 8, 64)
    costs = Costs([2] * 8, [3] * 8, [1] * 8, [1] * 7, [1] * 7)
    times = StageTimes(
        *(np.array(row, np.int64) for row in ([2] * 8, [3] * 8, [1] * 8, [1] * 7, [1] * 7))
    )
    lists = order.rank_lists()
    begun = time.perf_counter()
    slow = simulate_slowly(lists, costs)
    slow_s = time.perf_counter() - begun
    run_order(order, times)
    quick = benchmark(run_order, order, times)
    assert slow.makespan == quick.makespan
    ratio = slow_s / benchmark.stats.stats.median
    print(f"\n{order.num_operations} operations: {ratio:.0f} times the event simulator")
    assert ratio > 2


def test_a_hundred_cuts_at_once(benchmark):
    """Batched simulation against one cut after the other."""
    order = build_order(Schedule.ZB_H1, 8, 48)
    rng = np.random.default_rng(1)
    parts = [rng.integers(1, 100, (100, 8)) for _ in range(3)]
    parts += [rng.integers(0, 9, (100, 7)) for _ in range(2)]
    batch = BatchTimes(*parts)
    begun = time.perf_counter()
    alone = [run_order(order, StageTimes(*(part[k] for part in parts))).finish for k in range(100)]
    alone_s = time.perf_counter() - begun
    together = benchmark(finishes_of_order, order, batch)
    assert (together == np.array(alone)).all()
    print(f"\n{alone_s / benchmark.stats.stats.median:.0f} times as fast as one by one")


@pytest.mark.parametrize("effort", ["quick", "full"])
@pytest.mark.parametrize(("ranks", "microbatches"), [(8, 48), (16, 64)])
def test_automatic_zero_bubble(benchmark, effort, ranks, microbatches):
    rng = np.random.default_rng(ranks)
    times = StageTimes(
        forward=rng.integers(80, 120, ranks),
        input_gradient=rng.integers(80, 120, ranks),
        weight_gradient=rng.integers(60, 90, ranks),
        edge_forward=np.full(ranks - 1, 5),
        edge_backward=np.full(ranks - 1, 5),
    )

    def build():
        return build_order(
            Schedule.ZB_AUTO, ranks, microbatches, times=times, aim="makespan", effort=effort
        )

    order = benchmark.pedantic(build, rounds=3, warmup_rounds=1)
    plain = run_order(build_order(Schedule.ZB_H1, ranks, microbatches), times).makespan
    makespan = run_order(order, times).makespan
    print(f"\n{effort}: {100 * (1 - makespan / plain):.1f} % below ZB-H1")
    assert makespan <= plain
