"""Records leave topics on real processes: by age and by size, without the topic's users."""

import asyncio

from anabranch.cli.up import EmbeddedCluster
from anabranch.client import connect
from anabranch.client.client import Client

WAIT_S = 30.0


async def online(client: Client, topic: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await client.topics.describe(topic)
            if found.partitions_online == found.partition_count:
                return
            await asyncio.sleep(0.05)


async def produce(client: Client, topic: str, records: int, *, partition: int) -> None:
    async with client.topics.producer(topic) as producer:
        for number in range(records):
            producer.write(b"%04d" % number * 25, partition=partition)
            if number % 10 == 9:
                await producer.flush()


async def bases(client: Client, topic: str, *, until: int) -> list[int]:
    """The numbers of the first kept records, once that of partition 0 is high enough."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = [one.base for one in await client.topics.partitions(topic)]
            if found[0] >= until:
                return found
            await asyncio.sleep(0.1)


async def test_the_oldest_records_of_a_partition_beyond_its_size_go(
    cluster: EmbeddedCluster,
) -> None:
    async with connect(cluster.nats) as client:
        await client.topics.create(
            "sized", partitions=2, segment_size=2000, partition_size_max=10_000
        )
        await online(client, "sized")
        await produce(client, "sized", 300, partition=0)
        await produce(client, "sized", 20, partition=1)
        first, other = await bases(client, "sized", until=200)
        assert 200 <= first < 300, "the newest ones stay"
        assert other == 0


async def test_records_go_by_their_age_and_the_numbers_of_later_ones_stay(
    cluster: EmbeddedCluster,
) -> None:
    async with connect(cluster.nats) as client:
        await client.topics.create("aged", partitions=1, retention=10)
        await online(client, "aged")
        await produce(client, "aged", 20, partition=0)
        assert await bases(client, "aged", until=20) == [20]
        await produce(client, "aged", 10, partition=0)
        assert (await bases(client, "aged", until=20))[0] >= 20
