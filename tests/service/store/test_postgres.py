"""PostgreSQL: connections that break, servers that restart, rows that others hold."""

from __future__ import annotations

import asyncio
import signal

import pytest
from postgres import PostgresServer
from store_places import TTL_S, begin, create, every_plan, in_loop, plans

from planner.service.store import OperationState, StoreUnavailableError, open_store

OTHERS = "FROM pg_stat_activity WHERE application_name = 'stageplan'"


@in_loop
async def test_a_crash_of_the_server_loses_nothing_and_is_over_when_it_is(
    postgres: PostgresServer,
) -> None:
    store = open_store(postgres.url())
    operation = (await create(store, request_id="r", owner="a", lease_s=60)).operation
    await store.put_plans(plans(5), ttl_s=TTL_S)
    await asyncio.gather(*(store.ping() for _ in range(8)))
    try:
        await asyncio.to_thread(postgres.stop, signal.SIGQUIT)
        for call in (store.ping(), store.get_operation(operation.name), create(store)):
            with pytest.raises(StoreUnavailableError):
                await call
    finally:
        await asyncio.to_thread(postgres.start)
    await asyncio.gather(*(store.ping() for _ in range(8)))
    assert await store.get_operation(operation.name) == operation
    assert len(await every_plan(store, 9, caller="ann")) == 5
    assert await store.heartbeat([operation.name], owner="a", lease_s=60) == {operation.name}
    await store.close()


@in_loop
async def test_a_connection_that_broke_while_idle_is_not_noticed(
    postgres: PostgresServer,
) -> None:
    store = open_store(postgres.url())
    await asyncio.gather(*(store.ping() for _ in range(8)))
    postgres.execute(f"SELECT pg_terminate_backend(pid) {OTHERS}")
    made = await asyncio.gather(*(create(store) for _ in range(16)))
    assert all(creation.created for creation in made)
    await store.close()


@in_loop
async def test_a_connection_that_breaks_in_a_change_fails_clearly(
    postgres: PostgresServer,
) -> None:
    store = open_store(postgres.url())
    name = (await create(store, owner="a", lease_s=60)).operation.name
    with postgres.connect() as rude, rude.transaction():
        rude.execute("SELECT 1 FROM stageplan_operations FOR UPDATE")
        finishing = asyncio.create_task(
            store.finish_operation(name, state=OperationState.SUCCEEDED)
        )
        waiting = f"SELECT pg_terminate_backend(pid) {OTHERS} AND wait_event_type = 'Lock'"
        while not postgres.execute(waiting):
            await asyncio.sleep(0.01)
        with pytest.raises(StoreUnavailableError):
            await finishing
    assert await store.finish_operation(name, state=OperationState.SUCCEEDED)
    await store.close()


@in_loop
async def test_a_claim_passes_over_a_row_that_another_replica_holds(
    postgres: PostgresServer,
) -> None:
    store = open_store(postgres.url())
    first, second = [(await create(store)).operation.name for _ in range(2)]
    with postgres.connect() as rude, rude.transaction():
        (held,) = rude.execute(
            "SELECT name FROM stageplan_operations ORDER BY created_at, name LIMIT 1 FOR UPDATE"
        ).fetchone() or ("",)
        claimed = await asyncio.wait_for(store.claim_operation("a", lease_s=60), 5)
        assert claimed is not None
        assert {held, claimed.name} == {first, second}
        assert await asyncio.wait_for(store.claim_operation("a", lease_s=60), 5) is None
    await store.close()


@in_loop
async def test_more_calls_than_connections_wait_their_turn(postgres: PostgresServer) -> None:
    stores = [open_store(postgres.url()) for _ in range(3)]
    await asyncio.gather(*(begin(stores[index % 3], request_id=str(index)) for index in range(200)))
    ((connections,),) = postgres.execute(f"SELECT count(*) {OTHERS}")
    assert connections == 24
    assert (await stores[0].counts()).requests == 200
    for store in stores:
        await store.close()
    for _ in range(100):
        ((left,),) = postgres.execute(f"SELECT count(*) {OTHERS}")
        if left == 0:
            return
        await asyncio.sleep(0.02)
    pytest.fail("connections are left after closing")
