"""Truncation, deletion and sealing of a stream under its reader."""

import pytest

from anabranch.client import EventReader
from anabranch.common.errors import EventsTruncated, StreamNotFound, Unavailable
from anabranch.common.model.stream import StreamState
from kit.client_bench import STREAM, Bench, bench, reader_settings, writer_settings
from kit.scaling import assert_covers, merge, split

READER = reader_settings(wait_ms=10)


async def fill(b: Bench, first: int, count: int) -> None:
    """Numbered events, a block each, of as many keys."""
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=1)) as writer:
        for number in range(first, first + count):
            writer.write(b"%d" % number, f"key {number}")


async def read_all(reader: EventReader) -> tuple[list[int], list[EventsTruncated]]:
    """To the end: numbers, and what was told of truncations in between."""
    found: list[int] = []
    told: list[EventsTruncated] = []
    while True:
        try:
            while (event := await anext(reader, None)) is not None:
                found.append(int(event.payload))
            return found, told
        except EventsTruncated as error:
            told.append(error)


def cut_behind(b: Bench, blocks: int) -> dict[int, int]:
    """The current segments, each behind so many blocks."""
    names = [each.name for each in b.stream.listed(b.ref)]
    return {
        life.segment_id: b.store.segments[name].boundaries[blocks - 1]
        for life, name in zip(b.stream.current, names, strict=True)
    }


async def test_what_was_truncated_is_told_once_and_reading_goes_on_behind_it() -> None:
    async with bench() as b:
        await fill(b, 0, 20)
        (segment,) = b.segments
        (name,) = b.store.segments
        b.truncate(cut_behind(b, 15))
        start = {name: (segment.boundaries[3], 0)}
        async with b.client.reader(STREAM, start, until_tail=True, settings=READER) as reader:
            with pytest.raises(EventsTruncated) as told:
                await anext(reader)
            assert told.value.fields == {
                "stream": STREAM,
                "segment": name,
                "offset": segment.boundaries[3],
                "start": segment.boundaries[14],
            }
            assert reader.positions() == {name: (segment.boundaries[14], 0)}
            assert await read_all(reader) == (list(range(15, 20)), [])


async def test_a_truncation_under_the_reader_leaves_what_was_read_ahead() -> None:
    async with bench() as b:
        await fill(b, 0, 30)
        (segment,) = b.segments
        settings = reader_settings(read_ahead_bytes=1, read_size_bytes=segment.boundaries[0])
        async with b.client.reader(STREAM, until_tail=True, settings=settings) as reader:
            first = int((await anext(reader)).payload)
            b.truncate(cut_behind(b, 29))
            found, told = await read_all(reader)
        assert [first, *found] == [*range(len(found)), 29]
        assert len(found) < 29
        assert [error.fields["start"] for error in told] == [segment.boundaries[28]]


async def test_a_truncation_behind_where_the_reader_is_to_end_ends_it() -> None:
    async with bench() as b:
        await fill(b, 0, 10)
        settings = reader_settings(read_ahead_bytes=1, read_size_bytes=1)
        async with b.client.reader(STREAM, until_tail=True, settings=settings) as reader:
            await fill(b, 10, 5)
            b.truncate(cut_behind(b, 12))
            found, told = await read_all(reader)
        assert found == list(range(len(found)))
        assert len(told) == 1


async def test_a_segment_deleted_by_truncation_is_told_of_and_its_successors_are_read() -> None:
    async with bench() as b:
        await fill(b, 0, 10)
        old = next(iter(b.store.segments))
        async with b.client.reader(STREAM, until_tail=False, settings=READER) as reader:
            assert int((await anext(reader)).payload) == 0
            positions = reader.positions()
        for _ in split(b):
            pass
        await fill(b, 10, 20)
        b.truncate({life.segment_id: 0 for life in b.stream.current})
        b.seal()
        async with b.client.reader(STREAM, positions, settings=READER) as reader:
            with pytest.raises(EventsTruncated) as told:
                await anext(reader)
            assert told.value.fields["segment"] == old
            assert told.value.fields["start"] is None
            assert_covers(b, list(reader.positions()))
            found, again = await read_all(reader)
        assert sorted(found) == list(range(10, 30))
        assert again == []


async def test_deleted_predecessors_of_a_merge_are_told_of_one_by_one() -> None:
    async with bench(2) as b:
        await fill(b, 0, 20)
        olds = set(b.store.segments)
        async with b.client.reader(STREAM, settings=READER) as reader:
            positions = reader.positions()
        for _ in merge(b):
            pass
        await fill(b, 20, 10)
        b.truncate({life.segment_id: 0 for life in b.stream.current})
        b.seal()
        async with b.client.reader(STREAM, positions, settings=READER) as reader:
            found, told = await read_all(reader)
        assert found == list(range(20, 30))
        assert {error.fields["segment"] for error in told} == olds
        assert len(told) == 2


@pytest.mark.parametrize("deleted", ["deleting", "stream", "scope"])
async def test_a_stream_deleted_under_the_reader_is_told_of_by_every_call(deleted: str) -> None:
    async with bench() as b:
        await fill(b, 0, 3)
        for _ in split(b):
            pass
        settings = reader_settings(wait_ms=10, read_ahead_bytes=1, read_size_bytes=1)
        async with b.client.reader(STREAM, settings=settings) as reader:
            await anext(reader)
            b.seal()
            b.stream.state = StreamState.DELETING
            b.store.segments.clear()
            if deleted == "stream":
                del b.controller.scopes["plant"]["sensors"]
            if deleted == "scope":
                del b.controller.scopes["plant"]
            with pytest.raises(StreamNotFound):
                await read_all(reader)
            with pytest.raises(StreamNotFound):
                await anext(reader)


async def test_a_controller_that_is_away_does_not_hide_a_truncation() -> None:
    async with bench() as b:
        await fill(b, 0, 3)
        async with b.client.reader(STREAM, settings=READER) as reader:
            positions = reader.positions()
        for _ in split(b):
            pass
        b.truncate({life.segment_id: 0 for life in b.stream.current})
        b.seal()
        refusals = 3

        def refuse(name: str) -> None:
            nonlocal refusals
            if name == "successors" and refusals:
                refusals -= 1
                raise Unavailable("away")

        b.control.before_query = refuse
        async with b.client.reader(STREAM, positions, settings=READER) as reader:
            found, told = await read_all(reader)
        assert (found, len(told), refusals) == ([], 1, 0)
