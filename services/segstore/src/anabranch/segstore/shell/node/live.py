"""Reports the record numbers of the partitions that the store leads, for the controllers.

Every `REPORT_S` the reporter settles the partitions that changed, measures the store's use of its
storage size, and publishes what changed. Every `FULL_S`, and after a report that could not be sent,
it publishes everything. A partition without new records costs nothing in between. No report is
kept, and no request waits for one.

`complete_partitions` runs beside each container of topics that opens: the partitions that are not
in memory are read from tier 2 once. Before that, full reports leave the container out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from anabranch.common.contracts.live import FULL_S, REPORT_S, LiveReport
from anabranch.common.errors import AnabranchError, DiskFailed, Unavailable
from anabranch.common.model.topics import TOPIC_MARK
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.logger import get_logger
from anabranch.common.tier2.state import Tombstone
from anabranch.segstore.domain.load.live_report import (
    StorageState,
    live_reports,
)
from anabranch.segstore.domain.load.partitions import HeldPartition, Partitions
from anabranch.segstore.ports import StoredCatalog
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.pauses import BackOff
from anabranch.segstore.shell.container.topic_storage import TopicStorage
from anabranch.segstore.shell.node.store import Store

PUBLISH_S_MAX = 1.0

Publish = Callable[[bytes], Awaitable[None]]
"""Publishes a report to all subscribers. Raises Unavailable."""

_log = get_logger(__name__)


class LiveReporter:
    """One store's reports. `session` returns the id of the store's session.

    State owned: the next sequence number, the time of the next full report, and what the last
    report said about the storage.
    """

    def __init__(
        self,
        store: Store,
        publish: Publish,
        storage: TopicStorage,
        *,
        node_id: str,
        session: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._store = store
        self._publish = publish
        self._storage = storage
        self._node_id = node_id
        self._session = session
        self._clock = clock
        self._sequence = 0
        self._full_at_s = clock.monotonic()
        self._told = StorageState(0, out_of_storage=False)
        self._failing = False

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._clock.sleep(REPORT_S)
            await self.report()

    async def report(self) -> None:
        """Publish what changed since the last report, or everything if that is due."""
        try:
            for report in self._reports():
                self._sequence = report.sequence
                async with asyncio.timeout(PUBLISH_S_MAX):
                    await self._publish(report.model_dump_json().encode())
        except (AnabranchError, TimeoutError) as error:
            self._full_at_s = self._clock.monotonic()
            if not self._failing:
                _log.warning("cannot send a live report", error=str(error))
            self._failing = True
        else:
            self._failing = False

    def _reports(self) -> Iterable[LiveReport]:
        led = self._led()
        for container, partitions in led:
            partitions.settle(container.applied.state.living)
        self._storage.measured(sum(partitions.used_bytes for _, partitions in led))
        storage = StorageState(self._storage.used_bytes, self._storage.full)
        full = self._clock.monotonic() >= self._full_at_s
        containers = [
            (container.container, container.container_epoch, due)
            for container, partitions in led
            if (due := _due(partitions, full=full)) is not None
        ]
        if not (containers or storage != self._told or (full and led)):
            return ()
        if full:
            self._full_at_s = self._clock.monotonic() + FULL_S
        self._told = storage
        return live_reports(
            self._node_id, self._session(), self._sequence + 1, storage, containers, full=full
        )

    def _led(self) -> list[tuple[Container, Partitions]]:
        """The containers of topics that this store leads."""
        containers = (opened.container for opened in self._store.open_containers())
        return [
            (found, partitions)
            for found in containers
            if (partitions := found.notices.partitions) is not None
        ]


def _due(partitions: Partitions, *, full: bool) -> Sequence[HeldPartition] | None:
    """The partitions of a container to report; None if the report leaves the container out."""
    if full and partitions.complete:
        return partitions.take_all()
    return None if full else partitions.take_changed() or None


async def complete_partitions(
    container: Container, stored: StoredCatalog, clock: Clock, back_off_s: BackOff
) -> None:
    """Add the partitions that only tier 2 knows, retrying while it does not answer.

    If tier 2 is damaged, the container ends.
    """
    partitions = container.notices.partitions
    if partitions is None:
        return
    partitions.touch(container.applied.state.names)
    failures = 0
    while container.failure is None:
        try:
            found = {
                entry.state.name: entry.state
                async for entry in stored.entries()
                if not isinstance(entry, Tombstone) and TOPIC_MARK in entry.state.name
            }
        except (Unavailable, DiskFailed, OSError) as error:
            failures += 1
            _log.warning(
                "tier 2 could not be searched for partitions, trying again",
                container=container.container,
                error=str(error),
            )
            await clock.sleep(back_off_s(failures))
            continue
        except AnabranchError as error:
            container.fail(error)
            return
        state = container.applied.state
        partitions.settle(state.living)
        partitions.add_stored(
            {name: held for name, held in found.items() if name not in state.segments}
        )
        return
