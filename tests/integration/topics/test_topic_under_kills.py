"""Leaders of a topic are killed, and one loses its journal, while it is produced and consumed.

Three real stores replicate every partition. The ledgers are in this process, which nothing strikes:
what was acknowledged, and under which numbers. Nothing of it may be lost, no number may name two
records, and named consumers resume where they have stopped.
"""

import asyncio
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.cli.up.held import HeldParts
from anabranch.cli.up.parts import cluster_parts
from anabranch.client import Client, OutcomeUnknown, Unavailable, connect
from anabranch.common.errors import BufferFull

TOPIC = "orders"
PARTITIONS = 6
WAIT_S = 40.0
WRITERS = 2
SEND_PAUSE_S = 0.01
LIFE_RECORDS = 400
"""After so many records, a named consumer closes and another one of its name goes on."""


class Ledger:
    """What producers know: every value that was acknowledged, and the numbers that `send` got."""

    def __init__(self) -> None:
        self.acknowledged: set[bytes] = set()
        self.tried: set[bytes] = set()
        self.numbers: dict[tuple[int, int], bytes] = {}
        self.stopping = asyncio.Event()


async def write(client: Client, ledger: Ledger, writer: int) -> None:
    """Write in batches; a flush acknowledges all of one."""
    number = 0
    async with client.topics.producer(TOPIC) as producer:
        while not ledger.stopping.is_set():
            batch = [b"w%d:%d" % (writer, number + at) for at in range(60)]
            ledger.tried.update(batch)
            for value in batch:
                await _taken(producer, value, number % PARTITIONS)
                number += 1
            await producer.flush()
            ledger.acknowledged.update(batch)
            await asyncio.sleep(0.02)


async def _taken(producer: object, value: bytes, partition: int) -> None:
    while True:
        try:
            return producer.write(value, partition=partition)  # type: ignore[attr-defined, no-any-return]
        except BufferFull:
            await producer.drain()  # type: ignore[attr-defined]


async def send(client: Client, ledger: Ledger) -> None:
    """Send one record after the other, each with the number that it got."""
    number = 0
    async with client.topics.producer(TOPIC) as producer:
        while not ledger.stopping.is_set():
            value = b"s:%d" % number
            ledger.tried.add(value)
            number += 1
            try:
                sent = await producer.send(value, partition=number % PARTITIONS)
            except (OutcomeUnknown, Unavailable):
                continue  # it may be there, once
            place = sent.partition, sent.offset
            assert place not in ledger.numbers, "a number was given twice"
            ledger.numbers[place] = value
            ledger.acknowledged.add(value)
            await asyncio.sleep(SEND_PAUSE_S)


class Consumed:
    """The records that a named consumer has seen over all its lives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: dict[tuple[int, int], bytes] = {}
        self.next: Counter[int] = Counter()
        self.lives = 0
        self._grown = asyncio.Event()

    async def reached(self, count: int) -> None:
        """Wait until so many records are consumed."""
        while len(self.records) < count:
            self._grown.clear()
            await self._grown.wait()

    async def run(self, client: Client) -> None:
        """Consume until cancelled; each life goes on where the one before has stopped."""
        while True:
            self.lives += 1
            async with client.topics.consumer(TOPIC, name=self.name) as consumer:
                count = 0
                async for record in consumer:
                    expected = self.next[record.partition]
                    assert record.offset == expected, "a gap, or a record twice"
                    self.next[record.partition] += 1
                    self.records[record.partition, record.offset] = record.value
                    self._grown.set()
                    count += 1
                    if count == LIFE_RECORDS:
                        break


async def whole(client: Client) -> None:
    """Wait until every partition is online on three live replicas, and every SPU is online."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await client.topics.partitions(TOPIC)
            spus = [spu async for spu in client.spus.list() if spu.resolution == "online"]
            if len(spus) == 3 and all(len(one.lrs) == 3 for one in found):
                return
            await asyncio.sleep(0.1)


async def leader_of(client: Client, cluster: EmbeddedCluster, partition: int) -> str:
    """The part of the cluster that leads the partition."""
    [found] = [one for one in await client.topics.partitions(TOPIC) if one.partition == partition]
    names = {spu.spec.spu_id: spu.name async for spu in client.spus.list()}
    assert cluster.data_dir is not None
    for folder in sorted(cluster.data_dir.glob("segstore*")):
        if (folder / "node-id").read_text().split()[0] == names[found.leader]:
            return folder.name
    raise AssertionError("no store leads the partition")


async def strike(
    client: Client, cluster: EmbeddedCluster, held: HeldParts, partition: int, *, wipe: bool
) -> None:
    """Kill the leader of the partition, and let it start again without its journal if `wipe`."""
    part = await leader_of(client, cluster, partition)
    killed = cluster.pids(part)
    held.hold(part)
    try:
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(1.0)
        if wipe:
            assert cluster.data_dir is not None
            await asyncio.to_thread(shutil.rmtree, cluster.data_dir / part / "journal")
        await asyncio.sleep(4.0)  # longer than a store takes to be dead
    finally:
        held.release(part)
    await whole(client)


@asynccontextmanager
async def three_stores(directory: Path) -> AsyncIterator[tuple[EmbeddedCluster, HeldParts]]:
    holds = directory / "holds"
    holds.mkdir()
    held = HeldParts(holds)
    settings = UpSettings(
        data_dir=directory / "cluster", store_count=3, replication=3, container_count=2, redis=False
    )
    async with embedded_cluster(
        settings, parts=lambda plan: held.holdable(cluster_parts(plan))
    ) as cluster:
        await cluster.wait_ready()
        yield cluster, held


async def test_nothing_acknowledged_is_lost_and_no_number_is_given_twice(tmp_path: Path) -> None:
    ledger, consumers = Ledger(), [Consumed("billing"), Consumed("audit")]
    async with three_stores(tmp_path) as (cluster, held), connect(cluster.nats) as client:
        await client.topics.create(
            TOPIC, partitions=PARTITIONS, replication_factor=3, wait_s=WAIT_S
        )
        await whole(client)
        async with asyncio.TaskGroup() as group:
            writing = [group.create_task(write(client, ledger, at)) for at in range(WRITERS)]
            writing.append(group.create_task(send(client, ledger)))
            reading = [group.create_task(one.run(client)) for one in consumers]
            await asyncio.sleep(1.0)
            await strike(client, cluster, held, 0, wipe=False)
            await strike(client, cluster, held, 1, wipe=True)
            await strike(client, cluster, held, 2, wipe=False)
            ledger.stopping.set()
            await asyncio.wait(writing)
            stored = await everything(client)
            async with asyncio.timeout(WAIT_S):
                for one in consumers:
                    await one.reached(len(stored))
            for task in reading:
                task.cancel()
    judge(ledger, stored, consumers)


async def everything(client: Client) -> dict[tuple[int, int], bytes]:
    """All records, by partition and number."""
    found: dict[tuple[int, int], bytes] = {}
    async with client.topics.consumer(TOPIC, start="beginning", until_end=True) as consumer:
        async for record in consumer:
            place = record.partition, record.offset
            assert place not in found, "a number names two records"
            found[place] = record.value
    return found


def judge(ledger: Ledger, stored: dict[tuple[int, int], bytes], consumers: list[Consumed]) -> None:
    values = Counter(stored.values())
    assert not ledger.acknowledged - values.keys(), "acknowledged records are lost"
    assert values.keys() <= ledger.tried
    assert max(values.values()) == 1, "a record is stored twice"
    assert {place: stored.get(place) for place in ledger.numbers} == ledger.numbers
    for partition in range(PARTITIONS):
        numbers = sorted(number for at, number in stored if at == partition)
        assert numbers == list(range(len(numbers))), "record numbers have a gap"
    for one in consumers:
        assert one.records == stored, f"consumer {one.name} has seen something else"
        assert one.lives > 3
    assert len(ledger.numbers) > 100
    assert len(ledger.acknowledged) > 1000
