"""Plans as messages, and how a solve ended."""

from __future__ import annotations

import hashlib

from planner.messages.convert import from_message, to_message
from planner.plans import Plan, Status
from planner.specs import Objective
from planner.v1 import common_pb2, plan_pb2

__all__ = ["plan_id_of", "plan_message", "plan_of", "termination_message"]

_REASONS = {
    Status.OPTIMAL: common_pb2.TERMINATION_REASON_OPTIMAL,
    Status.FEASIBLE: common_pb2.TERMINATION_REASON_FEASIBLE,
    Status.INFEASIBLE: common_pb2.TERMINATION_REASON_INFEASIBLE,
    Status.UNKNOWN: common_pb2.TERMINATION_REASON_NO_SOLUTION_FOUND,
}
_LIMITS = {
    "proven": common_pb2.TERMINATION_LIMIT_NONE,
    "time_limit": common_pb2.TERMINATION_LIMIT_TIME,
    "work_limit": common_pb2.TERMINATION_LIMIT_WORK,
    "stopped": common_pb2.TERMINATION_LIMIT_INTERRUPTED,
    "weak_bound": common_pb2.TERMINATION_LIMIT_BOUND,
}


def plan_message(plan: Plan) -> plan_pb2.Plan:
    """A plan as a message; :func:`plan_of` gives back an equal one."""
    return to_message(plan, plan_pb2.Plan())


def plan_of(message: plan_pb2.Plan) -> Plan:
    """A plan from its message."""
    return from_message(message, Plan)


def plan_id_of(plan: Plan) -> str:
    """Content hash of a plan (SHA-256, 32 hexadecimal digits): the same plan, the same id."""
    return hashlib.sha256(plan.to_json().encode()).hexdigest()[:32]


def termination_message(plan: Plan) -> common_pb2.Termination:
    """How a solve ended on two axes, with value, bound and gap of its objective."""
    limit = common_pb2.TERMINATION_LIMIT_NONE
    if plan.termination is not None:
        limit = _LIMITS[plan.termination.reason]
    found = common_pb2.Termination(reason=_REASONS[plan.status], limit=limit)
    if plan.status in (Status.OPTIMAL, Status.FEASIBLE):
        value = plan.bottleneck_ms if plan.objective is Objective.BOTTLENECK else plan.step_time_ms
        if value is not None and plan.objective is Objective.TOKENS_PER_DOLLAR:
            value *= plan.num_gpus
        for name, number in (("value_ms", value), ("bound_ms", plan.bound_ms), ("gap", plan.gap)):
            if number is not None:
                setattr(found, name, number)
    return found
