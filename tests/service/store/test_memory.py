"""What only the store in memory has: caps."""

from __future__ import annotations

import pytest
from store_places import REQUEST, TTL_S, Clock, begin, create, every_plan, in_loop, plans

from planner.service.store import (
    MemoryCaps,
    OperationState,
    PlanStore,
    RequestOutcome,
    StoreFullError,
    open_store,
)


def capped(clock: Clock | None = None, **caps: int) -> PlanStore:
    return open_store(None, clock=clock or Clock(), caps=MemoryCaps(**caps))


@in_loop
async def test_operations_are_refused_at_the_cap_and_never_evicted() -> None:
    clock = Clock()
    store = capped(clock, operations=2)
    first = (await create(store, request_id="r", ttl_s=5)).operation
    await create(store)
    with pytest.raises(StoreFullError, match="at most 2"):
        await create(store)
    assert (await create(store, request_id="r")).operation == first
    await store.finish_operation(first.name, state=OperationState.SUCCEEDED)
    with pytest.raises(StoreFullError):
        await create(store)
    clock.advance(5)
    assert (await create(store)).created


@in_loop
async def test_the_bytes_of_operations_are_counted_as_they_come_and_go() -> None:
    store = capped(operation_bytes=100)
    name = (await create(store, request_bytes=b"r" * 40)).operation.name
    await store.finish_operation(name, state=OperationState.SUCCEEDED, result_bytes=b"p" * 50)
    with pytest.raises(StoreFullError):
        await create(store, request_bytes=b"r" * 11)
    await create(store, request_bytes=b"r" * 10)
    await store.delete_operation(name)
    await create(store, request_bytes=b"r" * 90)


@in_loop
async def test_the_model_used_longest_ago_makes_room() -> None:
    store = capped(models=3, model_bytes=100)
    for name in ("a", "b", "c"):
        await store.put_model(name, b"m" * 30, ttl_s=TTL_S)
    assert await store.get_model("a", ttl_s=TTL_S) is not None
    await store.put_model("d", b"m" * 60, ttl_s=TTL_S)
    kept = [name for name in "abcd" if await store.get_model(name, ttl_s=TTL_S)]
    assert kept == ["a", "d"]
    with pytest.raises(StoreFullError):
        await store.put_model("e", b"m" * 101, ttl_s=TTL_S)
    counts = await store.counts()
    assert (counts.models, counts.model_bytes) == (2, 90)


@in_loop
async def test_the_plan_used_longest_ago_makes_room() -> None:
    store = capped(plans=4)
    await store.put_plans(plans(4), ttl_s=TTL_S)
    await store.get_plan("plan-000", caller="ann")
    await store.put_plans(plans(6)[4:], ttl_s=TTL_S)
    kept = await every_plan(store, 9, caller="ann")
    assert kept == ["plan-005", "plan-004", "plan-003", "plan-000"]
    with pytest.raises(StoreFullError):
        await capped(plan_bytes=10).put_plans(plans(9), ttl_s=TTL_S)


@in_loop
async def test_answers_make_room_for_requests_and_requests_in_progress_do_not() -> None:
    clock = Clock()
    store = capped(clock, requests=2)
    await begin(store)
    await store.finish_request(**REQUEST, owner="call-1", response_bytes=b"a", ttl_s=TTL_S)
    await begin(store, request_id="id-2")
    await begin(store, request_id="id-3")
    with pytest.raises(StoreFullError):
        await begin(store)
    clock.advance(10)
    assert (await begin(store)).outcome is RequestOutcome.FRESH
