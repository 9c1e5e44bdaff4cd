"""Readers of a group on a real cluster: they share, follow scales, come, go and are lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from anabranch.cli.up import EmbeddedCluster, UpSettings
from anabranch.client import Client, GroupReader, GroupStream, ReaderGroupConfig, connect
from anabranch.common.errors import (
    ReaderGroupNotFound,
    ReaderGroupReset,
    ReaderInUse,
    ReaderRemoved,
)
from anabranch.common.model.names import StreamRef, stream_ref
from kit.group_readers import Ledger, reading, until, write_numbers
from kit.module_cluster import running_cluster
from kit.scaling_traffic import scale_to

KEYS = 20
LEASE_MS = 2_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(UpSettings(tmp_path_factory.mktemp("groups") / "data")) as running:
        yield running


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    async with connect(cluster.nats) as connected:
        yield connected


@dataclass(frozen=True)
class Names:
    """A group and the stream that it reads, in a scope of their own."""

    stream: StreamRef
    group: str


async def group_of(client: Client, scope: str) -> Names:
    """Make the scope, a stream of four segments and its group."""
    names = Names(stream_ref(f"{scope}/numbers"), f"{scope}/workers")
    await client.scopes.create(scope)
    await client.streams.create(str(names.stream))
    await scale_to(client, names.stream, 4)
    config = ReaderGroupConfig((GroupStream(str(names.stream)),), lease_ms=LEASE_MS)
    await client.reader_groups.create(names.group, config)
    return names


async def test_readers_share_a_stream_exactly_once_while_it_is_scaled_and_they_come_and_go(
    client: Client,
) -> None:
    names = await group_of(client, "shared")
    group, ledger = client.reader_group(names.group), Ledger()
    async with reading(group, "a", ledger), reading(group, "b", ledger):
        await write_numbers(client, str(names.stream), KEYS, 0, 50)
        await until(lambda: ledger.count() == 50 * KEYS)
        assert {len(has) for has in (await group.readers()).values()} == {2}
        async with reading(group, "c", ledger), reading(group, "d", ledger):
            await scale_to(client, names.stream, 8)
            await write_numbers(client, str(names.stream), KEYS, 50, 50)
            await until(lambda: ledger.count() == 100 * KEYS)
            await scale_to(client, names.stream, 2)
            await write_numbers(client, str(names.stream), KEYS, 100, 50)
            await until(lambda: ledger.count() == 150 * KEYS)
        await scale_to(client, names.stream, 3)
        await write_numbers(client, str(names.stream), KEYS, 150, 50)
        await until(lambda: ledger.count() == 200 * KEYS)
        assert sorted((await group.status()).readers) == ["a", "b"]
    ledger.assert_exactly_once_in_order({f"key-{key}": 200 for key in range(KEYS)})
    lag = (await group.status()).lag
    assert (lag.bytes, lag.events, lag.seconds) == (0, 0, 0.0)


async def test_a_reader_id_is_taken_while_its_reader_lives(client: Client) -> None:
    names = await group_of(client, "taken")
    group = client.reader_group(names.group)
    async with group.reader("a"):
        with pytest.raises(ReaderInUse):
            async with group.reader("a"):
                pass
    async with group.reader("a"):
        assert list(await group.readers()) == ["a"]


async def test_checkpoints_and_cuts_are_where_all_readers_stand(client: Client) -> None:
    names = await group_of(client, "checkpoints")
    group, ledger = client.reader_group(names.group), Ledger()
    async with reading(group, "a", ledger), reading(group, "b", ledger):
        await write_numbers(client, str(names.stream), KEYS, 0, 10)
        await until(lambda: ledger.count() == 10 * KEYS)
        checkpoint = await group.checkpoint("first")
        await write_numbers(client, str(names.stream), KEYS, 10, 10)
        await until(lambda: ledger.count() == 20 * KEYS)
        cuts = await group.stream_cuts()
    async with client.reader(
        names.stream, start=checkpoint.of_stream(str(names.stream)), until_tail=True
    ) as reader:
        assert {int(event.payload) async for event in reader} == set(range(10, 20))
    cut = cuts[str(names.stream)]
    async with client.reader(names.stream, start=cut, until_tail=True) as reader:
        assert [event async for event in reader] == []


async def test_readers_learn_that_their_group_was_reset_or_is_gone_and_that_they_were_removed(
    client: Client,
) -> None:
    names = await group_of(client, "removed")
    group = client.reader_group(names.group)
    await write_numbers(client, str(names.stream), KEYS, 0, 5)
    async with group.reader("a") as reader:
        await anext(reader)
        await group.reader_offline("a")
        with pytest.raises(ReaderRemoved):
            await _read_on(reader)
    async with group.reader("b") as reader:
        await anext(reader)
        await client.reader_groups.reset(names.group)
        await group.status()
        with pytest.raises(ReaderGroupReset):
            await _read_on(reader)
    ledger = Ledger()
    async with reading(group, "c", ledger):
        await until(lambda: ledger.count() == 5 * KEYS)
    ledger.assert_exactly_once_in_order({f"key-{key}": 5 for key in range(KEYS)})
    async with group.reader("d") as reader:
        await client.reader_groups.delete(names.group)
        with pytest.raises(ReaderGroupNotFound):
            await _read_on(reader)


async def _read_on(reader: GroupReader) -> None:
    async with asyncio.timeout(20):
        async for _ in reader:
            pass
