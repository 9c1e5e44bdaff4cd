"""What a restarted store owes its disks, and which failures end it."""

from anabranch.common.wire.messages import Stamp
from kit.rng import seeded
from kit.store_world import Client, Life, World, WriterScript, check_everything, create, flush

SEGMENT = "s/a/0.#epoch.0"


def journal_files(world: World) -> list[str]:
    return [name for name in world.journal_disk.list() if name.startswith("journal-")]


async def write_and_flush(life: Life) -> None:
    """One segment, appended to and flushed."""
    await life.opened()
    client = Client(life)
    await create(client, SEGMENT, Stamp(1, 1))
    writer = WriterScript(SEGMENT, bytes(16), life.world.history, seeded(3))
    await writer.begin(client)
    for _ in range(30):
        writer.send(client, 3)
    for container in range(life.world.container_count):
        await flush(client, container)


def test_what_tier_two_holds_pins_no_journal_file_after_a_restart() -> None:
    world = World()
    assert world.run(write_and_flush)
    world.kill()
    # when the store starts again and nobody writes to its containers
    assert world.run(check_everything)
    # then only the file of the new start is left
    assert len(journal_files(world)) == 1
