"""Reading a stream with more, and larger, messages than are asked for at once."""

import asyncio

import pytest
from nats.aio.client import Client

from anabranch.common.adapters import jetstream_reader
from anabranch.common.adapters.jetstream_reader import StreamReader
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from kit.infra import NatsServer

DEADLINE_S = 20


async def filled(client: Client, count: int, size_bytes: int) -> StreamReader:
    js = client.jetstream()
    await js.add_stream(name="LARGE", subjects=["large.>"])
    for number in range(count):
        await js.publish("large.x", number.to_bytes(4, "big") + bytes(size_bytes))
    return StreamReader(client, SystemClock(), "LARGE", "large.>")


async def read(reader: StreamReader, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        async for message in reader.follow(0):
            found.append(int.from_bytes(message.data[:4], "big"))
            if len(found) == count:
                return found
    raise AssertionError("the stream has no end")


@pytest.mark.parametrize(("count", "size_bytes"), [(7, 60), (7, 500)])
async def test_what_does_not_fit_into_one_batch_comes_in_the_next_one(
    nats_server: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    size_bytes: int,
) -> None:
    monkeypatch.setattr(jetstream_reader, "BATCH_COUNT", 3)
    monkeypatch.setattr(jetstream_reader, "BATCH_SIZE_BYTES_MAX", 1000)
    client = await connect_nats(nats_target(nats_server.url), "test")
    try:
        reader = await filled(client, count, size_bytes)
        assert await read(reader, count) == list(range(count))
    finally:
        await client.close()
