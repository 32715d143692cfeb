"""The records of a plan store: frozen, free of protobuf, free of any database.

Instants are seconds since the epoch in UTC, as ``time.time()`` gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

__all__ = [
    "BegunRequest",
    "Creation",
    "HeldRequest",
    "ModelRecord",
    "NewPlan",
    "OperationRecord",
    "OperationState",
    "Page",
    "PlanLabels",
    "PlanRecord",
    "RequestOutcome",
    "StoreCounts",
]

T = TypeVar("T")


class OperationState(StrEnum):
    """Where a long-running operation stands."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """Whether nothing changes the operation any more."""
        return self not in (OperationState.PENDING, OperationState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRecord:
    """A long-running operation."""

    name: str
    """``operations/<uuid>``."""
    caller: str
    method: str
    """Name of the RPC that created it."""
    request_id: str | None
    request_hash: str
    request_bytes: bytes = field(repr=False)
    """Empty in a listing that is not full."""
    state: OperationState = OperationState.PENDING
    progress_bytes: bytes = field(default=b"", repr=False)
    """The latest metadata: incumbent, bound, candidates done."""
    result_bytes: bytes = field(default=b"", repr=False)
    """Empty in a listing that is not full."""
    error_code: int = 0
    """A `google.rpc.Code`; 0 unless failed or cancelled."""
    error_bytes: bytes = field(default=b"", repr=False)
    """A serialized `google.rpc.Status`."""
    version: int = 1
    """Grows with every change that a caller can see; heartbeats leave it alone."""
    attempts: int = 0
    """How often it was started; more than once where a replica died over it."""
    owner: str | None = None
    """The replica that runs it, or the last one that did."""
    lease_until: float | None = None
    """While running: until when the owner need not be doubted."""
    created_at: float = 0.0
    updated_at: float = 0.0
    ttl_s: float = 0.0
    """How long it is kept once finished."""
    expires_at: float | None = None
    """None until finished: an unfinished operation never expires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """What became of a `create_operation`."""

    operation: OperationRecord
    """The new one, or the one that this caller's request id made before."""
    created: bool
    conflict: bool = False
    """The request id belongs to another request: `operation` is not an answer to this one."""


class RequestOutcome(StrEnum):
    """What `begin_request` found."""

    FRESH = "fresh"
    """It is yours: finish or abandon it."""
    IN_PROGRESS = "in_progress"
    """Somebody is at it until `BegunRequest.lease_until`."""
    DONE = "done"
    """`BegunRequest.response_bytes` is the answer."""
    CONFLICT = "conflict"
    """The request id was used for another request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunRequest:
    """The answer to `begin_request`."""

    outcome: RequestOutcome
    owner: str | None = None
    lease_until: float | None = None
    response_bytes: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HeldRequest:
    """A request id that a call has begun, and the call's own name."""

    caller: str
    method: str
    request_id: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """A model that was sent once and is referred to by the hash of its content."""

    content_hash: str
    content: bytes = field(repr=False)
    size: int
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLabels:
    """What a listing of plans shows and filters by."""

    model: str = ""
    cluster: str = ""
    status: str = ""
    num_gpus: int = 0
    step_time_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlan:
    """A plan to be stored."""

    plan_id: str
    caller: str
    content: bytes = field(repr=False)
    labels: PlanLabels = PlanLabels()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A stored plan. Two callers who got the same plan hold a record each."""

    plan_id: str
    caller: str
    content: bytes = field(repr=False)
    """Empty in a listing that is not full."""
    labels: PlanLabels
    created_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a listing, newest first."""

    items: tuple[T, ...]
    next_page_token: str
    """Empty on the last page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCounts:
    """What the store holds, what has expired and was not purged yet included."""

    operations: dict[OperationState, int]
    """Every state is a key."""
    requests: int
    models: int
    model_bytes: int
    plans: int
