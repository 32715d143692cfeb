"""Statements for long-running operations. Each function is one transaction's worth."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    delete,
    func,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from planner.errors import InputError
from planner.service.store.errors import StoreUnavailableError
from planner.service.store.paging import (
    check_keys,
    checked_page_size,
    read_page_token,
    write_page_token,
)
from planner.service.store.records import Creation, OperationRecord, OperationState, Page
from planner.service.store.sql_schema import OPERATIONS

__all__ = [
    "ATTEMPTS",
    "claim_operation",
    "count_operations",
    "create_operation",
    "delete_operation",
    "finish_operation",
    "get_operation",
    "heartbeat",
    "insert_or_conflict",
    "list_operations",
    "operation_versions",
    "release_operations",
    "request_cancel",
    "update_progress",
]

ATTEMPTS = 5
"""Rounds of insert and look; a second one needs a record that is removed in between."""
_NAMES_AT_ONCE = 500
_OP = OPERATIONS.c
_UNFINISHED = _OP.state.in_((OperationState.PENDING.value, OperationState.RUNNING.value))


def insert_or_conflict(connection: Connection, table: Any) -> Any:
    """Return an INSERT that knows ON CONFLICT, in the connection's dialect."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def create_operation(
    connection: Connection,
    now: float,
    *,
    caller: str,
    method: str,
    request_bytes: bytes,
    request_hash: str,
    ttl_s: float,
    request_id: str | None,
    owner: str | None,
    lease_s: float,
) -> Creation:
    """See `PlanStore.create_operation`."""
    check_keys(caller=caller, method=method, request_id=request_id)
    check_keys(request_hash=request_hash, owner=owner)
    operation = OperationRecord(
        name=f"operations/{uuid.uuid4()}",
        caller=caller,
        method=method,
        request_id=request_id,
        request_hash=request_hash,
        request_bytes=request_bytes,
        state=OperationState.PENDING if owner is None else OperationState.RUNNING,
        attempts=0 if owner is None else 1,
        owner=owner,
        lease_until=None if owner is None else now + lease_s,
        created_at=now,
        updated_at=now,
        ttl_s=ttl_s,
    )
    values = {key: getattr(operation, key) for key in _OP.keys()}  # noqa: SIM118
    values["state"] = operation.state.value
    statement = insert_or_conflict(connection, OPERATIONS).values(**values)
    if request_id is None:
        connection.execute(statement)
        return Creation(operation=operation, created=True)
    mine = (_OP.caller == caller, _OP.request_id == request_id)
    for _ in range(ATTEMPTS):
        connection.execute(delete(OPERATIONS).where(*mine, _OP.expires_at <= now))
        inserted = connection.execute(
            statement.on_conflict_do_nothing(index_elements=[_OP.caller, _OP.request_id]).returning(
                _OP.name
            )
        ).first()
        if inserted is not None:
            return Creation(operation=operation, created=True)
        row = connection.execute(select(OPERATIONS).where(*mine)).first()
        if row is not None:
            existing = _record(row)
            same = (existing.method, existing.request_hash) == (method, request_hash)
            return Creation(operation=existing, created=False, conflict=not same)
    raise StoreUnavailableError("the operation of this request id is being deleted")


def get_operation(connection: Connection, now: float, name: str) -> OperationRecord | None:
    """See `PlanStore.get_operation`."""
    check_keys(name=name)
    row = connection.execute(select(OPERATIONS).where(_OP.name == name, _alive(now))).first()
    return None if row is None else _record(row)


def list_operations(
    connection: Connection,
    now: float,
    *,
    caller: str | None,
    page_size: int,
    page_token: str,
    full: bool,
) -> Page[OperationRecord]:
    """See `PlanStore.list_operations`."""
    check_keys(caller=caller)
    size, filters = checked_page_size(page_size), ("operations", caller)
    start = read_page_token(filters, page_token, 2)
    heavy = () if full else (_OP.request_bytes, _OP.result_bytes)
    query = select(*(column for column in _OP if column not in set(heavy))).where(_alive(now))
    if caller is not None:
        query = query.where(_OP.caller == caller)
    key = tuple_(_OP.created_at, _OP.name)
    if start is not None:
        query = query.where(key < tuple_(*start))
    query = query.order_by(_OP.created_at.desc(), _OP.name.desc()).limit(size + 1)
    found = [_record(row) for row in connection.execute(query)]
    token = ""
    if len(found) > size:
        last = found[size - 1]
        token = write_page_token(filters, (last.created_at, last.name))
    return Page(tuple(found[:size]), token)


def operation_versions(
    connection: Connection, now: float, names: Collection[str]
) -> dict[str, int]:
    """See `PlanStore.operation_versions`."""
    versions: dict[str, int] = {}
    for some in _chunks(names):
        query = select(_OP.name, _OP.version).where(_OP.name.in_(some), _alive(now))
        versions.update((row.name, row.version) for row in connection.execute(query))
    return versions


def update_progress(
    connection: Connection, now: float, name: str, *, owner: str, progress_bytes: bytes
) -> bool:
    """See `PlanStore.update_progress`."""
    check_keys(name=name, owner=owner)
    changed = connection.execute(
        update(OPERATIONS)
        .where(_OP.name == name, *_run_by(owner))
        .values(progress_bytes=progress_bytes, version=_OP.version + 1, updated_at=now)
    )
    return changed.rowcount == 1


def finish_operation(
    connection: Connection,
    now: float,
    name: str,
    *,
    state: OperationState,
    owner: str | None,
    result_bytes: bytes,
    error_code: int,
    error_bytes: bytes,
) -> bool:
    """See `PlanStore.finish_operation`."""
    check_keys(name=name, owner=owner)
    if not state.finished:
        raise InputError("is no final state", value=state.value)
    statement = update(OPERATIONS).where(_OP.name == name, _UNFINISHED)
    if owner is not None:
        statement = statement.where(_OP.owner == owner)
    changed = connection.execute(
        statement.values(
            state=state.value,
            result_bytes=result_bytes,
            error_code=error_code,
            error_bytes=error_bytes,
            version=_OP.version + 1,
            lease_until=None,
            updated_at=now,
            expires_at=_OP.ttl_s + now,
        )
    )
    return changed.rowcount == 1


def request_cancel(
    connection: Connection, now: float, name: str, *, error_code: int, error_bytes: bytes
) -> OperationRecord | None:
    """See `PlanStore.request_cancel`."""
    finish_operation(
        connection,
        now,
        name,
        state=OperationState.CANCELLED,
        owner=None,
        result_bytes=b"",
        error_code=error_code,
        error_bytes=error_bytes,
    )
    return get_operation(connection, now, name)


def delete_operation(connection: Connection, now: float, name: str) -> bool:
    """See `PlanStore.delete_operation`."""
    check_keys(name=name)
    gone = connection.execute(delete(OPERATIONS).where(_OP.name == name, _alive(now)))
    return gone.rowcount == 1


def claim_operation(
    connection: Connection, now: float, owner: str, *, lease_s: float
) -> OperationRecord | None:
    """See `PlanStore.claim_operation`."""
    check_keys(owner=owner)
    # PostgreSQL: a row that another replica is claiming is passed over, not waited for.
    # SQLite: this transaction holds the only write lock.
    name = connection.execute(
        select(_OP.name)
        .where(_UNFINISHED, or_(_OP.lease_until.is_(None), _OP.lease_until < now))
        .order_by(_OP.created_at, _OP.name)
        .limit(1)
        .with_for_update(skip_locked=True)
    ).scalar()
    if name is None:
        return None
    row = connection.execute(
        update(OPERATIONS)
        .where(_OP.name == name)
        .values(
            state=OperationState.RUNNING.value,
            owner=owner,
            lease_until=now + lease_s,
            attempts=_OP.attempts + 1,
            version=_OP.version + 1,
            updated_at=now,
        )
        .returning(OPERATIONS)
    ).one()
    return _record(row)


def heartbeat(
    connection: Connection, now: float, names: Collection[str], *, owner: str, lease_s: float
) -> frozenset[str]:
    """See `PlanStore.heartbeat`."""
    kept: set[str] = set()
    for some in _chunks(names):
        kept.update(
            connection.execute(
                update(OPERATIONS)
                .where(_OP.name.in_(some), *_run_by(owner))
                .values(lease_until=now + lease_s)
                .returning(_OP.name)
            ).scalars()
        )
    return frozenset(kept)


def release_operations(
    connection: Connection, now: float, names: Collection[str], *, owner: str
) -> frozenset[str]:
    """See `PlanStore.release_operations`."""
    released: set[str] = set()
    for some in _chunks(names):
        released.update(
            connection.execute(
                update(OPERATIONS)
                .where(_OP.name.in_(some), *_run_by(owner))
                .values(
                    state=OperationState.PENDING.value,
                    owner=None,
                    lease_until=None,
                    attempts=_OP.attempts - 1,
                    version=_OP.version + 1,
                    updated_at=now,
                )
                .returning(_OP.name)
            ).scalars()
        )
    return frozenset(released)


def count_operations(connection: Connection) -> dict[OperationState, int]:
    """Return how many operations are in each state."""
    counts = dict.fromkeys(OperationState, 0)
    query = select(_OP.state, func.count()).group_by(_OP.state)
    for state, count in connection.execute(query):
        counts[OperationState(state)] = count
    return counts


def _alive(now: float) -> ColumnElement[bool]:
    return or_(_OP.expires_at.is_(None), _OP.expires_at > now)


def _run_by(owner: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return _OP.state == OperationState.RUNNING.value, _OP.owner == owner


def _record(row: Row[Any]) -> OperationRecord:
    values = {"request_bytes": b"", **row._mapping}
    values["state"] = OperationState(values["state"])
    return OperationRecord(**values)


def _chunks(names: Collection[str]) -> Iterator[list[str]]:
    # In one order everywhere: two replicas that lock rows of each other do not deadlock.
    remaining = iter(sorted(set(names)))
    while some := list(islice(remaining, _NAMES_AT_ONCE)):
        yield some
