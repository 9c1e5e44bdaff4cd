"""A reader that ends at a cut: what it leaves is exactly what another one starts with."""

import pytest

from anabranch.client import Client, EventReader, Position
from anabranch.client.reading.bounds import Start
from anabranch.client.reading.frontier import FUTURE, ends_of
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.errors import InvalidRequest
from kit.client_bench import STREAM, Bench, bench, reader_settings, writer_settings
from kit.scaling import chain, merge, split

READER = reader_settings(wait_ms=10)
KEYS = [f"key {number}" for number in range(6)]
"""In both halves of the key space."""
Row = tuple[str | None, bytes]


async def write(b: Bench, *payloads: str) -> None:
    """Each payload by all keys, some events per block."""
    async with b.client.writer(STREAM, writer_settings(block_size_bytes=200)) as writer:
        for payload in payloads:
            for key in KEYS:
                writer.write(f"{payload} {key}".encode(), key)


async def scaled(b: Bench) -> None:
    """Something in every epoch of a stream that was split and merged; then it is sealed."""
    await write(b, "0", "1", "2")
    for stages in (split, merge, chain):
        for _ in stages(b):
            pass
        await write(b, f"{stages.__name__} 0", f"{stages.__name__} 1")
    b.seal()


def reader(client: Client, start: Start, end: Start) -> EventReader:
    return client.reader(STREAM, start, end=end, settings=READER)


async def read(b: Bench, start: Start, end: Start) -> list[Row]:
    async with reader(b.client, start, end) as found:
        return [(event.key, event.payload) async for event in found]


async def read_arrow(b: Bench, start: Start, end: Start) -> list[Row]:
    async with reader(b.client, start, end) as found:
        tables = [batch async for batch in found.arrow_batches()]
    keys = [key for table in tables for key in table.column("key").to_pylist()]
    events = [event for table in tables for event in table.column("event").to_pylist()]
    return list(zip(keys, events, strict=True))


async def cuts_of(b: Bench) -> tuple[list[Row], list[dict[str, Position]]]:
    """All events in an order of reading, and the positions before each and after the last."""
    events, cuts = [], []
    async with b.client.reader(STREAM, settings=READER) as found:
        cuts.append(found.positions())
        async for event in found:
            events.append((event.key, event.payload))
            cuts.append(found.positions())
    return events, cuts


async def test_the_events_before_a_cut_and_those_after_it_are_all_events_each_once() -> None:
    async with bench(2) as b:
        await scaled(b)
        events, cuts = await cuts_of(b)
        for number in range(0, len(cuts), 5):
            before, after = events[:number], events[number:]
            assert sorted(await read(b, "head", cuts[number])) == sorted(before)
            assert sorted(await read(b, cuts[number], "tail")) == sorted(after)


async def test_a_reading_between_two_cuts_has_the_events_between_them() -> None:
    async with bench(2) as b:
        await scaled(b)
        events, cuts = await cuts_of(b)
        for start, end in ((0, 1), (3, 4), (5, 30), (17, 18), (29, len(events))):
            for reading in (read, read_arrow):
                found = await reading(b, cuts[start], cuts[end])
                assert sorted(found) == sorted(events[start:end])


async def test_a_reader_that_starts_behind_its_end_reads_nothing_and_ends() -> None:
    async with bench(2) as b:
        await scaled(b)
        events, cuts = await cuts_of(b)
        for start, end in ((2, 1), (len(events), 0), (30, 4), (len(events), len(events))):
            assert await read(b, cuts[start], cuts[end]) == []


async def test_where_a_reader_ended_another_one_continues() -> None:
    async with bench(2) as b:
        await scaled(b)
        events, cuts = await cuts_of(b)
        async with reader(b.client, "head", cuts[20]) as first:
            found = [(event.key, event.payload) async for event in first]
            reached = first.positions()
        found += await read(b, reached, "tail")
        assert sorted(found) == sorted(events)


async def test_a_reader_ends_at_a_time_where_one_from_that_time_starts() -> None:
    async with bench(2) as b:
        for time_ms in (1000, 2000, 3000):
            for segment in b.segments:
                segment.now_ms = time_ms
            await write(b, str(time_ms))
        early, late = await read(b, "head", 2000), await read(b, 2000, "tail")
        assert {payload[:4] for _, payload in early} == {b"1000"}
        assert {payload[:4] for _, payload in late} == {b"2000", b"3000"}


async def test_a_reader_has_one_end() -> None:
    async with bench() as b:
        with pytest.raises(InvalidRequest):
            b.client.reader(STREAM, until_tail=True, end="tail")


def test_nothing_is_read_of_segments_that_come_after_the_cut() -> None:
    def segment(number: int, start: float, end: float) -> SegmentInStream:
        return SegmentInStream(segment_id=number, name=f"{number}", key_start=start, key_end=end)

    whole, left, right = segment(0, 0, 1), segment(1, 0, 0.5), segment(2, 0.5, 1)
    behind = [(left, Position(7)), (right, Position(8))]
    assert ends_of(behind, [(whole, Position(5, 1))]) == {
        "0": (5, 1), "1": (0, 0), "2": (0, 0),
    }  # fmt: skip
    assert ends_of([(whole, Position(3))], behind) == {"1": (7, 0), "2": (8, 0)}
    assert ends_of([(whole, Position(3))], [(whole, Position(5)), (left, FUTURE)]) == {"0": (5, 0)}
