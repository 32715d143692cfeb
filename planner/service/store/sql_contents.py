"""Statements for idempotency keys, models, plans and what has expired."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, case, delete, func, select, tuple_, update

from planner.service.store.errors import StoreUnavailableError
from planner.service.store.paging import (
    check_keys,
    check_plan,
    checked_page_size,
    read_page_token,
    write_page_token,
)
from planner.service.store.records import (
    BegunRequest,
    HeldRequest,
    ModelRecord,
    NewPlan,
    Page,
    PlanLabels,
    PlanRecord,
    RequestOutcome,
    StoreCounts,
)
from planner.service.store.sql_operations import ATTEMPTS, count_operations, insert_or_conflict
from planner.service.store.sql_schema import MODELS, OPERATIONS, PLANS, REQUESTS

__all__ = [
    "abandon_request",
    "begin_request",
    "count_all",
    "finish_request",
    "get_model",
    "get_plan",
    "keep_model",
    "list_plans",
    "purge_expired",
    "put_model",
    "put_plans",
    "renew_requests",
]

_RQ = REQUESTS.c
_MD = MODELS.c
_PL = PLANS.c


def begin_request(
    connection: Connection,
    now: float,
    *,
    caller: str,
    method: str,
    request_id: str,
    request_hash: str,
    owner: str,
    lease_s: float,
    ttl_s: float,
) -> BegunRequest:
    """See `PlanStore.begin_request`."""
    key = {"caller": caller, "method": method, "request_id": request_id}
    until = now + lease_s
    taken = {
        "request_hash": request_hash,
        "owner": owner,
        "lease_until": until,
        "response_bytes": None,
        "expires_at": max(until, now + ttl_s),
    }
    check_keys(**key, request_hash=request_hash, owner=owner)
    mine = _request(caller, method, request_id)
    fresh = BegunRequest(outcome=RequestOutcome.FRESH, owner=owner, lease_until=until)
    for _ in range(ATTEMPTS):
        inserted = connection.execute(
            insert_or_conflict(connection, REQUESTS)
            .values(**key, **taken)
            .on_conflict_do_nothing()
            .returning(_RQ.owner)
        ).first()
        if inserted is not None:
            return fresh
        held = connection.execute(select(REQUESTS).where(mine).with_for_update()).first()
        if held is None:
            continue
        if held.expires_at > now:
            if held.request_hash != request_hash:
                return BegunRequest(outcome=RequestOutcome.CONFLICT)
            if held.response_bytes is not None:
                return BegunRequest(outcome=RequestOutcome.DONE, response_bytes=held.response_bytes)
            if held.lease_until > now:
                return BegunRequest(
                    outcome=RequestOutcome.IN_PROGRESS,
                    owner=held.owner,
                    lease_until=held.lease_until,
                )
        connection.execute(update(REQUESTS).where(mine).values(**taken))
        return fresh
    raise StoreUnavailableError("the request id is being given back")


def renew_requests(
    connection: Connection, now: float, held: Collection[HeldRequest], *, lease_s: float
) -> frozenset[HeldRequest]:
    """See `PlanStore.renew_requests`."""
    kept = set()
    # In one order everywhere: two replicas that lock rows of each other do not deadlock.
    for each in sorted(held):
        renewed = connection.execute(
            update(REQUESTS)
            .where(
                _request(each.caller, each.method, each.request_id),
                _RQ.owner == each.owner,
                _RQ.response_bytes.is_(None),
            )
            .values(lease_until=now + lease_s)
        )
        if renewed.rowcount == 1:
            kept.add(each)
    return frozenset(kept)


def finish_request(
    connection: Connection,
    now: float,
    *,
    caller: str,
    method: str,
    request_id: str,
    owner: str,
    response_bytes: bytes,
    ttl_s: float,
) -> bool:
    """See `PlanStore.finish_request`."""
    changed = connection.execute(
        update(REQUESTS)
        .where(
            _request(caller, method, request_id),
            _RQ.owner == owner,
            _RQ.response_bytes.is_(None),
        )
        .values(response_bytes=response_bytes, expires_at=now + ttl_s)
    )
    return changed.rowcount == 1


def abandon_request(
    connection: Connection, _now: float, *, caller: str, method: str, request_id: str, owner: str
) -> bool:
    """See `PlanStore.abandon_request`."""
    gone = connection.execute(
        delete(REQUESTS).where(
            _request(caller, method, request_id),
            _RQ.owner == owner,
            _RQ.response_bytes.is_(None),
        )
    )
    return gone.rowcount == 1


def put_model(
    connection: Connection, now: float, content_hash: str, content: bytes, *, ttl_s: float
) -> None:
    """See `PlanStore.put_model`."""
    check_keys(content_hash=content_hash)
    if keep_model(connection, now, content_hash, ttl_s=ttl_s):
        return
    connection.execute(
        insert_or_conflict(connection, MODELS)
        .values(
            content_hash=content_hash,
            content=content,
            size=len(content),
            expires_at=now + ttl_s,
        )
        .on_conflict_do_nothing()
    )


def keep_model(connection: Connection, now: float, content_hash: str, *, ttl_s: float) -> bool:
    """Keep a model for at least ``ttl_s`` from now; whether there is one."""
    until = now + ttl_s
    later = case((_MD.expires_at > until, _MD.expires_at), else_=until)
    kept = connection.execute(
        update(MODELS).where(_MD.content_hash == content_hash).values(expires_at=later)
    )
    return kept.rowcount == 1


def get_model(connection: Connection, now: float, content_hash: str) -> ModelRecord | None:
    """Return a model, without keeping it longer."""
    check_keys(content_hash=content_hash)
    query = select(MODELS).where(_MD.content_hash == content_hash, _MD.expires_at > now)
    row = connection.execute(query).first()
    return None if row is None else ModelRecord(**row._mapping)


def put_plans(
    connection: Connection, now: float, plans: Sequence[NewPlan], *, ttl_s: float
) -> None:
    """See `PlanStore.put_plans`."""
    for plan in plans:
        check_plan(plan)
    if not plans:
        return
    # In one order everywhere, so that two batches with plans in common do not deadlock.
    ordered = sorted(plans, key=lambda plan: (plan.plan_id, plan.caller))
    insert = insert_or_conflict(connection, PLANS)
    new, expired = insert.excluded, _PL.expires_at <= now
    changes = {
        column.name: case((expired, new[column.name]), else_=column)
        for column in _PL
        if column.name not in ("plan_id", "caller", "expires_at")
    }
    changes["expires_at"] = case(
        (new.expires_at > _PL.expires_at, new.expires_at), else_=_PL.expires_at
    )
    connection.execute(
        insert.on_conflict_do_update(index_elements=[_PL.plan_id, _PL.caller], set_=changes),
        [
            {
                "plan_id": plan.plan_id,
                "caller": plan.caller,
                "model": plan.labels.model,
                "cluster": plan.labels.cluster,
                "status": plan.labels.status,
                "num_gpus": plan.labels.num_gpus,
                "step_time_ms": plan.labels.step_time_ms,
                "created_at": now,
                "expires_at": now + ttl_s,
                "content": plan.content,
            }
            for plan in ordered
        ],
    )


def get_plan(
    connection: Connection, now: float, plan_id: str, *, caller: str | None
) -> PlanRecord | None:
    """See `PlanStore.get_plan`."""
    check_keys(plan_id=plan_id, caller=caller)
    query = select(PLANS).where(_PL.plan_id == plan_id, _PL.expires_at > now)
    if caller is not None:
        query = query.where(_PL.caller == caller)
    row = connection.execute(query.order_by(_PL.created_at, _PL.caller).limit(1)).first()
    return None if row is None else _plan(row)


def list_plans(
    connection: Connection,
    now: float,
    *,
    caller: str | None,
    page_size: int,
    page_token: str,
    model: str | None,
    cluster: str | None,
    status: str | None,
    full: bool,
) -> Page[PlanRecord]:
    """See `PlanStore.list_plans`."""
    check_keys(caller=caller, model=model, cluster=cluster, status=status)
    size, filters = checked_page_size(page_size), ("plans", caller, model, cluster, status)
    start = read_page_token(filters, page_token, 3)
    columns = [column for column in _PL if full or column is not _PL.content]
    query = select(*columns).where(_PL.expires_at > now)
    wanted = ((_PL.caller, caller), (_PL.model, model), (_PL.cluster, cluster))
    for column, value in (*wanted, (_PL.status, status)):
        if value is not None:
            query = query.where(column == value)
    if start is not None:
        query = query.where(tuple_(_PL.created_at, _PL.plan_id, _PL.caller) < tuple_(*start))
    query = query.order_by(_PL.created_at.desc(), _PL.plan_id.desc(), _PL.caller.desc())
    found = [_plan(row) for row in connection.execute(query.limit(size + 1))]
    token = ""
    if len(found) > size:
        last = found[size - 1]
        token = write_page_token(filters, (last.created_at, last.plan_id, last.caller))
    return Page(tuple(found[:size]), token)


def purge_expired(connection: Connection, now: float, *, limit: int) -> int:
    """See `PlanStore.purge_expired`."""
    removed = 0
    for table in (OPERATIONS, REQUESTS, MODELS, PLANS):
        key = tuple_(*table.primary_key.columns)
        expired = (
            select(*table.primary_key.columns)
            .where(table.c.expires_at <= now)
            .order_by(table.c.expires_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        removed += connection.execute(delete(table).where(key.in_(expired))).rowcount
    return removed


def count_all(connection: Connection, _now: float) -> StoreCounts:
    """See `PlanStore.counts`."""
    models, model_bytes = connection.execute(
        select(func.count(), func.coalesce(func.sum(_MD.size), 0)).select_from(MODELS)
    ).one()
    return StoreCounts(
        operations=count_operations(connection),
        requests=connection.execute(select(func.count()).select_from(REQUESTS)).scalar_one(),
        models=models,
        model_bytes=int(model_bytes),
        plans=connection.execute(select(func.count()).select_from(PLANS)).scalar_one(),
    )


def _request(caller: str, method: str, request_id: str) -> Any:
    return and_(_RQ.caller == caller, _RQ.method == method, _RQ.request_id == request_id)


def _plan(row: Row[Any]) -> PlanRecord:
    return PlanRecord(
        plan_id=row.plan_id,
        caller=row.caller,
        content=row._mapping.get("content", b""),
        labels=PlanLabels(
            model=row.model,
            cluster=row.cluster,
            status=row.status,
            num_gpus=row.num_gpus,
            step_time_ms=row.step_time_ms,
        ),
        created_at=row.created_at,
        expires_at=row.expires_at,
    )
