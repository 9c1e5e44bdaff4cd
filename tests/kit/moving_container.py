"""One container that moves between two simulated stores, as its placement says."""

import asyncio
from contextlib import suppress

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import AnabranchError
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Placement
from anabranch.controller.domain.cluster import placement_changes
from kit.store_world import NODE, Life
from kit.two_stores import NODES, OTHER

LEFT_S_MAX = 900.0


class MovingContainer:
    """Container 0, which one of the two stores owns. `objects` hold its placement."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def placement(self) -> Placement | None:
        """The placement, once the first life has made it."""
        stored = await self._objects.get(placement_key(0))
        return placement_from_bytes(stored.value) if stored is not None else None

    def owner(self) -> str:
        """The store that the container is placed on. Call it between lives."""
        found = asyncio.run(self.placement())
        return found.owner if found is not None else NODE

    async def ask_to_leave(self, life: Life) -> None:
        """Ask for the container's move to the other store, as a controller does."""
        target = OTHER if life.world.node == NODE else NODE
        stored = await self._objects.get(placement_key(0))
        assert stored is not None
        found = placement_from_bytes(stored.value)
        with suppress(AnabranchError):
            changed = placement_changes.move(found, target, NODES)
            await self._objects.update(
                placement_key(0), placement_to_bytes(changed), stored.revision
            )
            for keeper in life.keepers:
                keeper.note_target(target)

    async def has_left(self, life: Life) -> bool:
        """Whether the container is placed on the other store by now."""
        found = await self.placement()
        return found is not None and found.owner != life.world.node

    async def until_left(self, life: Life) -> None:
        """Wait until the container has left, or for a long time."""
        while not await self.has_left(life) and life.loop.time() < LEFT_S_MAX:
            await life.clock.sleep(0.2)

    async def until_open_or_left(self, life: Life) -> bool:
        """Whether the container serves here."""
        waited_s = 0.0
        while not life.store.open_containers():
            disks = (life.world.journal_disk, life.world.tier_disk)
            if await self.has_left(life) or waited_s > LEFT_S_MAX:
                # A disk that failed may keep the container closed.
                assert waited_s <= LEFT_S_MAX or any(disk.faults for disk in disks)
                return False
            await life.clock.sleep(0.05)
            waited_s += 0.05
        return True
