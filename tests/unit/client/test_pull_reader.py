"""A reader without background work, and the openings that it remembers."""

from dataclasses import dataclass

import pytest

from anabranch.client.reading.openings import AGE_S_MAX, Openings, PageStart
from anabranch.client.reading.pull_reader import READS_AT_ONCE_MAX, PullReader
from anabranch.common.errors import CorruptBlock, EventsTruncated
from anabranch.common.wire.messages import Message, ReadSegment
from kit.client_bench import STREAM, Bench, bench, writer_settings
from kit.large import LARGE_FROM, small_parts
from kit.rng import Random, seeded

BLOCKS = writer_settings(block_size_bytes=1)


@dataclass
class HandClock:
    """Stands still until it is set."""

    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nothing waits {seconds} s")


class Puller:
    """Makes readers of one stream, which share their openings."""

    def __init__(self, b: Bench, rng: Random | None = None) -> None:
        self.bench = b
        self.clock = HandClock()
        self.ranges = b.client.ranges()
        self.openings = Openings(self.ranges, self.clock)
        self.rng = rng or seeded(1)
        self.asked: list[str] = []
        b.control.before_query = self.asked.append

    async def opened(self, start: PageStart = "head", read_size_bytes: int = 1 << 20) -> PullReader:
        reader = PullReader(
            self.bench.ref,
            start,
            self.ranges,
            self.openings,
            self.rng,
            read_size_bytes=read_size_bytes,
        )
        await reader.open()
        return reader

    async def first(self) -> bytes:
        batch = await (await self.opened()).next_batch()
        assert batch is not None
        return batch.payloads[0]


async def rest(reader: PullReader) -> list[bytes]:
    found: list[bytes] = []
    while (batch := await reader.next_batch()) is not None:
        found += batch.payloads
    return found


async def fill(b: Bench, count: int, keys: int = 64) -> list[bytes]:
    """Numbered events, a block each, of so many keys."""
    events = [b"%d" % number for number in range(count)]
    async with b.client.writer(STREAM, BLOCKS) as writer:
        for number, event in enumerate(events):
            writer.write(event, f"key {number % keys}")
    return events


@pytest.mark.parametrize("segments", [1, 3, 70])
@pytest.mark.parametrize("size", [1, 1 << 20])
async def test_every_segment_is_read_to_its_tail_each_event_once(segments: int, size: int) -> None:
    async with bench(segments) as b:
        events = await fill(b, 100)
        reader = await Puller(b).opened(read_size_bytes=size)
        assert sorted(await rest(reader)) == sorted(events)
        assert reader.positions() == {
            name: (len(segment.data), 0) for name, segment in b.store.segments.items()
        }
        assert await reader.next_batch() is None


async def test_few_events_cost_few_reads_and_many_segments_are_read_at_once() -> None:
    async with bench(100) as b:
        await fill(b, 1000, keys=1000)
        reads: list[str] = []

        def note(at: str, message: Message) -> None:
            if at == "in" and isinstance(message, ReadSegment):
                reads.append(message.segment)

        b.store.fault = note
        reader = await Puller(b).opened()
        counts: list[int] = []
        while await reader.next_batch() is not None:
            counts.append(len(reads))
        assert list(dict.fromkeys(counts))[:4] == [1, 3, 7, 15]
        assert sorted(set(reads)) == sorted(b.store.segments)
        assert len(reads) <= 2 * len(b.store.segments)
        assert READS_AT_ONCE_MAX < 100


async def test_segments_that_are_read_at_once_share_the_size() -> None:
    async with bench(8) as b:
        sizes: list[int] = []

        def note(at: str, message: Message) -> None:
            if at == "in" and isinstance(message, ReadSegment):
                sizes.append(message.size_max)

        b.store.fault = note
        await rest(await Puller(b).opened(read_size_bytes=1 << 17))
    assert sizes == [1 << 17, *[1 << 16] * 6, 1 << 17]  # 1, 2, 4 and the last one


async def test_readers_of_a_first_event_meet_every_segment() -> None:
    async with bench(3) as b:
        await fill(b, 60)
        puller = Puller(b, seeded(3))
        met = set()
        for _ in range(40):
            batch = await (await puller.opened()).next_batch()
            assert batch is not None
            met.add(batch.segment)
        assert met == set(b.store.segments)


async def test_a_large_event_is_read_with_its_parts() -> None:
    large = b"x" * (3 * LARGE_FROM)
    with small_parts():
        async with bench() as b:
            settings = writer_settings(large_events=True)
            async with b.client.writer(STREAM, settings) as writer:
                for event in (b"1", large, b"2"):
                    writer.write(event)
            assert await rest(await Puller(b).opened()) == [b"1", large, b"2"]


async def test_a_damaged_block_is_an_error_after_the_events_before_it() -> None:
    async with bench() as b:
        await fill(b, 3)
        (segment,) = b.segments
        segment.data[segment.boundaries[0] + 70] ^= 1
        reader = await Puller(b).opened()
        first = await reader.next_batch()
        assert first is not None
        with pytest.raises(CorruptBlock) as error:
            await reader.next_batch()
        assert error.value.fields["stream"] == STREAM
        assert error.value.fields["offset"] == segment.boundaries[0]


async def test_a_truncation_between_two_reads_is_told_once_and_reading_goes_on_behind_it() -> None:
    async with bench() as b:
        await fill(b, 5)
        (segment,) = b.segments
        reader = await Puller(b).opened(read_size_bytes=1)
        assert await reader.next_batch() is not None
        segment.truncate(segment.boundaries[2])
        with pytest.raises(EventsTruncated) as told:
            await reader.next_batch()
        assert told.value.fields["start"] == segment.boundaries[2]
        assert await rest(reader) == [b"3", b"4"]


async def test_an_opening_is_remembered_for_a_while() -> None:
    async with bench() as b:
        await fill(b, 2)
        puller = Puller(b)
        await puller.first()
        puller.asked.clear()
        puller.clock.now_s = AGE_S_MAX
        await puller.first()
        assert puller.asked == []
        puller.clock.now_s = AGE_S_MAX + 1
        await puller.first()
        assert "head_cut" in puller.asked


async def test_the_tail_is_looked_up_each_time() -> None:
    async with bench() as b:
        puller = Puller(b)
        assert (await puller.opened("tail")).positions() == dict.fromkeys(b.store.segments, (0, 0))
        await fill(b, 1)
        assert (await puller.opened("tail")).positions() == {
            name: (len(segment.data), 0) for name, segment in b.store.segments.items()
        }
