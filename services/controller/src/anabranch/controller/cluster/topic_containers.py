"""The table of topic containers: follows it in the cluster's bucket, and changes it.

The table says for each container of a topic on which stores it was assigned. Numbers only grow, so
a container's number never means another replica list. Every change is a compare-and-set on the
table that it was computed from.

Owns: the table as last seen by the watch, or written here.
"""

from collections.abc import Callable, Mapping

import structlog

from anabranch.common.contracts.objects import (
    TOPIC_CONTAINERS_KEY,
    TopicContainers,
    record_from,
)
from anabranch.common.errors import (
    Corrupt,
    FormatTooNew,
    ObjectExists,
    Retry,
    RevisionConflict,
)
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.cluster.objects.topic_containers import nodes_by_container

RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class TopicContainerTable:
    """The topic containers as far as this controller knows."""

    def __init__(self, cluster: ObjectStore, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._table = TopicContainers()
        self._wanted: Mapping[int, tuple[str, ...]] = {}
        self._revision = 0
        self._listed = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def containers(self) -> TopicContainers:
        """The table as last seen."""
        return self._table

    @property
    def wanted(self) -> Mapping[int, tuple[str, ...]]:
        """The stores of each container as assigned, leader first."""
        return self._wanted

    @property
    def complete(self) -> bool:
        """Whether the stored table, if any, has been seen."""
        return self._listed

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the table changes, and when it has been seen first."""
        self._listeners.append(listener)

    async def write(self, before: TopicContainers, after: TopicContainers) -> bool:
        """Replace the table `before` by `after`; False if another one is stored by now.

        Idempotent. Raises Corrupt, FormatTooNew, Unavailable, OutcomeUnknown.
        """
        stored = await self._cluster.get(TOPIC_CONTAINERS_KEY)
        found = _table_in(stored)
        if found not in (before, after):
            self._learn(found, stored)
            return False
        return found == after or await self._write(stored, after)

    async def serve(self) -> None:
        """Watch the table until cancelled."""
        while True:
            try:
                async for found in self._cluster.watch():
                    if found is None:
                        self._listed = True
                        self._tell()
                    elif found.key == TOPIC_CONTAINERS_KEY:
                        self._see(found)
            except Retry as error:
                _log.warning("the watch of the topic containers was interrupted", error=str(error))
            await self._clock.sleep(RETRY_S)

    def _see(self, found: StoredObject) -> None:
        try:
            self._learn(_table_in(found), found)
        except (Corrupt, FormatTooNew) as error:
            # The last readable table counts on, so that its containers stay placed.
            remedy = error.remedy_for("command")
            _log.error("the topic containers cannot be read", error=str(error), remedy=remedy)

    async def _write(self, stored: StoredObject | None, after: TopicContainers) -> bool:
        value = after.to_bytes()
        try:
            if stored is None or not stored.value:
                revision = await self._cluster.create(TOPIC_CONTAINERS_KEY, value)
            else:
                revision = await self._cluster.update(TOPIC_CONTAINERS_KEY, value, stored.revision)
        except (ObjectExists, RevisionConflict):
            return False
        self._learn(after, StoredObject(TOPIC_CONTAINERS_KEY, value, revision))
        return True

    def _learn(self, table: TopicContainers, stored: StoredObject | None) -> None:
        """Take the table, unless a newer one is known."""
        revision = 0 if stored is None else stored.revision
        if revision <= self._revision:
            return
        self._revision = revision
        if table != self._table:
            self._table = table
            self._wanted = nodes_by_container(table)
            self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _table_in(stored: StoredObject | None) -> TopicContainers:
    """The table in a stored object. Raises FormatTooNew, Corrupt."""
    if stored is None or not stored.value:
        return TopicContainers()
    return record_from(TopicContainers, stored)
