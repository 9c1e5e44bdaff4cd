"""Many writers of a stream that is scaled under them, large events, and key-value tables, on the
embedded cluster.

`ANABRANCH_TEST_BATCHES` says how many batches each writer writes (50): 1000 is the full size.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from anabranch.cli.up import EmbeddedCluster, UpSettings
from anabranch.client import (
    Client,
    ScopeNotEmpty,
    TableConfig,
    TableNotFound,
    TableState,
    WriterSettings,
    blocking,
    connect,
)
from anabranch.common.model.names import stream_ref
from kit.command_line import CommandLine
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


async def test_large_events_of_a_transaction_appear_with_it_though_the_store_is_killed(
    cluster: EmbeddedCluster, client: Client
) -> None:
    stream, large = f"{LARGE.scope}/moved", os.urandom(9 * MIB)
    await client.streams.create(stream, segments=4)
    settings = WriterSettings(large_events=True)
    async with client.writer(stream, settings) as writer:
        writer.write(b"before", "k")
        async with writer.transaction() as txn:
            txn.write(b"first", "k")
            txn.write(large, "k")
            txn.write(b"last", "k")
            txn.write(large, "another key")
            await txn.flush()
            assert await payloads(client, stream) == [b"before"]
            txn.write(large, "k")
            kill_store(cluster)
            txn.write(large, "k")
        aborted = await writer.transaction()
        aborted.write(large, "k")
        await aborted.flush()
        await aborted.abort()
        writer.write(b"behind", "k")
    await client.cluster.flush_to_tier2()
    kill_store(cluster)
    found = await payloads(client, stream)
    assert sorted(found) == sorted([b"before", b"first", b"last", b"behind", *[large] * 4])
    places = [found.index(each) for each in (b"before", b"first", b"last", b"behind")]
    assert places == sorted(places)


def kill_store(cluster: EmbeddedCluster) -> None:
    (pid,) = cluster.segstore_pids()
    os.kill(pid, signal.SIGKILL)


async def payloads(client: Client, stream: str) -> list[bytes]:
    async with client.reader(stream, until_tail=True) as reader:
        return [event.payload async for event in reader]


# --- key-value tables --------------------------------------------------------------------------


async def life_of(client: Client, scope: str) -> None:
    """Create, configure, seal and delete a table, and create it again."""
    await client.scopes.create(scope)
    table = f"{scope}/latest"
    await client.tables.create(table, TableConfig(partition_count=3))
    made = await client.tables.describe(table)
    for each in made.partitions:
        info = await client.ranges().info(each.segment)
        assert not info.sealed
    await client.tables.update(table, ttl_ms=60_000)
    assert (await client.tables.describe(table)).config.ttl_ms == 60_000
    await client.tables.seal(table)
    assert (await client.tables.describe(table)).state is TableState.SEALED
    for each in made.partitions:
        assert (await client.ranges().info(each.segment)).sealed
    with pytest.raises(ScopeNotEmpty):
        await client.scopes.delete(scope)
    await client.tables.delete(table)
    with pytest.raises(TableNotFound):
        await client.tables.describe(table)
    await client.tables.create(table, TableConfig(partition_count=1))
    again = await client.tables.describe(table)
    assert {p.segment for p in again.partitions}.isdisjoint(p.segment for p in made.partitions)
    assert [name async for name in client.tables.list(scope)] == ["latest"]
    await client.scopes.delete(scope, recursive=True)


async def test_a_table_lives_in_the_stores_of_a_cluster_by_both_ways(
    cluster: EmbeddedCluster,
) -> None:
    async with connect(cluster.nats) as over_nats:
        await life_of(over_nats, "nats")
    async with connect(str(cluster.endpoints["gateway"])) as over_http:
        await life_of(over_http, "http")


def test_a_blocking_client_administers_tables(cluster: EmbeddedCluster) -> None:
    with blocking.connect(cluster.nats, call_timeout_s=30) as client:
        client.scopes.create("both")
        client.tables.create("both/a", TableConfig(partition_count=1))
        assert list(client.tables.list("both")) == ["a"]
        assert client.tables.describe("both/a").state is TableState.ACTIVE
        client.scopes.delete("both", recursive=True)


async def test_the_command_administers_tables_over_http(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    sh, http = CommandLine(capsys), ("--http", str(cluster.endpoints["gateway"]))
    await sh.lines("scope", "create", "shop", *http)
    await sh.lines("table", "create", "shop/stock", "--partitions", "2", *http)
    assert await sh.lines("table", "list", "shop", *http) == ["shop/stock"]
    await sh.lines("table", "seal", "shop/stock", *http)
    await sh.lines("table", "delete", "shop/stock", *http)
    assert await sh.lines("table", "list", "shop", *http) == []
    await sh.lines("scope", "delete", "shop", *http)
