"""Complete byte ranges of segments, for bulk readers."""

import pytest

from anabranch.common.errors import AnabranchError, PlanOutdated, SegmentNotFound, WrongHost
from anabranch.common.model.names import stream_ref
from anabranch.common.wire.block import count_events
from anabranch.common.wire.messages import Message, ReadSegment
from kit.client_bench import STREAM, Bench, bench, writer_settings
from kit.fake_segstore import Direction

SEGMENT = f"{STREAM}/0.#epoch.0"


async def fill(b: Bench, count: int) -> int:
    """Blocks of a few events each → the segment's length."""
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=100)) as writer:
        for number in range(count):
            writer.write(b"%d" % number)
    return (await b.client.ranges().info(SEGMENT)).length


async def test_a_range_is_read_as_whole_appends_up_to_its_end() -> None:
    async with bench() as b:
        await fill(b, 50)
        first, second = b.store.segments[SEGMENT].boundaries[:2]
        data = await b.client.ranges().read(SEGMENT, first, second)
        assert data == b.store.segments[SEGMENT].data[first:second]
        assert count_events(data)[0] == 1


async def test_the_segments_of_a_stream_are_listed() -> None:
    async with bench(segment_count=3) as b:
        listed = await b.client.ranges().segments(stream_ref(STREAM))
        names = [segment.name for segment in listed.segments]
        assert names == [f"{STREAM}/{number}.#epoch.0" for number in range(3)]


async def test_a_range_that_is_not_there_is_never_less_in_silence() -> None:
    async with bench() as b:
        length = await fill(b, 5)
        with pytest.raises(PlanOutdated, match="does not contain the planned range"):
            await b.client.ranges().read(SEGMENT, length, length + 10)


async def test_a_range_whose_end_divides_an_append_is_refused() -> None:
    async with bench() as b:
        await fill(b, 5)
        with pytest.raises(PlanOutdated):
            await b.client.ranges().read(SEGMENT, 0, b.store.segments[SEGMENT].boundaries[0] - 1)


async def test_a_store_that_moved_is_asked_again() -> None:
    asked: list[Message] = []

    def once(direction: Direction, message: Message) -> AnabranchError | None:
        if direction == "in" and isinstance(message, ReadSegment):
            asked.append(message)
            return WrongHost("moved") if len(asked) == 1 else None
        return None

    async with bench() as b:
        length = await fill(b, 5)
        b.store.fault = once
        data = await b.client.ranges().read(SEGMENT, 0, length)
        assert (len(data), len(asked)) == (length, 2)


async def test_an_unknown_segment_is_not_retried() -> None:
    async with bench() as b:
        with pytest.raises(SegmentNotFound):
            await b.client.ranges().info(f"{STREAM}/9.#epoch.0")
