"""The intake: segments that come and go, out of one queue."""

import asyncio
from collections.abc import Sequence

from anabranch.client.reading.events import EventBatch
from anabranch.client.reading.frontier import Position
from anabranch.client.reading.intake import Intake, IntakeItem, SegmentEnd, SegmentFailed
from anabranch.client.settings import ReaderSettings
from anabranch.common.errors import CorruptBlock, SegmentNotFound
from anabranch.common.wire.messages import ReadSegment
from kit.client_bench import STREAM, Bench, bench, reader_settings, until, writer_settings

HEAD = Position(0)


def intake_of(b: Bench, settings: ReaderSettings | None = None) -> Intake:
    """Closed by the client at the latest, so that a test that fails ends."""
    client = b.client
    runtime = client._entered()
    intake = Intake(b.control, client._directory, runtime, settings or reader_settings())
    runtime.open_parts.add(intake)
    return intake


async def fill(b: Bench, events: Sequence[bytes], keys: Sequence[str] | None = None) -> None:
    """Blocks of one event each."""
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=1)) as writer:
        writer.write_batch(events, keys)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def drained(intake: Intake) -> list[IntakeItem]:
    """Everything until nothing is open any more."""
    found: list[IntakeItem] = []
    while (item := await intake.next()) is not None:
        if isinstance(item, EventBatch):
            intake.consumed(item)
        found.append(item)
    return found


def payloads(items: Sequence[IntakeItem]) -> list[bytes]:
    return [each for item in items if isinstance(item, EventBatch) for each in item.payloads]


async def test_the_blocks_of_every_segment_come_in_order_and_then_its_end() -> None:
    async with bench(segment_count=2) as b:
        await fill(b, numbered(20), [f"key {number}" for number in range(20)])
        b.seal()
        intake = intake_of(b)
        names = list(b.store.segments)
        for name in names:
            intake.open(name, HEAD)
        items = await drained(intake)
        for name in names:
            own = [item for item in items if item.segment == name]
            assert own[-1] == SegmentEnd(name)
            found = [int(payload) for payload in payloads(own[:-1])]
            assert found == sorted(found)
        assert sorted(payloads(items)) == sorted(numbered(20))
        assert intake.segments == ()
        await intake.close()


async def test_the_end_of_a_segment_names_its_successors() -> None:
    async with bench(segment_count=1) as b:
        (old,) = b.store.segments
        for _ in b.scale_to(2):
            pass
        intake = intake_of(b)
        intake.open(old, HEAD)
        (end,) = await drained(intake)
        assert isinstance(end, SegmentEnd)
        assert {each.name for each in end.successors} == set(b.store.segments) - {old}
        await intake.close()


async def test_a_segment_that_was_read_to_its_end_offset_says_so() -> None:
    async with bench() as b:
        await fill(b, numbered(6))
        (segment,) = b.segments
        (name,) = b.store.segments
        intake = intake_of(b)
        intake.open(name, HEAD, end_offset=segment.boundaries[2])
        *blocks, end = await drained(intake)
        assert payloads(blocks) == numbered(3)
        assert end == SegmentEnd(name, reached_end_offset=True)
        await intake.close()


async def test_a_segment_sealed_where_it_was_to_end_has_reached_its_end_offset() -> None:
    async with bench() as b:
        await fill(b, numbered(2))
        (segment,) = b.segments
        (name,) = b.store.segments
        for _ in b.scale_to(2):
            pass
        intake = intake_of(b)
        intake.open(name, HEAD, end_offset=len(segment.data))
        assert (await drained(intake))[-1] == SegmentEnd(name, reached_end_offset=True)
        await intake.close()


async def test_nothing_comes_of_a_dropped_segment_and_the_others_go_on() -> None:
    async with bench(segment_count=2) as b:
        await fill(b, numbered(20), [f"key {number}" for number in range(20)])
        b.seal()
        intake = intake_of(b)
        first, second = b.store.segments
        intake.open(first, HEAD)
        intake.open(second, HEAD)
        await until(lambda: len(intake._ready) == 22)
        intake.drop(first)
        intake.drop(first)
        assert intake.segments == (second,)
        assert {item.segment for item in await drained(intake)} == {second}
        await intake.close()


async def test_a_segment_opened_again_gets_nothing_of_its_first_opening() -> None:
    async with bench() as b:
        await fill(b, numbered(10))
        b.seal()
        (name,) = b.store.segments
        intake = intake_of(b)
        for turns in range(40):
            intake.open(name, HEAD)
            for _ in range(turns):
                await asyncio.sleep(0)
            intake.drop(name)
        intake.open(name, HEAD)
        assert payloads(await drained(intake)) == numbered(10)
        await intake.close()


async def test_a_batch_of_an_earlier_opening_makes_no_room_for_the_later_one() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, writer_settings(block_size_bytes=70_000)) as writer:
            for _ in range(3):
                writer.write_batch([bytes(70_000)])
        (name,) = b.store.segments
        settings = reader_settings(read_ahead_bytes=1, read_size_bytes=70_100)
        intake = intake_of(b, settings)
        intake.open(name, HEAD)
        early = await intake.next()
        assert isinstance(early, EventBatch)
        intake.drop(name)
        intake.open(name, HEAD)
        await until(lambda: len(intake._ready) == 1)
        asked = len(b.store.requests)
        intake.consumed(early)
        await asyncio.sleep(0.01)
        assert len(b.store.requests) == asked
        again = intake.next_nowait()
        assert isinstance(again, EventBatch)
        intake.consumed(again)
        await until(lambda: len(b.store.requests) > asked)
        await intake.close()


async def test_dropping_the_last_segment_ends_the_wait() -> None:
    async with bench() as b, asyncio.TaskGroup() as tasks:
        (name,) = b.store.segments
        intake = intake_of(b)
        assert await intake.next() is None
        intake.open(name, HEAD)
        waiting = tasks.create_task(intake.next())
        await asyncio.sleep(0)
        intake.drop(name)
        assert await waiting is None
        await intake.close()


async def test_closing_ends_the_wait_and_all_that_was_read_ahead() -> None:
    async with bench() as b, asyncio.TaskGroup() as tasks:
        (name,) = b.store.segments
        intake = intake_of(b)
        intake.open(name, HEAD)
        waiting = tasks.create_task(intake.next())
        await asyncio.sleep(0)
        await intake.close()
        await intake.close()
        assert await waiting is None
        assert intake.segments == ()


async def test_next_nowait_gives_what_is_there_and_does_not_wait() -> None:
    async with bench() as b:
        await fill(b, numbered(1))
        (name,) = b.store.segments
        intake = intake_of(b)
        intake.open(name, HEAD)
        assert intake.next_nowait() is None
        await until(lambda: len(intake._ready) == 1)
        item = intake.next_nowait()
        assert isinstance(item, EventBatch)
        assert intake.next_nowait() is None
        await intake.close()


async def test_a_segment_that_fails_leaves_the_others_and_can_be_opened_again() -> None:
    async with bench(segment_count=2) as b:
        await fill(b, numbered(20), [f"key {number}" for number in range(20)])
        b.seal()
        damaged, sound = b.store.segments
        kept = bytearray(b.store.segments[damaged].data)
        b.store.segments[damaged].data[70] ^= 1
        intake = intake_of(b)
        intake.open(damaged, HEAD)
        intake.open(sound, HEAD)
        items = await drained(intake)
        (failed,) = [item for item in items if isinstance(item, SegmentFailed)]
        assert failed.segment == damaged
        assert isinstance(failed.error, CorruptBlock)
        assert failed.error.fields["stream"] == STREAM
        b.store.segments[damaged].data[:] = kept
        intake.open(damaged, HEAD)
        items += await drained(intake)
        assert sorted(payloads(items)) == sorted(numbered(20))
        await intake.close()


async def test_a_missing_segment_fails_by_its_name() -> None:
    async with bench() as b:
        name = f"{STREAM}/7.#epoch.0"
        intake = intake_of(b)
        intake.open(name, HEAD)
        (failed,) = await drained(intake)
        assert isinstance(failed, SegmentFailed)
        assert isinstance(failed.error, SegmentNotFound)
        await intake.close()


async def test_the_read_ahead_is_divided_anew_as_segments_come_and_go() -> None:
    async with bench(segment_count=3) as b:
        settings = reader_settings(read_ahead_bytes=600_000, read_size_bytes=600_000, wait_ms=5)
        intake = intake_of(b, settings)

        async def sizes() -> set[int]:
            asked = len(b.store.requests) + 2 * len(intake.segments)
            await until(lambda: len(b.store.requests) > asked + 3)
            return {m.size_max for m in b.store.requests[asked:] if isinstance(m, ReadSegment)}

        for count, name in enumerate(b.store.segments, 1):
            intake.open(name, HEAD)
            assert await sizes() == {600_000 // count}
        intake.drop(next(iter(b.store.segments)))
        intake.next_nowait()
        assert await sizes() == {300_000}
        await intake.close()
