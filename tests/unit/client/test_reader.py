"""The event reader against a store that misbehaves on request."""

import asyncio
import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c

from anabranch.client import Event, EventReader, Position
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    CorruptBlock,
    InvalidPosition,
    InvalidRequest,
    SegmentNotFound,
    StreamNotFound,
    Unavailable,
    WrongHost,
)
from anabranch.common.wire.block import HEADER_SIZE_BYTES, Block
from anabranch.common.wire.messages import Message, ReadSegment, SegmentRead
from kit.client_bench import STREAM, Bench, bench, reader_settings, writer_settings
from kit.fake_segstore import Direction, Fault

SETTINGS = reader_settings()


async def fill(b: Bench, events: Sequence[bytes], keys: Sequence[str] | None = None) -> None:
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=100)) as writer:
        writer.write_batch(events, keys)


def with_body(data: bytearray, body: bytes) -> bytes:
    """The block with another body, and a checksum that is right all the same."""
    head = bytes(data[: HEADER_SIZE_BYTES - 4])
    return head + struct.pack("<I", crc32c(body, crc32c(head))) + body


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def take(reader: EventReader, count: int) -> list[Event]:
    return [await anext(reader) for _ in range(count)]


async def test_all_segments_are_read_and_each_key_in_order() -> None:
    async with bench(segment_count=4) as b:
        keys = [f"key {number % 9}" for number in range(300)]
        await fill(b, numbered(300), keys)
        for key, payloads in (await b.by_key()).items():
            assert payloads == [b"%d" % n for n in range(300) if keys[n] == key]
        assert len({batch.segment for batch in await b.stored()}) == 4


async def test_an_empty_stream_ends_at_once_when_read_until_the_tail() -> None:
    async with bench(segment_count=3) as b:
        assert await b.stored() == []


async def test_until_tail_ends_at_the_length_seen_at_the_start() -> None:
    async with bench() as b:
        await fill(b, numbered(5))
        async with b.client.reader(STREAM, until_tail=True, settings=SETTINGS) as reader:
            await fill(b, numbered(5, start=5))
            assert [event.payload async for event in reader] == numbered(5)


async def test_a_reader_from_the_tail_sees_only_what_comes_later() -> None:
    async with bench() as b:
        await fill(b, numbered(5))
        async with b.client.reader(STREAM, "tail", settings=SETTINGS) as reader:
            await fill(b, [b"new"])
            assert (await anext(reader)).payload == b"new"


async def test_a_waiting_reader_gets_what_is_written_later_and_ends_with_the_seal() -> None:
    async with bench(segment_count=2) as b:
        async with b.client.reader(STREAM, settings=SETTINGS) as reader:
            await fill(b, numbered(3))
            found = await take(reader, 3)
            await fill(b, numbered(3, start=3))
            b.seal()
            found += [event async for event in reader]
        assert sorted(event.payload for event in found) == numbered(6)


@pytest.mark.parametrize("taken", [0, 1, 7, 8, 9, 30])
async def test_a_reader_continues_exactly_behind_saved_positions(taken: int) -> None:
    async with bench(segment_count=2) as b:
        await fill(b, numbered(30), [f"k{number % 5}" for number in range(30)])
        async with b.client.reader(STREAM, until_tail=True, settings=SETTINGS) as reader:
            found = await take(reader, taken)
            positions = reader.positions()
        async with b.client.reader(STREAM, positions, until_tail=True, settings=SETTINGS) as reader:
            found += [event async for event in reader]
        assert sorted(int(event.payload) for event in found) == list(range(30))


async def test_an_event_knows_its_own_position() -> None:
    async with bench() as b:
        await fill(b, numbered(10))
        async with b.client.reader(STREAM, until_tail=True, settings=SETTINGS) as reader:
            events = [event async for event in reader]
        for event in events:
            start = {event.segment: event.position}
            async with b.client.reader(STREAM, start, settings=SETTINGS) as reader:
                assert await anext(reader) == event


async def test_compressed_events_are_read_as_they_were_written() -> None:
    async with bench(segment_count=2) as b:
        events = [b"reading %d of many that are alike" % number for number in range(200)]
        settings = writer_settings(block_size_bytes=2000, compression="zstd")
        async with b.client.writer(STREAM, settings) as writer:
            writer.write_batch(events, [f"k{number % 5}" for number in range(200)])
        stored = b"".join(bytes(segment.data) for segment in b.segments)
        assert len(stored) < len(b"".join(events)) // 2
        by_key = await b.by_key()
        assert {key: sorted(found) for key, found in by_key.items()} == {
            f"k{key}": sorted(events[key::5]) for key in range(5)
        }


async def test_a_compressed_block_that_cannot_be_opened_ends_the_reader_by_its_place() -> None:
    async with bench() as b:
        settings = writer_settings(compression="zstd")
        async with b.client.writer(STREAM, settings) as writer:
            writer.write_batch([b"alike " * 100])
        await fill(b, [b"never reached"])
        (segment,) = b.segments
        size = Block(bytes(segment.data)).header.size
        damaged = with_body(segment.data[:size], b"?" * (size - HEADER_SIZE_BYTES))
        segment.data[:size] = damaged
        async with b.client.reader(STREAM, settings=SETTINGS) as reader:
            for _ in range(2):
                with pytest.raises(CorruptBlock, match="decompressed") as refused:
                    await reader.next_batch()
            assert refused.value.fields["offset"] == 0
            assert refused.value.fields["stream"] == STREAM
            assert list(reader.positions().values()) == [(0, 0)]


async def test_keys_that_are_not_text_are_corrupt() -> None:
    async with bench() as b:
        await fill(b, [b"e"], ["k"])
        (segment,) = b.segments
        body = bytes(segment.data[HEADER_SIZE_BYTES:-1])
        segment.data[:] = with_body(segment.data, body + b"\xff")
        (batch,) = await b.stored()
        assert batch.payloads == [b"e"]
        with pytest.raises(CorruptBlock, match="UTF-8"):
            batch.events()


async def test_a_position_behind_its_block_is_refused() -> None:
    async with bench() as b:
        await fill(b, numbered(3))
        start = {next(iter(b.store.segments)): Position(0, 4)}
        with pytest.raises(InvalidPosition, match="beyond its block's events"):
            await anext(b.client.reader(STREAM, start))


@pytest.mark.parametrize("start", ["middle", {"plant/sensors/9.#epoch.0": (0, 0)}])
async def test_a_start_that_does_not_exist_is_refused(start: object) -> None:
    async with bench() as b:
        with pytest.raises(InvalidRequest):
            await anext(b.client.reader(STREAM, start))  # type: ignore[call-overload]


@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("direction", ["in", "out"])
async def test_a_connection_lost_at_any_step_loses_and_repeats_nothing(
    direction: Direction, step: int
) -> None:
    async with bench() as b:
        await fill(b, numbered(60))
        await b.store.restart()
        seen = 0

        def drop_once(at: Direction, message: Message) -> Fault | None:
            nonlocal seen
            seen += at == direction
            return Fault.DROP if at == direction and seen == step + 1 else None

        b.store.fault = drop_once
        settings = reader_settings(read_size_bytes=150)
        async with b.client.reader(STREAM, until_tail=True, settings=settings) as reader:
            assert [event.payload async for event in reader] == numbered(60)
        assert seen > step, "the workload is too short for this step"


@pytest.mark.parametrize("refusal", [WrongHost("not mine"), Unavailable("starting")])
async def test_a_refusal_that_passes_is_overcome(refusal: AnabranchError) -> None:
    async with bench() as b:
        await fill(b, numbered(20))
        left = 3

        def refuse(at: Direction, message: Message) -> AnabranchError | None:
            nonlocal left
            if at == "in" and isinstance(message, ReadSegment) and left:
                left -= 1
                return refusal
            return None

        b.store.fault = refuse
        assert await b.payloads() == numbered(20)
        assert left == 0


async def test_a_store_that_restarts_in_mid_read_is_found_again() -> None:
    async with bench() as b:
        await fill(b, numbered(10))
        async with b.client.reader(STREAM, settings=SETTINGS) as reader:
            found = await take(reader, 10)
            await b.store.restart()
            await fill(b, numbered(10, start=10))
            found += await take(reader, 10)
        assert [event.payload for event in found] == numbered(20)


async def test_a_damaged_block_ends_the_reader_after_everything_before_it() -> None:
    async with bench() as b:
        await fill(b, numbered(20))
        (segment,) = b.segments
        boundary = segment.boundaries[0]
        segment.data[boundary + 80] ^= 1
        async with b.client.reader(STREAM, until_tail=True, settings=SETTINGS) as reader:
            found = await take(reader, Block(bytes(segment.data)).header.event_count)
            for _ in range(2):
                with pytest.raises(CorruptBlock) as caught:
                    await anext(reader)
                assert caught.value.fields["offset"] == boundary
        assert [event.payload for event in found] == numbered(len(found))


async def test_reading_ahead_stops_at_its_bound() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, writer_settings(block_size_bytes=10_000)) as writer:
            for _ in range(50):
                writer.write_batch([bytes(10_000)])
        settings = reader_settings(read_ahead_bytes=100_000, read_size_bytes=11_000)
        async with b.client.reader(STREAM, settings=settings) as reader:
            payloads = 0
            for _ in range(50):
                await anext(reader)
                payloads += 1
                await asyncio.sleep(0.001)
                blocks = sum(isinstance(m, ReadSegment) for m in b.store.requests)
                assert blocks * 10_100 <= payloads * 10_100 + 100_000 + 20_000
        assert payloads == 50


async def test_batches_give_columns_without_an_object_per_event() -> None:
    async with bench() as b:
        await fill(b, numbered(4), ["a", "b", "a", "b"])
        async with b.client.reader(STREAM, until_tail=True, settings=SETTINGS) as reader:
            (batch,) = [batch async for batch in reader.batches()]
            assert reader.positions() == {batch.segment: batch.next}
        assert len(batch) == 4
        assert batch.payloads == numbered(4)
        assert batch.keys == ["a", "b", "a", "b"]


async def test_after_the_retry_time_the_reader_says_why() -> None:
    async with bench() as b:
        settings = reader_settings(retry_timeout_s=0.05)
        b.store.fault = lambda _, m: Unavailable("away") if isinstance(m, ReadSegment) else None
        async with b.client.reader(STREAM, settings=settings) as reader:
            for _ in range(2):
                with pytest.raises(Unavailable):
                    await anext(reader)


async def test_a_stream_deleted_while_reading_is_named() -> None:
    async with bench() as b, b.client.reader(STREAM, settings=SETTINGS) as reader:
        b.store.segments.clear()
        del b.controller.scopes["plant"]["sensors"]
        with pytest.raises(StreamNotFound):
            await anext(reader)


async def test_a_closed_reader_ends_its_iteration() -> None:
    async with bench() as b:
        reader = b.client.reader(STREAM, settings=SETTINGS)
        async with reader, asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(anext(reader, None))
            await asyncio.sleep(0)
            await reader.close()
            assert await waiting is None


async def test_a_lost_reply_of_the_tail_wait_is_asked_for_again() -> None:
    async with bench() as b:
        dropped = 0

        def drop_first(at: Direction, message: Message) -> Fault | None:
            nonlocal dropped
            if at == "out" and isinstance(message, SegmentRead) and not dropped:
                dropped += 1
                return Fault.DROP
            return None

        b.store.fault = drop_first
        async with b.client.reader(STREAM, settings=SETTINGS) as reader:
            await fill(b, [b"x"])
            assert (await anext(reader)).payload == b"x"
        assert dropped == 1


async def test_a_reader_that_could_not_start_says_so_again_and_starts_later() -> None:
    async with bench() as b:
        await fill(b, [b"there"])
        hidden = b.controller.scopes["plant"].pop("sensors")
        reader = b.client.reader(STREAM, until_tail=True, settings=SETTINGS)
        for _ in range(2):
            with pytest.raises(StreamNotFound):
                await anext(reader)
        b.controller.scopes["plant"]["sensors"] = hidden
        assert [event.payload async for event in reader] == [b"there"]


async def test_a_closed_reader_says_so_and_its_iterations_end() -> None:
    async with bench() as b:
        await fill(b, numbered(20))
        reader = b.client.reader(STREAM, settings=SETTINGS)
        await reader.close()
        async with b.client.reader(STREAM, settings=SETTINGS) as started:
            await started.next_batch()
            await started.close()
        for closed in (reader, started):
            with pytest.raises(Closed):
                await closed.next_batch()
            assert [event async for event in closed] == []
            assert [batch async for batch in closed.batches()] == []


async def test_a_segment_that_is_missing_though_nothing_deleted_it_ends_the_reader() -> None:
    async with bench() as b, b.client.reader(STREAM, settings=SETTINGS) as reader:
        b.store.segments.clear()
        for _ in range(2):
            with pytest.raises(SegmentNotFound):
                await anext(reader)


async def test_until_tail_yields_nothing_of_a_later_block_that_came_with_the_same_read() -> None:
    async with bench() as b:
        await fill(b, numbered(5))
        is_filled = False

        def not_yet(at: Direction, message: Message) -> AnabranchError | None:
            wait = at == "in" and isinstance(message, ReadSegment) and not is_filled
            return Unavailable("not yet") if wait else None

        b.store.fault = not_yet
        async with b.client.reader(STREAM, until_tail=True, settings=SETTINGS) as reader:
            await fill(b, numbered(5, start=5))
            is_filled = True
            assert [event.payload async for event in reader] == numbered(5)
            positions = reader.positions()
        async with b.client.reader(STREAM, positions, until_tail=True) as rest:
            assert [event.payload async for event in rest] == numbered(5, start=5)
