"""The contract of a plan store, held by each kind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest
from store_places import Place

from planner.errors import InputError
from planner.service.store import (
    Creation,
    NewPlan,
    OperationRecord,
    OperationState,
    PlanLabels,
    PlanStore,
    RequestOutcome,
    StoreUnavailableError,
)

REQUEST = {"caller": "ann", "method": "SolvePlan", "request_id": "id-1"}
TTL_S = 3600.0


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))  # type: ignore[arg-type]

    return run


async def create(store: PlanStore, **changes: Any) -> Creation:
    values: dict[str, Any] = {
        "caller": "ann",
        "method": "CreatePlan",
        "request_bytes": b"request",
        "request_hash": "hash",
        "ttl_s": TTL_S,
    }
    return await store.create_operation(**{**values, **changes})


async def begin(store: PlanStore, **changes: Any) -> Any:
    values: dict[str, Any] = {
        **REQUEST,
        "request_hash": "hash",
        "owner": "call-1",
        "lease_s": 10,
        "ttl_s": TTL_S,
    }
    return await store.begin_request(**{**values, **changes})


def plans(count: int, caller: str = "ann", **labels: Any) -> list[NewPlan]:
    return [
        NewPlan(
            plan_id=f"plan-{index:03d}",
            caller=caller,
            content=b"plan %d" % index,
            labels=PlanLabels(**{"num_gpus": 8 * index, "step_time_ms": index / 3, **labels}),
        )
        for index in range(count)
    ]


async def every_plan(store: PlanStore, size: int, **filters: Any) -> list[str]:
    found: list[str] = []
    token = ""
    while True:
        page = await store.list_plans(page_size=size, page_token=token, **filters)
        found += [plan.plan_id for plan in page.items]
        token = page.next_page_token
        if not token:
            return found


class TestOperations:
    @in_loop
    async def test_a_new_operation_is_read_back_as_it_was_returned(self, place: Place) -> None:
        store = place.open()
        made = await create(store, request_id="r", request_bytes=b"\0\xff", caller="Zoë ✓")
        assert made.created
        assert made.operation == OperationRecord(
            name=made.operation.name,
            caller="Zoë ✓",
            method="CreatePlan",
            request_id="r",
            request_hash="hash",
            request_bytes=b"\0\xff",
            created_at=place.clock.now,
            updated_at=place.clock.now,
            ttl_s=TTL_S,
        )
        assert made.operation.name.startswith("operations/")
        assert await place.open().get_operation(made.operation.name) == made.operation
        assert await store.get_operation("operations/other") is None

    @in_loop
    async def test_fifty_creations_with_one_request_id_make_one_operation(
        self, place: Place
    ) -> None:
        stores = [place.open(), place.open()]
        made = await asyncio.gather(
            *(create(stores[index % 2], request_id="same") for index in range(50))
        )
        assert sum(creation.created for creation in made) == 1
        assert len({creation.operation.name for creation in made}) == 1
        assert not any(creation.conflict for creation in made)
        assert (await stores[0].counts()).operations[OperationState.PENDING] == 1

    @in_loop
    async def test_a_request_id_belongs_to_its_caller_request_and_method(
        self, place: Place
    ) -> None:
        store = place.open()
        first = await create(store, request_id="r")
        for changes in ({"request_hash": "other"}, {"method": "CreateCurve"}):
            again = await create(store, request_id="r", **changes)
            assert (again.created, again.conflict) == (False, True)
            assert again.operation == first.operation
        assert (await create(store, request_id="r", caller="bob")).created
        assert (await create(store)).created
        assert (await create(store)).created

    @in_loop
    async def test_a_request_id_is_free_again_after_its_operation_expired(
        self, place: Place
    ) -> None:
        store = place.open()
        first = await create(store, request_id="r", ttl_s=5)
        await store.finish_operation(first.operation.name, state=OperationState.SUCCEEDED)
        place.clock.advance(4.5)
        assert not (await create(store, request_id="r")).created
        place.clock.advance(0.5)
        second = await create(store, request_id="r", request_hash="other")
        assert second.created
        assert await store.get_operation(first.operation.name) is None
        await store.purge_expired()
        assert not (await create(store, request_id="r", request_hash="other")).created

    @in_loop
    async def test_twenty_claimers_of_two_replicas_claim_each_operation_once(
        self, place: Place
    ) -> None:
        stores = [place.open(), place.open()]
        names = [(await create(stores[0])).operation.name for _ in range(30)]

        async def claim_all(index: int) -> list[str]:
            claimed = []
            while operation := await stores[index % 2].claim_operation(f"r{index}", lease_s=60):
                assert operation.owner == f"r{index}"
                claimed.append(operation.name)
            return claimed

        claimed = await asyncio.gather(*(claim_all(index) for index in range(20)))
        assert sorted(name for some in claimed for name in some) == sorted(names)
        counts = (await stores[1].counts()).operations
        assert counts[OperationState.RUNNING] == 30

    @in_loop
    async def test_the_oldest_operation_is_claimed_first(self, place: Place) -> None:
        store = place.open()
        names = []
        for _ in range(3):
            names.append((await create(store)).operation.name)
            place.clock.advance(1)
        claims = [await store.claim_operation("a", lease_s=9) for _ in range(4)]
        assert [claim and claim.name for claim in claims] == [*names, None]
        first = claims[0]
        assert first is not None
        assert (first.state, first.attempts, first.version) == (OperationState.RUNNING, 1, 2)
        assert first.lease_until == place.clock.now + 9
        assert await store.get_operation(first.name) == first

    @in_loop
    async def test_a_lapsed_lease_is_taken_over_and_its_former_owner_shut_out(
        self, place: Place
    ) -> None:
        store, other = place.open(), place.open()
        name = (await create(store, owner="a", lease_s=10)).operation.name
        place.clock.advance(9)
        assert await store.heartbeat([name, "operations/x"], owner="a", lease_s=10) == {name}
        place.clock.advance(9)
        assert await other.claim_operation("b", lease_s=10) is None
        assert await other.heartbeat([name], owner="b", lease_s=10) == frozenset()
        place.clock.advance(1.5)
        taken = await other.claim_operation("b", lease_s=10)
        assert taken is not None
        assert (taken.name, taken.owner, taken.attempts) == (name, "b", 2)
        assert not await store.update_progress(name, owner="a", progress_bytes=b"late")
        assert not await store.finish_operation(
            name, owner="a", state=OperationState.SUCCEEDED, result_bytes=b"late"
        )
        assert await store.heartbeat([name], owner="a", lease_s=10) == frozenset()
        assert await store.release_operations([name], owner="a") == frozenset()
        assert await other.finish_operation(
            name, owner="b", state=OperationState.SUCCEEDED, result_bytes=b"good"
        )
        found = await store.get_operation(name)
        assert found is not None
        assert (found.result_bytes, found.progress_bytes) == (b"good", b"")

    @in_loop
    async def test_an_owner_whose_lease_lapsed_unnoticed_may_still_finish(
        self, place: Place
    ) -> None:
        store = place.open()
        name = (await create(store, owner="a", lease_s=1)).operation.name
        place.clock.advance(100)
        assert await store.finish_operation(name, owner="a", state=OperationState.SUCCEEDED)

    @in_loop
    async def test_a_released_operation_is_pending_and_the_attempt_does_not_count(
        self, place: Place
    ) -> None:
        store = place.open()
        name = (await create(store)).operation.name
        await store.claim_operation("a", lease_s=60)
        await store.update_progress(name, owner="a", progress_bytes=b"so far")
        assert await store.release_operations([name], owner="a") == {name}
        found = await store.claim_operation("b", lease_s=60)
        assert found is not None
        assert (found.attempts, found.progress_bytes) == (1, b"so far")

    @in_loop
    async def test_progress_and_ends_raise_the_version_and_heartbeats_do_not(
        self, place: Place
    ) -> None:
        store = place.open()
        name = (await create(store, owner="a", lease_s=60)).operation.name
        await store.heartbeat([name], owner="a", lease_s=60)
        assert await store.operation_versions([name, "operations/x"]) == {name: 1}
        place.clock.advance(1)
        assert await store.update_progress(name, owner="a", progress_bytes=b"half")
        assert await store.operation_versions([name]) == {name: 2}
        await store.finish_operation(
            name,
            owner="a",
            state=OperationState.FAILED,
            error_code=13,
            error_bytes=b"status",
        )
        found = await store.get_operation(name)
        assert found is not None
        assert (found.version, found.state, found.progress_bytes) == (
            3,
            OperationState.FAILED,
            b"half",
        )
        assert (found.error_code, found.error_bytes, found.lease_until) == (13, b"status", None)
        assert found.updated_at == place.clock.now
        assert found.expires_at == place.clock.now + TTL_S
        many = [f"operations/{index}" for index in range(1500)]
        assert await store.operation_versions([*many, name]) == {name: 3}
        assert await store.operation_versions([]) == {}

    @in_loop
    async def test_a_cancelled_operation_is_cancelled_for_good(self, place: Place) -> None:
        store = place.open()
        waiting = (await create(store)).operation.name
        running = (await create(store, owner="a", lease_s=60)).operation.name
        for name in (waiting, running):
            found = await store.request_cancel(name, error_bytes=b"why")
            assert found is not None
            assert found.state is OperationState.CANCELLED
            assert (found.error_code, found.error_bytes) == (1, b"why")
            assert not await store.finish_operation(name, state=OperationState.SUCCEEDED)
            assert await store.request_cancel(name, error_bytes=b"again") == found
        assert await store.claim_operation("b", lease_s=60) is None
        assert await store.heartbeat([running], owner="a", lease_s=60) == frozenset()
        assert not await store.update_progress(running, owner="a", progress_bytes=b"late")
        assert await store.request_cancel("operations/x") is None

    @in_loop
    async def test_a_cancel_leaves_a_finished_operation_alone(self, place: Place) -> None:
        store = place.open()
        name = (await create(store)).operation.name
        await store.finish_operation(name, state=OperationState.SUCCEEDED, result_bytes=b"plan")
        found = await store.request_cancel(name)
        assert found is not None
        assert (found.state, found.result_bytes) == (OperationState.SUCCEEDED, b"plan")

    @in_loop
    async def test_cancel_and_finish_race_and_one_of_them_wins(self, place: Place) -> None:
        stores = [place.open(), place.open()]
        names = [(await create(stores[0], owner="a", lease_s=60)).operation.name for _ in range(20)]
        outcomes = await asyncio.gather(
            *(
                call
                for name in names
                for call in (
                    stores[0].finish_operation(name, owner="a", state=OperationState.SUCCEEDED),
                    stores[1].request_cancel(name),
                    stores[1].finish_operation(name, owner="a", state=OperationState.FAILED),
                )
            )
        )
        for index, name in enumerate(names):
            succeeded, cancelled, failed = outcomes[3 * index : 3 * index + 3]
            found = await stores[0].get_operation(name)
            assert found is not None
            assert isinstance(cancelled, OperationRecord)
            assert cancelled.state.finished
            assert [succeeded, failed, found.state is OperationState.CANCELLED].count(True) == 1
            assert succeeded is (found.state is OperationState.SUCCEEDED)
            assert found.version == 2

    @in_loop
    async def test_only_final_states_finish(self, place: Place) -> None:
        store = place.open()
        name = (await create(store)).operation.name
        with pytest.raises(InputError, match="no final state"):
            await store.finish_operation(name, state=OperationState.RUNNING)

    @in_loop
    async def test_a_deleted_operation_and_its_request_id_are_gone(self, place: Place) -> None:
        store = place.open()
        name = (await create(store, request_id="r", owner="a", lease_s=60)).operation.name
        assert await store.delete_operation(name)
        assert not await store.delete_operation(name)
        assert await store.get_operation(name) is None
        assert await store.heartbeat([name], owner="a", lease_s=60) == frozenset()
        assert not await store.finish_operation(name, state=OperationState.SUCCEEDED)
        assert (await create(store, request_id="r")).created

    @in_loop
    async def test_pages_are_newest_first_and_stable_while_operations_arrive(
        self, place: Place
    ) -> None:
        store = place.open()
        made = []
        for index in range(10):
            place.clock.advance(index % 2)  # pairs of the same instant
            made.append((await create(store)).operation)
            await create(store, caller="bob")
        expected = sorted(made, key=lambda each: (each.created_at, each.name), reverse=True)
        found: list[OperationRecord] = []
        token = ""
        for size in (3, 3, 3, 1):
            page = await store.list_operations(caller="ann", page_size=size, page_token=token)
            found += page.items
            token = page.next_page_token
            place.clock.advance(1)
            await create(store)
            if len(found) == 3:
                await store.delete_operation(found[0].name)
        assert found == expected
        assert token == ""
        everybody = await store.list_operations(caller=None, page_size=5000)
        assert (len(everybody.items), everybody.next_page_token) == (23, "")
        assert (await store.list_operations(caller="eve")).items == ()

    @in_loop
    async def test_a_listing_that_is_not_full_leaves_the_large_fields_out(
        self, place: Place
    ) -> None:
        store = place.open()
        name = (await create(store)).operation.name
        await store.finish_operation(name, state=OperationState.SUCCEEDED, result_bytes=b"plan")
        (whole,) = (await store.list_operations(caller="ann")).items
        (brief,) = (await store.list_operations(caller="ann", full=False)).items
        assert (whole.request_bytes, whole.result_bytes) == (b"request", b"plan")
        assert (brief.request_bytes, brief.result_bytes) == (b"", b"")
        assert brief.name == name

    @in_loop
    async def test_a_page_token_serves_its_own_listing_only(self, place: Place) -> None:
        store = place.open()
        for _ in range(3):
            await create(store)
            await create(store, caller="bob")
        token = (await store.list_operations(caller="ann", page_size=1)).next_page_token
        for bad in (token[:-4], "x", "é", "[]", token + token):
            with pytest.raises(InputError, match="page_token"):
                await store.list_operations(caller="ann", page_token=bad)
        with pytest.raises(InputError, match="page_token"):
            await store.list_operations(caller="bob", page_token=token)
        with pytest.raises(InputError, match="page_token"):
            await store.list_plans(caller="ann", page_token=token)
        with pytest.raises(InputError, match="page_size"):
            await store.list_operations(caller="ann", page_size=0)

    @in_loop
    async def test_unfinished_operations_outlive_every_purge(self, place: Place) -> None:
        store = place.open()
        waiting = (await create(store, ttl_s=1)).operation.name
        done = (await create(store, ttl_s=1)).operation.name
        await store.finish_operation(done, state=OperationState.SUCCEEDED)
        place.clock.advance(10)
        assert await store.get_operation(done) is None
        assert await store.operation_versions([done, waiting]) == {waiting: 1}
        assert not await store.delete_operation(done)
        names = [each.name for each in (await store.list_operations(caller="ann")).items]
        assert names == [waiting]
        await store.purge_expired(place.clock.now + 1e9)
        assert await store.get_operation(waiting) is not None
        counts = (await store.counts()).operations
        assert counts == {**dict.fromkeys(OperationState, 0), OperationState.PENDING: 1}


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
