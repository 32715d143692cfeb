"""What the server asks of a plan store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from planner.service.store.records import (
    BegunRequest,
    Creation,
    HeldRequest,
    ModelRecord,
    NewPlan,
    OperationRecord,
    OperationState,
    Page,
    PlanRecord,
    StoreCounts,
)

__all__ = ["PlanStore"]


class PlanStore(Protocol):
    """Operations, idempotency keys, models and plans; safe for many tasks of one event loop.

    Each method is one transaction: when it returns, its change survives the death of the process
    (in memory: nothing does) and every other replica sees it. Expired records are absent to every
    method but `counts`. A call whose task was cancelled may or may not have been carried out.

    ``owner`` names one run of one replica (a new one after a restart). Replicas compare leases
    with their own clocks: a lease is to be many times longer than their clocks differ.

    Raises
    ------
    StoreUnavailableError, StoreFullError, StoreError
        See `planner.service.store.errors`.
    planner.errors.InputError
        A key that is too long or no text, a page token of another listing.
    """

    # Operations

    async def create_operation(
        self,
        *,
        caller: str,
        method: str,
        request_bytes: bytes,
        request_hash: str,
        ttl_s: float,
        request_id: str | None = None,
        owner: str | None = None,
        lease_s: float = 0.0,
    ) -> Creation:
        """Create an operation, or find the one that this caller's ``request_id`` created.

        Parameters
        ----------
        request_hash
            Hash of the canonical request: the same ``request_id`` with another hash or method
            is a conflict.
        ttl_s
            How long the operation is kept after it has finished.
        owner, lease_s
            Given: the operation starts out running under this owner. Not given: it is pending
            until somebody claims it.
        """
        ...

    async def get_operation(self, name: str) -> OperationRecord | None:
        """One operation, or None."""
        ...

    async def list_operations(
        self,
        *,
        caller: str | None,
        page_size: int = 100,
        page_token: str = "",
        full: bool = True,
    ) -> Page[OperationRecord]:
        """One page of operations by (created_at, name), newest first.

        Parameters
        ----------
        caller
            Whose operations; None for everybody's.
        page_size
            At least 1; more than 1000 counts as 1000.
        full
            False leaves requests and results out, which may be large.
        """
        ...

    async def operation_versions(self, names: Collection[str]) -> dict[str, int]:
        """The versions of those operations that exist: one cheap query for many waiters."""
        ...

    async def update_progress(self, name: str, *, owner: str, progress_bytes: bytes) -> bool:
        """Replace the metadata; False where ``owner`` no longer runs the operation."""
        ...

    async def finish_operation(
        self,
        name: str,
        *,
        state: OperationState,
        owner: str | None = None,
        result_bytes: bytes = b"",
        error_code: int = 0,
        error_bytes: bytes = b"",
    ) -> bool:
        """Finish an operation unless it has finished, was cancelled, or is another owner's.

        ``owner`` None finishes it whoever runs it. Returns whether this call finished it.
        """
        ...

    async def request_cancel(
        self, name: str, *, error_code: int = 1, error_bytes: bytes = b""
    ) -> OperationRecord | None:
        """Cancel an operation unless it has finished; the operation as it is then, or None.

        It is cancelled for every caller at once and keeps its last metadata. Whoever runs it
        learns of it by `heartbeat` or `update_progress`.
        """
        ...

    async def delete_operation(self, name: str) -> bool:
        """Forget an operation and its request id, finished or not; whether there was one."""
        ...

    async def claim_operation(self, owner: str, *, lease_s: float) -> OperationRecord | None:
        """Start the oldest operation that is pending or whose owner let its lease lapse.

        No two claims get the same operation. ``attempts`` of the record counts this start: an
        operation that killed its replica a few times is better failed than run again.
        """
        ...

    async def heartbeat(
        self, names: Collection[str], *, owner: str, lease_s: float
    ) -> frozenset[str]:
        """Extend the leases of what ``owner`` runs; the names that it still runs.

        A name that is not returned was cancelled, deleted, finished or taken over: stop it.
        """
        ...

    async def release_operations(self, names: Collection[str], *, owner: str) -> frozenset[str]:
        """Hand back what a draining replica will not finish: pending, the attempt not counted."""
        ...

    # Idempotency keys of unary calls

    async def begin_request(
        self,
        *,
        caller: str,
        method: str,
        request_id: str,
        request_hash: str,
        owner: str,
        lease_s: float,
        ttl_s: float,
    ) -> BegunRequest:
        """Take a request id, or say who has it or what its answer was.

        An owner whose lease has lapsed has lost it: `renew_requests` before. Let ``owner`` be
        this call's own, so that a late answer of a lost one is not taken.
        """
        ...

    async def renew_requests(
        self, held: Collection[HeldRequest], *, lease_s: float
    ) -> frozenset[HeldRequest]:
        """Extend the leases of begun requests; those that are still their owners'."""
        ...

    async def finish_request(
        self,
        *,
        caller: str,
        method: str,
        request_id: str,
        owner: str,
        response_bytes: bytes,
        ttl_s: float,
    ) -> bool:
        """Store the answer of a request that ``owner`` has; whether it still had it."""
        ...

    async def abandon_request(
        self, *, caller: str, method: str, request_id: str, owner: str
    ) -> bool:
        """Give a request id back without an answer, as after an error; whether it was had."""
        ...

    # Models

    async def put_model(self, content_hash: str, content: bytes, *, ttl_s: float) -> None:
        """Store a model under a hash that the server computed itself from ``content``."""
        ...

    async def get_model(self, content_hash: str, *, ttl_s: float) -> ModelRecord | None:
        """A model, kept for ``ttl_s`` from now, or None.

        A stored expiry is moved only if that makes a tenth of ``ttl_s`` of difference.
        """
        ...

    # Plans

    async def put_plans(self, plans: Sequence[NewPlan], *, ttl_s: float) -> None:
        """Store plans, all or none. One that its caller has already only lives longer."""
        ...

    async def get_plan(self, plan_id: str, *, caller: str | None) -> PlanRecord | None:
        """A plan of ``caller``, or anybody's (the oldest record) where that is None."""
        ...

    async def list_plans(
        self,
        *,
        caller: str | None,
        page_size: int = 100,
        page_token: str = "",
        model: str | None = None,
        cluster: str | None = None,
        status: str | None = None,
        full: bool = False,
    ) -> Page[PlanRecord]:
        """One page of plans by (created_at, plan_id, caller), newest first.

        ``full`` reads the contents too. For the other parameters see `list_operations`.
        """
        ...

    # Upkeep

    async def purge_expired(self, now: float | None = None, *, limit: int = 1000) -> int:
        """Remove up to ``limit`` expired records of each kind; how many were removed."""
        ...

    async def counts(self) -> StoreCounts:
        """How much is stored, for metrics."""
        ...

    async def ping(self) -> None:
        """Return if the store can be read now; raise `StoreUnavailableError` if not."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads; closing twice is fine, using it later is not."""
        ...
