"""Reader groups over topics: numbers of records through gaps and hand-overs."""

import asyncio
from contextlib import suppress

import pytest

from anabranch.client import InvalidRequest, ReaderGroupNotFound, Record, RecordEvicted
from anabranch.client.topics.group_reader import TopicGroupReader
from kit.fake_topics import TOPIC, TopicBench, topic_bench


async def take(reader: TopicGroupReader, count: int) -> list[Record]:
    async with asyncio.timeout(10):
        return [await anext(reader) for _ in range(count)]


async def fill(b: TopicBench, count: int, partition: int) -> None:
    start = b.segment(partition).event_count
    async with b.client.topics.producer(TOPIC) as producer:
        for at in range(start, start + count, 4):
            values = [b"%d" % number for number in range(at, min(at + 4, start + count))]
            producer.write_batch(values, partition=partition)
            await producer.flush()


async def test_readers_share_partitions_and_numbers_stay_right_at_every_hand_over() -> None:
    async with topic_bench(2) as b:
        for partition in range(2):
            await fill(b, 10, partition)
        group = b.client.topics.group("billing", [TOPIC])
        await group.create()
        found: list[Record] = []
        for count in (3, 6, 11):
            async with group.reader() as reader:
                found += await take(reader, count)
        assert sorted((r.partition, r.offset) for r in found) == [
            (partition, offset) for partition in range(2) for offset in range(10)
        ]
        assert all(int(record.value) == record.offset for record in found)


async def test_a_reader_that_fails_leaves_the_record_in_hand_to_the_next_one() -> None:
    async with topic_bench(1) as b:
        await fill(b, 6, 0)
        group = b.client.topics.group("billing", [TOPIC])
        await group.create()
        with suppress(ZeroDivisionError):
            async with group.reader() as reader:
                async for record in reader:
                    _ = 1 // (2 - record.offset)
        async with group.reader() as reader:
            assert [record.offset for record in await take(reader, 2)] == [2, 3]


async def test_batches_carry_numbers_too() -> None:
    async with topic_bench(1) as b:
        await fill(b, 9, 0)
        group = b.client.topics.group("billing", [TOPIC])
        await group.create()
        async with group.reader() as reader:
            sizes = []
            async with asyncio.timeout(10):
                async for batch in reader.batches():
                    sizes.append((batch.offset, len(batch)))
                    if batch.next_offset == 9:
                        break
        assert sizes == [(0, 4), (4, 4), (8, 1)]


async def test_evicted_records_are_told_by_their_numbers() -> None:
    async with topic_bench(1) as b:
        await fill(b, 8, 0)
        group = b.client.topics.group("billing", [TOPIC])
        await group.create()
        async with group.reader() as reader:
            assert [record.offset for record in await take(reader, 2)] == [0, 1]
        await fill(b, 8, 0)
        b.segment(0).truncate(b.segment(0).boundaries[2])
        async with group.reader() as reader:
            with pytest.raises(RecordEvicted) as told:
                await take(reader, 1)
            assert told.value.fields["next_available"] == 12
            assert [record.offset for record in await take(reader, 4)] == [12, 13, 14, 15]


async def test_a_group_needs_topics_to_be_created_and_is_gone_when_deleted() -> None:
    async with topic_bench(1) as b:
        with pytest.raises(InvalidRequest):
            await b.client.topics.group("billing").create()
        group = b.client.topics.group("billing", [TOPIC])
        with pytest.raises(InvalidRequest):
            await group.create(start="middle")  # type: ignore[arg-type]
        await group.create(start="end")
        assert (await group.status()).segments
        await group.delete()
        with pytest.raises(ReaderGroupNotFound):
            await group.reader().__aenter__()
