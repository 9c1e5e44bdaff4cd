"""A byte stream on a real cluster, whose store is killed while it is written."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import connect
from anabranch.client.settings import ByteStreamSettings
from anabranch.common.errors import CorruptBlock, EventsTruncated, InvalidRequest
from kit.rng import seeded

STREAM = "files/bytes"
SIZE = 6 * 1024 * 1024
PIECE = 100_000
SETTINGS = ByteStreamSettings(append_size_bytes=256 * 1024)
DONE_S_MAX = 120.0


async def test_a_file_survives_its_stores_death_and_tier_two(tmp_path: Path) -> None:
    content = seeded(1).randbytes(SIZE)
    async with (
        asyncio.timeout(DONE_S_MAX),
        embedded_cluster(UpSettings(data_dir=tmp_path / "data")) as cluster,
        connect(cluster.nats) as client,
    ):
        await client.scopes.create("files")
        await client.streams.create(STREAM)
        async with client.byte_stream(STREAM, SETTINGS) as file:
            for start in range(0, SIZE, PIECE):
                await file.write(content[start : start + PIECE])
                if start == SIZE // 3 // PIECE * PIECE:
                    (pid,) = cluster.pids("segstore")
                    os.kill(pid, signal.SIGKILL)
            await file.flush()
            assert await file.tail() == SIZE
        await client.cluster.flush_to_tier2()
        async with client.byte_stream(STREAM, SETTINGS) as file:
            assert await file.read() == content
            await file.seek(SIZE // 2 + 7)
            target = bytearray(1000)
            assert await file.readinto(target) == 1000
            assert target == content[SIZE // 2 + 7 :][:1000]
            with pytest.raises((CorruptBlock, InvalidRequest)):
                async with client.reader(STREAM, until_tail=True) as reader:
                    await anext(aiter(reader))
            head = await file.truncate(SIZE // 2)
            assert SIZE // 2 - SETTINGS.append_size_bytes < head <= SIZE // 2
            await file.seek(0)
            with pytest.raises(EventsTruncated):
                await file.read(1)
            assert await file.read() == content[head:]
            await client.streams.seal(STREAM)
            assert await file.read(1) == b""
