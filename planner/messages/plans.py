"""Plans as messages, and how a solve ended."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from planner.formats.plan_file import check_layout
from planner.messages.convert import from_message, to_message
from planner.plans import Explanation, Infeasible, Plan, Status
from planner.specs import Objective
from planner.v1 import common_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb

__all__ = [
    "LIMITS",
    "explanation_message",
    "explanation_of",
    "key_order",
    "plan_id_of",
    "plan_message",
    "plan_of",
    "put_in_order",
    "termination_message",
]

_REASONS = {
    Status.OPTIMAL: common_pb2.TERMINATION_REASON_OPTIMAL,
    Status.FEASIBLE: common_pb2.TERMINATION_REASON_FEASIBLE,
    Status.INFEASIBLE: common_pb2.TERMINATION_REASON_INFEASIBLE,
    Status.UNKNOWN: common_pb2.TERMINATION_REASON_NO_SOLUTION_FOUND,
}
LIMITS = {
    "proven": common_pb2.TERMINATION_LIMIT_NONE,
    "time_limit": common_pb2.TERMINATION_LIMIT_TIME,
    "work_limit": common_pb2.TERMINATION_LIMIT_WORK,
    "stopped": common_pb2.TERMINATION_LIMIT_INTERRUPTED,
    "weak_bound": common_pb2.TERMINATION_LIMIT_BOUND,
}


def plan_message(plan: Plan) -> plan_pb2.Plan:
    """A plan as a message; :func:`plan_of` gives back one with the same JSON."""
    message = to_message(plan, plan_pb2.Plan())
    message.key_order.extend(key_order(*_maps_of_plan(plan)))
    return message


def plan_of(message: plan_pb2.Plan) -> Plan:
    """A plan from its message.

    Raises
    ------
    pydantic.ValidationError, InputError
        Values that no plan has.
    """
    plan = from_message(message, Plan)
    check_layout(plan)
    put_in_order(message.key_order, *_maps_of_plan(plan))
    return plan


def explanation_message(
    explanation: Explanation, message: pb.ExplainPlanResponse
) -> pb.ExplainPlanResponse:
    """Fill an explanation's fields of a response, and return it."""
    to_message(explanation, message)
    message.key_order.extend(key_order(*_maps_of_explanation(explanation)))
    return message


def explanation_of(message: pb.ExplainPlanResponse) -> Explanation:
    """An explanation from the response that holds it."""
    explanation = from_message(message, Explanation)
    put_in_order(message.key_order, *_maps_of_explanation(explanation))
    return explanation


def plan_id_of(plan: Plan) -> str:
    """Content hash of a plan (SHA-256, 32 hexadecimal digits): the same plan, the same id."""
    return hashlib.sha256(plan.to_json().encode()).hexdigest()[:32]


def termination_message(plan: Plan) -> common_pb2.Termination:
    """How a solve ended on two axes, with value, bound and gap of its objective."""
    limit = common_pb2.TERMINATION_LIMIT_NONE
    if plan.termination is not None:
        limit = LIMITS[plan.termination.reason]
    found = common_pb2.Termination(reason=_REASONS[plan.status], limit=limit)
    if plan.status in (Status.OPTIMAL, Status.FEASIBLE):
        value = plan.bottleneck_ms if plan.objective is Objective.BOTTLENECK else plan.step_time_ms
        for name, number in (("value_ms", value), ("bound_ms", plan.bound_ms), ("gap", plan.gap)):
            if number is not None:
                setattr(found, name, number)
    return found


# --- the order of keys ---------------------------------------------------------------------------


def key_order(*maps: Mapping[str, Any]) -> list[str]:
    """All keys of some maps, each once, so that those of every map are in its own order.

    Examples
    --------
    >>> key_order({"b": 1, "a": 2}, {"b": 1, "c": 3, "a": 2})
    ['b', 'c', 'a']
    """
    order: list[str] = []
    for one in maps:
        at = 0
        for key in one:
            if key in order:
                at = order.index(key) + 1
            else:
                order.insert(at, key)
                at += 1
    return order


def put_in_order(order: Iterable[str], *maps: dict[str, Any]) -> None:
    """Order the keys of some maps in place; unknown ones go last, by name."""
    rank = {key: at for at, key in enumerate(order)}
    for one in maps:
        items = sorted(one.items(), key=lambda item: (rank.get(item[0], len(rank)), item[0]))
        one.clear()
        one.update(items)


def _maps_of_plan(plan: Plan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [stage.memory for stage in plan.stages]
    found += [plan.origins, plan.inputs, *_maps_of_infeasible(plan.infeasible)]
    if plan.certificate is not None:
        found.append(plan.certificate.witness)
    return found


def _maps_of_explanation(explanation: Explanation) -> list[dict[str, Any]]:
    return [explanation.breakdown_ms, *_maps_of_infeasible(explanation.infeasible)]


def _maps_of_infeasible(infeasible: Infeasible | None) -> list[dict[str, Any]]:
    return [] if infeasible is None else [each.arguments for each in infeasible.suggestions]
