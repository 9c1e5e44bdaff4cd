"""Many clients with a backlog that they do not take: the store's memory, and everybody else."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.common.wire.messages import Appended, Hello, ReadSegment, SegmentRead, encode_message
from anabranch.segstore.server.tcp import TcpLimits
from kit.live_store import LiveStore, World, live_store
from kit.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
KIB = 1024
BLOCK = 256 * KIB
UNSENT_MAX = 2048 * KIB
CLIENTS = 40
READS = 20
LIMITS = TcpLimits(held_up_bytes=16 * KIB)


@asynccontextmanager
async def backlog(
    tcp: TcpLimits = LIMITS, *, tiered: bool = False
) -> AsyncIterator[tuple[LiveStore, WireClient, list[socket.socket]]]:
    """A store, a writer, and clients who asked for much and take nothing."""
    world = World()
    await world.assign(0)
    async with live_store(
        world, tcp=tcp, unsent_max=UNSENT_MAX, cache_size=0 if tiered else 1 << 24
    ) as live:
        writer = await WireClient.connect(live.endpoint.host, live.endpoint.port)
        await writer.create(SEGMENT)
        await writer.setup(SEGMENT)
        for number in range(1, 5):
            writer.append(number, [bytes(BLOCK)])
            await writer.receive()
        if tiered:
            await live.store.by_number(0).flusher.flush()
        lazy = [await _lazy(live) for _ in range(CLIENTS)]
        await _quiet(live)
        try:
            yield live, writer, lazy
        finally:
            for found in lazy:
                found.close()
            await writer.close()


async def _lazy(live: LiveStore) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(found, (live.endpoint.host, live.endpoint.port))
    read = ReadSegment(segment=SEGMENT, offset=0, size_max=4 * BLOCK)
    packets = [b"".join(encode_message(Hello(), 0))]
    packets += [b"".join(encode_message(read, number)) for number in range(1, READS + 1)]
    await loop.sock_sendall(found, b"".join(packets))
    return found


def unsent(live: LiveStore) -> int:
    """What the transports of all connections hold."""
    return sum(connection._unsent_size() for connection in live.server._admission.connections())


async def _quiet(live: LiveStore) -> None:
    """Until the store has produced what it will."""
    before = -1
    async with asyncio.timeout(20):
        while before != live.store.metrics.reads or before == 0:
            before = live.store.metrics.reads
            await asyncio.sleep(0.05)


async def test_memory_is_bounded_however_many_clients_take_nothing() -> None:
    for tiered in (False, True):
        async with backlog(tiered=tiered) as (live, writer, _):
            assert live.store.catch_up.outgoing.full
            one_answer = 5 * BLOCK
            assert unsent(live) < UNSENT_MAX + 4 * one_answer + CLIENTS * LIMITS.held_up_bytes
            # and who writes is acknowledged
            writer.append(5, [b"x"])
            reply, _ = await writer.receive()
            assert isinstance(reply, Appended)


async def test_who_reads_waits_until_some_of_it_is_taken_and_then_gets_his_answer() -> None:
    async with backlog() as (live, _, lazy):
        reader = await WireClient.connect(live.endpoint.host, live.endpoint.port)
        answered = live.store.metrics.reads
        reader.send(ReadSegment(segment=SEGMENT, offset=0, size_max=1))
        await _quiet(live)
        assert live.store.metrics.reads == answered
        for found in lazy:
            found.close()
        reply, data = await reader.receive()
        assert isinstance(reply, SegmentRead)
        assert len(data) > BLOCK
        async with asyncio.timeout(5):
            while live.store.catch_up.outgoing.used:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.01)
        await reader.close()


async def test_clients_that_take_nothing_for_long_are_closed_when_the_store_is_full() -> None:
    limits = TcpLimits(held_up_bytes=16 * KIB, stalled_s=0.2, tick_s=0.02)
    async with backlog(limits) as (live, _, _):
        reader = await WireClient.connect(live.endpoint.host, live.endpoint.port)
        reply, data = await reader.read(SEGMENT, 0, size=1)
        assert len(data) > BLOCK
        assert reply.offset == 0
        await reader.close()
