"""Windows of event time at a reader, in its Arrow batches, and at the readers of a group."""

from collections.abc import Sequence

import pytest

from anabranch.client import EventReader, GroupReader, GroupReaderSettings, Position
from anabranch.client.reading.arrow import SCHEMA, time_window_of
from anabranch.client.reading.times.window import TimeWindow
from anabranch.common.errors import Closed, CorruptBlock, InvalidRequest
from anabranch.common.model.watermark import watermark_segment
from kit.client_bench import STREAM, Bench, bench, reader_settings, writer_settings
from kit.group_readers import until
from kit.scaling import merge, split
from kit.watermarks import mark_at, store_marks

READER = reader_settings(wait_ms=10)
WITH_WINDOWS = reader_settings(wait_ms=10, time_windows=True)
GROUP = "plant/readers"


async def fill(b: Bench, first: int, count: int) -> None:
    """Numbered events, a block each, of as many keys."""
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=1)) as writer:
        for number in range(first, first + count):
            writer.write(b"%d" % number, f"key {number}")


def mark_behind(b: Bench, blocks: int, lower_ms: int) -> None:
    """A watermark behind so many blocks of each current segment, or of those that it has."""
    segments = b.stream.listed(b.ref)
    offsets = {}
    for each in segments:
        ends = [0, *b.store.segments[each.name].boundaries]
        offsets[each.name] = ends[min(blocks, len(ends) - 1)]
    store_marks(b.store, b.ref, mark_at(segments, offsets, lower_ms, lower_ms + 5))


async def read(reader: EventReader, count: int) -> None:
    for _ in range(count):
        await anext(reader)


async def test_the_window_follows_the_events_that_were_yielded() -> None:
    async with bench() as b:
        await fill(b, 0, 10)
        for blocks in (2, 5, 8):
            mark_behind(b, blocks, 100 * blocks)
        async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            assert await reader.time_window() == TimeWindow(None, 205)
            await read(reader, 2)
            assert await reader.time_window() == TimeWindow(200, 505)
            await read(reader, 5)
            assert await reader.time_window() == TimeWindow(500, 805)
            await read(reader, 3)
            assert await reader.time_window() == TimeWindow(800, None)


async def test_an_event_in_hand_that_is_followed_by_others_of_its_block_does_not_pass_it() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, writer_settings()) as writer:
            for number in range(5):
                writer.write(b"%d" % number, "key")
        mark_behind(b, 1, 100)
        async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            await read(reader, 4)
            assert await reader.time_window() == TimeWindow(None, 105)
            await read(reader, 1)
            assert await reader.time_window() == TimeWindow(100, None)


async def test_the_slowest_segment_holds_the_lower_bound_back() -> None:
    async with bench(2) as b:
        await fill(b, 0, 20)
        mark_behind(b, 1, 100)
        mark_behind(b, 1000, 200)
        left, right = (name for name in b.store.segments if name.startswith(STREAM))
        start = {left: (len(b.store.segments[left].data), 0), right: (0, 0)}
        async with b.client.reader(STREAM, start, until_tail=True, settings=READER) as reader:
            assert await reader.time_window() == TimeWindow(None, 205)
            await reader.next_batch()
            assert await reader.time_window() == TimeWindow(100, 205)


async def test_a_window_goes_through_a_split_and_a_merge() -> None:
    async with bench() as b:
        await fill(b, 0, 4)
        mark_behind(b, 2, 100)
        for _ in split(b):
            pass
        await fill(b, 4, 8)
        mark_behind(b, 1, 200)
        for _ in merge(b):
            pass
        await fill(b, 12, 4)
        mark_behind(b, 4, 300)
        b.seal()
        async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            lowers = [(await reader.time_window()).lower_ms or 0 async for _ in reader]
        assert lowers == sorted(lowers)
        assert set(lowers) == {0, 100, 200, 300}
        assert lowers.index(300) == len(lowers) - 1


async def test_arrow_batches_carry_the_window_of_their_events() -> None:
    async with bench() as b:
        await fill(b, 0, 10)
        for blocks in (2, 5, 8):
            mark_behind(b, blocks, 100 * blocks)
        b.seal()
        found: list[TimeWindow] = []
        rows: list[int] = []
        async with b.client.reader(STREAM, settings=WITH_WINDOWS) as reader:
            async for batch in reader.arrow_batches(rows=1):
                assert batch.schema.equals(SCHEMA)
                rows += [int(value) for value in batch.column("event").to_pylist()]
                found.append(time_window_of(batch))
        assert rows == list(range(10))
        assert found[0].lower_ms is None
        assert found[-1] == TimeWindow(800, None)
        assert [one.lower_ms or 0 for one in found] == sorted(one.lower_ms or 0 for one in found)


async def test_an_arrow_batch_across_a_watermark_has_the_bounds_of_all_its_events() -> None:
    async with bench() as b:
        await fill(b, 0, 10)
        for blocks in (2, 5, 8):
            mark_behind(b, blocks, 100 * blocks)
        segment = next(iter(b.store.segments))
        start = {segment: (b.store.segments[segment].boundaries[2], 0)}
        b.seal()
        async with b.client.reader(STREAM, start, settings=WITH_WINDOWS) as reader:
            await until(lambda: len(reader._intake._ready) == 8)
            batch = await reader.next_arrow(rows=3)
        assert batch is not None
        assert batch.num_rows == 3
        assert time_window_of(batch) == TimeWindow(200, 805)


async def test_without_the_setting_arrow_batches_carry_nothing_and_no_watermark_is_read() -> None:
    async with bench() as b:
        await fill(b, 0, 3)
        mark_behind(b, 1, 100)
        b.seal()
        async with b.client.reader(STREAM, settings=READER) as reader:
            batches = [batch async for batch in reader.arrow_batches()]
        assert all(batch.schema.metadata is None for batch in batches)
        assert time_window_of(batches[0]) == TimeWindow(None, None)
        name = watermark_segment(b.ref)
        assert not [one for one in b.store.requests if getattr(one, "segment", "") == name]


async def test_damaged_watermarks_fail_a_batch_with_windows_before_anything_is_taken() -> None:
    async with bench() as b:
        await fill(b, 0, 3)
        mark_behind(b, 1, 100)
        b.store.segments[watermark_segment(b.ref)].data[80] ^= 1
        b.seal()
        async with b.client.reader(STREAM, settings=WITH_WINDOWS) as reader:
            with pytest.raises(CorruptBlock):
                await reader.next_arrow()
            batch = await reader.next_batch()
            assert batch is not None
            assert batch.payloads == [b"0"]


async def test_a_closed_reader_has_no_window() -> None:
    async with bench() as b:
        async with b.client.reader(STREAM, settings=READER) as reader:
            pass
        with pytest.raises(Closed):
            await reader.time_window()


# --- groups -----------------------------------------------------------------------------------

QUICK = GroupReaderSettings(reading=READER, save_interval_s=0.01, acks="explicit")


async def taken(reader: GroupReader, count: int) -> Sequence[tuple[str, Position]]:
    """So many batches; where each of them ends."""
    found = []
    for _ in range(count):
        batch = await reader.next_batch()
        assert batch is not None
        found.append((batch.segment, batch.next))
    return found


async def test_the_window_of_a_group_waits_for_what_is_saved() -> None:
    async with bench() as b:
        await fill(b, 0, 6)
        for blocks in (2, 4):
            mark_behind(b, blocks, 100 * blocks)
        await b.client.reader_groups.create(GROUP, streams=[STREAM])
        async with b.client.reader_group(GROUP).reader("one", QUICK) as reader:
            await taken(reader, 3)
            assert await reader.time_window(STREAM) == TimeWindow(None, 205)
            reader.ack()
            state = reader._member.state  # type: ignore[union-attr]
            await until(lambda: _saved(reader) > 0)
            assert state is not reader._member.state  # type: ignore[union-attr]
            assert await reader.time_window(STREAM) == TimeWindow(200, 405)
            with pytest.raises(InvalidRequest, match="does not read"):
                await reader.time_window("plant/other")


def _saved(reader: GroupReader) -> int:
    assert reader._member is not None
    return sum(at.offset for at in reader._member.state.positions().values())


async def test_the_window_of_a_member_is_held_back_by_an_unread_event_of_another() -> None:
    async with bench(2) as b:
        await fill(b, 0, 20)
        mark_behind(b, 1, 100)
        mark_behind(b, 1000, 200)
        await b.client.reader_groups.create(GROUP, streams=[STREAM])
        group = b.client.reader_group(GROUP)
        async with group.reader("one", QUICK) as one, group.reader("two", QUICK) as two:
            await until(lambda: len(one.positions()) == len(two.positions()) == 1)
            (segment,) = one.positions()
            count = len(b.store.segments[segment].boundaries)
            await taken(one, count)
            one.ack()
            await until(lambda: _saved(one) > 0)
            assert await one.time_window(STREAM) == TimeWindow(None, 205)
            await taken(two, 1)
            two.ack()
            saved = _saved(one)
            await until(lambda: _saved(one) > saved)
            assert await one.time_window(STREAM) == TimeWindow(100, 205)
