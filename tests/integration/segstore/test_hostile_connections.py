"""Connections that mean harm, or are only half there: bounded, told why, and closed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch.common.wire.messages import (
    CreateSegment,
    Done,
    Failed,
    Hello,
    ReadSegment,
    Stamp,
    decode_message,
    encode_message,
)
from anabranch.common.wire.packet import HEADER, PACKET_SIZE_BYTES_MAX, encode_packet
from anabranch.segstore.server.tcp import TcpLimits
from kit.fuzz_targets import TARGETS
from kit.live_store import LiveStore, World, live_store
from kit.mutate import mutated
from kit.rng import seeded
from kit.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
LIMITS = TcpLimits(hello_s=0.1, idle_s=0.2, tick_s=0.02)
DEADLINE_S = 5.0


@pytest.fixture
async def live() -> AsyncIterator[LiveStore]:
    """A store that, whatever was done to it, is rid of every connection soon and serves."""
    world = World()
    await world.assign(0)
    async with live_store(world, tcp=LIMITS) as live:
        yield live
        async with asyncio.timeout(DEADLINE_S):
            while live.server.connection_count:  # noqa: ASYNC110  the store has no event for it
                await asyncio.sleep(0.005)
        client = await connect(live)
        assert await client.create(SEGMENT) == Done()
        await client.close()
        assert live.failures == []


async def connect(live: LiveStore, *, greet: bool = True) -> WireClient:
    return await WireClient.connect(live.endpoint.host, live.endpoint.port, greet=greet)


async def why_closed(client: WireClient) -> str:
    """Wait for the connection's end; the code of the refusal that came before, "" if none did."""
    code = ""
    try:
        while (packet := await client.receive_packet()) is not None:
            message = decode_message(packet)
            if isinstance(message, Failed) and packet.request_id == 0:
                code = message.code
    except ConnectionResetError:
        pass
    await client.close()
    return code


async def test_who_never_says_hello_is_told_so(live: LiveStore) -> None:
    assert await why_closed(await connect(live, greet=False)) == "bad-packet"


async def test_who_sends_half_a_hello_is_told_so(live: LiveStore) -> None:
    client = await connect(live, greet=False)
    client.send_raw(b"".join(encode_message(Hello(), 0))[:-1])
    assert await why_closed(client) == "bad-packet"


async def test_who_falls_silent_is_told_so(live: LiveStore) -> None:
    assert await why_closed(await connect(live)) == "connection-lost"


async def test_who_falls_silent_in_the_middle_of_a_packet_is_told_so(live: LiveStore) -> None:
    client = await connect(live)
    client.send_raw(HEADER.pack(PACKET_SIZE_BYTES_MAX - 4, 16, 0, 0, 1, 0, 0))
    assert await why_closed(client) == "connection-lost"


async def test_who_does_not_take_its_answers_is_given_up(live: LiveStore) -> None:
    client = await connect(live)
    await client.create(SEGMENT)
    await client.setup(SEGMENT)
    client.append(1, [bytes(1 << 20)])
    await client.receive()
    for _ in range(40):
        client.send(ReadSegment(segment=SEGMENT, offset=0, size_max=1 << 20))
    client._writer.transport.pause_reading()  # type: ignore[attr-defined]
    async with asyncio.timeout(DEADLINE_S):
        while live.server.connection_count:  # noqa: ASYNC110  the store has no event for it
            await asyncio.sleep(0.005)
    client._writer.transport.abort()


@pytest.mark.parametrize("size", [0, 19, 23, 2**24 + 65537, 2**31, 2**32 - 1])
async def test_an_impossible_length_is_refused_before_anything_is_kept(
    live: LiveStore, size: int
) -> None:
    client = await connect(live)
    client.send_raw(size.to_bytes(4, "little") + bytes(60))
    assert await why_closed(client) == "bad-packet"


async def test_a_message_that_python_cannot_decode_is_refused(live: LiveStore) -> None:
    for meta in (b"\x81\xa7segment\xa2\xff\xfe", b"\x81\xa1x" * 15_000, b"\xdd\xff\xff\xff\xff"):
        client = await connect(live)
        client.send_raw(b"".join(encode_packet(13, 1, meta)))
        assert await why_closed(client) == "bad-packet"


async def test_streams_of_damaged_requests_end_with_a_reason(live: LiveStore) -> None:
    rng = seeded(3)
    (packets,) = (target for target in TARGETS if target.name == "packets")
    assert packets.seal is not None
    good = b"".join(encode_message(CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1)), 1))
    for _ in range(60):
        client = await connect(live)
        for _ in range(20):
            damaged = mutated(rng, [*packets.seeds, good])
            client.send_raw(packets.seal(damaged) if rng.random() < 0.5 else damaged)
        client.send_raw(bytes(PACKET_SIZE_BYTES_MAX >> 8))
        assert await why_closed(client) in ("bad-packet", "unsupported-protocol", "connection-lost")
