"""A store whose journal disk is full: reads go on, appends are refused by name, nothing is lost."""

from collections.abc import Callable

import pytest

from anabranch.common.errors import Overloaded
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.shell.node.journal_watch import TRY_AGAIN_S_MAX, JournalWatch
from kit.rng import seeded
from kit.store_check import check_everything
from kit.store_requests import create, info_of, seal
from kit.store_world import Client, Life, World
from kit.store_writer import WriterScript

SEGMENTS = ("s/a/0.#epoch.0", "s/b/1.#epoch.0", "s/b/2.#epoch.0")
HELD_S = 60.0


class Watching:
    """The store's journal watch, at work, and what it says of readiness."""

    def __init__(self, life: Life) -> None:
        self.said: list[str] = []
        watch = JournalWatch(
            life.journal,
            life.store,
            life.throttle,
            clock=life.clock,
            bytes_max=life.world.journal_bytes_max,
            outstanding_s=life.commits.outstanding_s,
            set_ready=lambda _part, _ready, reason: self.said.append(reason),
        )
        life.spawn(watch.run())


async def writers_of(life: Life, client: Client, known: dict[str, WriterScript]) -> None:
    """A writer of each segment that has begun; those of earlier lives go on."""
    rng = seeded(5)
    for number, segment in enumerate(SEGMENTS, 1):
        if segment not in life.world.created:
            await create(client, segment, Stamp(1, 1))
        if segment not in known:
            known[segment] = WriterScript(segment, bytes([number]) * 16, life.world.history, rng)
        assert await known[segment].begin(client)


async def write_until_refused(life: Life, client: Client, writers: dict[str, WriterScript]) -> None:
    """More and more, by all writers in turn."""
    for number in range(1000):
        writer = writers[SEGMENTS[number % 3]]
        if writer.alive:
            writer.send(client, 1)
        await life.clock.sleep(0.01)
        if life.throttle.refused["disk",]:
            return
    raise AssertionError("nothing was ever refused")


async def all_acknowledged(life: Life, writers: dict[str, WriterScript]) -> None:
    while any(writer.acknowledged < writer.sent for writer in writers.values() if writer.alive):
        await life.clock.sleep(0.05)


def fill(world: World) -> None:
    """The one disk that journal and tier 2 lie on is full."""
    for disk in (world.journal_disk, world.tier_disk):
        disk.capacity = disk.used


def no_descriptors(world: World) -> None:
    """The process can open nothing more."""
    world.journal_disk.descriptors_gone = world.tier_disk.descriptors_gone = True


def free(world: World) -> None:
    for disk in (world.journal_disk, world.tier_disk):
        disk.capacity, disk.descriptors_gone = None, False


@pytest.mark.parametrize("sync_s", [None, 0.01], ids=["inline", "writer process"])
@pytest.mark.parametrize("exhaust", [fill, no_descriptors])
def test_a_full_disk_refuses_appends_serves_reads_and_is_noticed_when_it_is_freed(
    sync_s: float | None, exhaust: Callable[[World], None]
) -> None:
    world = World(journal_file_size=16 * 1024, flush_bytes=1 << 20, sync_s=sync_s)
    writers: dict[str, WriterScript] = {}

    async def life_on_it(life: Life) -> None:
        await life.opened()
        client, watching = Client(life), Watching(life)
        await writers_of(life, client, writers)
        exhaust(world)
        await write_until_refused(life, client, writers)
        with pytest.raises(Overloaded) as refusal:
            await seal(client, SEGMENTS[0], Stamp(1, 2))
        assert refusal.value.fields["source"] == "disk"
        assert not life.throttle.paused, "a connection whose appends are refused can still read"
        before = life.clock.monotonic()
        for segment in SEGMENTS:
            content, _ = await client.read_all(segment)
            assert content
            info = await info_of(client, segment)
            assert info.length == len(content)
        assert life.clock.monotonic() - before < 1, "reads go on"
        await life.clock.sleep(HELD_S)
        assert life.failure is None
        assert "no room" in watching.said[-1]
        free(world)
        await life.clock.sleep(TRY_AGAIN_S_MAX + 1)
        assert watching.said[-1] == ""
        await writers_of(life, client, writers)
        for writer in writers.values():
            writer.send(client, 2)
        await all_acknowledged(life, writers)
        await check_everything(life)

    assert world.run(life_on_it)
    world.kill()
    assert world.run(check_everything)


def test_a_full_journal_goes_on_in_the_files_that_a_flush_lets_go() -> None:
    world = World(journal_file_size=16 * 1024, flush_bytes=1 << 20)
    writers: dict[str, WriterScript] = {}

    async def life_on_it(life: Life) -> None:
        await life.opened()
        client, watching = Client(life), Watching(life)
        await writers_of(life, client, writers)
        world.journal_disk.capacity = world.journal_disk.used  # tier 2 has a disk of its own
        await write_until_refused(life, client, writers)
        await life.clock.sleep(HELD_S)
        assert any("no room" in reason for reason in watching.said)
        assert watching.said[-1] == ""
        await writers_of(life, client, writers)
        for writer in writers.values():
            writer.send(client, 2)
        await all_acknowledged(life, writers)
        await check_everything(life)

    assert world.run(life_on_it)
    free(world)
    world.kill()
    assert world.run(check_everything)


def test_a_store_starts_on_a_full_disk_serves_reads_and_goes_on_when_it_is_freed() -> None:
    world = World(journal_file_size=16 * 1024, flush_bytes=1 << 20)
    writers: dict[str, WriterScript] = {}

    async def write(life: Life) -> None:
        await life.opened()
        client = Client(life)
        await writers_of(life, client, writers)
        fill(world)
        await write_until_refused(life, client, writers)

    async def start_on_it(life: Life) -> None:
        assert life.journal.no_room is not None
        await life.opened()
        client, _ = Client(life), Watching(life)
        await check_everything(life)
        with pytest.raises(Overloaded):
            await seal(client, SEGMENTS[0], Stamp(1, 2))
        free(world)
        await life.clock.sleep(TRY_AGAIN_S_MAX + 1)
        await writers_of(life, client, writers)
        for writer in writers.values():
            writer.send(client, 2)
        await all_acknowledged(life, writers)
        await check_everything(life)

    assert world.run(write)
    world.kill()
    for name in world.journal_disk.list():  # the space of spares would do
        if name.startswith("spare-"):
            world.journal_disk.unlink(name)
    world.journal_disk.capacity = world.journal_disk.used
    world.tier_disk.capacity = None
    assert world.run(start_on_it)
    world.kill()
    assert world.run(check_everything)
