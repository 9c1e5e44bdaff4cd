"""Event pointers: their text, and fetching what they point to."""

import pytest

from anabranch.client import EventPointer
from anabranch.common.errors import CorruptBlock, EventNotFound, InvalidRequest
from anabranch.common.wire.messages import ReadSegment
from kit.client_bench import STREAM, Bench, bench, reader_settings, writer_settings
from kit.large import LARGE_FROM, small_parts

SEGMENT = "plant/sensors/0.#epoch.0"
READER = reader_settings(wait_ms=10)


async def fill(b: Bench, count: int) -> None:
    """Three events a block."""
    for first in range(0, count, 3):
        async with b.client.writer(STREAM, writer_settings()) as writer:
            for number in range(first, first + 3):
                writer.write(b"%d" % number, f"key {number}")


def test_a_pointer_is_read_back_from_its_text() -> None:
    pointer = EventPointer(SEGMENT, 12, 3)
    assert str(pointer) == "plant/sensors/0.#epoch.0:12:3"
    assert EventPointer.parse(str(pointer)) == pointer


@pytest.mark.parametrize(
    "text",
    ["", SEGMENT, f"{SEGMENT}:1", f"{SEGMENT}:1:", f"{SEGMENT}:-1:0", f"{SEGMENT}:1:x", "a/b:1:1",
     f"{SEGMENT}:1:1:1", f"{SEGMENT}:{'9' * 20}:1", f"{SEGMENT}:²:1"],
)  # fmt: skip
def test_what_is_no_pointer_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        EventPointer.parse(text)


@pytest.mark.parametrize("compression", [None, "zstd"])
async def test_every_event_is_fetched_by_its_pointer(compression: str | None) -> None:
    async with bench(segment_count=2) as b:
        async with b.client.writer(STREAM, writer_settings(compression=compression)) as writer:  # type: ignore[arg-type]
            for number in range(30):
                writer.write(b"event %d of many" % number, f"key {number}", number)
        async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            events = [event async for event in reader]
        for event in events:
            assert await b.client.fetch(event.pointer) == event
            assert await b.client.fetch(EventPointer.parse(event.pointer)) == event


async def test_only_the_block_of_the_event_is_read() -> None:
    async with bench() as b:
        await fill(b, 9)
        (segment,) = b.segments
        asked = len(b.store.requests)
        await b.client.fetch(EventPointer(SEGMENT, segment.boundaries[0], 1))
        (read,) = [m for m in b.store.requests[asked:] if isinstance(m, ReadSegment)]
        assert read.size_max == 1


@pytest.mark.parametrize("place", [(0, 3), (1, 0), (10**6, 0)])
async def test_a_pointer_to_nothing_is_told(place: tuple[int, int]) -> None:
    async with bench() as b:
        await fill(b, 3)
        with pytest.raises(EventNotFound) as caught:
            await b.client.fetch(EventPointer(SEGMENT, *place))
        assert caught.value.fields == {"segment": SEGMENT, "offset": place[0], "index": place[1]}


async def test_a_pointer_to_the_tail_is_to_nothing_yet() -> None:
    async with bench() as b:
        await fill(b, 3)
        with pytest.raises(EventNotFound):
            await b.client.fetch(EventPointer(SEGMENT, len(b.segments[0].data), 0))


async def test_what_was_truncated_or_deleted_is_not_found() -> None:
    async with bench() as b:
        await fill(b, 6)
        b.truncate({0: b.segments[0].boundaries[0]})
        with pytest.raises(EventNotFound, match="truncated"):
            await b.client.fetch(EventPointer(SEGMENT, 0, 0))
        b.store.segments.clear()
        with pytest.raises(EventNotFound, match="deleted"):
            await b.client.fetch(EventPointer(SEGMENT, 0, 0))


async def test_damage_is_not_taken_for_absence() -> None:
    async with bench() as b:
        await fill(b, 3)
        b.segments[0].data[70] ^= 1
        with pytest.raises(CorruptBlock):
            await b.client.fetch(EventPointer(SEGMENT, 0, 0))


async def test_a_large_event_is_fetched_with_its_parts_as_long_as_they_are_there() -> None:
    with small_parts():
        async with bench() as b:
            events = [b"small", b"x" * (3 * LARGE_FROM), b"small too"]
            async with b.client.writer(STREAM, writer_settings(large_events=True)) as writer:
                writer.write_batch(events)
            async with b.client.reader(STREAM, until_tail=True, settings=READER) as reader:
                found = [event async for event in reader]
            assert [(await b.client.fetch(each.pointer)).payload for each in found] == events
            large = found[1]
            with pytest.raises(EventNotFound):
                await b.client.fetch(EventPointer(SEGMENT, b.segments[0].boundaries[0], 0))
            b.segments[0].start = large.offset
            with pytest.raises(EventNotFound, match="parts"):
                await b.client.fetch(large.pointer)
