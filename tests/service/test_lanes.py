"""What counts as a small question."""

from __future__ import annotations

from planner.service.lanes import lane_of
from planner.service.pool import LaneName
from planner.v1 import common_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb


def lane(request: object) -> LaneName:
    return lane_of(type(request).__name__.removesuffix("Request"), request)


def simulation(stages: int, microbatches: int, **fields: object) -> pb.SimulateScheduleRequest:
    return pb.SimulateScheduleRequest(stage_count=stages, microbatch_count=microbatches, **fields)


def test_simulations_are_small_by_their_work() -> None:
    one = common_pb2.SCHEDULE_ONE_F_ONE_B
    assert lane(simulation(8, 64, schedule=one)) is LaneName.QUICK
    assert lane(simulation(512, 4096, schedule=one)) is LaneName.SEARCH
    assert lane(simulation(8, 64, schedule=common_pb2.SCHEDULE_ZB_AUTO)) is LaneName.SEARCH


def test_compared_schedules_count_each() -> None:
    one, gpipe = common_pb2.SCHEDULE_ONE_F_ONE_B, common_pb2.SCHEDULE_GPIPE
    slow = [one, common_pb2.SCHEDULE_ZB_AUTO]
    assert lane(simulation(8, 64, compared_schedules=[one, gpipe])) is LaneName.QUICK
    assert lane(simulation(64, 200, compared_schedules=[one])) is LaneName.QUICK
    assert lane(simulation(64, 200, compared_schedules=[one, gpipe])) is LaneName.SEARCH
    assert lane(simulation(64, 512, compared_schedules=slow)) is LaneName.SEARCH
    assert lane(simulation(8, 8, compared_schedules=slow)) is LaneName.SEARCH


def test_orders_of_others_are_small_by_their_length() -> None:
    def order(length: int) -> pb.SimulateScheduleRequest:
        return pb.SimulateScheduleRequest(order=pb.ForeignOrder(text="x" * length))

    assert lane(order(1000)) is LaneName.QUICK
    assert lane(order(1_000_000)) is LaneName.SEARCH


def test_simulations_are_validated_by_simulating_them() -> None:
    one, auto = common_pb2.SCHEDULE_ONE_F_ONE_B, common_pb2.SCHEDULE_ZB_AUTO
    text = pb.ForeignOrder(text="0F0," * 480_000)
    for large in (
        simulation(64, 512, compared_schedules=[one, auto], validate_only=True),
        pb.SimulateScheduleRequest(order=text, validate_only=True),
    ):
        assert lane(large) is LaneName.SEARCH
    plan = plan_pb2.PlanSource(plan_id="a")
    assert lane(simulation(8, 64, schedule=one, validate_only=True)) is LaneName.QUICK
    assert lane(pb.SimulateScheduleRequest(plan=plan, validate_only=True)) is LaneName.QUICK
    assert lane(pb.SimulateScheduleRequest(plan=plan)) is LaneName.SEARCH


def test_plans_and_curves_are_searches_and_prices_are_not() -> None:
    for request in (pb.SolvePlanRequest(), pb.ComputeScalingCurveRequest()):
        assert lane(request) is LaneName.SEARCH
    for request in (pb.EvaluatePlanRequest(), pb.ExplainPlanRequest(), pb.PutModelRequest()):
        assert lane(request) is LaneName.QUICK
    assert lane(pb.SolvePlanRequest(validate_only=True)) is LaneName.QUICK
