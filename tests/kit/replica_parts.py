"""The parts of a replicated log as a simulated store builds them."""

from dataclasses import replace

from anabranch.common.contracts.cluster import placement_from_bytes, placement_key
from anabranch.common.errors import Deposed, WrongHost
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import LogCopy, Placement, PlacementState
from anabranch.segstore.ports_replica import Replicas
from anabranch.segstore.shell.node.placements import Placements


class StorePlacements(Placements):
    """A store's placements, which are also the register of its logs."""

    def __init__(self, objects: ObjectStore, node_id: str) -> None:
        super().__init__(objects, node_id)
        self._all = objects

    def is_mine(self, placement: Placement) -> bool:
        """See `Placements`."""
        return super().is_mine(placement) and placement.state is not PlacementState.ELECTING

    async def look(self, container: int) -> Placement | None:
        """The placement as stored."""
        stored = await self._all.get(placement_key(container))
        return None if stored is None else placement_from_bytes(stored.value)

    async def read(self, container: int, container_epoch: int) -> Replicas:
        """See `Register`."""
        found = await self.look(container)
        if found is None or found.container_epoch != container_epoch:
            raise Deposed("another epoch was taken", container=container)
        if not self.is_mine(found):
            raise WrongHost("the container is not assigned to this store", container=container)
        return _replicas(found)

    async def change(
        self, container: int, container_epoch: int, isr: tuple[LogCopy, ...]
    ) -> Replicas:
        """See `Register`."""
        taken = Placement(container, (self._node_id,), container_epoch)
        return _replicas(await self._report(taken, lambda found: replace(found, isr=isr)))


def _replicas(found: Placement) -> Replicas:
    return Replicas(found.replicas, found.isr, found.isr_min)
