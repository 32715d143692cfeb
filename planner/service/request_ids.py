"""One answer for one request id: who works at it, who waits, and for how long if a server dies."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from planner.service import errors
from planner.service.settings import ServiceSettings
from planner.service.store import HeldRequest, PlanStore, RequestOutcome, StoreError

__all__ = ["Once", "RequestIds"]

log = logging.getLogger(__name__)

_POLL_S = 0.05


@dataclass
class Once:
    """The place for the answer of a request id."""

    known: bytes | None
    """What was answered before."""
    made: bytes | None = None
    """What is to be answered from now on; None: the id is free again."""


class RequestIds:
    """The request ids that calls of this server work at.

    A lease is short and renewed while its call lives, so that an id is free soon after its server
    died, however long the call might have taken.
    """

    def __init__(self, store: PlanStore, settings: ServiceSettings, replica: str) -> None:
        self._store = store
        self._settings = settings
        self._replica = replica
        self._held: set[HeldRequest] = set()
        self._renewing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def once(
        self, caller: str, method: str, request_id: str, identity: str, answer_by: float
    ) -> AsyncIterator[Once]:
        """The answer that this request id had, or the right to make it.

        Of several calls with one id, one works and the others wait for its answer.
        """
        mine = HeldRequest(
            caller=caller,
            method=method,
            request_id=request_id,
            owner=f"{self._replica}/{uuid.uuid4().hex[:8]}",
        )
        known = await self._begin(mine, identity, answer_by)
        if known is not None:
            yield Once(known)
            return
        slot = Once(None)
        self._held.add(mine)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(), name="renews request ids")
        try:
            yield slot
        finally:
            self._held.discard(mine)
            await asyncio.shield(self._end(mine, slot.made))

    async def note(self, caller: str, method: str, request_id: str, identity: str) -> None:
        """Remember what was asked under an id, and no answer.

        Raises
        ------
        ServiceError
            Something else was asked under it.
        """
        mine = HeldRequest(
            caller=caller, method=method, request_id=request_id, owner=uuid.uuid4().hex
        )
        if await self._outcome(mine, identity) is None:
            await self._end(mine, b"")

    async def _begin(self, mine: HeldRequest, identity: str, answer_by: float) -> bytes | None:
        """The answer there is; None: it is this call's to make."""
        while True:
            found = await self._outcome(mine, identity)
            if found is None or isinstance(found, bytes):
                return found
            if asyncio.get_running_loop().time() >= answer_by:
                raise errors.deadline_passed()
            await asyncio.sleep(_POLL_S)

    async def _outcome(self, mine: HeldRequest, identity: str) -> bytes | RequestOutcome | None:
        """The answer there is, IN_PROGRESS where another call makes it, None where this one may."""
        begun = await self._store.begin_request(
            caller=mine.caller,
            method=mine.method,
            request_id=mine.request_id,
            request_hash=identity,
            owner=mine.owner,
            lease_s=self._settings.lease_s,
            ttl_s=self._settings.request_ttl_s,
        )
        if begun.outcome is RequestOutcome.CONFLICT:
            raise errors.request_id_reused(mine.request_id)
        if begun.outcome is RequestOutcome.DONE:
            return begun.response_bytes
        return None if begun.outcome is RequestOutcome.FRESH else begun.outcome

    async def _end(self, mine: HeldRequest, made: bytes | None) -> None:
        names = {"caller": mine.caller, "method": mine.method, "request_id": mine.request_id}
        try:
            if made is None:
                await self._store.abandon_request(**names, owner=mine.owner)
                return
            ttl_s = self._settings.request_ttl_s
            await self._store.finish_request(
                **names, owner=mine.owner, response_bytes=made, ttl_s=ttl_s
            )
        except StoreError as error:  # the answer is none the worse for it
            log.warning("the answer to a request id is not kept: %s", error)

    async def _renew(self) -> None:
        """Keep what is held for as long as anything is."""
        lease_s = self._settings.lease_s
        while self._held:
            await asyncio.sleep(lease_s / 3)
            if not self._held:
                return
            try:
                await self._store.renew_requests(self._held.copy(), lease_s=lease_s)
            except Exception as error:
                log.warning("leases of request ids cannot be renewed: %s", error)
