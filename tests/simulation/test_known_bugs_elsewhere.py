"""The worst bugs that Pravega had in public, tried here. Numbers are those of its issues.

Some cannot happen here by construction; the docstring then says why, and the test tries what comes
nearest. None knows how many segments a container keeps in memory: they hold whatever is evicted.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import pairwise

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import CorruptJournal, Deposed, Retry
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.domain.log.formats import FILE_HEADER_SIZE_BYTES
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from kit.chunk_faults import PausingStorage
from kit.container_driver import ManualTime
from kit.fixed_catalog import run_at_once
from kit.journal_scenario import FILE_SIZE, Ledger, Process, check, new_ledgers, run_until_crash
from kit.log_driver import Callbacks, ScriptedSource, replayed
from kit.rng import seeded
from kit.simdisk import KEEP_CONTENTS, LOSE_ALL, RandomSurvival, SimDisk, Survival, When
from kit.store_check import check_everything
from kit.store_requests import create, delete, flush, merge, seal
from kit.store_world import Client, Life, Script, World
from kit.store_writer import WriterScript
from kit.thorough import one_in
from kit.tier2_catalog import catalog_of
from kit.tier2_crash import CONTAINER, SEGMENT, run
from kit.tier2_model import expected_contents, read_back, small_container

SEGMENTS = tuple(f"s/a/{number}.#epoch.0" for number in range(4))
TARGET, FIRST, SECOND, THIRD = SEGMENTS
WHENS: tuple[When, ...] = ("before", "during", "after")
NewWorld = Callable[[], World]


def one_container() -> World:
    return World(container_count=1)


def crashed(
    life: Script, on: str, *, new_world: NewWorld = one_container, step: int = 1
) -> Iterator[World]:
    """The world after a crash before, in and after every `step`-th call of a disk, and after the
    process was killed there, or power was lost; once more after the next life ended so too."""
    rehearsal = new_world()
    assert rehearsal.run(life)
    for call in range(1, getattr(rehearsal, on).calls + 1, step):
        for when in WHENS:
            world = new_world()
            getattr(world, on).crash_at(call, when)
            assert not world.run(life)
            survivals = (None, LOSE_ALL, KEEP_CONTENTS, RandomSurvival(seeded(call)))
            for survival in survivals:
                twin = world.fork()
                end(twin, survival)
                yield twin


def end(world: World, survival: Survival | None) -> None:
    if survival is None:
        world.kill()
    else:
        world.power_loss(survival)


async def begun(life: Life, *segments: str) -> tuple[Client, list[WriterScript]]:
    """An open store, these segments, and a writer of each that may send."""
    await life.opened()
    client, rng = Client(life), seeded(5)
    writers = []
    for number, segment in enumerate(segments, 1):
        await create(client, segment, Stamp(1, 1))
        writer = WriterScript(segment, bytes([number]) * 16, life.world.history, rng)
        assert await writer.begin(client)
        writers.append(writer)
    return client, writers


def test_an_operation_larger_than_a_file_is_there_whole_or_not_at_all_after_two_recoveries() -> (
    None
):
    """#4046: an operation was split over two frames, the second was never written, and only the
    second recovery failed. Here a frame holds whole operations, and a file grows for a large one;
    so its write is torn at any sector, work goes on, and the journal is opened again and again.
    """

    def life(disk: SimDisk, ledgers: dict[int, Ledger]) -> None:
        process = Process(disk, ledgers, 1)
        process.open_containers()
        for size in (300, 3 * FILE_SIZE, 200):
            process.append(0, b"%d" % size * (size // 3))
            process.commit()
        disk.end_process()

    rehearsal = SimDisk()
    life(rehearsal, new_ledgers())
    synced = [call.number for call in rehearsal.trace if call.verb == "write_synced"]
    torn = 0
    for number in synced:
        for seed in range(40):
            disk = SimDisk()
            disk.crash_at(number, "during")
            ledgers = run_until_crash(life, disk)
            disk.power_loss(RandomSurvival(seeded(seed)))
            check(disk, ledgers)
            disk.power_loss(LOSE_ALL)
            check(disk, ledgers, life=200)
            torn += any(name.startswith("torn-") for name in disk.list())
    assert torn > 10


def test_a_frame_that_is_there_twice_over_a_roll_is_never_applied_twice() -> None:
    """#6444: retries over the network left frames twice, before and behind a roll of the log. Here
    a write is never tried again, and a frame's checksum says in which file it belongs; so copies of
    the last frame of a file at the start of the next one are no frames there.
    """
    disk, callbacks = SimDisk(), Callbacks()
    journal = open_journal(disk, ids=SeededIds(1), schedule=callbacks, file_size=FILE_SIZE)
    run_at_once(journal.create_log(0, "log"))
    source = ScriptedSource()
    view = run_at_once(journal.open_log(0, "log", 1, source))
    for number in range(1, 8):
        source.put(b"%d" % number * 1000)
        view.ready()
        callbacks.run()
    disk.end_process()
    names = [name for name in disk.list() if name.startswith("journal-")]
    assert len(names) >= 2
    for older, newer in pairwise(names):
        twin = disk.fork()
        with closing(twin.open(older)) as file:
            data = file.read(0, file.size())
        frame = data[data.rindex(b"ANBF") :].rstrip(b"\0")
        with closing(twin.open(newer)) as file:
            file.write_synced([frame], FILE_HEADER_SIZE_BYTES)
        with suppress(CorruptJournal):
            again = open_journal(twin, ids=SeededIds(2), schedule=Callbacks(), file_size=FILE_SIZE)
            found = replayed(run_at_once(again.open_log(0, "log", 2, ScriptedSource())))
            assert found == {n: source.durable[n] for n in range(1, len(found) + 1)}


def test_a_writer_that_repeats_everything_over_rolls_and_kills_is_stored_once() -> None:
    """#6444, seen from the client: what is sent again, whole, over and over, is there once."""
    world = World(container_count=1, journal_file_size=2048)
    writer = WriterScript(TARGET, bytes(16), world.history, seeded(1))

    async def life(life: Life) -> None:
        await life.opened()
        client = Client(life)
        await create(client, TARGET, Stamp(1, 1))
        for _ in range(3):
            await writer.begin(client)
            writer.resend_from(1)
            for _ in range(8):
                writer.send(client, 2)
            await life.clock.sleep(0.1)

    for _ in range(5):
        assert world.run(life)
        world.kill()
        assert world.run(check_everything)
    assert writer.acknowledged >= 16


def test_a_zombies_flush_changes_no_byte_that_its_successor_wrote() -> None:
    """#3454: an append to tier 2 checked only that its offset was not too large, so a zombie wrote
    over its successor's bytes. Here objects are created and never appended to, and no name is used
    twice; so a flush stands still before each of its calls while a successor opens and flushes.
    """
    pauses = 0
    while True:
        memory = MemoryChunkStorage()
        zombie = _flush_once(1, PausingStorage(memory), b"of the zombie")
        try:
            for _ in range(pauses):
                zombie.send(None)
        except StopIteration:
            break
        run(_flush_once(2, memory, b"of the successor"))
        before = dict(memory.objects)
        with suppress(Deposed, StopIteration):
            while True:
                zombie.send(None)
        assert {name: memory.objects[name] for name in before} == before
        run(_check_successor(memory))
        pauses += 1
    assert pauses >= 7


async def _flush_once(epoch: int, storage: object, data: bytes) -> None:
    opening = OpenContainerTierTwo(storage, SeededIds(epoch), ManualTime())  # type: ignore[arg-type]
    tier_two = await opening(CONTAINER, epoch, "log", new_log=True)
    model = small_container()
    model.append(SEGMENT, data)
    if tier_two.applied_sequence < model.sequence:
        await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)


async def _check_successor(storage: MemoryChunkStorage) -> None:
    opening = OpenContainerTierTwo(storage, SeededIds(9), ManualTime())
    last = await opening(CONTAINER, 9, "log", new_log=True)
    found = await read_back(last)
    wanted = [small_container(), small_container()]
    wanted[0].append(SEGMENT, b"of the zombie")
    wanted[1].append(SEGMENT, b"of the successor")
    assert found in [expected_contents(model) for model in wanted]


async def mixed_batch(life: Life) -> None:
    client, (target, first, *_) = await begun(life, *SEGMENTS)
    target.send(client, 2)
    first.send(client, 3)
    for segment in (FIRST, SECOND, THIRD):
        await seal(client, segment, Stamp(1, 2))
    await merge(client, TARGET, (SECOND, FIRST, THIRD), Stamp(1, 3))
    target.send(client, 1)
    await flush(client, 0)
    target.send(client, 1)
    await check_everything(life)


async def empty_batch(life: Life) -> None:
    client, (target, *_) = await begun(life, *SEGMENTS)
    target.send(client, 2)
    for segment in (FIRST, SECOND, THIRD):
        await seal(client, segment, Stamp(1, 2))
    await merge(client, TARGET, (FIRST, SECOND, THIRD), Stamp(1, 3))
    target.send(client, 2)
    await flush(client, 0)
    await check_everything(life)


@pytest.mark.parametrize("life", [mixed_batch, empty_batch])
def test_a_batch_of_merges_with_empty_sources_leaves_no_zero_bytes(life: Script) -> None:
    """#6614: merging a batch in which transactions were empty left zeros in the target, and killed
    it. A life with such batches is crashed at the journal's disk calls."""
    states = 0
    for world in crashed(life, "journal_disk", step=3):
        assert world.run(check_everything)
        states += 1
    assert states > 60


async def deleting_life(life: Life) -> None:
    """Delete what tier 2 alone holds, with and without a manifest behind it."""
    client, writers = await begun(life, *SEGMENTS)
    for writer in writers:
        writer.send(client, 2)
    await flush(client, 0)
    await delete(client, FIRST, Stamp(1, 2))
    writers[0].send(client, 1)
    await flush(client, 0)
    await delete(client, SECOND, Stamp(1, 2))
    writers[0].send(client, 1)
    await check_everything(life)


@pytest.mark.parametrize("on", ["journal_disk", "tier_disk"])
def test_a_deletion_is_replayed_over_any_manifest_and_nothing_rises_from_the_dead(on: str) -> None:
    """#7258, #1200: the delete of a segment that was no longer in memory was replayed after a
    checkpoint, and recovery failed, or the segment was back. Each crash is recovered from twice,
    with a manifest between."""

    async def flush_and_check(life: Life) -> None:
        await check_everything(life)
        await flush(Client(life), 0)

    states = 0
    for world in crashed(deleting_life, on, step=4):
        assert world.run(flush_and_check)
        world.kill()
        assert world.run(check_everything)
        states += 1
    assert states > 40


async def sealing_life(life: Life) -> None:
    client, (writer, *_) = await begun(life, TARGET)
    writer.send(client, 3)
    await flush(client, 0)
    writer.send(client, 2)
    await seal(client, TARGET, Stamp(1, 2))
    await flush(client, 0)
    await check_everything(life)


def test_a_crash_between_a_seal_and_its_manifest_never_leaves_a_segment_half_sealed() -> None:
    """#3664: a segment was sealed in tier 2 and not in the metadata, and every flush failed. Here
    objects of tier 2 are never open, so nothing is sealed there but by the manifest; the crash
    comes at any call of the flushes, and then the segment is sealed again, or is, and flushed."""

    async def seal_again(life: Life) -> None:
        await check_everything(life)
        client = Client(life)
        if TARGET not in life.world.created:
            await create(client, TARGET, Stamp(1, 1))
        await seal(client, TARGET, Stamp(1, 2))
        await flush(client, 0)
        await check_everything(life)

    for world in crashed(sealing_life, "tier_disk", step=one_in(4)):
        assert world.run(seal_again)
        world.kill()
        assert world.run(check_everything)


async def first_append(life: Life) -> None:
    client, (writer,) = await begun(life, TARGET)
    writer.send(client, 1)
    await check_everything(life)


def test_a_crash_while_the_small_files_are_made_never_stops_later_appends() -> None:
    """#1829: a state file was half written, and every append failed for ever. Here such files get
    their names when they are whole: after a crash at any call of the first open and append, the
    next life appends."""

    async def append(life: Life) -> None:
        await check_everything(life)
        client = Client(life)
        await create(client, TARGET, Stamp(1, 1))
        writer = WriterScript(TARGET, b"later".ljust(16), life.world.history, seeded(2))
        assert await writer.begin(client)
        writer.send(client, 2)
        await flush(client, 0)
        assert writer.acknowledged == 2

    for world in crashed(first_append, "journal_disk", step=one_in(2)):
        assert world.run(append)


@pytest.mark.parametrize("cache_bytes", [0, 700, 5000])
def test_a_cache_that_is_full_under_load_costs_time_and_no_bytes(cache_bytes: int) -> None:
    """#7042: a full cache under load became corruption. Here un-tiered bytes may leave the cache,
    because the journal can be read anywhere: writers and readers work over a cache that holds
    nothing, or next to nothing, while flushes run."""
    world = World(container_count=1, cache_bytes=cache_bytes, flush_bytes=1 << 20)

    async def life(life: Life) -> None:
        client, writers = await begun(life, *SEGMENTS)
        for _ in range(20):
            for writer in writers:
                writer.send(client, 4)
            await check_everything(life)
        flushing = life.loop.create_task(flush(client, 0))
        for writer in writers:
            writer.send(client, 4)
        await check_everything(life)
        await flushing
        assert all(writer.acknowledged == writer.sent for writer in writers)
        await check_everything(life)

    assert world.run(life)
    world.kill()
    assert world.run(check_everything)


def test_a_log_that_fails_before_anything_is_flushed_loses_nothing_acknowledged() -> None:
    """#3464: the log failed, and what only the cache held was gone. Here nothing is acknowledged
    before the log has it, and a failure ends the store: every synced write fails once, and what was
    acknowledged until then is there afterwards, whether the process or the machine ends."""

    async def life(life: Life) -> None:
        with suppress(Retry):
            client, writers = await begun(life, TARGET, FIRST)
            for _ in range(6):
                for writer in writers:
                    writer.send(client, 2)
                await life.clock.sleep(0.01)

    rehearsal = one_container()
    assert rehearsal.run(life)
    synced = [c.number for c in rehearsal.journal_disk.trace if c.verb == "write_synced"]
    failed = 0
    for number in synced:
        for survival in (None, LOSE_ALL):
            world = one_container()
            world.journal_disk.fail_at(number)
            failed += not world.run(life)
            end(world, survival)
            assert world.run(check_everything)
    assert failed > 10
