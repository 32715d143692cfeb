"""Whatever is asked in whatever order, a database answers as the store in memory does."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from store_places import Clock

from planner.service.store import NewPlan, OperationState, PlanLabels, PlanStore, open_store

WHO = st.sampled_from(["ann", "bob"])
OWNER = st.sampled_from(["r1", "r2"])
KEY = st.sampled_from(["k1", "k2"])
SECONDS = st.sampled_from([0.5, 2.0, 5.0])
STATE = st.sampled_from([state for state in OperationState if state.finished])
INDEX = st.integers(0, 5)

# A method, its keyword arguments, and whether the name of an operation comes first.
STEPS = st.one_of(
    st.tuples(st.just("advance"), st.fixed_dictionaries({"seconds": SECONDS}), st.none()),
    st.tuples(
        st.just("create_operation"),
        st.fixed_dictionaries(
            {
                "caller": WHO,
                "method": st.just("CreatePlan"),
                "request_bytes": st.just(b"q"),
                "request_hash": KEY,
                "ttl_s": SECONDS,
                "request_id": st.none() | KEY,
                "owner": st.none() | OWNER,
                "lease_s": SECONDS,
            }
        ),
        st.none(),
    ),
    st.tuples(st.just("get_operation"), st.just({}), INDEX),
    st.tuples(st.just("delete_operation"), st.just({}), INDEX),
    st.tuples(st.just("request_cancel"), st.just({"error_bytes": b"status"}), INDEX),
    st.tuples(
        st.just("update_progress"),
        st.fixed_dictionaries({"owner": OWNER, "progress_bytes": st.just(b"half")}),
        INDEX,
    ),
    st.tuples(
        st.just("finish_operation"),
        st.fixed_dictionaries({"state": STATE, "owner": st.none() | OWNER}),
        INDEX,
    ),
    st.tuples(
        st.just("claim_operation"),
        st.fixed_dictionaries({"owner": OWNER, "lease_s": SECONDS}),
        st.none(),
    ),
    st.tuples(
        st.sampled_from(["heartbeat", "release_operations"]),
        st.fixed_dictionaries({"owner": OWNER}),
        st.just("all"),
    ),
    st.tuples(
        st.just("list_operations"),
        st.fixed_dictionaries({"caller": st.none() | WHO, "page_size": st.just(2)}),
        st.none(),
    ),
    st.tuples(
        st.just("begin_request"),
        st.fixed_dictionaries(
            {
                "caller": WHO,
                "method": st.just("SolvePlan"),
                "request_id": KEY,
                "request_hash": KEY,
                "owner": OWNER,
                "lease_s": SECONDS,
                "ttl_s": SECONDS,
            }
        ),
        st.none(),
    ),
    st.tuples(
        st.just("finish_request"),
        st.fixed_dictionaries(
            {
                "caller": WHO,
                "method": st.just("SolvePlan"),
                "request_id": KEY,
                "owner": OWNER,
                "response_bytes": st.just(b"a"),
                "ttl_s": SECONDS,
            }
        ),
        st.none(),
    ),
    st.tuples(
        st.just("put_model"),
        st.fixed_dictionaries({"content_hash": KEY, "content": st.just(b"m"), "ttl_s": SECONDS}),
        st.none(),
    ),
    st.tuples(
        st.just("get_model"),
        st.fixed_dictionaries({"content_hash": KEY, "ttl_s": SECONDS}),
        st.none(),
    ),
    st.tuples(
        st.just("put_plans"),
        st.fixed_dictionaries(
            {
                "plans": st.lists(
                    st.builds(
                        NewPlan,
                        plan_id=KEY,
                        caller=WHO,
                        content=st.binary(max_size=2),
                        labels=st.builds(PlanLabels, model=KEY),
                    ),
                    max_size=4,
                ),
                "ttl_s": SECONDS,
            }
        ),
        st.none(),
    ),
    st.tuples(
        st.just("list_plans"),
        st.fixed_dictionaries({"caller": st.none() | WHO, "model": st.none() | KEY}),
        st.none(),
    ),
    st.tuples(
        st.just("get_plan"),
        st.fixed_dictionaries({"plan_id": KEY, "caller": st.none() | WHO}),
        st.none(),
    ),
    st.tuples(st.just("purge_expired"), st.just({}), st.none()),
)


class Script:
    """One store that is asked, and the names that it gave to operations."""

    def __init__(self, opened: Callable[[Clock], PlanStore]) -> None:
        self.clock = Clock()
        self.store = opened(self.clock)
        self.names: list[str] = []

    async def step(self, method: str, values: dict[str, Any], which: Any) -> Any:
        """The answer, with operations numbered in the order of their creation."""
        # No two records are of one instant: their order is known without their names.
        self.clock.advance(0.001)
        if method == "advance":
            self.clock.advance(values["seconds"])
            return None
        given: tuple[Any, ...] = ()
        if method == "claim_operation":
            values = dict(values)
            given = (values.pop("owner"),)
        elif which == "all":
            given = (self.names,)
            values = {**values, "lease_s": 2.0} if method == "heartbeat" else values
        elif which is not None:
            given = (self.names[which] if which < len(self.names) else "operations/none",)
        answer = await getattr(self.store, method)(*given, **values)
        if method == "create_operation" and answer.created:
            self.names.append(answer.operation.name)
        return self.numbered(answer)

    def numbered(self, value: Any) -> Any:
        """What two stores say alike: page tokens name operations, which are chosen at random."""
        if is_dataclass(value) and not isinstance(value, type):
            return {
                field.name: (
                    bool(getattr(value, field.name))
                    if field.name == "next_page_token"
                    else self.numbered(getattr(value, field.name))
                )
                for field in fields(value)
            }
        if isinstance(value, tuple | frozenset):
            parts = [self.numbered(part) for part in value]
            return sorted(parts) if isinstance(value, frozenset) else parts
        if isinstance(value, str) and not isinstance(value, Enum) and value in self.names:
            return self.names.index(value)
        return value


@settings(max_examples=25)
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_sqlite_answers_as_memory_does(steps: list[tuple[str, dict[str, Any], Any]]) -> None:
    async def compare(folder: str) -> None:
        url = f"sqlite:///{Path(folder) / 'plans.db'}"
        memory = Script(lambda clock: open_store(None, clock=clock))
        sqlite = Script(lambda clock: open_store(url, clock=clock))
        try:
            for method, values, which in steps:
                expected = await memory.step(method, values, which)
                assert await sqlite.step(method, values, which) == expected
            assert await sqlite.store.counts() == await memory.store.counts()
        finally:
            await sqlite.store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(folder))
