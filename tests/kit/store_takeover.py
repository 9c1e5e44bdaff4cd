"""An owner that stands still while another process takes its directory over.

At every disk call of a serving owner, before and after it, the process is stopped; a second one
opens the same directory, trusts the fence, works, and ends. Then the first one wakes. It may
acknowledge nothing any more, and nothing that it still does may be seen by anybody.
"""

import threading
from collections.abc import Callable
from contextlib import suppress

from anabranch.common.errors import Fenced, Retry
from anabranch.common.wire.messages import Stamp
from kit.rng import seeded
from kit.simdisk import SimDisk, When
from kit.store_check import check_everything
from kit.store_requests import create, flush, seal
from kit.store_world import Client, Life, World
from kit.store_writer import WriterScript
from kit.thorough import some_of

ONE_IN = 9

SEGMENTS = ("s/a/0.#epoch.0", "s/b/1.#epoch.0")
WRITER_OF_SUCCESSOR = b"s" * 16
WHENS: tuple[When, ...] = ("before", "during", "after")


class Takeover:
    """One world, its first owner's writers, and the second process."""

    def __init__(self, seed: int = 3) -> None:
        self.world = World()
        history, rng = self.world.history, seeded(seed)
        self.writers = [
            WriterScript(segment, bytes([number]) * 16, history, rng)
            for number, segment in enumerate((*SEGMENTS, SEGMENTS[0]), 1)
        ]
        self.happened = False
        self.calls_at_open: dict[SimDisk, int] = {}
        self.failure: BaseException | None = None

    def disks(self) -> tuple[SimDisk, SimDisk]:
        return self.world.journal_disk, self.world.tier_disk

    async def first_life(self, life: Life) -> None:
        """Create, append, seal and flush; give up when the store does."""
        await life.opened()
        self.calls_at_open = {disk: disk.calls for disk in self.disks()}
        with suppress(Retry, Fenced):
            client = Client(life)
            for segment in SEGMENTS:
                await create(client, segment, Stamp(1, 1))
            for _ in range(3):
                for writer in self.writers:
                    if self.happened:
                        return
                    if await writer.begin(client):
                        for count in (1, 3, 2):
                            writer.send(client, count)
                for container in range(self.world.container_count):
                    await flush(client, container)

    async def second_life(self, life: Life) -> None:
        """The successor serves: everything acknowledged is there; it appends, seals, flushes."""
        await check_everything(life)
        client = Client(life)
        for segment in SEGMENTS:
            await create(client, segment, Stamp(1, 1))
        writer = WriterScript(SEGMENTS[0], WRITER_OF_SUCCESSOR, self.world.history, seeded(4))
        assert await writer.begin(client)
        writer.send(client, 2)
        for container in range(self.world.container_count):
            await flush(client, container)
        writer.send(client, 2)
        await seal(client, SEGMENTS[1], Stamp(1, 2))
        assert writer.acknowledged >= 2
        await check_everything(life)

    def take_over(self) -> None:
        """Run the second process to its end, while the first one stands still."""

        def run() -> None:
            try:
                assert self.world.run(self.second_life)
            except BaseException as error:  # noqa: BLE001  carried over to the test
                self.failure = error

        self.happened = True
        for writer in self.writers:
            writer.frozen = True
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()


def interrupted(
    disk_of: Callable[[World], SimDisk], call: int, when: When, seed: int = 3
) -> Takeover:
    """A first life with a takeover at that call of one of its disks."""
    takeover = Takeover(seed)
    disk_of(takeover.world).interrupt_at(call, when, takeover.take_over)
    with suppress(Retry, Fenced):
        takeover.world.run(takeover.first_life)
    return takeover


def calls_of(disk_of: Callable[[World], SimDisk], seed: int = 3) -> range:
    """The calls of a disk while the first owner serves."""
    takeover = Takeover(seed)
    assert takeover.world.run(takeover.first_life)
    disk = disk_of(takeover.world)
    return range(takeover.calls_at_open[disk] + 1, disk.calls + 1)


def journal_disk(world: World) -> SimDisk:
    return world.journal_disk


def tier_disk(world: World) -> SimDisk:
    return world.tier_disk


def take_over_everywhere(disk_of: Callable[[World], SimDisk]) -> int:
    """How many takeovers were survived, of which a usual run tries one in `ONE_IN`."""
    count = 0
    for call in some_of(calls_of(disk_of), ONE_IN):
        for when in WHENS:
            takeover = interrupted(disk_of, call, when)
            assert takeover.happened
            if takeover.failure is not None:
                raise takeover.failure
            takeover.world.kill()
            assert takeover.world.run(check_everything)
            count += 1
    return count


def random_takeover(seed: int) -> None:
    """One takeover at a random call of either disk, in a world of this seed."""
    rng = seeded(seed)
    disk_of = rng.choice((journal_disk, tier_disk))
    calls = calls_of(disk_of, seed)
    takeover = interrupted(disk_of, rng.choice(calls), rng.choice(WHENS), seed)
    assert takeover.happened
    if takeover.failure is not None:
        raise takeover.failure
    takeover.world.kill()
    assert takeover.world.run(check_everything)
