"""Producers and consumers of topics on real processes: embedded NATS, one controller, one store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest

from anabranch.cli.up import EmbeddedCluster
from anabranch.client import (
    Client,
    ConsumerInUse,
    InvalidRequest,
    Offset,
    Record,
    RecordMetadata,
    TopicNotFound,
    blocking,
    connect,
)
from anabranch.client.topics.partitioner import partition_of

WAIT_S = 30.0
GONE_S = 30.0


async def until_spu_online(client: Client) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if [spu async for spu in client.spus.list() if spu.resolution == "online"]:
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def topic(cluster: EmbeddedCluster, name: str, partitions: int = 1) -> AsyncIterator[Client]:
    """A client, and a topic that is online."""
    async with connect(cluster.nats) as client:
        await until_spu_online(client)
        await client.topics.create(name, partitions=partitions, wait_s=WAIT_S)
        yield client


async def stored(client: Client, name: str, **how: object) -> list[Record]:
    consumer = client.topics.consumer(name, until_end=True, **how)  # type: ignore[call-overload]
    async with consumer:
        return [record async for record in consumer]


async def test_records_are_consumed_with_their_numbers(cluster: EmbeddedCluster) -> None:
    async with topic(cluster, "numbers", 3) as client:
        async with client.topics.producer("numbers") as producer:
            for number in range(300):
                producer.write(b"%d" % number, key=f"k{number % 10}")
            await producer.flush()
            sent = await producer.send(b"last", key="k0")
        found = await stored(client, "numbers")
        assert len(found) == 301
        for partition in range(3):
            mine = [record for record in found if record.partition == partition]
            assert [record.offset for record in mine] == list(range(len(mine)))
            assert {partition_of((r.key or "").encode(), 3) for r in mine} <= {partition}
        last = partition_of(b"k0", 3)
        ours = [record for record in found if record.partition == last]
        assert sent == RecordMetadata(last, len(ours) - 1)
        assert ours[-1].value == b"last"


async def test_every_start_is_exact(cluster: EmbeddedCluster) -> None:
    async with topic(cluster, "starts") as client:
        async with client.topics.producer("starts") as producer:
            for number in range(100):
                producer.write(b"%d" % number)
                if number % 7 == 0:
                    await producer.flush()
        for start, first in (
            ("beginning", 0), (0, 0), (41, 41), (100, 100), ("end", 100),
            (Offset.from_beginning(5), 5), (Offset.from_end(3), 97), (Offset.at(0), 0),
            (Offset.at(4_000_000_000_000), 100),
        ):  # fmt: skip
            found = await stored(client, "starts", start=start)
            assert [record.offset for record in found] == list(range(first, 100))
            assert [int(record.value) for record in found] == list(range(first, 100))
        with pytest.raises(InvalidRequest, match="is greater than leo: 100"):
            await stored(client, "starts", start=101)


async def test_a_named_consumer_resumes_and_another_one_of_its_name_is_refused(
    cluster: EmbeddedCluster,
) -> None:
    async with topic(cluster, "committed", 2) as client:
        async with client.topics.producer("committed") as producer:
            producer.write_batch([b"%d" % number for number in range(10)], partition=1)
        async with client.topics.consumer("committed", name="billing") as consumer:
            assert [(await anext(consumer)).offset for _ in range(4)] == [0, 1, 2, 3]
        rows = [row[:4] async for row in client.topics.consumers.list("committed")]
        assert rows == [("billing", "committed", 0, -1), ("billing", "committed", 1, 3)]
        how = {"name": "billing", "commit": "manual"}
        one = client.topics.consumer("committed", **how)  # type: ignore[call-overload]
        two = client.topics.consumer("committed", **how)  # type: ignore[call-overload]
        async with one, two:
            assert (await anext(one)).offset == (await anext(two)).offset == 4
            await one.commit()
            with pytest.raises(ConsumerInUse):
                await two.commit()
        await client.topics.consumers.delete("billing", "committed")
        assert [row async for row in client.topics.consumers.list("committed")] == []


async def test_added_partitions_reach_producers_and_consumers(cluster: EmbeddedCluster) -> None:
    async with topic(cluster, "widening", 1) as client:
        async with (
            client.topics.producer("widening") as producer,
            client.topics.consumer("widening") as consumer,
        ):
            await producer.append(b"old", partition=0)
            assert (await anext(consumer)).value == b"old"
            await client.topics.add_partitions("widening", 2, wait_s=WAIT_S)
            assert await producer.refresh() == 3
            for partition in range(3):
                await producer.append(b"new %d" % partition, partition=partition)
            found = [await anext(consumer) for _ in range(3)]
        assert {(r.partition, r.value) for r in found} == {(p, b"new %d" % p) for p in range(3)}


async def test_arrow_batches_have_the_columns_of_records(cluster: EmbeddedCluster) -> None:
    async with topic(cluster, "arrow", 2) as client:
        table = pa.table({"value": [b"%d" % n for n in range(1000)], "key": ["k"] * 1000})
        async with client.topics.producer("arrow", compression="zstd") as producer:
            producer.write_arrow(table, key="key")
        async with client.topics.consumer("arrow", start=10, partitions=[
            partition_of(b"k", 2)
        ], until_end=True) as consumer:  # fmt: skip
            batches = [batch async for batch in consumer.arrow_batches()]
        found = pa.Table.from_batches(batches)
        assert found.schema.names == ["topic", "partition", "offset", "timestamp", "key", "value"]
        assert found["offset"].to_pylist() == list(range(10, 1000))
        assert found["value"].to_pylist()[0] == b"10"


async def test_a_deleted_topic_ends_its_consumers_and_producers(cluster: EmbeddedCluster) -> None:
    async with topic(cluster, "gone", 1) as client:
        async with client.topics.consumer("gone") as consumer:
            await client.topics.delete("gone")
            async with asyncio.timeout(GONE_S):
                with pytest.raises(TopicNotFound):
                    await anext(consumer)
        with pytest.raises(TopicNotFound):
            await client.topics.describe("gone")
        await client.topics.create("gone", wait_s=WAIT_S)
        assert await stored(client, "gone") == []


def test_the_blocking_client_does_all_of_it(cluster: EmbeddedCluster) -> None:
    with blocking.connect(cluster.nats) as client:
        client.topics.create("blocking", partitions=2, wait_s=WAIT_S)
        with client.topics.producer("blocking") as producer:
            producer.write(b"a", partition=0)
            producer.flush()
            assert producer.send(b"b", partition=0) == RecordMetadata(0, 1)
        with client.topics.consumer("blocking", name="c", until_end=True) as consumer:
            assert [record.value for record in consumer] == [b"a", b"b"]
        rows = [row.offset for row in client.topics.consumers.list("blocking")]
        assert sorted(rows) == [-1, 1]
        assert [topic.topic for topic in client.topics.list(matching="block")] == ["blocking"]
        client.topics.delete("blocking")


async def test_a_group_shares_the_partitions_and_finds_new_ones(cluster: EmbeddedCluster) -> None:
    async with topic(cluster, "shared", 2) as client:
        async with client.topics.producer("shared") as producer:
            for number in range(20):
                producer.write(b"%d" % number, partition=number % 2)
            await producer.flush()
            group = client.topics.group("workers", ["shared"])
            await group.create()
            await group.create()  # repeatable
            async with group.reader("one") as one:
                found = [await anext(one) for _ in range(12)]
            async with group.reader("two") as two:
                found += [await anext(two) for _ in range(8)]
                await client.topics.add_partitions("shared", 1, wait_s=WAIT_S)
                await producer.refresh()
                await producer.append(b"20", partition=2)
                async with asyncio.timeout(WAIT_S):
                    found.append(await anext(two))
        places = [(record.partition, record.offset) for record in found]
        assert len(set(places)) == len(places) == 21
        for record in found[:20]:
            assert int(record.value) == 2 * record.offset + record.partition
        assert places[-1] == (2, 0)
        await group.delete()
