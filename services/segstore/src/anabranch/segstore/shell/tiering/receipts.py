"""Leaving a receipt of the newest manifest, aside from flushes, which never wait for it.

    manifest committed ──wake──► receipt created ──► receipts of older manifests deleted

A manifest that is deleted before its receipt exists is missed by nobody; a receipt follows within
the time of one put. What fails is tried again, and says so once. State owned: the number of the
newest manifest, the receipts that are known to exist, and whether one is on its way.
"""

import asyncio
from typing import NoReturn

import structlog

from anabranch.common.errors import AnabranchError, DiskFailed, OutcomeUnknown, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.receipts import leave_receipt
from anabranch.common.tier2.names import manifest_prefix, receipt_name, receipt_number

REST_AFTER_FAILURE_S = 10.0

_log = structlog.get_logger(__name__)


class Receipts:
    """The receipts of one container under one owner."""

    def __init__(self, storage: ChunkStorage, container: int) -> None:
        self._storage = storage
        self._container = container
        self._due = asyncio.Event()
        self._newest = 0
        self._under_way: asyncio.Event | None = None
        self._known: set[str] | None = None
        """None: those of earlier owners have not been listed yet."""

    def committed(self, number: int) -> None:
        """This manifest is the newest, and no successor was seen after it was created."""
        self._newest = number
        self._due.set()

    async def serve(self, clock: Clock) -> NoReturn:
        """Leave a receipt whenever one is due, until cancelled."""
        failing = False
        while True:
            await self._due.wait()
            try:
                await self.leave()
                failing = False
            except (DiskFailed, Unavailable, OutcomeUnknown, OSError) as error:
                if not failing:
                    self._report(error)
                failing = True
                await clock.sleep(REST_AFTER_FAILURE_S)

    async def leave(self) -> None:
        """Leave what is due, one at a time; nothing due is success. Raises what the storage
        raises."""
        while self._due.is_set():
            if self._under_way is not None:
                await self._under_way.wait()
                continue
            self._under_way = asyncio.Event()
            try:
                await self._leave_newest()
            finally:
                self._under_way.set()
                self._under_way = None

    async def _leave_newest(self) -> None:
        newest = self._newest
        name = receipt_name(self._container, newest)
        if self._known is None:
            listed = await self._storage.list(manifest_prefix(self._container))
            self._known = {
                each for each in listed if receipt_number(self._container, each) is not None
            }
        await leave_receipt(self._storage, name, self._known)
        self._known = {name}
        if newest == self._newest:
            self._due.clear()

    def _report(self, error: AnabranchError | OSError) -> None:
        _log.warning(
            "cannot write a manifest's receipt to tier 2, retrying",
            container=self._container,
            error=str(error),
            remedy=getattr(error, "remedy", "check the permission to create objects of tier 2"),
        )
