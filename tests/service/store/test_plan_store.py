"""The contract of a plan store, held by each kind: all but long-running operations."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from store_places import REQUEST, TTL_S, Place, begin, create, every_plan, in_loop, plans

from planner.errors import InputError
from planner.service.store import HeldRequest, NewPlan, RequestOutcome, StoreUnavailableError


class TestRequests:
    @in_loop
    async def test_a_request_is_fresh_then_in_progress_then_done(self, place: Place) -> None:
        store, other = place.open(), place.open()
        assert (await begin(store)).outcome is RequestOutcome.FRESH
        found = await begin(other, owner="call-2")
        assert found.outcome is RequestOutcome.IN_PROGRESS
        assert (found.owner, found.lease_until) == ("call-1", place.clock.now + 10)
        assert await store.finish_request(
            **REQUEST, owner="call-1", response_bytes=b"", ttl_s=TTL_S
        )
        found = await begin(other, owner="call-2")
        assert (found.outcome, found.response_bytes) == (RequestOutcome.DONE, b"")
        assert not await store.finish_request(
            **REQUEST, owner="call-1", response_bytes=b"other", ttl_s=TTL_S
        )
        assert not await store.abandon_request(**REQUEST, owner="call-1")

    @in_loop
    async def test_one_of_fifty_begins(self, place: Place) -> None:
        stores = [place.open(), place.open()]
        found = await asyncio.gather(
            *(begin(stores[index % 2], owner=f"call-{index}") for index in range(50))
        )
        outcomes = [each.outcome for each in found]
        assert outcomes.count(RequestOutcome.FRESH) == 1
        assert outcomes.count(RequestOutcome.IN_PROGRESS) == 49

    @in_loop
    async def test_another_request_under_the_same_id_is_a_conflict(self, place: Place) -> None:
        store = place.open()
        await begin(store)
        assert (await begin(store, request_hash="x")).outcome is RequestOutcome.CONFLICT
        await store.finish_request(**REQUEST, owner="call-1", response_bytes=b"a", ttl_s=TTL_S)
        assert (await begin(store, request_hash="x")).outcome is RequestOutcome.CONFLICT
        for changes in ({"caller": "bob"}, {"method": "Evaluate"}, {"request_id": "id-2"}):
            begun = await begin(store, request_hash="x", **changes)
            assert begun.outcome is RequestOutcome.FRESH

    @in_loop
    async def test_a_lapsed_request_is_taken_over_and_its_late_answer_refused(
        self, place: Place
    ) -> None:
        store = place.open()
        await begin(store)
        place.clock.advance(10)
        assert (await begin(store, owner="call-2")).outcome is RequestOutcome.FRESH
        late = {"owner": "call-1", "response_bytes": b"late", "ttl_s": TTL_S}
        assert not await store.finish_request(**REQUEST, **late)
        assert not await store.abandon_request(**REQUEST, owner="call-1")
        assert await store.abandon_request(**REQUEST, owner="call-2")
        assert (await begin(store, owner="call-3")).outcome is RequestOutcome.FRESH

    @in_loop
    async def test_one_of_twenty_takes_a_lapsed_request_over(self, place: Place) -> None:
        stores = [place.open(), place.open()]
        for index in range(5):
            request_id = f"id-{index}"
            await begin(stores[0], request_id=request_id)
            place.clock.advance(10)
            found = await asyncio.gather(
                *(
                    begin(stores[each % 2], request_id=request_id, owner=f"next-{each}")
                    for each in range(20)
                )
            )
            outcomes = [each.outcome for each in found]
            assert outcomes.count(RequestOutcome.FRESH) == 1

    @in_loop
    async def test_a_renewed_request_stays_its_owners(self, place: Place) -> None:
        store, other = place.open(), place.open()
        held = [
            HeldRequest(**{**REQUEST, "request_id": f"id-{index}"}, owner="call-1")
            for index in range(4)
        ]
        for each in held[:3]:
            await begin(store, request_id=each.request_id)
        await store.finish_request(
            **{**REQUEST, "request_id": "id-1"}, owner="call-1", response_bytes=b"a", ttl_s=TTL_S
        )
        place.clock.advance(9)
        not_mine = replace(held[2], owner="call-2")
        kept = await store.renew_requests([*held[:2], not_mine, held[3]], lease_s=10)
        assert kept == {held[0]}
        assert await store.renew_requests([], lease_s=10) == frozenset()
        place.clock.advance(9)
        for index, outcome in enumerate(
            (RequestOutcome.IN_PROGRESS, RequestOutcome.DONE, RequestOutcome.FRESH)
        ):
            begun = await begin(other, request_id=f"id-{index}", owner="call-2")
            assert begun.outcome is outcome
        assert await store.renew_requests([held[2]], lease_s=10) == frozenset()

    @in_loop
    async def test_an_expired_answer_is_forgotten(self, place: Place) -> None:
        store = place.open()
        await begin(store, lease_s=1, ttl_s=5)
        await store.finish_request(**REQUEST, owner="call-1", response_bytes=b"a", ttl_s=5)
        place.clock.advance(5)
        assert (await begin(store, request_hash="x")).outcome is RequestOutcome.FRESH
        await store.finish_request(**REQUEST, owner="call-1", response_bytes=b"b", ttl_s=5)
        place.clock.advance(5)
        assert await store.purge_expired() == 1
        assert (await store.counts()).requests == 0


class TestModels:
    @in_loop
    async def test_a_large_model_comes_back_whole_and_lives_while_it_is_used(
        self, place: Place
    ) -> None:
        store = place.open()
        content = bytes(range(256)) * 20_000
        await store.put_model("sha", content, ttl_s=100)
        await place.open().put_model("sha", content, ttl_s=50)
        for _ in range(3):
            place.clock.advance(90)
            found = await store.get_model("sha", ttl_s=100)
            assert found is not None
            assert (found.content, found.size) == (content, len(content))
        place.clock.advance(100)
        assert await store.get_model("sha", ttl_s=100) is None
        counts = await store.counts()
        assert (counts.models, counts.model_bytes) == (1, len(content))
        assert await store.purge_expired() == 1
        assert (await store.counts()).model_bytes == 0
        await store.put_model("sha", content, ttl_s=100)
        assert await store.get_model("sha", ttl_s=1) is not None
        assert await store.get_model("other", ttl_s=1) is None

    @in_loop
    async def test_many_may_send_the_same_model_at_once(self, place: Place) -> None:
        stores = [place.open(), place.open()]
        await asyncio.gather(
            *(stores[index % 2].put_model("sha", b"model", ttl_s=9) for index in range(20))
        )
        assert (await stores[0].counts()).models == 1


class TestPlans:
    @in_loop
    async def test_hundreds_of_plans_are_stored_at_once_and_twice_is_once(
        self, place: Place
    ) -> None:
        store, other = place.open(), place.open()
        batch = plans(400)
        made_at = place.clock.now
        await asyncio.gather(
            store.put_plans(batch, ttl_s=100), other.put_plans(batch[::-1], ttl_s=100)
        )
        place.clock.advance(50)
        await store.put_plans([*batch[:10], *batch[:10]], ttl_s=100)
        await store.put_plans(batch[:10], ttl_s=1)
        await store.put_plans([], ttl_s=100)
        assert (await store.counts()).plans == 400
        found = await store.get_plan("plan-003", caller="ann")
        assert found is not None
        assert (found.content, found.labels) == (b"plan 3", batch[3].labels)
        assert (found.created_at, found.expires_at) == (made_at, place.clock.now + 100)
        assert found.labels.step_time_ms == 1.0
        place.clock.advance(50)
        assert len(await every_plan(store, 1000, caller="ann")) == 10
        assert await store.purge_expired(limit=300) == 300
        assert await store.purge_expired(limit=300) == 90

    @in_loop
    async def test_a_batch_with_a_bad_plan_stores_none(self, place: Place) -> None:
        store = place.open()
        for bad in ({"step_time_ms": float("nan")}, {"model": "a\0b"}, {"num_gpus": -1}):
            with pytest.raises(InputError):
                await store.put_plans([*plans(3), *plans(1, "bob", **bad)], ttl_s=100)
        assert (await store.counts()).plans == 0

    @in_loop
    async def test_an_expired_plan_is_stored_anew(self, place: Place) -> None:
        store = place.open()
        await store.put_plans(plans(1, model="old"), ttl_s=5)
        place.clock.advance(5)
        assert await store.get_plan("plan-000", caller="ann") is None
        await store.put_plans(plans(1, model="new"), ttl_s=5)
        found = await store.get_plan("plan-000", caller="ann")
        assert found is not None
        assert (found.labels.model, found.created_at) == ("new", place.clock.now)

    @in_loop
    async def test_a_plan_is_its_callers(self, place: Place) -> None:
        store = place.open()
        await store.put_plans(plans(1), ttl_s=100)
        place.clock.advance(1)
        await store.put_plans(plans(1, "abe", model="same"), ttl_s=100)
        assert await store.get_plan("plan-000", caller="eve") is None
        mine = await store.get_plan("plan-000", caller="abe")
        oldest = await store.get_plan("plan-000", caller=None)
        assert mine is not None
        assert oldest is not None
        assert (mine.caller, oldest.caller) == ("abe", "ann")
        assert await every_plan(store, 10, caller=None) == ["plan-000", "plan-000"]
        assert await every_plan(store, 10, caller="eve") == []

    @in_loop
    async def test_pages_of_plans_are_filtered_and_stable(self, place: Place) -> None:
        store = place.open()
        await store.put_plans(plans(25, model="llama", cluster="h100"), ttl_s=100)
        await store.put_plans(plans(30, "bob", model="llama"), ttl_s=100)
        expected = [f"plan-{index:03d}" for index in reversed(range(25))]
        assert await every_plan(store, 7, caller="ann") == expected
        assert await every_plan(store, 25, caller="ann", model="llama", cluster="h100") == expected
        assert await every_plan(store, 7, caller="ann", model="gpt") == []
        assert await every_plan(store, 7, caller=None, status="optimal") == []
        first = await store.list_plans(caller="ann", page_size=10)
        place.clock.advance(1)
        await store.put_plans(plans(40, cluster="late")[25:], ttl_s=100)
        second = await store.list_plans(
            caller="ann", page_size=10, page_token=first.next_page_token, full=True
        )
        assert [plan.plan_id for plan in (*first.items, *second.items)] == expected[:20]
        assert {plan.content for plan in first.items} == {b""}
        assert second.items[0].content == b"plan 14"

    @in_loop
    async def test_names_of_every_script_are_ordered_alike(self, place: Place) -> None:
        store = place.open()
        names = ["a", "B", "é", "z", "𝔘", "模型", "Z", "_", "a-b", "ab"]
        await store.put_plans(
            [NewPlan(plan_id=name, caller="ann", content=b"") for name in names], ttl_s=9
        )
        assert await every_plan(store, 3, caller="ann") == sorted(names, reverse=True)


class TestUpkeep:
    @in_loop
    async def test_what_no_database_could_hold_is_refused_by_all(self, place: Place) -> None:
        store = place.open()
        for bad in ("a\0b", "\ud800", "x" * 801):
            for changes in ({"caller": bad}, {"request_id": bad}, {"request_hash": bad}):
                with pytest.raises(InputError):
                    await create(store, **changes)
                with pytest.raises(InputError):
                    await begin(store, **changes)
            for call in (
                store.get_operation(bad),
                store.request_cancel(bad),
                store.delete_operation(bad),
                store.list_operations(caller=bad),
                store.get_model(bad, ttl_s=1),
                store.put_model(bad, b"", ttl_s=1),
                store.get_plan(bad, caller=None),
                store.list_plans(caller="ann", model=bad),
            ):
                with pytest.raises(InputError):
                    await call
        longest = "é" * 400
        await begin(store, caller=longest, method=longest, request_id=longest)
        await create(store, caller=longest, method=longest, request_id=longest)

    @in_loop
    async def test_a_closed_store_says_so(self, place: Place) -> None:
        store = place.open()
        await store.ping()
        await store.close()
        await store.close()
        for call in (store.ping(), store.get_operation("operations/x"), store.counts()):
            with pytest.raises(StoreUnavailableError, match="closed"):
                await call

    @in_loop
    async def test_everything_acknowledged_is_there_after_a_restart(self, place: Place) -> None:
        if not place.lasts:
            return
        store = place.open()
        operation = (await create(store, request_id="r", owner="a", lease_s=60)).operation
        await store.update_progress(operation.name, owner="a", progress_bytes=b"half")
        await begin(store)
        await store.finish_request(**REQUEST, owner="call-1", response_bytes=b"a", ttl_s=TTL_S)
        await store.put_model("sha", b"model", ttl_s=TTL_S)
        await store.put_plans(plans(3), ttl_s=TTL_S)
        before = await store.counts()
        found = await store.get_operation(operation.name)
        await store.close()
        again = place.open()
        assert await again.counts() == before
        assert found is not None
        if place.kind == "sqlite":  # nobody else has the file open: its owner is gone
            found = replace(found, lease_until=None)
        assert await again.get_operation(operation.name) == found
        assert (await begin(again)).response_bytes == b"a"
        assert await again.get_model("sha", ttl_s=1) is not None
        assert await every_plan(again, 2, caller="ann") == ["plan-002", "plan-001", "plan-000"]
        place.clock.advance(61)
        resumed = await again.claim_operation("b", lease_s=60)
        assert resumed is not None
        assert (resumed.name, resumed.progress_bytes) == (operation.name, b"half")

    @in_loop
    async def test_replicas_may_open_an_empty_place_at_once(self, place: Place) -> None:
        if not place.lasts:
            return
        stores = await asyncio.gather(*(asyncio.to_thread(place.open) for _ in range(6)))
        await asyncio.gather(*(store.put_plans(plans(2), ttl_s=9) for store in stores))
        assert (await stores[0].counts()).plans == 2
