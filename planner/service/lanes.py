"""Which questions are small: they have slots of their own, and never wait behind a search.

Measured on two cores: a cut of 130 layers takes about 3 ms in a worker, the price of a plan 5 ms,
a simulation of 100,000 operations 50 ms; a search over layouts 30 ms to minutes.
"""

from __future__ import annotations

from typing import Any

from planner.service.pool import LaneName
from planner.v1 import common_pb2

__all__ = ["lane_of"]

_SMALL_SIMULATION = 100_000
"""Operations of a simulation: ranks x micro-batches x chunks x 3."""
_SMALL_ORDER = 100_000
"""Bytes of somebody else's order: some 10,000 operations."""
_SLOW_ORDERS = {common_pb2.SCHEDULE_ZB_AUTO, common_pb2.SCHEDULE_ZB_V}
"""Schedules whose order is searched for."""
_MOST_STAGES = 512


def lane_of(method: str, request: Any) -> LaneName:
    """The lane of a request."""
    return LaneName.QUICK if _is_small(method, request) else LaneName.SEARCH


def _is_small(method: str, request: Any) -> bool:
    if method == "SimulateSchedule":
        return _is_small_simulation(request)
    if getattr(request, "validate_only", False) or method == "PutModel":
        return True
    if method == "PartitionStages":
        exact = request.objective in (
            common_pb2.OBJECTIVE_UNSPECIFIED,
            common_pb2.OBJECTIVE_BOTTLENECK,
        )
        few = len(request.schedules) <= 1 and not request.all_synchronous_schedules
        return exact and few and request.stage_count <= _MOST_STAGES
    return method in ("EvaluatePlan", "ExplainPlan")


def _is_small_simulation(request: Any) -> bool:
    if request.HasField("plan"):
        return bool(request.validate_only)
    # Others are simulated to be validated: only then it is known whether they can run.
    if request.HasField("order"):
        return bool(request.order.ByteSize() <= _SMALL_ORDER)
    schedules = [*request.compared_schedules] or [request.schedule]
    each = 3 * request.stage_count * request.microbatch_count * max(2, request.chunk_count)
    return each * len(schedules) <= _SMALL_SIMULATION and _SLOW_ORDERS.isdisjoint(schedules)
