"""A store whose disk is slow or stuck, and whose journal is held up; with a writer process."""

import pytest

from anabranch.common.model.hashing import container_of
from anabranch.common.wire.messages import ReadSegment, Stamp
from anabranch.segstore.shell.container.throttle import Source
from anabranch.segstore.shell.node.journal_watch import LOOK_S, STUCK_COMMIT_S, JournalWatch
from kit.rng import seeded
from kit.store_check import check_everything
from kit.store_requests import create, flush
from kit.store_world import Client, Life, World
from kit.store_writer import WriterScript

SEGMENTS = ("s/a/0.#epoch.0", "s/b/1.#epoch.0", "s/b/2.#epoch.0")
STUCK_S = 1e6


class Watched:
    """The store's journal watch, and what it said of readiness."""

    def __init__(self, life: Life) -> None:
        self.said: list[tuple[bool, str]] = []
        self.watch = JournalWatch(
            life.journal,
            life.store,
            life.throttle,
            clock=life.clock,
            bytes_max=life.world.journal_bytes_max,
            outstanding_s=life.commits.outstanding_s,
            set_ready=self._set_ready,
        )

    def _set_ready(self, part: str, ready: bool, reason: str) -> None:
        assert part == "journal"
        self.said.append((ready, reason))


async def writers_of(life: Life, *segments: str) -> tuple[Client, list[WriterScript]]:
    """Segments, created unless they are there, and a writer of each that has begun."""
    await life.opened()
    client, rng = Client(life), seeded(5)
    for segment in segments:
        await create(client, segment, Stamp(1, 1))
    made = [
        WriterScript(segment, bytes([number]) * 16, life.world.history, rng)
        for number, segment in enumerate(segments, 1)
    ]
    for writer in made:
        assert await writer.begin(client)
    return client, made


async def all_acknowledged(life: Life, writers: list[WriterScript]) -> None:
    while any(writer.acknowledged < writer.sent for writer in writers):
        assert all(writer.alive for writer in writers)
        await life.clock.sleep(0.05)


async def send_until_refused(life: Life, client: Client, writer: WriterScript) -> None:
    """More and more, of which what is durable is acknowledged."""
    for _ in range(1000):
        writer.send(client, 2)
        await life.clock.sleep(0)
        if life.throttle.refused:
            return
    raise AssertionError("nothing was ever refused")


def commits_of(world: World) -> int:
    return sum(
        call.verb == "write_synced" and call.path.startswith("journal-")
        for call in world.journal_disk.trace
    )


@pytest.mark.parametrize("sync_s", [0.01, 0.3, 2.0, 10.0])
def test_a_slow_disk_makes_fewer_and_larger_commits_and_loses_nothing(sync_s: float) -> None:
    world = World(sync_s=sync_s)
    sent = 60

    async def life_on_it(life: Life) -> None:
        client, writers = await writers_of(life, *SEGMENTS)
        before = commits_of(world)
        for number in range(sent):
            writers[number % 3].send(client, 2)
            await life.clock.sleep(0.003)
        await all_acknowledged(life, writers)
        assert commits_of(world) - before < sent / 2, "what arrives meanwhile goes together"
        await check_everything(life)

    assert world.run(life_on_it)
    world.kill()
    assert world.run(check_everything)


def test_reads_are_answered_while_a_commit_is_written() -> None:
    world = World(sync_s=0.02)

    async def life_on_it(life: Life) -> None:
        client, (writer,) = await writers_of(life, SEGMENTS[0])
        writer.send(client, 3)
        await all_acknowledged(life, [writer])
        world.sync_s = 10.0
        writer.send(client, 3)
        await life.clock.sleep(1.0)
        assert life.commits.outstanding_s() > 0.9
        before = life.clock.monotonic()
        request = ReadSegment(segment=SEGMENTS[0], offset=0, size_max=100_000)
        reply, data = await client.read(request)
        assert len(data) > 0
        assert reply.at_tail
        assert life.clock.monotonic() == before, "the answer did not wait for the disk"
        await all_acknowledged(life, [writer])

    assert world.run(life_on_it)


def test_a_stuck_disk_turns_health_red_and_refuses_by_name_in_bounded_memory() -> None:
    world = World(sync_s=0.01, pending_bytes_max=20_000)

    async def life_on_it(life: Life) -> None:
        client, (writer,) = await writers_of(life, SEGMENTS[0])
        watched = Watched(life)
        writer.send(client, 3)
        await all_acknowledged(life, [writer])
        watched.watch.look()
        assert watched.said == [(True, "")]
        world.sync_s = STUCK_S
        known = writer.acknowledged
        await send_until_refused(life, client, writer)
        assert life.throttle.refused == {("pending",): 1}
        assert life.throttle.paused
        assert life.throttle.pending <= 20_000 + 10_000, "held answers count too"
        await life.clock.sleep(STUCK_COMMIT_S - 1)
        watched.watch.look()
        assert watched.said[-1] == (True, "")
        await life.clock.sleep(2)
        watched.watch.look()
        ready, reason = watched.said[-1]
        assert not ready
        assert "outstanding" in reason
        assert writer.acknowledged == known

    assert world.run(life_on_it)
    world.sync_s = 0.01
    world.kill()
    assert world.run(check_everything)


def journal_files(world: World) -> list[str]:
    return [name for name in world.journal_disk.list() if name.startswith("journal-")]


def test_a_container_that_holds_up_the_oldest_file_is_flushed_long_before_its_age() -> None:
    world = World()

    async def life_on_it(life: Life) -> None:
        client, (idle, busy) = await writers_of(life, *SEGMENTS[:2])
        watched = Watched(life)
        idle.send(client, 1)
        for _ in range(40):
            busy.send(client, 2)
            await life.clock.sleep(0)
        await all_acknowledged(life, [idle, busy])
        idle_container = container_of(SEGMENTS[0], world.container_count)
        assert container_of(SEGMENTS[1], world.container_count) != idle_container
        await flush(client, 1 - idle_container)
        assert len(journal_files(world)) > 2
        assert life.journal.live_files()[0].pinned_by == {idle_container}
        watched.watch.look()
        await life.clock.sleep(2 * LOOK_S)
        assert len(journal_files(world)) == 1

    assert world.run(life_on_it)
    world.kill()
    assert world.run(check_everything)


def test_a_journal_at_its_limit_refuses_by_name_until_it_is_flushed() -> None:
    world = World(journal_bytes_max=20_000, flush_bytes=1 << 20)

    async def life_on_it(life: Life) -> None:
        client, (writer,) = await writers_of(life, SEGMENTS[0])
        watched = Watched(life)
        resumed: list[bool] = []
        await send_until_refused(life, client, writer)
        assert life.throttle.refused == {("journal",): 1}
        assert life.throttle.ratios()[Source.JOURNAL] > 1
        assert life.throttle.paused
        life.throttle.when_open(lambda: resumed.append(True))
        watched.watch.look()
        await life.clock.sleep(2 * LOOK_S)
        assert resumed == [True]
        assert life.throttle.ratios()[Source.JOURNAL] < 1
        assert await writer.begin(client)
        writer.send(client, 2)
        await all_acknowledged(life, [writer])

    assert world.run(life_on_it)
    world.kill()
    assert world.run(check_everything)
