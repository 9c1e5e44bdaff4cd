"""A real cluster whose tier 2 is a bucket of a real server that speaks S3."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.client import Client, connect
from anabranch.common.adapters.chunk_bucket import bucket_storage
from anabranch.common.adapters.chunk_url import open_chunk_storage_read_only
from anabranch.common.errors import StreamNotFound
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.objects import highest_manifest, load_catalog, read_manifest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.streams import read_stream
from anabranch.common.wire.messages import Done, FlushContainer
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from kit.chunk_faults import UnknownOutcomes
from kit.s3_server import BUCKET, S3Server
from kit.tier2_catalog import catalog_of
from kit.tier2_model import expected_contents, read_back, small_container
from kit.wire_client import WireClient

STREAM = "demo/numbers"
EVENTS = 200
CONTAINERS = 2
SEGMENTS = 4
TOLD_S_MAX = 20.0


async def test_what_was_flushed_to_a_bucket_survives_a_kill_and_is_read_without_the_cluster(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"s3://{BUCKET}/{s3_server.location().prefix}"
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    settings = UpSettings(tmp_path / "data", container_count=CONTAINERS, tier2_url=url)
    async with embedded_cluster(settings) as cluster:
        await cluster.wait_ready()
        async with connect(cluster.nats) as client:
            await write(client)
        await flush(cluster)
        reading = await open_chunk_storage_read_only(url, limit_s=20.0)
        assert await told_segments(reading) == SEGMENTS
        (pid,) = cluster.segstore_pids()
        os.kill(pid, signal.SIGKILL)
        async with (
            connect(cluster.nats) as client,
            client.reader(STREAM, until_tail=True) as reader,
        ):
            read = [event.payload async for event in reader]
    assert sorted(read) == sorted(payload(number) for number in range(EVENTS))
    stored = await stored_bytes(reading)
    assert all(payload(number) in stored for number in range(EVENTS))


@pytest.mark.parametrize("performed", [True, False])
async def test_opening_and_flushing_to_a_bucket_survive_lost_answers(
    tmp_path: Path, s3_server: S3Server, performed: bool
) -> None:
    location = s3_server.location()
    bucket = bucket_storage(location, s3_server.options(tmp_path), SystemClock(), limit_s=20.0)
    # the fence manifest, the chunk under its first name, the manifest
    faulty = UnknownOutcomes(bucket, **{"performed" if performed else "lost": [1, 3, 5]})
    model = small_container()
    clock = SystemClock()
    tier_two = await OpenContainerTierTwo(faulty, SeededIds(1), clock)(3, 1, "log", new_log=True)
    await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)
    assert len(faulty.puts) == 6
    assert await bucket.list("c3/m/") == ["c3/m/0000000001", "c3/m/0000000002"]
    opened = await OpenContainerTierTwo(bucket, SeededIds(2), clock)(3, 2, "log")
    assert await read_back(opened) == expected_contents(model)


def payload(number: int) -> bytes:
    return b"<number %d>" % number


async def write(client: Client) -> None:
    await client.scopes.create("demo")
    await client.streams.create(STREAM, segments=SEGMENTS)
    async with client.writer(STREAM) as writer:
        for number in range(EVENTS):
            writer.write(payload(number), key=f"{number % 11}")


async def flush(cluster: EmbeddedCluster) -> None:
    """Return when everything is in the bucket."""
    host, _, port = str(cluster.endpoints["segstores"][0]).rpartition(":")
    client = await WireClient.connect(host, int(port))
    for container in range(CONTAINERS):
        assert await client.call(FlushContainer(container=container)) == Done()
    await client.close()


async def told_segments(storage: ChunkStorage) -> int:
    """The present segments of the stream, as soon as the controller has told of it."""
    async with asyncio.timeout(TOLD_S_MAX):
        while True:
            try:
                return len((await read_stream(storage, stream_ref(STREAM))).epochs[-1].segments)
            except StreamNotFound:
                await SystemClock().sleep(0.05)


async def stored_bytes(storage: ChunkStorage) -> bytes:
    """Every extent that the manifests name, checked against its checksum."""
    reader, found = ChunkReader(storage), b""
    for container in range(CONTAINERS):
        number = await highest_manifest(storage, container)
        catalog = await load_catalog(storage, await read_manifest(storage, container, number))
        for extents in catalog.extents.values():
            for extent in extents:
                found += await reader.read(extent.ref, 0, extent.ref.length)
    return found
