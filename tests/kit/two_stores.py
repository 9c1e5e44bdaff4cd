"""Two simulated stores with a journal each and one tier 2: containers move between them.

Processes run one after the other, each a `Life` of its store's `World`; what outlives them (the
placements, tier 2, what clients were told) is shared. All containers move together.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.wire.messages import Stamp
from anabranch.controller.domain.cluster import placement_changes
from kit.rng import seeded
from kit.simdisk import SimDisk
from kit.store_check import check_everything
from kit.store_requests import create, flush, seal
from kit.store_world import NODE, Client, Life, Script, World
from kit.store_writer import WriterScript

OTHER = "node-2"
NODES = (NODE, OTHER)
SEGMENTS = ("s/a/0.#epoch.0", "s/b/1.#epoch.0")
RELEASED_S_MAX = 900.0
_IDS_APART = 1000


@dataclass
class TwoStores:
    """The worlds of both stores, and the writers, which survive everything."""

    first: World
    second: World
    writers: list[WriterScript]

    @classmethod
    def new(cls) -> "TwoStores":
        first = World()
        rng = seeded(5)
        writers = [
            WriterScript(segment, bytes([number]) * 16, first.history, rng)
            for number, segment in enumerate((*SEGMENTS, SEGMENTS[0]), 1)
        ]
        return cls(first, _beside(first, SimDisk(), _IDS_APART), writers)

    def of(self, node: str) -> World:
        return self.first if node == NODE else self.second

    async def placements(self) -> list[Placement]:
        found = [
            await self.first.objects.get(placement_key(container))
            for container in range(self.first.container_count)
        ]
        return [placement_from_bytes(stored.value) for stored in found if stored is not None]

    async def placed_on(self, node: str) -> list[int]:
        return [one.container for one in await self.placements() if one.owner == node]

    async def change(self, decide: Callable[[Placement], Placement]) -> None:
        """What a controller does to all placements."""
        objects = self.first.objects
        for container in range(self.first.container_count):
            stored = await objects.get(placement_key(container))
            assert stored is not None
            changed = placement_to_bytes(decide(placement_from_bytes(stored.value)))
            await objects.update(placement_key(container), changed, stored.revision)

    # --- lives --------------------------------------------------------------------------------

    async def working_life(self, life: Life) -> None:
        """Everything ever acknowledged is there; more is written."""
        await check_everything(life)
        await self.write(Client(life))
        await check_everything(life)

    async def write(self, client: Client) -> None:
        """What each writer has left, and a little more; a store that closes may refuse it."""
        for segment in SEGMENTS:
            if segment not in client.life.world.created:
                await create(client, segment, Stamp(1, 1))
        for writer in self.writers:
            if await writer.begin(client):
                for count in (1, 3):
                    writer.send(client, count)

    def leaving_life(self, target: str) -> Script:
        """Write, be asked to leave, write on, and end when everything is released."""

        async def live(life: Life) -> None:
            await life.opened()
            client = Client(life)
            await self.write(client)
            await self.ask_to_leave(life, target)
            await self.until_released(life, client)

        return live

    def left_life(self, target: str) -> Script:
        """The process after a crash of a leaving one: ends when everything is released."""

        async def live(life: Life) -> None:
            await self.ask_to_leave(life, target)
            await self.until_released(life)

        return live

    async def ask_to_leave(self, life: Life, target: str) -> None:
        await self.change(lambda found: placement_changes.move(found, target, NODES))
        for keeper in life.keepers:
            keeper.note_target(target)

    async def until_released(self, life: Life, client: Client | None = None) -> None:
        """With a client, its writers go on for as long as they are let."""
        waited_s = 0.0
        while await self.placed_on(life.world.node):
            for writer in self.writers if client is not None else ():
                if client is not None and writer.alive:
                    writer.send(client, 1)
            pause_s = 0.004 if waited_s < 1 else 0.05
            await life.clock.sleep(pause_s)
            waited_s += pause_s
            assert waited_s < RELEASED_S_MAX, "the containers were never released"

    async def sealing_life(self, life: Life) -> None:
        """A life in which more happens than is written: flushed, and one segment is sealed."""
        client = Client(life)
        await life.opened()
        for container in range(life.world.container_count):
            await flush(client, container)
        await seal(client, SEGMENTS[1], Stamp(1, 9))
        await check_everything(life)

    async def give_back(self, _life: Life) -> None:
        """An operator moves the containers to the first store; nobody served them since."""
        await self.change(lambda found: placement_changes.move(found, NODE, NODES))

    async def steal(self) -> None:
        """The placements say, wrongly, that the first store has released the containers."""
        await self.change(
            lambda found: replace(
                found, replicas=(OTHER,), log_id="", previous_log=found.log_id,
                state=PlacementState.ASSIGNED,
            )
        )  # fmt: skip

    async def refused_life(self, life: Life) -> None:
        """The second store refuses the stolen containers, by name."""
        while not all(found.state is PlacementState.OFFLINE for found in await self.placements()):
            assert not life.store.open_numbers, "served without its log"
            await life.clock.sleep(0.05)
        assert all(found.reason.startswith("log-not-here") for found in await self.placements())

    # --- copies -------------------------------------------------------------------------------

    def fork(self) -> "TwoStores":
        """An independent copy, to be ended in another way; the writers are not copied."""
        first = self.first.fork()
        second = _beside(first, self.second.journal_disk.fork(), self.second.lives)
        return TwoStores(first, second, [])


def _beside(first: World, journal_disk: SimDisk, lives: int) -> World:
    """A second store of the first one's cluster."""
    return replace(first, node=OTHER, journal_disk=journal_disk, lives=lives)
