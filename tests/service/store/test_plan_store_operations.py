"""The contract of a plan store, held by each kind: long-running operations."""

from __future__ import annotations

import asyncio

import pytest
from store_places import TTL_S, Place, create, in_loop

from planner.errors import InputError
from planner.service.store import OperationRecord, OperationState


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
