"""Leaves a receipt of the newest manifest, without making flushes wait.

    manifest committed ──wake──► receipt created ──► receipts of older manifests deleted

If a manifest is lost before its receipt exists, no later open can notice it; this window is about
as long as one put. A failure is retried, and logged once. State owned: the number of the newest
manifest, the receipts that are known to exist, and whether one is being written.
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
        """None until the receipts of earlier owners are listed."""

    def committed(self, number: int) -> None:
        """Note the newest manifest, after which no successor was seen."""
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
        """Leave the receipt that is due, if any, one at a time. Raises the storage's errors."""
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
