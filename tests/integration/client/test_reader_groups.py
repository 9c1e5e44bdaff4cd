"""Readers of a group on a real cluster: they share, follow scales, come, go and are lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import Client, GroupReader, GroupStream, ReaderGroupConfig, connect
from anabranch.common.errors import (
    ReaderGroupNotFound,
    ReaderGroupReset,
    ReaderInUse,
    ReaderRemoved,
)
from anabranch.common.model.names import stream_ref
from kit.group_readers import Ledger, reading, until, write_numbers
from kit.scaling_traffic import scale_to

STREAM = stream_ref("shared/numbers")
KEYS = 20


@asynccontextmanager
async def client_of_a_group(path: Path, lease_ms: int = 2_000) -> AsyncIterator[Client]:
    async with (
        embedded_cluster(UpSettings(path / "data")) as cluster,
        connect(cluster.nats) as client,
    ):
        await cluster.wait_ready()
        await client.scopes.create(STREAM.scope)
        await client.streams.create(str(STREAM))
        await scale_to(client, STREAM, 4)
        config = ReaderGroupConfig((GroupStream(str(STREAM)),), lease_ms=lease_ms)
        await client.reader_groups.create("shared/workers", config)
        yield client


async def test_readers_share_a_stream_exactly_once_while_it_is_scaled_and_they_come_and_go(
    tmp_path: Path,
) -> None:
    async with client_of_a_group(tmp_path) as client:
        group, ledger = client.reader_group("shared/workers"), Ledger()
        async with reading(group, "a", ledger), reading(group, "b", ledger):
            await write_numbers(client, str(STREAM), KEYS, 0, 50)
            await until(lambda: ledger.count() == 50 * KEYS)
            assert {len(has) for has in (await group.readers()).values()} == {2}
            async with reading(group, "c", ledger), reading(group, "d", ledger):
                await scale_to(client, STREAM, 8)
                await write_numbers(client, str(STREAM), KEYS, 50, 50)
                await until(lambda: ledger.count() == 100 * KEYS)
                await scale_to(client, STREAM, 2)
                await write_numbers(client, str(STREAM), KEYS, 100, 50)
                await until(lambda: ledger.count() == 150 * KEYS)
            await scale_to(client, STREAM, 3)
            await write_numbers(client, str(STREAM), KEYS, 150, 50)
            await until(lambda: ledger.count() == 200 * KEYS)
            assert sorted((await group.status()).readers) == ["a", "b"]
        ledger.assert_exactly_once_in_order({f"key-{key}": 200 for key in range(KEYS)})
        lag = (await group.status()).lag
        assert (lag.bytes, lag.events, lag.seconds) == (0, 0, 0.0)


async def test_a_reader_id_is_taken_while_its_reader_lives(tmp_path: Path) -> None:
    async with client_of_a_group(tmp_path) as client:
        group = client.reader_group("shared/workers")
        async with group.reader("a"):
            with pytest.raises(ReaderInUse):
                async with group.reader("a"):
                    pass
        async with group.reader("a"):
            assert list(await group.readers()) == ["a"]


async def test_checkpoints_and_cuts_are_where_all_readers_stand(tmp_path: Path) -> None:
    async with client_of_a_group(tmp_path) as client:
        group, ledger = client.reader_group("shared/workers"), Ledger()
        async with reading(group, "a", ledger), reading(group, "b", ledger):
            await write_numbers(client, str(STREAM), KEYS, 0, 10)
            await until(lambda: ledger.count() == 10 * KEYS)
            checkpoint = await group.checkpoint("first")
            await write_numbers(client, str(STREAM), KEYS, 10, 10)
            await until(lambda: ledger.count() == 20 * KEYS)
            cuts = await group.stream_cuts()
        async with client.reader(
            STREAM, start=checkpoint.of_stream(str(STREAM)), until_tail=True
        ) as reader:
            assert {int(event.payload) async for event in reader} == set(range(10, 20))
        async with client.reader(STREAM, start=cuts[str(STREAM)], until_tail=True) as reader:
            assert [event async for event in reader] == []


async def test_readers_learn_that_their_group_was_reset_or_is_gone_and_that_they_were_removed(
    tmp_path: Path,
) -> None:
    async with client_of_a_group(tmp_path) as client:
        group = client.reader_group("shared/workers")
        await write_numbers(client, str(STREAM), KEYS, 0, 5)
        async with group.reader("a") as reader:
            await anext(reader)
            await group.reader_offline("a")
            with pytest.raises(ReaderRemoved):
                await _read_on(reader)
        async with group.reader("b") as reader:
            await anext(reader)
            await client.reader_groups.reset("shared/workers")
            await group.status()
            with pytest.raises(ReaderGroupReset):
                await _read_on(reader)
        ledger = Ledger()
        async with reading(group, "c", ledger):
            await until(lambda: ledger.count() == 5 * KEYS)
        ledger.assert_exactly_once_in_order({f"key-{key}": 5 for key in range(KEYS)})
        async with group.reader("d") as reader:
            await client.reader_groups.delete("shared/workers")
            with pytest.raises(ReaderGroupNotFound):
                await _read_on(reader)


async def _read_on(reader: GroupReader) -> None:
    async with asyncio.timeout(20):
        async for _ in reader:
            pass
