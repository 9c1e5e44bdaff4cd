"""What a restarted store owes its disks, and which failures end it."""

from contextlib import suppress
from fnmatch import fnmatch

import pytest

from anabranch.common.errors import Unavailable
from anabranch.common.wire.messages import Stamp
from kit.rng import seeded
from kit.simdisk import SimDisk
from kit.store_check import check_everything
from kit.store_requests import create, flush
from kit.store_world import Client, Life, World
from kit.store_writer import WriterScript

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


def ended_by(world: World, disk: SimDisk, verb: str, path: str) -> str:
    """The code of the error that ends the store if its last such call fails."""
    rehearsal = world.fork()
    rehearsed = rehearsal.tier_disk if disk is world.tier_disk else rehearsal.journal_disk
    before = rehearsed.calls
    assert rehearsal.run(write_and_flush)
    calls = rehearsed.trace[before:]
    numbers = [call.number for call in calls if call.verb == verb and fnmatch(call.path, path)]
    disk.fail_at(numbers[-1])
    lives: list[Life] = []

    async def until_ended(life: Life) -> None:
        lives.append(life)
        with suppress(Unavailable):
            await write_and_flush(life)
        await life.clock.sleep(600)

    assert not world.run(until_ended)
    (life,) = lives
    assert life.failure is not None
    return life.failure.code


def test_a_journal_that_cannot_make_a_containers_log_ends_the_store() -> None:
    world = World(container_count=1)
    assert ended_by(world, world.journal_disk, "write_synced", "logs/*") == "disk-failed"


@pytest.mark.parametrize(
    ("verb", "path"),
    [("sync", "tmp/*"), ("sync_directory", "c1"), ("sync_directory", "c1/m")],
)
def test_a_failed_sync_of_tier_two_ends_the_store_and_the_next_one_goes_on(
    verb: str, path: str
) -> None:
    world = World()
    assert world.run(Life.opened)
    world.kill()
    assert ended_by(world, world.tier_disk, verb, path) == "sync-failed"
    world.kill()
    assert world.run(check_everything)
