"""The blocking client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import grpc
from google.longrunning import operations_pb2
from grpc_health.v1 import health_pb2

from planner.client import answers, calls
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
from planner.client.operations import RemoteOperation
from planner.client.options import (
    AnyModel,
    CallOptions,
    JudgeOptions,
    KeptModel,
    PartitionOptions,
    PlanOptions,
    SimulateOptions,
)
from planner.client.waiting import Caller
from planner.messages.inputs import model_source
from planner.plans import Plan
from planner.specs import Cluster, Schedule

if TYPE_CHECKING:
    from planner.curves import CurvePoint

__all__ = ["PlannerClient"]


class PlannerClient:
    """A planner on another machine, with the library's questions and answers.

    One client serves many threads; its one channel is opened at the first call.

    Parameters
    ----------
    address
        ``host:port``, ``unix:path``, or a name that gRPC resolves, as
        ``dns:///planner.default.svc:50051``; ``https://`` in front asks for TLS.
    token
        Bearer token.
    ca_file, certificate_file, key_file
        PEM: who may have signed the server's certificate, and who we are.
    max_message_bytes
        Largest message either way; None: what the server takes.
    timeout_s
        Deadline of a call that sets none: queueing, solving and retries.
    connect_timeout_s
        How long the first call waits for a server that does not answer.

    Raises
    ------
    InputError
        An address or file that cannot be used.

    Examples
    --------
    >>> with PlannerClient("localhost:50051") as planner:  # doctest: +SKIP
    ...     answer = planner.solve_plan("llama3-8b", "dgx-h100:1", global_batch_size=64)
    >>> answer.plan.layout.short()  # doctest: +SKIP
    'dp4 x pp1 x tp2, m=2, M=8, 1f1b'
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
        self._caller = Caller(address, found, timeout_s, connect_timeout_s)
        self._sent: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel; calls in progress are cancelled."""
        self._caller.close()

    # --- plans --------------------------------------------------------------------------------

    def solve_plan(
        self, model: AnyModel, cluster: Cluster | str, **options: Unpack[PlanOptions]
    ) -> answers.PlanAnswer:
        """The best layout of a model on a cluster: ``planner.plan`` on the server.

        Parameters
        ----------
        model, cluster
            Specs, names of the server's catalog, or files, which are read here and sent.
        options
            :class:`planner.client.PlanOptions`.

        Raises
        ------
        RemoteError
            See :mod:`planner.client.errors`. "Nothing fits" is an answer.
        """
        return self._caller.run(calls.solve_plan(model, cluster, options))

    def stream_plan(
        self, model: AnyModel, cluster: Cluster | str, **options: Unpack[PlanOptions]
    ) -> Iterator[answers.PlanProgress | answers.PlanAnswer]:
        """:meth:`solve_plan` with its progress on the way; the last item is the answer.

        Leaving the iterator early cancels the search.
        """
        return self._caller.stream(calls.stream_plan(model, cluster, options))

    def create_plan(
        self, model: AnyModel, cluster: Cluster | str, **options: Unpack[PlanOptions]
    ) -> RemoteOperation:
        """Start a plan that goes on when this call, or this client, has ended."""
        call, names = calls.create_plan(model, cluster, options)
        return RemoteOperation(self._caller, self._caller.run(call), names)

    def partition_stages(
        self,
        model: AnyModel,
        stages: int,
        microbatches: int = 1,
        **options: Unpack[PartitionOptions],
    ) -> answers.PlanAnswer:
        """The best cut of a model into stages: ``planner.partition`` on the server."""
        return self._caller.run(calls.partition_stages(model, stages, microbatches, options))

    def evaluate_plan(
        self, plan: Plan | str, **options: Unpack[JudgeOptions]
    ) -> answers.EvaluateAnswer:
        """Judge a plan (a plan, a plan file, or the id of a kept one): ``planner.evaluate``.

        A model or cluster that the plan names by a file has to be given.
        """
        return self._caller.run(calls.evaluate_plan(plan, options))

    def explain_plan(
        self, plan: Plan | str, **options: Unpack[JudgeOptions]
    ) -> answers.ExplainAnswer:
        """What limits a plan, or why nothing fits: ``planner.explain`` on the server."""
        return self._caller.run(calls.explain_plan(plan, options))

    def simulate_schedule(
        self, subject: Schedule | Plan | str | None = None, **options: Unpack[SimulateOptions]
    ) -> answers.SimulationAnswer:
        """One step of a schedule, a plan or an order, exactly: ``planner.simulate``."""
        return self._caller.run(calls.simulate_schedule(subject, options))

    # --- scaling curves -----------------------------------------------------------------------

    def scaling_curve(
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
        for item in self._caller.stream(curve_call(model, cluster, options)):
            if isinstance(item, CurveAnswer):
                return item
            if on_point is not None:
                on_point(item)
        raise plain_error(grpc.StatusCode.DATA_LOSS, "the curve ended without an answer")

    def scaling_curves(
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
                self._caller.run(calls.put_model(source))
                self._sent.add(content)
        found: dict[str, JobAnswer] = {}
        lost: list[CurveJob] = []
        by_id = {job.job_id: job for job in jobs}
        for answer in self._caller.stream(call):
            if answer.error is not None and answer.error.reason == MODEL_NOT_FOUND and call.kept:
                lost.append(by_id[answer.job_id])
                continue
            found[answer.job_id] = answer
            if on_answer is not None:
                on_answer(answer)
        if not lost:
            return found
        for source in call.kept.values():
            self._caller.run(calls.put_model(source))
        again: CallOptions = {**options, "request_id": None}
        for answer in self._caller.stream(batch_call(lost, again)):
            found[answer.job_id] = answer
            if on_answer is not None:
                on_answer(answer)
        return {job.job_id: found[job.job_id] for job in jobs if job.job_id in found}

    # --- what the server keeps ----------------------------------------------------------------

    def get_plan(self, plan_id: str) -> Plan:
        """A plan that the server made and still keeps."""
        return self._caller.run(calls.get_plan(plan_id))

    def list_plans(
        self, *, full: bool = False, page_size: int = 0
    ) -> Iterator[answers.PlanSummary]:
        """The caller's plans that the server keeps, page by page as they are asked for."""
        token = ""
        while True:
            response = self._caller.run(calls.list_plans(page_size, token, full))
            yield from map(answers.plan_summary, response.plans)
            token = response.next_page_token
            if not token:
                return

    def put_model(self, model: AnyModel) -> KeptModel:
        """Send a model once; what names it in later requests.

        A server that has lost it by then is sent it again, unasked.
        """
        found = kept_model(model)
        if found.model is not None:
            self._caller.run(calls.put_model(model_source(found.model)))
        return found

    def catalog(self, name: str | None = None) -> tuple[answers.CatalogEntry, ...]:
        """Models, clusters and devices of the server; or one of them with its text."""
        found: list[answers.CatalogEntry] = []
        token = ""
        while True:
            response = self._caller.run(calls.catalog(name, token))
            found += map(answers.catalog_entry, response.entries)
            token = response.next_page_token
            if not token:
                return tuple(found)

    # --- operations ---------------------------------------------------------------------------

    def operation(self, name: str) -> RemoteOperation:
        """An operation by its name."""
        request = operations_pb2.GetOperationRequest(name=name)
        message = self._caller.unary(self._caller.operations.GetOperation, request)
        return RemoteOperation(self._caller, message)

    def operations(self, *, page_size: int = 0) -> Iterator[RemoteOperation]:
        """The caller's operations, page by page as they are asked for."""
        token = ""
        while True:
            request = operations_pb2.ListOperationsRequest(
                name="operations", page_size=page_size, page_token=token
            )
            response = self._caller.unary(self._caller.operations.ListOperations, request)
            for message in response.operations:
                yield RemoteOperation(self._caller, message)
            token = response.next_page_token
            if not token:
                return

    def health(self, service: str = "", *, timeout_s: float = 5.0) -> str:
        """``SERVING`` or ``NOT_SERVING``, of the whole server or of a service by its name."""
        request = health_pb2.HealthCheckRequest(service=service)
        within_s = positive_seconds(timeout_s, "timeout_s")
        try:
            response = self._caller.unary(self._caller.health.Check, request, within_s)
        except RemoteNotFoundError:
            raise no_service(service, self._caller.address) from None
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))
