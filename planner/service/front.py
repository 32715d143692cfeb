"""Handlers of ``planner.v1.PlannerService``: bytes in, bytes out.

Requests are parsed here and answers pass through as the worker wrote them, so that an answer that
is kept costs no conversion at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from planner.errors import InputError, NotInCatalogError
from planner.formats import catalog
from planner.messages.inputs import content_hash
from planner.messages.plans import plan_message
from planner.plans import Plan
from planner.service import errors
from planner.service.canonical import parse
from planner.service.curve_batches import batch_of_curves
from planner.service.engine import Asked, Engine
from planner.service.identity import current_caller
from planner.service.operations import Operations
from planner.service.store import PlanRecord
from planner.service.wire import field_of_bytes
from planner.specs import Cluster, Device, Model
from planner.v1 import plan_pb2
from planner.v1 import planner_service_pb2 as pb
from planner.version import planner_version

__all__ = ["Front"]

Context = grpc.aio.ServicerContext[bytes, bytes]

_MOST_A_PAGE, _USUAL_A_PAGE = 1000, 50
_SOLVED = {
    "SolvePlan": pb.SolvePlanRequest,
    "PartitionStages": pb.PartitionStagesRequest,
    "EvaluatePlan": pb.EvaluatePlanRequest,
    "ExplainPlan": pb.ExplainPlanRequest,
    "SimulateSchedule": pb.SimulateScheduleRequest,
}


_KINDS_OF_SPECS: dict[type[object], Any] = {
    Model: pb.CATALOG_KIND_MODEL,
    Cluster: pb.CATALOG_KIND_CLUSTER,
    Device: pb.CATALOG_KIND_DEVICE,
}


class Front:
    """The service's methods."""

    def __init__(self, engine: Engine, operations: Operations) -> None:
        self._engine = engine
        self._operations = operations
        self._catalog: list[pb.CatalogEntry] = []

    def handlers(self) -> grpc.GenericRpcHandler[Any, Any]:
        """All methods, taking and giving bytes."""
        unary: dict[str, Callable[[bytes, Any], Any]] = {
            name: self._solver(name) for name in _SOLVED
        }
        unary |= {
            "CreatePlan": self.create_plan,
            "GetPlan": self.get_plan,
            "ListPlans": self.list_plans,
            "PutModel": self.put_model,
            "ListCatalog": self.list_catalog,
        }
        streams: dict[str, Callable[[bytes, Any], Any]] = {
            "StreamPlan": self.stream_plan,
            "ComputeScalingCurve": self.compute_scaling_curve,
            "BatchComputeScalingCurves": self.batch_compute_scaling_curves,
        }
        methods = {name: grpc.unary_unary_rpc_method_handler(f) for name, f in unary.items()}
        methods |= {name: grpc.unary_stream_rpc_method_handler(f) for name, f in streams.items()}
        service = pb.DESCRIPTOR.services_by_name["PlannerService"]
        assert {method.name for method in service.methods} == set(methods)
        return grpc.method_handlers_generic_handler(service.full_name, methods)

    # --- solved in a worker -------------------------------------------------------------------

    def _solver(self, name: str) -> Callable[[bytes, Context], Any]:
        kind = _SOLVED[name]

        async def solve(data: bytes, context: Context) -> bytes:
            request = parse(kind, data)
            asked = await self._engine.ask(
                name, request, current_caller.get(), context.time_remaining()
            )
            _say_how(context, asked)
            return asked.response

        return solve

    async def stream_plan(self, data: bytes, context: Context) -> AsyncIterator[bytes]:
        """Each better plan or bound, then the answer."""
        request = parse(pb.StreamPlanRequest, data)
        async for message, last in self._stream("StreamPlan", request, context):
            yield field_of_bytes(2 if last else 1, message)

    async def compute_scaling_curve(self, data: bytes, context: Context) -> AsyncIterator[bytes]:
        """Each point as it is found, then the whole curve."""
        request = parse(pb.ComputeScalingCurveRequest, data)
        async for message, last in self._stream("ComputeScalingCurve", request, context):
            yield field_of_bytes(2 if last else 1, message)

    async def _stream(
        self, method: str, request: Any, context: Context
    ) -> AsyncIterator[tuple[bytes, bool]]:
        """Messages on the way, and the last one."""
        found: asyncio.Queue[bytes | None] = asyncio.Queue()
        asking = asyncio.create_task(
            self._engine.ask(
                method,
                request,
                current_caller.get(),
                context.time_remaining(),
                on_progress=found.put_nowait,
            )
        )
        asking.add_done_callback(lambda _: found.put_nowait(None))
        try:
            while (message := await found.get()) is not None:
                yield message, False
            asked = await asking
            _say_how(context, asked)
            yield asked.response, True
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def batch_compute_scaling_curves(
        self, data: bytes, context: Context
    ) -> AsyncIterator[bytes]:
        """A message a job, in order of completion."""
        request = parse(pb.BatchComputeScalingCurvesRequest, data)
        async for message in batch_of_curves(
            self._engine, request, current_caller.get(), context.time_remaining()
        ):
            yield message

    # --- kept ---------------------------------------------------------------------------------

    async def create_plan(self, data: bytes, context: Context) -> bytes:
        """Start a plan that outlives the call."""
        request = parse(pb.CreatePlanRequest, data)
        operation = await self._operations.create(
            request, current_caller.get(), context.time_remaining()
        )
        serialised: bytes = operation.SerializeToString()
        return serialised

    async def get_plan(self, data: bytes, context: Context) -> bytes:
        """A plan by its id; who knows the id may read it."""
        request = parse(pb.GetPlanRequest, data)
        if not request.plan_id:
            raise errors.invalid("plan_id", "is missing")
        record = await self._engine.store.get_plan(request.plan_id, caller=None)
        if record is None:
            raise errors.not_found("plan", request.plan_id)
        plan = await asyncio.to_thread(_plan_of_record, record)
        if plan.stages and not plan.HasField("step_time_ms"):
            plan = await self._priced(plan, request.plan_id, context)
        return pb.GetPlanResponse(
            plan_id=record.plan_id,
            plan=plan,
            create_time=_timestamp(record.created_at),
            expire_time=_timestamp(record.expires_at),
        ).SerializeToString()

    async def _priced(self, sketch: plan_pb2.Plan, plan_id: str, context: Context) -> plan_pb2.Plan:
        """A curve's plan, kept as layout and layers, with its figures; the sketch itself where
        its model is not at hand any more."""
        question = pb.EvaluatePlanRequest(plan=plan_pb2.PlanSource(plan_id=plan_id))
        try:
            asked = await self._engine.ask(
                "EvaluatePlan", question, current_caller.get(), context.time_remaining(),
                counted=False,
            )  # fmt: skip
        except errors.ServiceError as error:
            if error.code is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
            return sketch
        return pb.EvaluatePlanResponse.FromString(asked.response).plan

    async def list_plans(self, data: bytes, context: Context) -> bytes:
        """The caller's plans, newest first."""
        request = parse(pb.ListPlansRequest, data)
        full = request.view == pb.PLAN_VIEW_FULL
        page = await self._engine.store.list_plans(
            caller=current_caller.get().name,
            page_size=page_size_of(request.page_size),
            page_token=request.page_token,
            full=full,
        )
        response = pb.ListPlansResponse(next_page_token=page.next_page_token)
        for record in page.items:
            labels = record.labels
            summary = response.plans.add(
                plan_id=record.plan_id,
                model=labels.model,
                cluster=labels.cluster,
                status=f"STATUS_{labels.status.upper()}" if labels.status else None,
                num_gpus=labels.num_gpus,
                create_time=_timestamp(record.created_at),
                expire_time=_timestamp(record.expires_at),
            )
            if labels.step_time_ms is not None:
                summary.step_time_ms = labels.step_time_ms
            if full:
                summary.plan.CopyFrom(_plan_of_record(record))
        return response.SerializeToString()

    async def put_model(self, data: bytes, context: Context) -> bytes:
        """Keep a model under the hash of its content, once a worker has read it."""
        request = parse(pb.PutModelRequest, data)
        engine = self._engine
        asked = await engine.ask(
            "PutModel", request, current_caller.get(), context.time_remaining()
        )
        response = pb.PutModelResponse.FromString(asked.response)
        response.content_hash = content_hash(request.model)
        if not request.validate_only:
            ttl_s = engine.settings.model_ttl_s
            await engine.store.put_model(
                response.content_hash,
                request.model.SerializeToString(deterministic=True),
                ttl_s=ttl_s,
            )
            response.expire_time.GetCurrentTime()
            response.expire_time.seconds += int(ttl_s)
        return response.SerializeToString()

    async def list_catalog(self, data: bytes, context: Context) -> bytes:
        """Models, clusters and GPUs that come with the planner."""
        request = parse(pb.ListCatalogRequest, data)
        if request.name:
            entry = await asyncio.to_thread(_catalog_entry, request.name)
            return pb.ListCatalogResponse(
                entries=[] if entry is None else [entry], planner_version=planner_version()
            ).SerializeToString()
        if not self._catalog:
            self._catalog = await asyncio.to_thread(_catalog_entries)
        size = page_size_of(request.page_size, usual=_MOST_A_PAGE)
        first = 0
        if request.page_token:
            if not (request.page_token.isascii() and request.page_token.isdigit()):
                raise errors.invalid("page_token", "is none that this server gave")
            first = min(int(request.page_token[:9]), len(self._catalog))
        entries = self._catalog[first : first + size]
        more = first + size < len(self._catalog)
        return pb.ListCatalogResponse(
            entries=entries,
            next_page_token=str(first + size) if more else "",
            planner_version=planner_version(),
        ).SerializeToString()


def page_size_of(asked: int, usual: int = _USUAL_A_PAGE) -> int:
    """Entries of a page: too many are cut to what a page holds (AIP-158)."""
    if asked < 0:
        raise errors.invalid("page_size", f"{asked} is negative")
    return min(asked or usual, _MOST_A_PAGE)


def _say_how(context: Context, asked: Asked) -> None:
    before = tuple(context.trailing_metadata() or ())
    context.set_trailing_metadata(
        (
            *before,
            ("planner-cache", "hit" if asked.cached else "miss"),
            ("planner-queue-ms", f"{1e3 * asked.queue_s:.1f}"),
            ("planner-solve-ms", f"{1e3 * asked.solve_s:.1f}"),
        )
    )


def _plan_of_record(record: PlanRecord) -> plan_pb2.Plan:
    return plan_message(Plan.model_validate_json(record.content))


def _timestamp(instant: float) -> Timestamp:
    found = Timestamp()
    found.FromMicroseconds(int(instant * 1e6))
    return found


def _catalog_entry(name: str) -> pb.CatalogEntry | None:
    """An entry with its text, and its JSON where the name is that of a whole spec."""
    try:
        entry = pb.CatalogEntry(name=name, text=catalog.entry_text(name))
        spec = catalog.entry_spec(name)
    except NotInCatalogError:
        return None
    except InputError as error:
        raise errors.from_input(error, "name") from None
    entry.kind = _KINDS_OF_SPECS[type(spec)]
    entry.spec_json = spec.model_dump_json(indent=2)
    return entry


def _catalog_entries() -> list[pb.CatalogEntry]:
    kinds = (
        (pb.CATALOG_KIND_MODEL, catalog.list_models()),
        (pb.CATALOG_KIND_CLUSTER, catalog.list_clusters()),
        (pb.CATALOG_KIND_DEVICE, catalog.list_devices()),
    )
    return [
        pb.CatalogEntry(kind=kind, name=entry.name, description=entry.description)
        for kind, entries in kinds
        for entry in entries
    ]
