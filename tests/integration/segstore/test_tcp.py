"""The segment store over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendOnce,
    AppendSetup,
    CreateSegment,
    DeleteSegment,
    Done,
    Failed,
    FlushContainer,
    GetSegmentInfo,
    Hello,
    LocateOffset,
    LocateTime,
    Message,
    OffsetLocated,
    ReadSegment,
    Sealed,
    SealSegment,
    SegmentInfo,
    SegmentRead,
    Stamp,
    encode_message,
)
from anabranch.common.wire.packet import PACKET_SIZE_BYTES_MAX
from anabranch.segstore.server.tcp import TcpLimits
from anabranch.segstore.shell.container.throttle import ThrottleLimits
from kit.live_store import LiveStore, World, live_store
from kit.wire_client import WRITER, WireClient

SEGMENT = "scope/stream/0.#epoch.0"


@pytest.fixture
async def world() -> World:
    world = World()
    await world.assign(0)
    return world


@pytest.fixture
async def live(world: World) -> AsyncIterator[LiveStore]:
    async with live_store(world) as live:
        yield live


@pytest.fixture
async def client(live: LiveStore) -> AsyncIterator[WireClient]:
    client = await connect(live)
    yield client
    await client.close()


async def connect(live: LiveStore, *, greet: bool = True) -> WireClient:
    return await WireClient.connect(live.endpoint.host, live.endpoint.port, greet=greet)


def code_of(reply: Message) -> str:
    assert isinstance(reply, Failed), reply
    return reply.code


async def test_the_life_of_a_segment(client: WireClient) -> None:
    assert await client.create(SEGMENT) == Done()
    assert (await client.setup(SEGMENT)).last_event_number == 0
    block = client.append(1, [b"one", b"two"])
    reply, _ = await client.receive()
    assert reply == Appended(session=1, last_event_number=2, length=len(block), event_count=2)
    assert await client.read(SEGMENT, 0) == (SegmentRead(offset=0, at_tail=True), block)
    info = await client.call(GetSegmentInfo(segment=SEGMENT))
    assert isinstance(info, SegmentInfo)
    assert (info.length, info.event_count, info.tiered_length) == (len(block), 2, 0)
    located = await client.call(LocateOffset(segment=SEGMENT, offset=1))
    assert located == OffsetLocated(offset=len(block))
    for time_ms, offset in ((0, 0), (2**62, len(block))):
        found = await client.call(LocateTime(segment=SEGMENT, time_ms=time_ms))
        assert found == OffsetLocated(offset=offset)
    assert await client.call(SealSegment(segment=SEGMENT, stamp=Stamp(1, 2))) == Sealed(
        length=len(block)
    )
    client.append(3, [b"three"])
    assert code_of((await client.receive())[0]) == "segment-sealed"
    ended, _ = await client.read(SEGMENT, len(block))
    assert ended == SegmentRead(offset=len(block), end_of_segment=True)
    assert await client.call(DeleteSegment(segment=SEGMENT, stamp=Stamp(1, 3))) == Done()
    gone = await client.call(GetSegmentInfo(segment=SEGMENT))
    assert code_of(gone) == "segment-not-found"


async def test_pipelined_appends_are_acknowledged_in_order_and_read_back(
    client: WireClient,
) -> None:
    await client.create(SEGMENT)
    await client.setup(SEGMENT)
    blocks = [client.append(number, [b"%d" % number * 100]) for number in range(1, 301)]
    last = 0
    while last < 300:
        reply, _ = await client.receive()
        assert isinstance(reply, Appended)
        assert reply.last_event_number > last
        last = reply.last_event_number
    assert await client.read_all(SEGMENT) == b"".join(blocks)


async def test_bytes_survive_a_new_store_in_the_journal_and_in_tier_two(world: World) -> None:
    async with live_store(world) as live:
        client = await connect(live)
        await client.create(SEGMENT)
        await client.setup(SEGMENT)
        first = client.append(1, [b"tiered"])
        await client.receive()
        assert await client.call(FlushContainer(container=0)) == Done()
        second = client.append(2, [b"in the journal"])
        await client.receive()
        await client.close()
    async with live_store(world, cache_size=0) as live:
        client = await connect(live)
        assert await client.read_all(SEGMENT) == first + second
        info = await client.call(GetSegmentInfo(segment=SEGMENT))
        assert isinstance(info, SegmentInfo)
        assert (info.tiered_length, info.container_epoch) == (len(first), 2)
        assert await client.setup(SEGMENT) == AppendSetup(session=1, last_event_number=2)
        await client.close()
    assert live.failures == []


@pytest.mark.parametrize("tiered", [False, True])
async def test_compressed_blocks_are_counted_cut_and_located_without_being_opened(
    world: World, tiered: bool
) -> None:
    async with live_store(world) as live:
        client = await connect(live)
        await client.create(SEGMENT)
        await client.setup(SEGMENT)
        blocks = [
            client.append(1 + 3 * number, [b"alike " * 200] * 3, zstd_level=1)
            for number in range(20)
        ]
        last = 0
        while last < 60:
            reply, _ = await client.receive()
            assert isinstance(reply, Appended)
            last = reply.last_event_number
        if tiered:
            assert await client.call(FlushContainer(container=0)) == Done()
        info = await client.call(GetSegmentInfo(segment=SEGMENT))
        assert isinstance(info, SegmentInfo)
        size = len(blocks[0])
        assert (info.length, info.event_count) == (20 * size, 60)
        assert size < 1000
        _, data = await client.read(SEGMENT, size, size=2 * size + 10)
        assert data == blocks[1] + blocks[2]
        _, data = await client.read(SEGMENT, size, size=10)
        assert data == blocks[1]
        located = await client.call(LocateOffset(segment=SEGMENT, offset=size + 1))
        assert located == OffsetLocated(offset=2 * size)
        await client.close()


async def test_a_read_at_the_tail_waits_for_the_next_append(client: WireClient) -> None:
    await client.create(SEGMENT)
    await client.setup(SEGMENT)
    client.send(ReadSegment(segment=SEGMENT, offset=0, size_max=1000, wait_ms=30_000))
    block = client.append(1, [b"news"])
    replies = [await client.receive(), await client.receive()]
    assert sorted(type(message).__name__ for message, _ in replies) == ["Appended", "SegmentRead"]
    assert block in [payload for _, payload in replies]


async def test_a_read_at_the_tail_ends_empty_when_its_time_is_up(client: WireClient) -> None:
    await client.create(SEGMENT)
    reply, data = await client.read(SEGMENT, 0, wait_ms=10)
    assert (reply.at_tail, data) == (True, b"")


async def test_sealing_and_deleting_wake_who_waits_at_the_tail(client: WireClient) -> None:
    await client.create(SEGMENT)
    client.send(ReadSegment(segment=SEGMENT, offset=0, size_max=1000, wait_ms=30_000))
    client.send(SealSegment(segment=SEGMENT, stamp=Stamp(1, 2)))
    replies = [(await client.receive())[0], (await client.receive())[0]]
    assert SegmentRead(offset=0, end_of_segment=True) in replies
    other = SEGMENT.replace("/0.", "/1.")
    await client.create(other)
    client.send(ReadSegment(segment=other, offset=0, size_max=1000, wait_ms=30_000))
    client.send(DeleteSegment(segment=other, stamp=Stamp(1, 2)))
    replies = [(await client.receive())[0], (await client.receive())[0]]
    assert "segment-not-found" in [getattr(reply, "code", "") for reply in replies]


async def test_a_setup_on_another_connection_ends_the_older_session(
    client: WireClient, live: LiveStore
) -> None:
    await client.create(SEGMENT)
    await client.setup(SEGMENT)
    other = await connect(live)
    await other.setup(SEGMENT)
    client.append(1, [b"late"])
    assert code_of((await client.receive())[0]) == "session-ended"
    other.append(1, [b"mine"])
    assert isinstance((await other.receive())[0], Appended)
    await other.close()


async def test_an_append_without_a_setup_is_refused(client: WireClient) -> None:
    client.append(1, [b"e"], session=9)
    assert code_of((await client.receive())[0]) == "session-ended"


async def test_a_corrupt_block_is_refused_and_the_connection_lives(client: WireClient) -> None:
    await client.create(SEGMENT)
    await client.setup(SEGMENT)
    client.send(Append(session=1, first_event_number=1, count=1), b"no block")
    assert code_of((await client.receive())[0]) == "corrupt-block"
    await client.setup(SEGMENT)
    client.append(1, [b"fine"])
    assert isinstance((await client.receive())[0], Appended)


GOOD = b"".join(encode_message(GetSegmentInfo(segment=SEGMENT), 7))


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1] + bytes([GOOD[-1] ^ 1]),
        (PACKET_SIZE_BYTES_MAX + 1).to_bytes(4, "little") + GOOD[4:],
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"".join(encode_message(Done(), 7)),
    ],
    ids=["flipped bit", "too large", "another protocol", "not a request"],
)
async def test_what_is_no_request_is_told_so_and_the_connection_ends(
    client: WireClient, data: bytes
) -> None:
    client.send_raw(data)
    assert code_of((await client.receive())[0]) == "bad-packet"
    assert await client.receive_packet() is None


async def test_a_truncated_packet_does_nothing_and_harms_nobody(
    client: WireClient, live: LiveStore
) -> None:
    await client.create(SEGMENT)
    await client.setup(SEGMENT)
    other = await connect(live)
    other.send_raw(GOOD[: len(GOOD) // 2])
    await other.close()
    client.append(1, [b"fine"])
    assert isinstance((await client.receive())[0], Appended)


async def test_a_client_of_another_time_is_told_so(live: LiveStore) -> None:
    client = await connect(live, greet=False)
    client.send(Hello(low=7, high=9))
    assert code_of((await client.receive())[0]) == "unsupported-protocol"
    assert await client.receive_packet() is None
    await client.close()


async def test_the_first_packet_must_be_a_hello(live: LiveStore) -> None:
    client = await connect(live, greet=False)
    client.send(GetSegmentInfo(segment=SEGMENT))
    assert code_of((await client.receive())[0]) == "bad-packet"
    await client.close()


async def test_too_many_connections_are_refused_by_name(world: World) -> None:
    async with live_store(world, tcp=TcpLimits(connections_max=1)) as live:
        first = await connect(live)
        reader, writer = await asyncio.open_connection(live.endpoint.host, live.endpoint.port)
        second = WireClient(reader, writer)
        assert code_of((await second.receive())[0]) == "overloaded"
        await first.close()
        await second.close()


async def test_silent_clients_are_closed_and_silent_stores_send_keep_alives(world: World) -> None:
    limits = TcpLimits(idle_s=0.2, keep_alive_s=0.02, tick_s=0.02)
    async with live_store(world, tcp=limits) as live:
        client = await connect(live)
        packet = await client.receive_packet()
        assert packet is not None
        assert packet.kind == 2
        with suppress(ConnectionResetError):
            while await client.receive_packet() is not None:
                pass
        client._writer.close()


async def test_other_containers_and_epochs_are_sent_elsewhere(world: World) -> None:
    world.containers = 4
    async with live_store(world) as live:
        client = await connect(live)
        elsewhere = await client.create("scope/stream/0.#epoch.0")
        assert code_of(elsewhere) == "wrong-host"
        await client.close()
    world.containers = 1
    async with live_store(world) as live:
        client = await connect(live)
        request = CreateSegment(segment=SEGMENT, container_epoch=9, stamp=Stamp(1, 1))
        assert code_of(await client.call(request)) == "wrong-host"
        await client.close()


async def test_both_doors_give_the_same_answers(client: WireClient, live: LiveStore) -> None:
    answers: list[bytes] = []

    def ask(verb: str, message: Message) -> None:
        data = b"".join(encode_message(message, 3))
        live.desk.handle(verb, data, answers.append)

    create = CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1))
    ask("create", create)
    assert await client.call(create) == Done()
    ask("info", GetSegmentInfo(segment=SEGMENT))
    ask("info", create)
    live.desk.handle("info", b"nonsense that is long enough", answers.append)
    expected = await client.call(GetSegmentInfo(segment=SEGMENT))
    assert answers[0] == b"".join(encode_message(Done(), 3))
    assert answers[1] == b"".join(encode_message(expected, 3))
    assert b"invalid-request" in answers[2]
    assert b"bad-packet" in answers[3]


async def test_an_append_without_a_session_is_served_over_tcp_too(client: WireClient) -> None:
    await client.create(SEGMENT)
    await client.setup(SEGMENT)
    blocks = [
        encode_block([b"e"], writer_id=WRITER, first_event_number=number, base_timestamp_ms=0)
        for number in (1, 2)
    ]
    for number, block in enumerate(blocks, start=1):
        request = AppendOnce(segment=SEGMENT, writer_id=WRITER, first_event_number=number, count=1)
        length = sum(map(len, blocks[:number]))
        expected = Appended(session=0, last_event_number=number, length=length, event_count=number)
        assert await client.call(request, block) == expected
    blocks.append(client.append(3, [b"in the session"]))
    reply, _ = await client.receive()
    assert reply == Appended(
        session=1, last_event_number=3, length=sum(map(len, blocks)), event_count=3
    )
    assert await client.read_all(SEGMENT) == b"".join(blocks)


async def test_a_client_that_does_not_read_holds_up_nobody_else(
    client: WireClient, live: LiveStore
) -> None:
    await client.create(SEGMENT)
    await client.setup(SEGMENT)
    client.append(1, [bytes(1 << 20)])
    await client.receive()
    lazy = await connect(live)
    for _ in range(50):
        lazy.send(ReadSegment(segment=SEGMENT, offset=0, size_max=1 << 20))
    client.append(2, [b"x"], writer_id=WRITER)
    assert isinstance((await client.receive())[0], Appended)
    received = 0
    while received < 50:
        reply, data = await lazy.receive()
        assert isinstance(reply, SegmentRead)
        assert len(data) > 1 << 20
        received += 1
    await lazy.close()


async def test_a_store_over_its_limit_stops_reading_and_goes_on_when_it_has_drained(
    world: World,
) -> None:
    limits = ThrottleLimits(pending_soft=2000, pending_hard=1 << 20)
    async with live_store(world, throttle_limits=limits) as live:
        client = await connect(live)
        await client.create(SEGMENT)
        await client.setup(SEGMENT)
        for number in range(1, 201):
            client.append(number, [b"x" * 1000])
        last = 0
        while last < 200:
            reply, _ = await client.receive()
            assert isinstance(reply, Appended)
            last = reply.last_event_number
        assert live.throttle.pending == 0
        await client.close()


async def test_a_store_whose_tier_two_is_far_behind_refuses_by_name(world: World) -> None:
    limits = ThrottleLimits(untiered=4000)
    async with live_store(world, throttle_limits=limits) as live:
        live.throttle.tier_two_failing(0, failing=True)
        client = await connect(live)
        await client.create(SEGMENT)
        await client.setup(SEGMENT)
        client.append(1, [b"x" * 5000])
        assert code_of((await client.receive())[0]) == "overloaded"
        assert await client.read_all(SEGMENT) == b""
        await client.close()
