"""A real cluster tells tier 2 of its streams, and moves to it all that was acknowledged."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import Client, connect
from anabranch.common.adapters.chunk_url import open_chunk_storage_read_only
from anabranch.common.errors import StreamNotFound
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import stream_ref
from anabranch.common.model.stream import StreamState
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.objects import highest_manifest, load_catalog, read_manifest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.streams import read_stream
from anabranch.common.tier2.streams import ExportedStream

DEADLINE_S = 20.0
REF = stream_ref("export/x")

T = TypeVar("T")


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """What `look` returns as soon as it is not None."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if (found := await look()) is not None:
                return found
            await asyncio.sleep(0.02)


async def told(storage: ChunkStorage, state: StreamState) -> ExportedStream:
    """What tier 2 tells of the stream once it is in that state."""

    async def look() -> ExportedStream | None:
        try:
            found = await read_stream(storage, REF)
        except StreamNotFound:
            return None
        return found if found.state is state else None

    return await until(look)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with (
        embedded_cluster(UpSettings(data_dir=tmp_path / "data")) as cluster,
        connect(cluster.nats) as connected,
    ):
        await cluster.wait_ready()
        yield connected


async def tier_two(tmp_path: Path) -> ChunkStorage:
    url = (tmp_path / "data" / "segstore" / "tier2").as_uri()
    return await open_chunk_storage_read_only(url, limit_s=DEADLINE_S)


async def test_a_stream_is_told_to_tier_two_from_its_creation_to_its_end(
    client: Client, tmp_path: Path
) -> None:
    await client.scopes.create("export")
    await client.streams.create("export/x", segments=2)
    storage = await tier_two(tmp_path)

    created = await told(storage, StreamState.ACTIVE)
    (epoch,) = created.epochs
    assert [segment.keys for segment in epoch.segments] == [KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)]
    assert created.container_count == 4

    await client.streams.seal("export/x")
    sealed = await told(storage, StreamState.SEALED)
    assert sealed.epochs == created.epochs

    async def gone() -> bool | None:
        try:
            await read_stream(storage, REF)
        except StreamNotFound as error:
            return error.message == "the stream is deleted"
        return None

    await client.streams.delete("export/x")
    assert await until(gone)


async def test_after_a_flush_tier_two_holds_every_byte_that_was_acknowledged(
    client: Client, tmp_path: Path
) -> None:
    await client.scopes.create("flush")
    await client.streams.create("flush/x", segments=6)
    storage = await tier_two(tmp_path)
    written = 0
    for _ in range(2):
        async with client.writer("flush/x") as writer:
            for number in range(300):
                writer.write(b"%d" % number * 50, key=f"k{number}")
        written += 300
        assert await client.cluster.flush_to_tier2() == (0, 1, 2, 3)

        event_count, segment_count = await tiered(storage)

        assert (event_count, segment_count) == (written, 6)


async def tiered(storage: ChunkStorage) -> tuple[int, int]:
    """(events, segments) of all containers; every segment's bytes must be in its chunks."""
    reader = ChunkReader(storage)
    event_count = segment_count = 0
    for container in range(4):
        number = await highest_manifest(storage, container)
        catalog = await load_catalog(storage, await read_manifest(storage, container, number))
        for segment in catalog.segments.values():
            extents = catalog.extents.get(segment.number, ())
            pieces = [await reader.read(found.ref, 0, found.ref.length) for found in extents]
            assert sum(map(len, pieces)) == segment.length > 0
            event_count += segment.event_count
            segment_count += 1
    return event_count, segment_count
