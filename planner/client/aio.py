"""The client for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import grpc
from google.longrunning import operations_pb2
from grpc_health.v1 import health_pb2

from planner.client import answers, calls
from planner.client.aio_operations import AsyncRemoteOperation
from planner.client.aio_waiting import AsyncCaller
from planner.client.channel import connection, positive_seconds
from planner.client.curve_calls import (
    Clusters,
    CurveAnswer,
    CurveJob,
    CurveOptions,
    JobAnswer,
    batch_call,
    curve_call,
)
from planner.client.errors import MODEL_NOT_FOUND, RemoteNotFoundError, no_service, plain_error
from planner.client.fields import kept_model
from planner.client.options import (
    AnyModel,
    CallOptions,
    JudgeOptions,
    KeptModel,
    PartitionOptions,
    PlanOptions,
    SimulateOptions,
)
from planner.messages.inputs import model_source
from planner.plans import Plan
from planner.specs import Cluster, Schedule

if TYPE_CHECKING:
    from planner.curves import CurvePoint

__all__ = ["AsyncPlannerClient"]


class AsyncPlannerClient:
    """:class:`planner.client.PlannerClient` with coroutines, for one event loop.

    Parameters
    ----------
    address
        As there, and so are the others.

    Examples
    --------
    >>> async def ask():  # doctest: +SKIP
    ...     async with AsyncPlannerClient("localhost:50051") as planner:
    ...         return await planner.solve_plan(
    ...             "llama3-8b", "dgx-h100:1", global_batch_size=64
    ...         )
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        certificate_file: str | Path | None = None,
        key_file: str | Path | None = None,
        max_message_bytes: int | None = None,
        timeout_s: float = 60.0,
        connect_timeout_s: float = 10.0,
    ) -> None:
        found = connection(
            address,
            token=token,
            ca_file=ca_file,
            certificate_file=certificate_file,
            key_file=key_file,
            max_message_bytes=max_message_bytes,
        )
        self._caller = AsyncCaller(address, found, timeout_s, connect_timeout_s)
        self._sent: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel; calls in progress are cancelled."""
        await self._caller.close()

    # --- plans --------------------------------------------------------------------------------

    async def solve_plan(
        self, model: AnyModel, cluster: Cluster | str, **options: Unpack[PlanOptions]
    ) -> answers.PlanAnswer:
        """:meth:`PlannerClient.solve_plan`, awaited."""
        return await self._caller.run(calls.solve_plan(model, cluster, options))

    def stream_plan(
        self, model: AnyModel, cluster: Cluster | str, **options: Unpack[PlanOptions]
    ) -> AsyncIterator[answers.PlanProgress | answers.PlanAnswer]:
        """:meth:`solve_plan` with its progress on the way; the last item is the answer.

        Leaving the iterator early cancels the search.
        """
        return self._caller.stream(calls.stream_plan(model, cluster, options))

    async def create_plan(
        self, model: AnyModel, cluster: Cluster | str, **options: Unpack[PlanOptions]
    ) -> AsyncRemoteOperation:
        """Start a plan that goes on when this call, or this client, has ended."""
        call, names = calls.create_plan(model, cluster, options)
        return AsyncRemoteOperation(self._caller, await self._caller.run(call), names)

    async def partition_stages(
        self,
        model: AnyModel,
        stages: int,
        microbatches: int = 1,
        **options: Unpack[PartitionOptions],
    ) -> answers.PlanAnswer:
        """The best cut of a model into stages: ``planner.partition`` on the server."""
        return await self._caller.run(calls.partition_stages(model, stages, microbatches, options))

    async def evaluate_plan(
        self, plan: Plan | str, **options: Unpack[JudgeOptions]
    ) -> answers.EvaluateAnswer:
        """Judge a plan (a plan, a plan file, or the id of a kept one): ``planner.evaluate``.

        A model or cluster that the plan names by a file has to be given.
        """
        return await self._caller.run(calls.evaluate_plan(plan, options))

    async def explain_plan(
        self, plan: Plan | str, **options: Unpack[JudgeOptions]
    ) -> answers.ExplainAnswer:
        """What limits a plan, or why nothing fits: ``planner.explain`` on the server."""
        return await self._caller.run(calls.explain_plan(plan, options))

    async def simulate_schedule(
        self, subject: Schedule | Plan | str | None = None, **options: Unpack[SimulateOptions]
    ) -> answers.SimulationAnswer:
        """One step of a schedule, a plan or an order, exactly: ``planner.simulate``."""
        return await self._caller.run(calls.simulate_schedule(subject, options))

    # --- scaling curves -----------------------------------------------------------------------

    async def scaling_curve(
        self,
        model: AnyModel,
        cluster: Clusters,
        *,
        on_point: Callable[[CurvePoint], object] | None = None,
        **options: Unpack[CurveOptions],
    ) -> CurveAnswer:
        """How fast a job would train on each of many allocations: ``planner.scaling_curve``.

        Parameters
        ----------
        on_point
            Gets each point as it is found.
        options
            :class:`planner.client.CurveOptions`.
        """
        async for item in self._caller.stream(curve_call(model, cluster, options)):
            if isinstance(item, CurveAnswer):
                return item
            if on_point is not None:
                on_point(item)
        raise plain_error(grpc.StatusCode.DATA_LOSS, "the curve ended without an answer")

    async def scaling_curves(
        self,
        jobs: Sequence[CurveJob],
        *,
        on_answer: Callable[[JobAnswer], object] | None = None,
        **options: Unpack[CallOptions],
    ) -> dict[str, JobAnswer]:
        """:meth:`scaling_curve` of many jobs in one call, by job; each has its own status.

        A model is sent once, and again where the server has lost it; what is not done at the
        deadline is said to be so.

        Parameters
        ----------
        on_answer
            Gets each job's answer as it comes.
        options
            Limits of each job, and the timeout of the whole.
        """
        call = batch_call(jobs, options)
        for content, source in call.kept.items():
            if content not in self._sent:
                await self._caller.run(calls.put_model(source))
                self._sent.add(content)
        found: dict[str, JobAnswer] = {}
        lost: list[CurveJob] = []
        by_id = {job.job_id: job for job in jobs}
        async for answer in self._caller.stream(call):
            if answer.error is not None and answer.error.reason == MODEL_NOT_FOUND and call.kept:
                lost.append(by_id[answer.job_id])
                continue
            found[answer.job_id] = answer
            if on_answer is not None:
                on_answer(answer)
        if not lost:
            return found
        for source in call.kept.values():
            await self._caller.run(calls.put_model(source))
        again: CallOptions = {**options, "request_id": None}
        async for answer in self._caller.stream(batch_call(lost, again)):
            found[answer.job_id] = answer
            if on_answer is not None:
                on_answer(answer)
        return {job.job_id: found[job.job_id] for job in jobs if job.job_id in found}

    # --- what the server keeps ----------------------------------------------------------------

    async def get_plan(self, plan_id: str) -> Plan:
        """A plan that the server made and still keeps."""
        return await self._caller.run(calls.get_plan(plan_id))

    async def list_plans(
        self, *, full: bool = False, page_size: int = 0
    ) -> AsyncIterator[answers.PlanSummary]:
        """The caller's plans that the server keeps, page by page as they are asked for."""
        token = ""
        while True:
            response = await self._caller.run(calls.list_plans(page_size, token, full))
            for message in response.plans:
                yield answers.plan_summary(message)
            token = response.next_page_token
            if not token:
                return

    async def put_model(self, model: AnyModel) -> KeptModel:
        """Send a model once; what names it in later requests.

        A server that has lost it by then is sent it again, unasked.
        """
        found = kept_model(model)
        if found.model is not None:
            await self._caller.run(calls.put_model(model_source(found.model)))
        return found

    async def catalog(self, name: str | None = None) -> tuple[answers.CatalogEntry, ...]:
        """Models, clusters and devices of the server; or one of them with its text."""
        found: list[answers.CatalogEntry] = []
        token = ""
        while True:
            response = await self._caller.run(calls.catalog(name, token))
            found += map(answers.catalog_entry, response.entries)
            token = response.next_page_token
            if not token:
                return tuple(found)

    # --- operations ---------------------------------------------------------------------------

    async def operation(self, name: str) -> AsyncRemoteOperation:
        """An operation by its name."""
        request = operations_pb2.GetOperationRequest(name=name)
        message = await self._caller.unary(self._caller.operations.GetOperation, request)
        return AsyncRemoteOperation(self._caller, message)

    async def operations(self, *, page_size: int = 0) -> AsyncIterator[AsyncRemoteOperation]:
        """The caller's operations, page by page as they are asked for."""
        token = ""
        while True:
            request = operations_pb2.ListOperationsRequest(
                name="operations", page_size=page_size, page_token=token
            )
            response = await self._caller.unary(self._caller.operations.ListOperations, request)
            for message in response.operations:
                yield AsyncRemoteOperation(self._caller, message)
            token = response.next_page_token
            if not token:
                return

    async def health(self, service: str = "", *, timeout_s: float = 5.0) -> str:
        """``SERVING`` or ``NOT_SERVING``, of the whole server or of a service by its name."""
        request = health_pb2.HealthCheckRequest(service=service)
        within_s = positive_seconds(timeout_s, "timeout_s")
        try:
            response = await self._caller.unary(self._caller.health.Check, request, within_s)
        except RemoteNotFoundError:
            raise no_service(service, self._caller.address) from None
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))
