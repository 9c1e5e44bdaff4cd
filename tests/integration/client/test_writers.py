"""Many writers of a stream that is scaled under them, and large events, on the embedded cluster.

`ANABRANCH_TEST_BATCHES` says how many batches each writer writes (50): 1000 is the full size.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from anabranch.cli.up import EmbeddedCluster, UpSettings
from anabranch.client import Client, WriterSettings, connect
from anabranch.common.model.names import stream_ref
from kit.history import KeyedHistory
from kit.module_cluster import running_cluster
from kit.scaling_traffic import scale_to

STREAM = stream_ref("scales/numbers")
LARGE = stream_ref("large/numbers")
WRITERS = 20
BATCHES = int(os.environ.get("ANABRANCH_TEST_BATCHES", "50"))
BATCH = 20
SCALES = (4, 2, 6)
MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(UpSettings(tmp_path_factory.mktemp("writers") / "data")) as running:
        yield running


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    async with connect(cluster.nats) as connected:
        yield connected


async def write(client: Client, name: str, history: KeyedHistory, done: list[int]) -> None:
    """Batches with five keys of the writer's own; after every tenth an acknowledgement."""
    async with client.writer(STREAM) as writer:
        for number in range(BATCHES):
            events = [b"%s %d.%d" % (name.encode(), number, index) for index in range(BATCH)]
            keys = [f"{name} {index % 5}" for index in range(BATCH)]
            writer.write_batch(events, keys)
            for event, key in zip(events, keys, strict=True):
                history.wrote(event, key)
            if number % 10 == 9:
                await writer.acknowledgement()
            else:
                await writer.drain()
            done[0] += 1


async def scale_on(client: Client, done: list[int]) -> None:
    """A scale each time that a further part of the batches was written."""
    share = WRITERS * BATCHES // (len(SCALES) + 1)
    for position, count in enumerate(SCALES, 1):
        while done[0] < position * share:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await scale_to(client, STREAM, count)


async def test_every_batch_of_twenty_writers_is_read_once_and_in_order(client: Client) -> None:
    history, done = KeyedHistory(), [0]
    await client.scopes.create(STREAM.scope)
    await client.streams.create(str(STREAM))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(scale_on(client, done))
        for number in range(WRITERS):
            tasks.create_task(write(client, f"w{number}", history, done))
    async with client.reader(STREAM, until_tail=True) as reader:
        history.check([(event.key, event.payload) async for event in reader])
    description = await client.streams.describe(str(STREAM))
    assert description.stream_epoch == len(SCALES)


async def test_a_large_event_is_stored_and_counted_as_one_event(client: Client) -> None:
    large = os.urandom(9 * MIB) * 2
    await client.scopes.create(LARGE.scope)
    await client.streams.create(str(LARGE))
    async with client.writer(LARGE, WriterSettings(large_events=True)) as writer:
        writer.write(b"before", "k")
        writer.write(large, "k")
        writer.write(b"after", "k")
    async with client.reader(LARGE, until_tail=True) as reader:
        found = [event.payload async for event in reader]
    assert found == [b"before", large, b"after"]
