"""Follows the placements: one keeper for each container that is assigned to this node.

Compares states, never edges: a placement that names this node gets a keeper unless one is at
work; one that names another node loses it. A container that went offline is tried again when
its placement is set back to ASSIGNED, or when the process starts.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import structlog

from anabranch.common.contracts.cluster import placement_from_bytes
from anabranch.common.errors import AnabranchError
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.shell.flusher import back_off_s
from anabranch.segstore.shell.lifecycle import ContainerKeeper
from anabranch.segstore.shell.placements import Placements
from anabranch.segstore.shell.store import Store

_log = structlog.get_logger(__name__)


class Assignments:
    """The keepers of this node. `run` must be the only caller of its methods."""

    def __init__(
        self,
        *,
        objects: ObjectStore,
        placements: Placements,
        store: Store,
        clock: Clock,
        new_keeper: Callable[[int], ContainerKeeper],
    ) -> None:
        self._objects = objects
        self._placements = placements
        self._store = store
        self._clock = clock
        self._new_keeper = new_keeper
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._tried: set[int] = set()
        self._leaving: set[int] = set()

    async def run(self) -> None:
        """Follow the placements until cancelled; the keepers end with it."""
        failures = 0
        async with asyncio.TaskGroup() as group:
            while not self._store.stopping:
                try:
                    await self._follow(self._objects.watch(), group)
                    failures = 0
                except AnabranchError as error:
                    failures += 1
                    _log.warning("the placements cannot be followed", error=str(error))
                await self._clock.sleep(back_off_s(max(1, failures)))

    async def _follow(
        self, changes: AsyncIterator[StoredObject | None], group: asyncio.TaskGroup
    ) -> None:
        async for stored in changes:
            if stored is not None and stored.value:
                self.consider(placement_from_bytes(stored.value), group)

    def consider(self, placement: Placement, group: asyncio.TaskGroup) -> None:
        """Bring the container's keeper in line with its placement; repeated is harmless."""
        container = placement.container
        task = self._tasks.get(container)
        working = task is not None and not task.done()
        if not self._placements.is_mine(placement):
            self._store.unassign(container)
            if task is not None and working:
                task.cancel()
                self._leaving.add(container)
            return
        disabled = placement.state is PlacementState.FAILED and container in self._tried
        kept = working and container not in self._leaving
        if kept or disabled or self._store.stopping:
            return
        self._tried.add(container)
        self._leaving.discard(container)
        self._store.assign(container)
        self._tasks[container] = group.create_task(self._keep(container, task))

    async def _keep(self, container: int, older: asyncio.Task[None] | None) -> None:
        """A keeper's work, once the one before it has ended."""
        if older is not None:
            await asyncio.wait({older})
        await self._new_keeper(container).run()
