"""In-flight claims of the stage table against the orders themselves."""

import pytest

from planner.cost.in_flight import allowed_recompute, in_flight_microbatches
from planner.operations import Kind
from planner.schedule_rules import RULES
from planner.schedules.memory_curve import in_flight
from planner.schedules.orders import build_order
from planner.specs import Recompute, Schedule

FIXED = [
    s
    for s in Schedule
    if not RULES[s].several_stages and s not in (Schedule.NAIVE, Schedule.ZB_AUTO)
]


@pytest.mark.parametrize("schedule", FIXED)
def test_claims_are_what_the_orders_hold(schedule):
    for ranks in range(1, 9):
        for microbatches in (1, 2, 3, 4, 5, 8, 15, 16, 17, 40):
            claimed = in_flight_microbatches(schedule, ranks, microbatches)
            held = in_flight(build_order(schedule, ranks, microbatches), Kind.W).tolist()
            if RULES[schedule].asynchronous:  # a stream never drains, a short run does not fill it
                claimed = [min(count, microbatches) for count in claimed]
            assert all(held[r] <= claimed[r] for r in range(ranks))
            if schedule is not Schedule.ZB_H2 or microbatches >= 2 * ranks - 1:
                assert max(held) == max(claimed)
            if schedule not in (Schedule.ZB_H1, Schedule.ZB_H2):
                assert held == claimed


def test_the_automatic_order_needs_no_more_than_1f1b():
    for ranks in (1, 2, 4, 7):
        for microbatches in (1, 3, 8, 20):
            claimed = in_flight_microbatches(Schedule.ZB_AUTO, ranks, microbatches)
            order = build_order(
                Schedule.ZB_AUTO, ranks, microbatches, activation_limit=[float(n) for n in claimed]
            )
            held = in_flight(order, Kind.W).tolist()
            assert all(n <= most for n, most in zip(held, claimed, strict=True))


def test_split_backwards_leave_no_full_recompute():
    every = tuple(Recompute)
    assert allowed_recompute(Schedule.ONE_F_ONE_B, every) == every
    kept = allowed_recompute(Schedule.ZB_V, every)
    assert kept == (Recompute.NONE, Recompute.SELECTIVE)
    assert allowed_recompute(Schedule.ZB_V, (Recompute.FULL,)) == ()
