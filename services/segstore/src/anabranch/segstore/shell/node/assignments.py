"""Follows the placements, with one keeper for each container that is assigned to this node.

It compares states and needs no history. A placement that names this node gets a keeper unless one
is at work. If the placement names another node, or a controller elects the leader of its log, the
container ends at once and the keeper is cancelled; if it names a target, the keeper closes the
container and leaves. A container that is disabled or offline is opened again when an operator
enables it, which raises its container epoch, or when the process starts.
A placement that is gone counts like one that names another node.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import structlog

from anabranch.common.contracts.cluster import placement_from_bytes
from anabranch.common.errors import AnabranchError, Corrupt, WrongHost
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.shell.container.pauses import BackOff
from anabranch.segstore.shell.node.lifecycle import ContainerKeeper
from anabranch.segstore.shell.node.placements import Placements, hands_over
from anabranch.segstore.shell.node.store import Store

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
        back_off_s: BackOff,
        new_keeper: Callable[[int], ContainerKeeper],
    ) -> None:
        self._objects = objects
        self._placements = placements
        self._store = store
        self._clock = clock
        self._back_off_s = back_off_s
        self._new_keeper = new_keeper
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._keepers: dict[int, ContainerKeeper] = {}
        self._leaving: set[int] = set()
        """Containers whose keeper ends, because the placement named another node."""

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
                await self._clock.sleep(self._back_off_s(max(1, failures)))

    async def _follow(
        self, changes: AsyncIterator[StoredObject | None], group: asyncio.TaskGroup
    ) -> None:
        """Follow one watch, which begins with the full list.

        A container whose placement was deleted ends, also if the deletion fell between two watches:
        then the list lacks the placement.
        """
        present: set[str] = set()
        async for stored in changes:
            if stored is None:
                gone = [
                    str(container) for container in self._keepers if str(container) not in present
                ]
            elif stored.value:
                present.add(stored.key)
                self._consider_stored(stored, group)
                continue
            else:
                present.discard(stored.key)
                gone = [stored.key]
            for key in gone:
                self.consider(Placement(int(key), ()), group)

    def _consider_stored(self, stored: StoredObject, group: asyncio.TaskGroup) -> None:
        """Consider a placement as stored. A damaged one keeps no other one from being followed."""
        try:
            placement = placement_from_bytes(stored.value)
        except Corrupt as error:
            _log.warning("a placement is damaged", container=stored.key, error=str(error))
        else:
            self.consider(placement, group)

    def consider(self, placement: Placement, group: asyncio.TaskGroup) -> None:
        """Make the container's keeper match its placement; harmless to repeat."""
        container = placement.container
        task = self._tasks.get(container)
        working = task is not None and not task.done()
        keeper = self._keepers.get(container)
        if not self._placements.is_mine(placement):
            self._store.unassign(container)
            self._store.end(container, WrongHost("the container was placed on another store"))
            if task is None or keeper is None or not working:
                self._keepers.pop(container, None)
                return
            self._leaving.add(container)
            if not keeper.releasing:
                task.cancel()
            return
        if keeper is not None and container not in self._leaving:
            keeper.note_target(placement.target, in_sync=hands_over(placement))
            keeper.note_epoch(placement.container_epoch)
            if placement.container_epoch <= keeper.gave_up_epoch:
                return  # not enabled since; a late update of the watch changes nothing
            if working and not keeper.gave_up_epoch:
                return
        if self._store.stopping:
            return
        self._leaving.discard(container)
        self._store.assign(container)
        keeper = self._keepers[container] = self._new_keeper(container)
        self._tasks[container] = group.create_task(_keep(keeper, task))


async def _keep(keeper: ContainerKeeper, older: asyncio.Task[None] | None) -> None:
    """Run a keeper once the previous one has ended."""
    if older is not None:
        await asyncio.wait({older})
    await keeper.run()
