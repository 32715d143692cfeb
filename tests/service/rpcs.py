"""Every RPC of the service with a good request, a bad one, and what is known of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.longrunning import operations_pb2, operations_pb2_grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from server_process import ServerProcess

from planner.v1 import common_pb2, inputs_pb2, plan_pb2, planner_service_pb2_grpc
from planner.v1 import planner_service_pb2 as pb

MODEL = inputs_pb2.ModelSource(catalog_name="llama3-8b")
CLUSTER = inputs_pb2.ClusterSource(catalog_name="dgx-h100:2")
SKETCH = """{"layout": {"dp": 8, "pp": 2, "num_microbatches": 4, "microbatch_size": 1}}"""

CSV = "name,forward_ms,backward_ms,parameter_bytes,activation_bytes,output_bytes\n" + "".join(
    f"l{i},{1 + i % 3},{2 + i % 5},1000,100,10\n" for i in range(24)
)


def training(batch: int = 32) -> inputs_pb2.Training:
    return inputs_pb2.Training(global_batch_size=batch, sequence_length=4096)


def plan_question(**changes: Any) -> pb.PlanQuestion:
    return pb.PlanQuestion(
        **{"model": MODEL, "cluster": CLUSTER, "training": training(), **changes}
    )


def csv_model() -> inputs_pb2.ModelSource:
    text = inputs_pb2.ModelText(format=inputs_pb2.MODEL_FORMAT_PROFILE_CSV, text=CSV, name="small")
    return inputs_pb2.ModelSource(text=text)


def plan_of_a_sketch() -> dict[str, Any]:
    return {
        "plan": plan_pb2.PlanSource(plan_json=SKETCH),
        "model": MODEL,
        "cluster": CLUSTER,
        "training": training(),
    }


def curve_question(**changes: Any) -> pb.CurveQuestion:
    from planner.v1 import curve_pb2

    fields: dict[str, Any] = {
        "model": MODEL,
        "clusters": {"h100": CLUSTER},
        "training": training(),
        "allocations": [curve_pb2.Allocation(nodes=n) for n in (1, 2)],
    }
    return pb.CurveQuestion(**{**fields, **changes})


@dataclass(frozen=True)
class Rpc:
    """One method."""

    name: str
    good: Callable[[], Any]
    bad: Callable[[], Any]
    solves: bool = True
    """A worker is asked."""
    answers_late: bool = False
    """Where the deadline comes first it answers ``unknown`` instead of failing."""
    streams: bool = False
    retried: bool = True

    def call(self, server: ServerProcess, request: Any, timeout: float = 30.0) -> Any:
        """The answer, or the last message of a stream."""
        return self.begin(server, request, timeout).result()

    def begin(self, server: ServerProcess, request: Any, timeout: float = 30.0) -> Pending:
        """Start a call."""
        stub: Any = planner_service_pb2_grpc.PlannerServiceStub(server.channel())
        if self.name.endswith("Operation") or self.name.endswith("Operations"):
            stub = operations_pb2_grpc.OperationsStub(server.channel())
        method = getattr(stub, self.name)
        if self.streams:
            return Pending(method(request, timeout=timeout), True)
        return Pending(method.future(request, timeout=timeout), False)


@dataclass
class Pending:
    """A call that has begun."""

    call: Any
    streams: bool

    def result(self) -> Any:
        """The answer, or the last message of a stream; grpc.RpcError otherwise."""
        if not self.streams:
            return self.call.result()
        last = None
        for message in self.call:
            last = message
        return last

    def outcome(self) -> tuple[grpc.StatusCode, str]:
        """Code and reason ("" where there is none)."""
        try:
            self.result()
        except grpc.FutureCancelledError:
            return grpc.StatusCode.CANCELLED, ""
        except grpc.RpcError as error:
            return error.code(), reason_of(error)
        return grpc.StatusCode.OK, ""

    def cancel(self) -> None:
        """The caller goes away."""
        self.call.cancel()


RPCS = (
    Rpc(
        "SolvePlan",
        lambda: pb.SolvePlanRequest(question=plan_question()),
        lambda: pb.SolvePlanRequest(question=plan_question(model=None)),
        answers_late=True,
    ),
    Rpc(
        "StreamPlan",
        lambda: pb.StreamPlanRequest(question=plan_question(training=training(48))),
        lambda: pb.StreamPlanRequest(question=plan_question(training=None)),
        answers_late=True,
        streams=True,
    ),
    Rpc(
        "PartitionStages",
        lambda: pb.PartitionStagesRequest(model=csv_model(), stage_count=4, microbatch_count=8),
        lambda: pb.PartitionStagesRequest(model=csv_model(), stage_count=400),
        answers_late=True,
    ),
    Rpc(
        "EvaluatePlan",
        lambda: pb.EvaluatePlanRequest(**plan_of_a_sketch()),
        lambda: pb.EvaluatePlanRequest(plan=plan_pb2.PlanSource(plan_json="{")),
    ),
    Rpc(
        "ExplainPlan",
        lambda: pb.ExplainPlanRequest(**plan_of_a_sketch()),
        lambda: pb.ExplainPlanRequest(plan=plan_pb2.PlanSource(plan_json="[]")),
    ),
    Rpc(
        "SimulateSchedule",
        lambda: pb.SimulateScheduleRequest(
            schedule=common_pb2.SCHEDULE_ONE_F_ONE_B, stage_count=4, microbatch_count=8
        ),
        lambda: pb.SimulateScheduleRequest(schedule=common_pb2.SCHEDULE_GPIPE, stage_count=-1),
    ),
    Rpc(
        "ComputeScalingCurve",
        lambda: pb.ComputeScalingCurveRequest(question=curve_question()),
        lambda: pb.ComputeScalingCurveRequest(question=curve_question(clusters={})),
        streams=True,
    ),
    Rpc(
        "BatchComputeScalingCurves",
        lambda: pb.BatchComputeScalingCurvesRequest(
            jobs=[pb.CurveJob(job_id="a", question=curve_question(training=training(24)))]
        ),
        lambda: pb.BatchComputeScalingCurvesRequest(
            jobs=[pb.CurveJob(job_id="a"), pb.CurveJob(job_id="a")]
        ),
        streams=True,
        answers_late=True,
    ),
    Rpc(
        "CreatePlan",
        lambda: pb.CreatePlanRequest(question=plan_question(training=training(16))),
        lambda: pb.CreatePlanRequest(question=plan_question(cluster=None)),
    ),
    Rpc(
        "PutModel",
        lambda: pb.PutModelRequest(model=csv_model()),
        lambda: pb.PutModelRequest(model=MODEL),
    ),
    Rpc(
        "ListPlans",
        lambda: pb.ListPlansRequest(),
        lambda: pb.ListPlansRequest(page_size=-1),
        solves=False,
    ),
    Rpc(
        "GetPlan",
        lambda: pb.GetPlanRequest(plan_id="00"),
        lambda: pb.GetPlanRequest(),
        solves=False,
    ),
    Rpc(
        "ListCatalog",
        lambda: pb.ListCatalogRequest(),
        lambda: pb.ListCatalogRequest(page_size=-1),
        solves=False,
    ),
    Rpc(
        "GetOperation",
        lambda: operations_pb2.GetOperationRequest(name="operations/none"),
        lambda: operations_pb2.GetOperationRequest(),
        solves=False,
    ),
    Rpc(
        "WaitOperation",
        lambda: operations_pb2.WaitOperationRequest(name="operations/none"),
        lambda: operations_pb2.WaitOperationRequest(),
        solves=False,
    ),
    Rpc(
        "ListOperations",
        lambda: operations_pb2.ListOperationsRequest(),
        lambda: operations_pb2.ListOperationsRequest(page_size=-1),
        solves=False,
    ),
    Rpc(
        "CancelOperation",
        lambda: operations_pb2.CancelOperationRequest(name="operations/none"),
        lambda: operations_pb2.CancelOperationRequest(),
        solves=False,
    ),
    Rpc(
        "DeleteOperation",
        lambda: operations_pb2.DeleteOperationRequest(name="operations/none"),
        lambda: operations_pb2.DeleteOperationRequest(),
        solves=False,
    ),
)
SOLVING = tuple(rpc for rpc in RPCS if rpc.solves)
NAMES_NOTHING = {"GetPlan", "GetOperation", "WaitOperation", "CancelOperation", "DeleteOperation"}
"""Whose good request names something that does not exist: NOT_FOUND is the right answer."""


def details_of(error: grpc.RpcError) -> list[Any]:
    """The google.rpc details of an error."""
    status = rpc_status.from_call(error)
    found = []
    for packed in status.details if status is not None else ():
        for kind in (
            error_details_pb2.ErrorInfo,
            error_details_pb2.BadRequest,
            error_details_pb2.RetryInfo,
        ):
            detail = kind()
            if packed.Unpack(detail):
                found.append(detail)
    return found


def reason_of(error: grpc.RpcError) -> str:
    """Reason of an error's ErrorInfo."""
    infos = [d for d in details_of(error) if isinstance(d, error_details_pb2.ErrorInfo)]
    return infos[0].reason if infos else ""


@contextmanager
def frozen_workers(server: ServerProcess) -> Iterator[list[int]]:
    """All workers stopped by SIGSTOP: whatever they are asked, they are at it for ever."""
    pids = server.workers()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield pids
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue
