"""In a worker: ``SimulateSchedule``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from google.protobuf.message import Message

from planner.errors import InputError
from planner.formats.torch_schedule import parse_order
from planner.messages.fields import RequestError, at_field
from planner.messages.inputs import schedules_of, sends_of
from planner.plans import Status
from planner.questions import plan_question
from planner.service.sources import Sources
from planner.service.validation import as_far_as_it_is_quick
from planner.service.work import Work
from planner.specs import Schedule
from planner.studies.comparison import compare_schedules
from planner.studies.plan_simulation import simulate_plan
from planner.studies.simulation import simulate
from planner.studies.simulation_result import Simulation
from planner.studies.simulation_texts import Look, SimulationTexts
from planner.studies.simulation_times import TimeOptions
from planner.v1 import common_pb2
from planner.v1 import planner_service_pb2 as pb

__all__ = ["simulate_schedule"]

_LARGEST_WIDTH = 1000
_OPTION_OF_FIELD = {
    "forward_ms": "forward_ms",
    "backward_ms": "backward_ms",
    "weight_gradient_ms": "wgrad_ms",
    "communication_ms": "comm_ms",
    "reduction_ms": "reduction_ms",
    "optimizer_ms": "optimizer_ms",
    "activation_limit": "activation_limit",
}
_FIELD_OF_OPTION = {option: field for field, option in _OPTION_OF_FIELD.items()} | {
    "stages": "stage_count",
    "microbatches": "microbatch_count",
    "chunks": "chunk_count",
}


def simulate_schedule(sources: Sources, request: pb.SimulateScheduleRequest, work: Work) -> Message:
    """Simulate what the request names, and render it as it asks."""
    kind = request.WhichOneof("subject")
    if request.compared_schedules:
        if kind is not None:
            raise RequestError("compared_schedules", f"is contradicted by {kind}")
        kind = "compared_schedules"
    if kind is None:
        raise RequestError("subject", "is missing; expected a schedule, a plan or an order")
    _check_renderings(request)
    try:
        if kind == "plan":
            found = _of_plan(sources, request, work)
        elif kind == "compared_schedules":
            found = _compared(request)
        else:
            found = SimulationTexts([_of_order(request, kind)])
    except RequestError:
        raise
    except InputError as error:
        raise _at_its_field(error, kind) from None
    response = pb.SimulateScheduleResponse()
    if found is None or request.validate_only:
        return work.finish(response)
    if found.compared:
        for one in found.found:
            _fill(response.compared.add(), one)
        response.notes.extend(found.notes)
    else:
        _fill(response, found.found[0])
    for rendering in request.renderings:
        text = response.texts.add(rendering=rendering)
        text.text = _rendered(found, rendering, request)
    return work.finish(response)


def _of_plan(
    sources: Sources, request: pb.SimulateScheduleRequest, work: Work
) -> SimulationTexts | None:
    with at_field("plan"):
        plan = sources.plan(request.plan, work.task.plans)
    overrides = sources.overrides(request, plan, work.task.models)
    with at_field("plan"):
        work.made_from_plan(plan, overrides, request.expected)
    if request.validate_only:
        with at_field("plan"), as_far_as_it_is_quick():
            if plan.stages or plan.status in (Status.INFEASIBLE, Status.UNKNOWN):
                simulate_plan(plan, **overrides)
            else:  # its best cut is searched, which may take long
                plan_question(plan, **overrides)
        return None
    with at_field("plan"):
        found = simulate_plan(
            plan,
            **overrides,
            activation_limit=_one_or_more(request.activation_limit),
            freed_at_i=request.freed_at_i,
        )
    return SimulationTexts([found])


def _options(request: pb.SimulateScheduleRequest) -> dict[str, Any]:
    options: dict[str, Any] = {
        option: _one_or_more(getattr(request, field)) for field, option in _OPTION_OF_FIELD.items()
    }
    options["freed_at_i"] = request.freed_at_i
    if request.HasField("pair_ms"):
        options["pair_ms"] = request.pair_ms
    sends = sends_of(request.sends)
    if sends is not None:
        options["sends"] = sends
    return options


def _compared(request: pb.SimulateScheduleRequest) -> SimulationTexts:
    options = _options(request)
    names = [each.name for each in fields(TimeOptions)]
    times = TimeOptions(**{name: options.pop(name) for name in names if name in options})
    found, notes = compare_schedules(
        schedules_of(request.compared_schedules, False, keep_doubles=True),
        *_shape(request),
        chunks=request.chunk_count or None,
        group_size=request.group_size or None,
        times=times,
        aim="makespan" if request.aim == "makespan" else "span",
        **options,
    )
    return SimulationTexts(found, compared=True, notes=notes)


def _shape(request: pb.SimulateScheduleRequest) -> tuple[int, int]:
    for field in ("stage_count", "microbatch_count"):
        if not getattr(request, field):
            raise RequestError(field, "is missing; expected a whole number >= 1")
    return request.stage_count, request.microbatch_count


def _of_order(request: pb.SimulateScheduleRequest, kind: str) -> Simulation:
    options = _options(request)
    if kind == "order":
        with at_field("order"):
            if request.order.text:
                order = parse_order(request.order.text, request.order.name or "<stdin>")
                return simulate(order=order, **options)
            return simulate(
                order=[list(rank.operations) for rank in request.order.ranks], **options
            )
    with at_field("schedule"):
        try:
            name = common_pb2.Schedule.Name(request.schedule).removeprefix("SCHEDULE_")
            schedule = Schedule[name]
        except (ValueError, KeyError):
            raise InputError("is no schedule", value=request.schedule) from None
    stages, microbatches = _shape(request)
    return simulate(
        schedule,
        stages=stages,
        microbatches=microbatches,
        chunks=request.chunk_count or None,
        group_size=request.group_size or None,
        aim=request.aim or "span",
        **options,
    )


def _one_or_more(values: Sequence[float]) -> float | list[float] | None:
    if not values:
        return None
    return values[0] if len(values) == 1 else list(values)


def _at_its_field(error: InputError, kind: str) -> RequestError:
    """The error at the field behind the library's name for it."""
    name = (error.file or "").partition(" ")[0]
    field = _FIELD_OF_OPTION.get(name)
    if field is None and name in pb.SimulateScheduleRequest.DESCRIPTOR.fields_by_name:
        field = name
    return RequestError(field or kind, str(error), error.reason, error)


def _fill(response: pb.SimulateScheduleResponse, found: Simulation) -> None:
    figures = found.to_dict()
    response.schedule = found.schedule
    response.stage_count = found.num_ranks
    response.microbatch_count = found.num_microbatches
    response.chunk_count = found.chunks
    for name in (
        "makespan_ms",
        "step_time_ms",
        "span_ms",
        "waiting_ms",
        "steady_period_ms",
        "bubble_fraction",
        "bubble_of_ideal",
        "span_bubble",
        "fits",
    ):
        if figures[name] is not None:
            setattr(response, name, figures[name])
    for name in (
        "busy_ms",
        "in_flight",
        "weight_versions",
        "staleness",
        "peak_activation",
        "notes",
    ):
        getattr(response, name).extend(figures[name])
    response.ranks_over_limit.extend(figures["over_limit"])


_NEED_ONE_SCHEDULE = (pb.RENDERING_CHROME_TRACE, pb.RENDERING_TORCH_CSV)


def _check_renderings(request: pb.SimulateScheduleRequest) -> None:
    """Refuse what cannot be rendered before anything is simulated."""
    for rendering in request.renderings:
        if rendering == 0 or rendering not in pb.Rendering.values():
            raise RequestError("renderings", f"{rendering} is no Rendering")
        if request.compared_schedules and rendering in _NEED_ONE_SCHEDULE:
            raise RequestError("renderings", "that text is of one schedule, not of a comparison")
    for field in ("text_width", "timeline_width"):
        width = getattr(request, field)
        if width and not 40 <= width <= _LARGEST_WIDTH:
            raise RequestError(field, f"{width} is out of range; expected 40 to {_LARGEST_WIDTH}")


def _rendered(found: SimulationTexts, rendering: int, request: pb.SimulateScheduleRequest) -> str:
    makers: dict[int, Callable[[], str]] = {
        pb.RENDERING_SVG: found.svg,
        pb.RENDERING_CHROME_TRACE: found.trace,
        pb.RENDERING_TORCH_CSV: found.csv,
        pb.RENDERING_JSON: lambda: found.json(False),
        pb.RENDERING_OPERATIONS_JSON: lambda: found.json(True),
        pb.RENDERING_TEXT: lambda: found.text(_look(request)),
    }
    with at_field("renderings"):
        return makers[rendering]()


def _look(request: pb.SimulateScheduleRequest) -> Look:
    return Look(
        width=request.text_width or Look.width,
        timeline_width=request.timeline_width or None,
        slots=request.text_slots,
        color=request.text_color,
    )
