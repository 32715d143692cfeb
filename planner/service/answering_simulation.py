"""In a worker: ``SimulateSchedule``."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from planner.errors import InputError
from planner.formats.torch_schedule import read_order, write_torch_csv
from planner.messages.fields import RequestError, at_field
from planner.service.sources import Sources
from planner.specs import Schedule, Sends
from planner.studies.plan_simulation import simulate_plan
from planner.studies.simulation import simulate
from planner.studies.simulation_result import Simulation
from planner.v1 import common_pb2
from planner.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from planner.service.answering import Work

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
    if kind is None:
        raise RequestError("subject", "is missing; expected a schedule, a plan or an order")
    try:
        found = _of_plan(sources, request, work) if kind == "plan" else _of_order(request, kind)
    except RequestError:
        raise
    except InputError as error:
        raise _at_its_field(error, kind) from None
    response = pb.SimulateScheduleResponse()
    if found is None or request.validate_only:
        return work.finish(response)
    _fill(response, found)
    for rendering in request.renderings:
        text = response.texts.add(rendering=rendering)
        text.text = _rendered(found, rendering, request)
    return work.finish(response)


def _of_plan(
    sources: Sources, request: pb.SimulateScheduleRequest, work: Work
) -> Simulation | None:
    with at_field("plan"):
        plan = sources.plan(request.plan, work.task.plans)
    overrides = sources.overrides(request, plan, work.task.models)
    if overrides["model"] is not None:
        work.made_from(overrides["model"], overrides["cluster"], request.expected)
    if request.validate_only:
        return None
    with at_field("plan"):
        return simulate_plan(
            plan,
            **overrides,
            activation_limit=_one_or_more(request.activation_limit),
            freed_at_i=request.freed_at_i,
        )


def _of_order(request: pb.SimulateScheduleRequest, kind: str) -> Simulation:
    options: dict[str, Any] = {
        option: _one_or_more(getattr(request, field)) for field, option in _OPTION_OF_FIELD.items()
    }
    options["freed_at_i"] = request.freed_at_i
    if request.HasField("pair_ms"):
        options["pair_ms"] = request.pair_ms
    if request.sends:
        options["sends"] = Sends[common_pb2.Sends.Name(request.sends).removeprefix("SENDS_")]
    if kind == "order":
        with at_field("order"):
            if request.order.text:
                order = read_order("-", stdin=io.StringIO(request.order.text))
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
    for field in ("stage_count", "microbatch_count"):
        if not getattr(request, field):
            raise RequestError(field, "is missing; expected a whole number >= 1")
    return simulate(
        schedule,
        stages=request.stage_count,
        microbatches=request.microbatch_count,
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


def _rendered(found: Simulation, rendering: int, request: pb.SimulateScheduleRequest) -> str:
    makers: dict[int, Callable[[], str]] = {
        pb.RENDERING_SVG: lambda: _svg(found),
        pb.RENDERING_CHROME_TRACE: lambda: _trace(found),
        pb.RENDERING_TORCH_CSV: lambda: write_torch_csv(found.order),
        pb.RENDERING_JSON: found.to_json,
        pb.RENDERING_OPERATIONS_JSON: lambda: found.to_json(operations=True),
        pb.RENDERING_TEXT: lambda: _text(found, request),
    }
    maker = makers.get(rendering)
    if maker is None:
        raise RequestError("renderings", f"{rendering} is no Rendering")
    with at_field("renderings"):
        return maker()


def _svg(found: Simulation) -> str:
    from planner.report.timeline_svg import timeline_svg

    return timeline_svg([found.picture()])


def _trace(found: Simulation) -> str:
    from planner.report.chrome_trace import chrome_trace

    return json.dumps(chrome_trace(found.picture())) + "\n"


def _text(found: Simulation, request: pb.SimulateScheduleRequest) -> str:
    from rich.console import Console

    from planner.studies.simulation_view import simulation_view

    width = request.text_width or 132
    if not 40 <= width <= _LARGEST_WIDTH:
        raise RequestError("text_width", f"{width} is out of range; expected 40 to 1000")
    color = request.text_color
    system: Any = "standard" if color else None
    console = Console(
        highlight=False, width=width, file=io.StringIO(), color_system=system, force_terminal=color
    )
    view = simulation_view(
        found, width, timeline_width=width, slots=request.text_slots, color=color
    )
    with console.capture() as captured:
        console.print(view, crop=False)
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))
