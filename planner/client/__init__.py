"""A planner on another machine: clients of the gRPC service, with the library's own types.

`PlannerClient` blocks; `AsyncPlannerClient` has the same methods as coroutines. Both send every
request under an id, so that what they retry is the same request: ``UNAVAILABLE`` by the service
config that comes with the planner, a full server when it says that asking again may help.
"""

from __future__ import annotations

from planner.client import quiet  # noqa: F401  # before gRPC itself
from planner.client.aio import AsyncPlannerClient
from planner.client.aio_operations import AsyncRemoteOperation
from planner.client.answers import (
    CatalogEntry,
    EvaluateAnswer,
    ExplainAnswer,
    PlanAnswer,
    PlanProgress,
    PlanSummary,
    Rendering,
    SimulationAnswer,
    SimulationFigures,
    Termination,
)
from planner.client.curve_calls import CurveAnswer, CurveJob, CurveOptions, JobAnswer
from planner.client.errors import (
    AccessDeniedError,
    MessageTooLargeError,
    RemoteCancelledError,
    RemoteDeadlineError,
    RemoteError,
    RemoteInputError,
    RemoteNotFoundError,
    RevisionChangedError,
    ServerBusyError,
    ServerUnavailableError,
)
from planner.client.operations import RemoteOperation
from planner.client.options import (
    CallOptions,
    JudgeOptions,
    KeptModel,
    PartitionOptions,
    PlanOptions,
    Revisions,
    SimulateOptions,
)
from planner.client.sync import PlannerClient

__all__ = [
    "AccessDeniedError",
    "AsyncPlannerClient",
    "AsyncRemoteOperation",
    "CallOptions",
    "CatalogEntry",
    "CurveAnswer",
    "CurveJob",
    "CurveOptions",
    "EvaluateAnswer",
    "ExplainAnswer",
    "JobAnswer",
    "JudgeOptions",
    "KeptModel",
    "MessageTooLargeError",
    "PartitionOptions",
    "PlanAnswer",
    "PlanOptions",
    "PlanProgress",
    "PlanSummary",
    "PlannerClient",
    "RemoteCancelledError",
    "RemoteDeadlineError",
    "RemoteError",
    "RemoteInputError",
    "RemoteNotFoundError",
    "RemoteOperation",
    "Rendering",
    "RevisionChangedError",
    "Revisions",
    "ServerBusyError",
    "ServerUnavailableError",
    "SimulateOptions",
    "SimulationAnswer",
    "SimulationFigures",
    "Termination",
]
