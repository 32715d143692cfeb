"""A planner service in this process that does as it is told, for tests of the client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from planner.messages.plans import plan_message
from planner.plans import Plan
from planner.v1 import planner_service_pb2 as pb
from planner.v1 import planner_service_pb2_grpc

Answer = Callable[[Any, grpc.ServicerContext], Any]


class FakeService(planner_service_pb2_grpc.PlannerServiceServicer):
    """Each call is noted; the first entries of ``script`` answer before the usual answer does."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.metadata: list[dict[str, str]] = []
        self.remaining_s: list[float | None] = []
        self.script: list[Answer] = []
        self.usual: dict[str, Answer] = {
            "SolvePlan": lambda request, context: solved(),
            "PutModel": lambda request, context: pb.PutModelResponse(content_hash="hash"),
        }
        self.address = ""

    def answer(self, name: str, request: Any, context: grpc.ServicerContext) -> Any:
        """Note a call and answer it."""
        self.calls.append((name, request))
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
        self.remaining_s.append(context.time_remaining())
        if self.script:
            return self.script.pop(0)(request, context)
        return self.usual[name](request, context)


def _unary(name: str) -> Any:
    return lambda self, request, context: self.answer(name, request, context)


def _stream(name: str) -> Any:
    def responses(self: FakeService, request: Any, context: grpc.ServicerContext) -> Any:
        yield from self.answer(name, request, context)

    return responses


for _method in pb.DESCRIPTOR.services_by_name["PlannerService"].methods:
    _make = _stream if _method.server_streaming else _unary
    setattr(FakeService, _method.name, _make(_method.name))


def solved(**fields: Any) -> pb.SolvePlanResponse:
    """An answer with an empty plan."""
    return pb.SolvePlanResponse(plan=plan_message(Plan()), plan_id="made", **fields)


def fails(
    code: grpc.StatusCode,
    message: str,
    *,
    reason: str = "",
    metadata: dict[str, str] | None = None,
    violations: tuple[tuple[str, str], ...] = (),
    retry_after_s: float | None = None,
) -> Answer:
    """An answer that is a status with its details."""
    status = status_pb2.Status(code=code.value[0], message=message)
    details: list[Any] = []
    if reason:
        details.append(
            error_details_pb2.ErrorInfo(reason=reason, domain="planner.v1", metadata=metadata or {})
        )
    if violations:
        bad = error_details_pb2.BadRequest()
        for field, description in violations:
            bad.field_violations.add(field=field, description=description)
        details.append(bad)
    if retry_after_s is not None:
        delay = duration_pb2.Duration(nanos=int(retry_after_s % 1 * 1e9))
        delay.seconds = int(retry_after_s)
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    for detail in details:
        status.details.add().Pack(detail)

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        context.abort_with_status(rpc_status.to_status(status))

    return answer


@contextmanager
def fake_service(
    service: FakeService | None = None,
    credentials: grpc.ServerCredentials | None = None,
    **options: Any,
) -> Iterator[FakeService]:
    """A service on a free port."""
    service = service or FakeService()
    server = grpc.server(ThreadPoolExecutor(4), options=list(options.items()))
    planner_service_pb2_grpc.add_PlannerServiceServicer_to_server(service, server)
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    service.address = f"127.0.0.1:{port}"
    server.start()
    try:
        yield service
    finally:
        server.stop(None).wait()
