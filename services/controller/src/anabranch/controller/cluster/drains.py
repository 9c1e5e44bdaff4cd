"""The stores that an operator drains: follows their list in JetStream KV, and changes it.

Owns: the list as last seen by the watch. Every change is a compare-and-set, on any controller.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import structlog

from anabranch.common.contracts.cluster import DRAINS_KEY, StoredDrains
from anabranch.common.contracts.queries import DrainChange, DrainStore
from anabranch.common.errors import (
    Corrupt,
    NodeNotFound,
    ObjectExists,
    Retry,
    RevisionConflict,
    Unavailable,
)
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.cluster.placement_actions import (
    StoreView,
)

ATTEMPTS_MAX = 8
RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class Drains:
    """The drained stores as far as this controller knows."""

    def __init__(self, cluster: ObjectStore, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._nodes: frozenset[str] = frozenset()
        self._listed = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def nodes(self) -> frozenset[str]:
        """The ids of the drained stores."""
        return self._nodes

    @property
    def complete(self) -> bool:
        """Whether the stored list, if any, has been seen."""
        return self._listed

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the list changes."""
        self._listeners.append(listener)

    def marked(self, stores: Mapping[str, StoreView]) -> Mapping[str, StoreView]:
        """The stores, with the drained ones marked."""
        return {name: replace(view, draining=name in self._nodes) for name, view in stores.items()}

    async def perform(self, change: DrainChange, known: Collection[str]) -> bool:
        """Drain or undrain the store, one of `known`; returns whether it is drained now.

        A store that is drained may be undrained although its record is gone. Idempotent. Raises
        NodeNotFound, Corrupt, Unavailable, OutcomeUnknown.
        """
        node, drain = change.node_id, isinstance(change, DrainStore)
        for _ in range(ATTEMPTS_MAX):
            stored = await self._cluster.get(DRAINS_KEY)
            nodes = _listed_in(stored)
            if node not in known and (drain or node not in nodes):
                raise NodeNotFound("no such segment store has announced itself", node=node)
            changed = nodes | {node} if drain else nodes - {node}
            if changed == nodes or await self._write(stored, changed):
                self._learn(changed)
                _log.info("changed the drained stores", store=node, drained=drain)
                return drain
        raise Unavailable("the list of drained stores changes too often", node=node)

    async def serve(self) -> None:
        """Watch the list until cancelled."""
        while True:
            try:
                async for found in self._cluster.watch():
                    if found is None:
                        self._listed = True
                        self._tell()
                    elif found.key == DRAINS_KEY:
                        self._see(found)
            except Retry as error:
                _log.warning("the watch of the drained stores was interrupted", error=str(error))
            await self._clock.sleep(RETRY_S)

    def _see(self, found: StoredObject) -> None:
        try:
            self._learn(_listed_in(found))
        except Corrupt as error:
            # The last readable list counts on, so that no drained store receives containers.
            remedy = error.remedy_for("command")
            _log.error("the drained stores cannot be read", error=str(error), remedy=remedy)

    async def _write(self, stored: StoredObject | None, nodes: frozenset[str]) -> bool:
        """Replace the list; False if it changed meanwhile."""
        value = StoredDrains(nodes=tuple(sorted(nodes))).to_bytes()
        try:
            if stored is None or not stored.value:
                await self._cluster.create(DRAINS_KEY, value)
            else:
                await self._cluster.update(DRAINS_KEY, value, stored.revision)
        except (ObjectExists, RevisionConflict):
            return False
        return True

    def _learn(self, nodes: frozenset[str]) -> None:
        if nodes != self._nodes:
            self._nodes = nodes
            self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _listed_in(stored: StoredObject | None) -> frozenset[str]:
    """The list in a stored object. Raises FormatTooNew, Corrupt."""
    if stored is None or not stored.value:
        return frozenset()
    return frozenset(StoredDrains.parsed(stored.value).nodes)
