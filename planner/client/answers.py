"""What the client's methods return, and how it is read from the responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from planner.client.fields import Names
from planner.client.options import NO_REVISIONS, Revisions
from planner.messages.convert import from_message
from planner.messages.plans import explanation_of, plan_of
from planner.plans import Explanation, Layout, Plan, Status, Violation
from planner.v1 import common_pb2, plan_pb2
from planner.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from planner.check import Verification

__all__ = [
    "CatalogEntry",
    "EvaluateAnswer",
    "ExplainAnswer",
    "PlanAnswer",
    "PlanProgress",
    "PlanSummary",
    "Rendering",
    "SimulationAnswer",
    "SimulationFigures",
    "Termination",
]


class Rendering(StrEnum):
    """Texts that a server makes of a simulation."""

    SVG = "svg"
    CHROME_TRACE = "chrome_trace"
    TORCH_CSV = "torch_csv"
    JSON = "json"
    OPERATIONS_JSON = "operations_json"
    TEXT = "text"


@dataclass(frozen=True)
class Termination:
    """Why a solve ended (``optimal``, ``feasible``, ``infeasible``, ``no_solution_found``), the
    limit it met (``none``, ``time``, ``work``, ``interrupted``, ``bound``), and what it holds."""

    reason: str
    limit: str
    value_ms: float | None = None
    bound_ms: float | None = None
    gap: float | None = None


@dataclass(frozen=True)
class PlanAnswer:
    """A plan and what it was made from.

    Of a request that was only validated the plan is empty, and its status ``unknown``.
    """

    plan: Plan
    plan_id: str = ""
    """``get_plan`` finds it by this while the server keeps it."""
    revisions: Revisions = NO_REVISIONS
    termination: Termination | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanProgress:
    """How far a search is."""

    value_ms: float | None = None
    bound_ms: float | None = None
    gap: float | None = None
    layout: Layout | None = None
    """Of the best plan so far."""
    layouts_done: int = 0
    layouts_total: int = 0


@dataclass(frozen=True)
class EvaluateAnswer:
    """What the judge found."""

    verification: Verification
    revisions: Revisions = NO_REVISIONS
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExplainAnswer:
    """Why a plan is what it is."""

    explanation: Explanation
    revisions: Revisions = NO_REVISIONS
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class SimulationFigures:
    """One step of a schedule, as the fields of ``planner.Simulation`` have it."""

    schedule: str
    stages: int
    microbatches: int
    chunks: int
    makespan_ms: float
    step_time_ms: float
    span_ms: float
    waiting_ms: float
    steady_period_ms: float | None
    bubble_fraction: float
    bubble_of_ideal: float
    span_bubble: float
    busy_ms: tuple[float, ...]
    in_flight: tuple[int, ...]
    weight_versions: tuple[int, ...]
    staleness: tuple[int, ...]
    peak_activation: tuple[float, ...]
    fits: bool
    over_limit: tuple[int, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SimulationAnswer:
    """One simulation, or several that are compared, with the texts that were asked for."""

    simulations: tuple[SimulationFigures, ...]
    texts: Mapping[Rendering, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    revisions: Revisions = NO_REVISIONS
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether no rank of any of them exceeds what it may hold."""
        return all(found.fits for found in self.simulations)


@dataclass(frozen=True)
class PlanSummary:
    """A plan that the server keeps."""

    plan_id: str
    model: str
    cluster: str
    status: Status | None
    num_gpus: int
    step_time_ms: float | None
    created: datetime | None
    expires: datetime | None
    plan: Plan | None = None
    """Where whole plans are listed."""


@dataclass(frozen=True)
class CatalogEntry:
    """A model, cluster or device that comes with the planner."""

    kind: str
    """``model``, ``cluster`` or ``device``."""
    name: str
    description: str
    text: str = ""
    """Its file, where one entry was asked for."""
    spec_json: str = ""


# --- from responses ------------------------------------------------------------------------------


def revisions_of(message: common_pb2.Revisions) -> Revisions:
    """Revisions from their message."""
    return Revisions(
        message.model_revision,
        message.calibration_revision,
        message.planner_version,
        message.request_hash,
    )


def plan_answer(response: Any, names: Names | None = None) -> PlanAnswer:
    """The answer of SolvePlan, StreamPlan, PartitionStages and CreatePlan."""
    names = names or Names()
    if response.HasField("plan"):
        plan = names.restore(plan_of(response.plan))
    else:
        plan = Plan(status=Status.UNKNOWN)
    return PlanAnswer(
        plan=plan,
        plan_id=response.plan_id,
        revisions=revisions_of(response.revisions),
        termination=termination_of(response.termination),
        warnings=(*names.warnings, *response.warnings),
    )


def termination_of(message: common_pb2.Termination) -> Termination | None:
    """How a solve ended; None where nothing was solved."""
    if not message.reason:
        return None
    reason = common_pb2.TerminationReason.Name(message.reason)
    limit = common_pb2.TerminationLimit.Name(message.limit)
    return Termination(
        reason.removeprefix("TERMINATION_REASON_").lower(),
        limit.removeprefix("TERMINATION_LIMIT_").lower(),
        *(
            getattr(message, name) if message.HasField(name) else None
            for name in ("value_ms", "bound_ms", "gap")
        ),
    )


def progress_of(message: pb.PlanProgress) -> PlanProgress:
    """Progress of a search from its message."""
    values = {
        name: getattr(message, name)
        for name in ("value_ms", "bound_ms", "gap")
        if message.HasField(name)
    }
    return PlanProgress(
        **values,
        layout=from_message(message.layout, Layout) if message.HasField("layout") else None,
        layouts_done=message.layouts_done_count,
        layouts_total=message.layouts_total_count,
    )


def evaluate_answer(response: pb.EvaluatePlanResponse, names: Names) -> EvaluateAnswer:
    """The judge's findings from the response."""
    from planner.check import Verification

    return EvaluateAnswer(
        Verification(
            violations=tuple(from_message(each, Violation) for each in response.violations),
            plan=names.restore(plan_of(response.plan)) if response.HasField("plan") else None,
            bound_recomputed=response.bound_recomputed,
            layout_bound_checked=response.layout_bound_checked,
        ),
        revisions_of(response.revisions),
        (*names.warnings, *response.warnings),
    )


def explain_answer(response: pb.ExplainPlanResponse, names: Names) -> ExplainAnswer:
    """An explanation from the response."""
    return ExplainAnswer(
        explanation_of(response),
        revisions_of(response.revisions),
        (*names.warnings, *response.warnings),
    )


def simulation_answer(response: pb.SimulateScheduleResponse, names: Names) -> SimulationAnswer:
    """Figures and texts from the response."""
    several = list(response.compared)
    found = several or ([response] if response.schedule else [])
    return SimulationAnswer(
        simulations=tuple(_figures(one) for one in found),
        texts={
            Rendering[pb.Rendering.Name(each.rendering).removeprefix("RENDERING_")]: each.text
            for each in response.texts
        },
        notes=tuple(response.notes),
        revisions=revisions_of(response.revisions),
        warnings=(*names.warnings, *response.warnings),
    )


def _figures(message: pb.SimulateScheduleResponse) -> SimulationFigures:
    period = message.steady_period_ms if message.HasField("steady_period_ms") else None
    return SimulationFigures(
        schedule=message.schedule,
        stages=message.stage_count,
        microbatches=message.microbatch_count,
        chunks=message.chunk_count,
        makespan_ms=message.makespan_ms,
        step_time_ms=message.step_time_ms,
        span_ms=message.span_ms,
        waiting_ms=message.waiting_ms,
        steady_period_ms=period,
        bubble_fraction=message.bubble_fraction,
        bubble_of_ideal=message.bubble_of_ideal,
        span_bubble=message.span_bubble,
        busy_ms=tuple(message.busy_ms),
        in_flight=tuple(message.in_flight),
        weight_versions=tuple(message.weight_versions),
        staleness=tuple(message.staleness),
        peak_activation=tuple(message.peak_activation),
        fits=message.fits,
        over_limit=tuple(message.ranks_over_limit),
        notes=tuple(message.notes),
    )


def plan_summary(message: pb.PlanSummary) -> PlanSummary:
    """A kept plan from its message."""
    return PlanSummary(
        plan_id=message.plan_id,
        model=message.model,
        cluster=message.cluster,
        status=_status(message.status),
        num_gpus=message.num_gpus,
        step_time_ms=message.step_time_ms if message.HasField("step_time_ms") else None,
        created=_instant(message, "create_time"),
        expires=_instant(message, "expire_time"),
        plan=plan_of(message.plan) if message.HasField("plan") else None,
    )


def catalog_entry(message: pb.CatalogEntry) -> CatalogEntry:
    """An entry from its message."""
    kind = pb.CatalogKind.Name(message.kind).removeprefix("CATALOG_KIND_").lower()
    return CatalogEntry(kind, message.name, message.description, message.text, message.spec_json)


def _status(number: int) -> Status | None:
    return Status[plan_pb2.Status.Name(number).removeprefix("STATUS_")] if number else None


def _instant(message: Any, name: str) -> datetime | None:
    if not message.HasField(name):
        return None
    instant: datetime = getattr(message, name).ToDatetime(tzinfo=UTC)
    return instant
