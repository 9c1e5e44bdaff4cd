"""A whole store whose journal was damaged: refused by name, repaired, and at work again."""

from contextlib import closing

import pytest

from anabranch.common.errors import CorruptJournal
from anabranch.common.wire.messages import GetSegmentInfo, SegmentInfo, Stamp
from anabranch.segstore.adapters.journal.mending import perform_repair, planned_repair
from kit.rng import seeded
from kit.store_requests import create, flush
from kit.store_world import Client, Life, World
from kit.store_writer import WriterScript

SEGMENT = "s/a/0.#epoch.0"
BLOCKS = 6


async def write_blocks(life: Life) -> None:
    """Blocks of one writer; the last ones are in the journal alone."""
    await life.opened()
    client = Client(life)
    await create(client, SEGMENT, Stamp(1, 1))
    writer = WriterScript(SEGMENT, bytes(16), life.world.history, seeded(3))
    assert await writer.begin(client)
    for number in range(BLOCKS):
        writer.send(client, 1)
        await life.clock.sleep(0.01)
        if number == BLOCKS - 2:
            await flush(client, 0)


async def go_on(life: Life) -> None:
    """What tier 2 holds is there, and a new writer is served, over flush and restart."""
    await life.opened()
    client = Client(life)
    info = await client.control(GetSegmentInfo(segment=SEGMENT))
    assert isinstance(info, SegmentInfo)
    content, _ = await client.read_all(SEGMENT)
    assert info.length == len(content) > 0
    writer = WriterScript(SEGMENT, b"%016d" % life.world.lives, life.world.history, seeded(4))
    assert await writer.begin(client)
    writer.send(client, 2)
    await life.clock.sleep(0.01)
    assert writer.acknowledged == 2
    await flush(client, 0)
    longer, _ = await client.read_all(SEGMENT)
    assert longer.startswith(content)
    assert len(longer) > len(content)


def damage_frame(world: World, number: int) -> None:
    """Flip a bit in the payload of the newest file's frame `number`."""
    disk = world.journal_disk
    name = max(name for name in disk.list() if name.startswith("journal-"))
    with closing(disk.open(name)) as file:
        data = file.read(0, file.size())
        at = 0
        for _ in range(number):
            at = data.index(b"ANBF", at + 1)
        file.write_synced([bytes([data[at + 60] ^ 1])], at + 60)


@pytest.mark.parametrize("frame", range(1, BLOCKS + 1))
def test_a_store_goes_on_after_the_repair_of_its_journal(frame: int) -> None:
    world = World(container_count=1, journal_file_size=64 * 1024)
    assert world.run(write_blocks)
    world.kill()
    damage_frame(world, frame)
    with pytest.raises(CorruptJournal):
        world.fork().run(go_on)
    perform_repair(world.journal_disk, planned_repair(world.journal_disk))
    for _ in range(3):
        assert world.run(go_on)
        world.kill()
