"""What a read is told, through both doors: at the ends of a segment, and while it waits there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

import pytest

from anabranch.common.errors import Unavailable
from anabranch.common.wire.messages import (
    DeleteSegment,
    Done,
    Failed,
    FlushContainer,
    MergeSegments,
    Message,
    ReadSegment,
    SealSegment,
    SegmentRead,
    Stamp,
    TruncateSegment,
    decode_message,
    encode_message,
)
from anabranch.common.wire.packet import PacketParser
from kit.live_store import LiveStore, World, live_store
from kit.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
OTHER = "scope/stream/1.#epoch.0"
Answer = tuple[Message, bytes]
Ask = Callable[[ReadSegment], Coroutine[None, None, Answer]]


@pytest.fixture
async def live() -> AsyncIterator[LiveStore]:
    world = World()
    await world.assign(0)
    async with live_store(world) as live:
        yield live


@pytest.fixture
async def client(live: LiveStore) -> AsyncIterator[WireClient]:
    """For everything but the read."""
    client = await WireClient.connect(live.endpoint.host, live.endpoint.port)
    await client.create(SEGMENT)
    yield client
    await client.close()


@pytest.fixture(params=["TCP", "NATS"])
async def ask(request: pytest.FixtureRequest, live: LiveStore) -> AsyncIterator[Ask]:
    """Sends a read through one of the doors and waits for its answer."""
    reader = await WireClient.connect(live.endpoint.host, live.endpoint.port)

    async def over_tcp(message: ReadSegment) -> Answer:
        reader.send(message)
        return await reader.receive()

    async def over_nats(message: ReadSegment) -> Answer:
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        live.desk.handle("read", b"".join(encode_message(message, 1)), answered.set_result)
        async with asyncio.timeout(5):
            (packet,) = PacketParser().feed(await answered)
        return decode_message(packet), packet.payload

    yield over_tcp if request.param == "TCP" else over_nats
    await reader.close()


def at(offset: int, *, wait_ms: int = 0, segment: str = SEGMENT) -> ReadSegment:
    return ReadSegment(segment=segment, offset=offset, size_max=1 << 20, wait_ms=wait_ms)


def code_of(answer: Answer) -> str:
    reply, data = answer
    assert isinstance(reply, Failed), reply
    assert data == b""
    return reply.code


async def written(client: WireClient, *events: bytes, first: int = 1) -> int:
    """Append each event as a block; returns the segment's length."""
    size = 0
    await client.setup(SEGMENT)
    for number, event in enumerate(events, first):
        size += len(client.append(number, [event]))
        await client.receive()
    return size


async def waiting(ask: Ask, live: LiveStore, offset: int, happening: Awaitable[object]) -> Answer:
    """The answer to a read that was waiting at the tail when something happened."""
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(ask(at(offset, wait_ms=60_000)))
        tails = live.store.by_number(0).container.tails
        async with asyncio.timeout(5):
            while tails.count == 0:  # noqa: ASYNC110  nothing tells of a waiting read
                await asyncio.sleep(0.001)
        await happening
    assert tails.count == 0
    return answer.result()


# --- at once ------------------------------------------------------------------------------------


async def test_the_ends_of_a_segment_are_told_apart(ask: Ask, client: WireClient) -> None:
    length = await written(client, b"one", b"two")
    assert (await ask(at(length)))[0] == SegmentRead(offset=length, at_tail=True)
    assert code_of(await ask(at(length + 1))) == "invalid-request"
    await client.call(SealSegment(segment=SEGMENT, stamp=Stamp(1, 2)))
    assert (await ask(at(length)))[0] == SegmentRead(offset=length, end_of_segment=True)
    reply, data = await ask(at(0))
    assert (reply, len(data)) == (SegmentRead(offset=0, end_of_segment=True), length)


@pytest.mark.parametrize("flushed", [False, True])
async def test_what_is_truncated_missing_or_elsewhere_is_told_apart(
    ask: Ask, client: WireClient, live: LiveStore, flushed: bool
) -> None:
    length = await written(client, b"one", b"two")
    if flushed:
        assert await client.call(FlushContainer(container=0)) == Done()
    await client.call(TruncateSegment(segment=SEGMENT, stamp=Stamp(1, 2), offset=length // 2))
    assert code_of(await ask(at(0))) == "segment-truncated"
    assert len((await ask(at(length // 2)))[1]) == length // 2
    assert code_of(await ask(at(0, segment=OTHER))) == "segment-not-found"
    elsewhere = ReadSegment(segment=SEGMENT, container_epoch=9, offset=0, size_max=1)
    assert code_of(await ask(elsewhere)) == "wrong-host"
    live.store.stopping = True
    assert code_of(await ask(at(0))) == "unavailable"


# --- while waiting ------------------------------------------------------------------------------


async def test_a_waiting_read_gets_what_is_appended(
    ask: Ask, client: WireClient, live: LiveStore
) -> None:
    length = await written(client, b"one")
    reply, data = await waiting(ask, live, length, written(client, b"two", first=2))
    assert reply == SegmentRead(offset=length, at_tail=True)
    assert data


async def test_a_waiting_read_ends_with_the_seal(
    ask: Ask, client: WireClient, live: LiveStore
) -> None:
    length = await written(client, b"one")
    seal = client.call(SealSegment(segment=SEGMENT, stamp=Stamp(1, 2)))
    reply, _ = await waiting(ask, live, length, seal)
    assert reply == SegmentRead(offset=length, end_of_segment=True)


async def test_what_a_waiting_read_waits_for_may_be_truncated_as_it_comes(
    ask: Ask, client: WireClient, live: LiveStore
) -> None:
    length = await written(client, b"one")

    async def append_and_truncate() -> None:
        size = len(client.append(2, [b"two"]))
        truncate = TruncateSegment(segment=SEGMENT, stamp=Stamp(1, 2), offset=length + size)
        client.send(truncate)
        await client.receive()
        await client.receive()

    answer = await waiting(ask, live, length, append_and_truncate())
    assert code_of(answer) == "segment-truncated"


async def test_a_truncation_up_to_the_tail_leaves_a_waiting_read_at_the_tail(
    ask: Ask, client: WireClient, live: LiveStore
) -> None:
    length = await written(client, b"one")
    truncate = client.call(TruncateSegment(segment=SEGMENT, stamp=Stamp(1, 2), offset=length))
    reply, _ = await waiting(ask, live, length, truncate)
    assert reply == SegmentRead(offset=length, at_tail=True)


async def test_a_waiting_read_is_told_that_the_segment_was_deleted(
    ask: Ask, client: WireClient, live: LiveStore
) -> None:
    length = await written(client, b"one")
    delete = client.call(DeleteSegment(segment=SEGMENT, stamp=Stamp(1, 2)))
    assert code_of(await waiting(ask, live, length, delete)) == "segment-not-found"


async def test_a_waiting_read_is_told_where_its_segment_was_merged_to(
    ask: Ask, client: WireClient, live: LiveStore
) -> None:
    length = await written(client, b"one")
    await client.create(OTHER)

    async def seal_and_merge() -> None:
        # both in one commit, or the seal alone would answer
        client.send(SealSegment(segment=SEGMENT, stamp=Stamp(1, 2)))
        client.send(MergeSegments(segment=OTHER, stamp=Stamp(1, 2), sources=(SEGMENT,)))
        await client.receive()
        await client.receive()

    answer = await waiting(ask, live, length, seal_and_merge())
    assert code_of(answer) == "segment-merged"
    assert isinstance(answer[0], Failed)
    assert OTHER in str(answer[0])


async def test_a_waiting_read_is_told_that_its_container_went(
    ask: Ask, client: WireClient, live: LiveStore
) -> None:
    length = await written(client, b"one")

    async def fail() -> None:
        live.store.by_number(0).container.fail(Unavailable("on purpose"))

    assert code_of(await waiting(ask, live, length, fail())) == "unavailable"


async def test_a_waiting_read_asks_again_and_is_sent_elsewhere_when_its_container_moves(
    ask: Ask, client: WireClient, live: LiveStore
) -> None:
    length = await written(client, b"one")

    async def move() -> None:
        live.store.unassign(0)
        live.store.by_number(0).container.fail(Unavailable("it moves"))

    assert code_of(await waiting(ask, live, length, move())) == "unavailable"
    assert code_of(await ask(at(length))) == "wrong-host"
