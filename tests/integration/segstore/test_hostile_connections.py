"""Connections that mean harm, or are only half there: bounded, told why, and closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from anabranch.common.wire.messages import (
    Appended,
    CreateSegment,
    Done,
    Failed,
    Hello,
    KeepAlive,
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
DEADLINE_S = 5.0
LIMITS = TcpLimits(hello_s=0.1, idle_s=0.2, tick_s=0.02)
CROWDED = TcpLimits(
    idle_s=DEADLINE_S, tick_s=0.02, packet_s=0.3, per_peer_max=8, unfinished_max=40 << 20
)
"""One packet of 16 MiB takes nearly all that one address gets of the room."""
OTHER_ADDRESS = "127.0.0.2"


@pytest.fixture(params=[LIMITS])
async def live(request: pytest.FixtureRequest) -> AsyncIterator[LiveStore]:
    """A store that, whatever was done to it, is rid of every connection soon and serves."""
    world = World()
    await world.assign(0)
    async with live_store(world, tcp=request.param) as live:
        yield live
        async with asyncio.timeout(DEADLINE_S):
            while live.server.connection_count:  # noqa: ASYNC110  the store has no event for it
                await asyncio.sleep(0.005)
        assert live.server.unfinished_size == 0
        client = await connect(live)
        assert await client.create(SEGMENT) == Done()
        await client.close()
        assert live.failures == []


crowded = pytest.mark.parametrize("live", [CROWDED], indirect=True)


async def connect(live: LiveStore, *, greet: bool = True, source: str = "") -> WireClient:
    host, port = live.endpoint.host, live.endpoint.port
    return await WireClient.connect(host, port, greet=greet, source=source)


async def begin_packet(live: LiveStore) -> WireClient:
    """A client that has sent a megabyte of a packet of 16."""
    client = await connect(live)
    client.send_raw(HEADER.pack(PACKET_SIZE_BYTES_MAX - 4, 16, 0, 0, 1, 0, 0) + bytes(1 << 20))
    return client


async def write_large(client: WireClient) -> object:
    """The answer to an append of 8 MiB."""
    await client.create(SEGMENT)
    await client.setup(SEGMENT)
    client.append(1, [bytes(8 << 20)])
    return (await client.receive())[0]


async def why_closed(client: WireClient) -> str:
    """Wait for the connection's end; the code of the refusal that came before, "" if none did."""
    code = ""
    with suppress(ConnectionResetError):
        while (packet := await client.receive_packet()) is not None:
            message = decode_message(packet)
            if isinstance(message, Failed) and packet.request_id == 0:
                code = message.code
    with suppress(ConnectionResetError):
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


@crowded
async def test_who_drips_a_packet_is_closed_when_its_time_is_over(live: LiveStore) -> None:
    client = await begin_packet(live)

    async def drip() -> None:
        while True:
            client.send_raw(bytes(10))
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        dripping = group.create_task(drip())
        assert await why_closed(client) == "connection-lost"
        dripping.cancel()


@crowded
async def test_half_packets_of_many_connections_hold_no_more_than_their_room(
    live: LiveStore,
) -> None:
    # given more half packets than there is room for, all from one address
    hostile = [await begin_packet(live) for _ in range(6)]
    async with asyncio.timeout(DEADLINE_S):
        while not live.server.unfinished_size:  # noqa: ASYNC110  the store has no event for it
            await asyncio.sleep(0.005)
    assert live.server.unfinished_size <= CROWDED.unfinished_max // 2
    # then a client from another address is served at once, and one from theirs in its turn
    other = await connect(live, source=OTHER_ADDRESS)
    assert isinstance(await write_large(other), Appended)
    assert live.server.unfinished_size == PACKET_SIZE_BYTES_MAX
    await other.close()
    mate = await connect(live)
    await mate.setup(SEGMENT)
    mate.append(1, [bytes(8 << 20)])
    mate.send(KeepAlive())
    assert [await why_closed(client) for client in hostile] == ["connection-lost"] * 6
    assert isinstance((await mate.receive())[0], Appended)
    await mate.close()


@crowded
async def test_a_peer_has_so_many_connections_and_others_have_theirs(live: LiveStore) -> None:
    idle = [await connect(live) for _ in range(CROWDED.per_peer_max)]
    reader, writer = await asyncio.open_connection(live.endpoint.host, live.endpoint.port)
    refused = WireClient(reader, writer)
    told, _ = await refused.receive()
    assert isinstance(told, Failed)
    assert (told.code, told.fields["peer"]) == ("overloaded", live.endpoint.host)
    await refused.close()
    other = await connect(live, source=OTHER_ADDRESS)
    assert await other.create(SEGMENT) == Done()
    await idle.pop().close()
    async with asyncio.timeout(DEADLINE_S):
        while live.server.connection_count > CROWDED.per_peer_max:  # noqa: ASYNC110  as above
            await asyncio.sleep(0.005)
    for client in [*idle, other, await connect(live)]:
        await client.close()


async def test_a_first_packet_that_is_too_large_for_a_hello_gets_no_room(live: LiveStore) -> None:
    client = await connect(live, greet=False)
    client.send_raw(HEADER.pack(PACKET_SIZE_BYTES_MAX - 4, 1, 0, 0, 1, 0, 0))
    assert await why_closed(client) == "bad-packet"


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
