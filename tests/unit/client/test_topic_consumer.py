"""The consumer against a store that misbehaves on request."""

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pytest

from anabranch.client import (
    Client,
    Closed,
    InvalidName,
    InvalidRequest,
    JsonSerializer,
    Offset,
    PartitionNotFound,
    ReaderSettings,
    Record,
    RecordEvicted,
    SegmentTruncated,
    SerializationFailed,
    TopicConsumer,
    TopicNotFound,
    WriterSettings,
)
from anabranch.client.topics.consuming import Partitions
from anabranch.client.topics.offsets import Start
from anabranch.client.topics.places import PartitionPlaces
from anabranch.common.model.objects import Computed, TopicSpec
from anabranch.common.wire.block import parse_header
from kit.fake_topics import TOPIC, TopicBench, topic_bench

SETTINGS = ReaderSettings(wait_ms=50, retry_timeout_s=5.0)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def take(consumer: TopicConsumer, count: int) -> list[Record]:
    return [await anext(consumer) for _ in range(count)]


def open_consumer(client: Client, start: Start = "beginning") -> TopicConsumer:
    return client.topics.consumer(TOPIC, start=start, settings=SETTINGS)


async def offsets_from(b: TopicBench, start: Start) -> list[int]:
    return [record.offset for record in await b.stored(start=start)]


async def fill_blocks(b: TopicBench, sizes: Sequence[int]) -> None:
    """One block of each size, in partition 0; a record's value is its number."""
    number = b.segment(0).event_count
    async with b.client.topics.producer(TOPIC) as producer:
        for size in sizes:
            producer.write_batch(numbered(size, number), partition=0)
            await producer.flush()
            number += size


async def test_records_carry_their_numbers_in_order_of_each_partition() -> None:
    async with topic_bench(3) as b:
        async with b.client.topics.producer(TOPIC) as producer:
            for number in range(60):
                producer.write(b"%d" % number, key=f"k{number}", timestamp_ms=number)
        found: dict[int, list[Record]] = {}
        for record in await b.stored():
            found.setdefault(record.partition, []).append(record)
        for records in found.values():
            assert [record.offset for record in records] == list(range(len(records)))
            assert [r.timestamp_ms for r in records] == sorted(int(r.value) for r in records)
        assert sum(map(len, found.values())) == 60


async def test_a_waiting_consumer_gets_what_is_produced_later() -> None:
    async with topic_bench(2) as b, open_consumer(b.client) as consumer:
        await b.fill(numbered(3), partition=1)
        assert [(r.partition, r.offset) for r in await take(consumer, 3)] == [
            (1, 0),
            (1, 1),
            (1, 2),
        ]
        await b.fill([b"more"], partition=0)
        assert (await anext(consumer)) == Record(TOPIC, 0, 0, b"more", None, _time(b))


def _time(b: TopicBench) -> int:
    return parse_header(bytes(b.segment(0).data)).base_timestamp_ms


async def test_a_consumer_from_the_end_sees_only_what_comes_later() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(3))
        async with open_consumer(b.client, "end") as consumer:
            await b.fill([b"new"])
            record = await anext(consumer)
        assert (record.offset, record.value) == (3, b"new")


@pytest.mark.parametrize("coarse", [1, 3])
@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("beginning", 0),
        (0, 0),
        (7, 7),
        (19, 19),
        (20, 20),
        ("end", 20),
        (Offset.from_beginning(3), 3),
        (Offset.from_beginning(99), 20),
        (Offset.from_end(4), 16),
        (Offset.from_end(99), 0),
    ],
)
async def test_every_start_is_exact_even_if_the_store_knows_few_boundaries(
    start: Start, first: int, coarse: int
) -> None:
    async with topic_bench() as b:
        b.store.coarse = coarse
        await fill_blocks(b, [5, 1, 4, 2, 8])
        assert await offsets_from(b, start) == list(range(first, 20))
        assert [int(r.value) for r in await b.stored(start=start)] == list(range(first, 20))


@pytest.mark.parametrize("coarse", [1, 2, 4])
async def test_a_time_begins_at_the_first_append_that_is_not_older(coarse: int) -> None:
    async with topic_bench() as b:
        b.store.coarse = coarse
        for at_ms in range(1, 9):
            b.segment(0).now_ms = 1000 * at_ms
            await fill_blocks(b, [3])
        for at_ms, first in ((0, 0), (1000, 0), (1001, 3), (5000, 12), (5500, 15), (9000, 24)):
            assert await offsets_from(b, Offset.at(at_ms)) == list(range(first, 24))


async def test_a_number_beyond_the_end_is_refused() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(3))
        with pytest.raises(InvalidRequest, match="start offset: 4 is greater than leo: 3"):
            await b.stored(start=4)


async def test_an_evicted_start_is_told_once_and_reading_goes_on_at_the_next_record() -> None:
    async with topic_bench() as b:
        await fill_blocks(b, [5, 5, 5])
        b.segment(0).truncate(b.segment(0).boundaries[1])
        async with b.client.topics.consumer(TOPIC, start=3, until_end=True) as consumer:
            with pytest.raises(RecordEvicted, match=r"3 was evicted.*10") as told:
                await anext(consumer)
            assert told.value.fields["next_available"] == 10
            assert [record.offset async for record in consumer] == list(range(10, 15))
        assert await offsets_from(b, "beginning") == list(range(10, 15))
        assert await offsets_from(b, Offset.from_beginning(2)) == list(range(12, 15))


async def test_records_evicted_while_reading_are_told_once_and_numbers_stay_right() -> None:
    async with topic_bench() as b:
        values = [b"%d" % number + b" " * 30_000 for number in range(20)]
        async with b.client.topics.producer(TOPIC) as producer:
            for at in range(0, 20, 5):
                producer.write_batch(values[at : at + 5], partition=0)
                await producer.flush()
        small = ReaderSettings(read_ahead_bytes=1, read_size_bytes=1, wait_ms=50)
        async with b.client.topics.consumer(TOPIC, settings=small) as consumer:
            found = [await anext(consumer)]  # its block fills the share of the read-ahead
            b.segment(0).truncate(b.segment(0).boundaries[-2])
            gaps: list[object] = []
            while found[-1].offset < 19:
                try:
                    found.append(await anext(consumer))
                except RecordEvicted as told:
                    gaps.append((told.fields["offset"], told.fields["next_available"]))
        read = [record.offset for record in found]
        assert [int(record.value) for record in found] == read
        (gap,) = gaps
        assert gap == (read[read.index(15) - 1] + 1, 15)
        assert read[-5:] == list(range(15, 20))


async def test_a_large_record_counts_as_one_and_its_lost_parts_are_one_gap() -> None:
    large = WriterSettings(large_events=True)
    async with topic_bench() as b:
        async with b.client.topics.producer(TOPIC, large) as producer:
            producer.write(b"a", partition=0)
            producer.write(b"x" * (9 * 1024 * 1024), partition=0)
            producer.write(b"b", partition=0)
        assert [(r.offset, len(r.value)) for r in await b.stored()] == [
            (0, 1), (1, 9 * 1024 * 1024), (2, 1),
        ]  # fmt: skip
        parts = b.segment(0).boundaries
        b.segment(0).truncate(parts[2])  # into the parts
        async with b.client.topics.consumer(TOPIC, until_end=True) as consumer:
            with pytest.raises(RecordEvicted) as told:
                await anext(consumer)
            assert (told.value.fields["offset"], told.value.fields["next_available"]) == (1, 2)
            assert [(r.offset, r.value) async for r in consumer] == [(2, b"b")]


async def test_batches_and_arrow_batches_have_the_same_records() -> None:
    async with topic_bench(2) as b:
        async with b.client.topics.producer(TOPIC) as producer:
            for number in range(40):
                producer.write(b"%d" % number, key=f"k{number}" if number % 3 else None)
                if number % 7 == 0:
                    await producer.flush()
        expected = sorted(await b.stored())
        async with b.client.topics.consumer(TOPIC, until_end=True) as consumer:
            by_batch = [r async for batch in consumer.batches() for r in batch.records()]
        async with b.client.topics.consumer(TOPIC, until_end=True) as consumer:
            tables = [table async for table in consumer.arrow_batches(rows=9)]
        assert sorted(by_batch) == expected
        assert tables[0].schema.names == [
            "topic",
            "partition",
            "offset",
            "timestamp",
            "key",
            "value",
        ]
        rows = pa.Table.from_batches(tables).to_pylist()
        assert [
            (r["topic"], r["partition"], r["offset"], r["value"], r["key"])
            for r in sorted(rows, key=lambda row: (row["partition"], row["offset"]))
        ] == [record[:5] for record in expected]


async def test_arrow_batches_begin_within_a_block() -> None:
    async with topic_bench() as b:
        await fill_blocks(b, [5, 5])
        async with b.client.topics.consumer(TOPIC, start=3, until_end=True) as consumer:
            tables = [table async for table in consumer.arrow_batches()]
        rows = pa.Table.from_batches(tables).to_pylist()
        assert [(row["offset"], row["value"]) for row in rows] == [
            (n, b"%d" % n) for n in range(3, 10)
        ]
        async with b.client.topics.consumer(TOPIC, start=3, until_end=True) as consumer:
            batch = await consumer.next_batch()
        assert batch is not None
        assert (batch.offset, batch.values, list(batch.offsets)) == (3, [b"3", b"4"], [3, 4])
        assert batch.to_arrow().column("offset").to_pylist() == [3, 4]
        assert batch.before(1).to_arrow().column("offset").to_pylist() == [3]


async def test_chosen_partitions_of_several_topics() -> None:
    async with topic_bench(3) as b:
        b.controller.create("other", TopicSpec(replicas=Computed(2)))
        for partition in range(3):
            await b.fill([b"o%d" % partition], partition)
        for partition in range(2):
            await b.fill([b"x%d" % partition], partition, topic="other")

        async def read(topics: str | list[str], partitions: Partitions) -> set[tuple[str, int]]:
            made = b.client.topics.consumer(
                topics,
                partitions=partitions,
                until_end=True,
            )
            async with made as consumer:
                return {(r.topic, r.partition) async for r in consumer}

        assert await read(TOPIC, [0, 2]) == {(TOPIC, 0), (TOPIC, 2)}
        assert await read([TOPIC, "other"], [1]) == {(TOPIC, 1), ("other", 1)}
        by_topic = {TOPIC: [2], "other": [0, 1]}
        assert await read([TOPIC, "other"], by_topic) == {(TOPIC, 2), ("other", 0), ("other", 1)}
        assert len(await read([TOPIC, "other"], None)) == 5
        with pytest.raises(PartitionNotFound):
            await read([TOPIC, "other"], [2])
        refused: list[Partitions] = [[], {TOPIC: [1]}]
        for wrong in refused:
            with pytest.raises(InvalidRequest):
                await read([TOPIC, "other"], wrong)


async def test_new_partitions_appear_with_all_their_records() -> None:
    async with topic_bench(1) as b, open_consumer(b.client) as consumer:
        await b.fill([b"a"])
        assert (await anext(consumer)).value == b"a"
        for partition in (1, 2):
            b.controller.add_partitions(TOPIC, 1)
            await b.fill([b"new %d" % partition], partition)
            record = await anext(consumer)
            assert (record.partition, record.offset) == (partition, 0)
        assert set(consumer.positions()) == {(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)}


async def test_chosen_partitions_stay_the_only_ones() -> None:
    async with topic_bench(1) as b:
        consumer = b.client.topics.consumer(TOPIC, partitions=[0], settings=SETTINGS)
        async with consumer:
            b.controller.add_partitions(TOPIC, 1)
            await b.fill([b"elsewhere"], 1)
            await b.fill([b"here"], 0)
            assert (await anext(consumer)).value == b"here"
            assert set(consumer.positions()) == {(TOPIC, 0)}


async def test_a_deleted_topic_ends_the_consumer_by_name() -> None:
    async with topic_bench(2) as b:
        await b.fill([b"a"])
        async with open_consumer(b.client) as consumer:
            await anext(consumer)
            await b.client.topics.delete(TOPIC)
            for _ in range(2):
                with pytest.raises(TopicNotFound):
                    await anext(consumer)


async def test_values_are_those_of_the_serializer_and_a_bad_one_is_told_once() -> None:
    async with topic_bench() as b:
        async with b.client.topics.producer(TOPIC) as producer:
            producer.write_batch([b"1", b"?", b"3"], partition=0)
        made = b.client.topics.consumer(TOPIC, until_end=True, serializer=JsonSerializer())
        async with made as consumer:
            assert (await anext(consumer)).value == 1
            with pytest.raises(SerializationFailed) as told:
                await anext(consumer)
            assert (told.value.fields["partition"], told.value.fields["offset"]) == (0, 1)
            assert [(r.offset, r.value) async for r in consumer] == [(2, 3)]


async def test_positions_are_the_numbers_of_the_next_records() -> None:
    async with topic_bench(2) as b:
        await b.fill(numbered(4), 0)
        async with b.client.topics.consumer(TOPIC, start=1, partitions=[0]) as consumer:
            assert consumer.positions() == {(TOPIC, 0): 1}
            await take(consumer, 2)
            assert consumer.positions() == {(TOPIC, 0): 3}


async def test_both_isolations_are_the_same_and_others_are_refused() -> None:
    async with topic_bench() as b:
        await b.fill([b"a"])
        for isolation in ("read_committed", "read_uncommitted"):
            assert len(await b.stored(isolation=isolation)) == 1
        with pytest.raises(InvalidRequest, match="isolation"):
            await b.stored(isolation="dirty")
        for wrong in ([], [TOPIC, TOPIC]):
            with pytest.raises(InvalidRequest):
                b.client.topics.consumer(wrong)
        with pytest.raises(InvalidName):
            b.client.topics.consumer("Not-A-Topic")


async def test_a_closed_consumer_is_closed() -> None:
    async with topic_bench() as b:
        consumer = open_consumer(b.client)
        async with consumer:
            pass
        with pytest.raises(Closed):
            await consumer.next_batch()
        with pytest.raises(StopAsyncIteration):
            await anext(consumer)


async def test_the_first_iteration_opens_the_consumer() -> None:
    async with topic_bench() as b:
        await b.fill(numbered(2))
        consumer = b.client.topics.consumer(TOPIC, until_end=True)
        assert [record.offset async for record in consumer] == [0, 1]


async def test_a_call_that_waits_while_the_consumer_closes_ends() -> None:
    async with topic_bench() as b:
        consumer = open_consumer(b.client)
        await consumer.__aenter__()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(consumer.next_batch())
            await asyncio.sleep(0)
            await consumer.close()
        assert waiting.result() is None


@pytest.mark.parametrize("coarse", [1, 3, 100])
async def test_the_number_of_any_block_is_found_from_its_place(coarse: int) -> None:
    async with topic_bench() as b:
        b.store.coarse = coarse
        await fill_blocks(b, [5, 1, 4, 2, 8])
        segment, ref = b.segment(0), b.controller.ref(TOPIC)
        name = b.controller.segment_names(ref.scope, ref.stream)[0]
        places = PartitionPlaces(name, TOPIC, 0, b.client.ranges().calls)
        offsets = [0, *segment.boundaries]
        assert [await places.number_at(offset) for offset in offsets] == [0, 5, 6, 10, 12, 20]
        segment.truncate(segment.boundaries[1])
        assert [await places.number_at(offset) for offset in offsets[2:]] == [6, 10, 12, 20]
        with pytest.raises(SegmentTruncated):
            await places.number_at(0)
