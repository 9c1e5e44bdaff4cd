"""Requests without a connection, through the desk behind the NATS door."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from anabranch.common.contracts.segment_requests import PAYLOAD_SIZE_BYTES_MAX, SEGMENT_REQUESTS
from anabranch.common.errors import Unavailable
from anabranch.common.model.names import segment_id, segment_name, transaction_segment_name
from anabranch.common.model.topics import TopicName, backing_stream, segment_number
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Appended,
    AppendedTogether,
    AppendOnce,
    AppendSetup,
    CheckTruncation,
    ConditionalAppend,
    CreateSegment,
    CreateTransient,
    Done,
    Failed,
    FlushContainer,
    GetLengths,
    GetSegmentInfo,
    Lengths,
    MergedSegment,
    MergeSegments,
    Message,
    ReadSegment,
    SealSegment,
    SegmentRead,
    SegmentsMerged,
    SetupAppend,
    Stamp,
    Truncated,
    TruncateSegment,
    UpdateTable,
    decode_message,
    encode_message,
)
from anabranch.common.wire.packet import PacketParser
from anabranch.segstore.domain.container.answer import VERBS
from anabranch.segstore.domain.table.answer import CompactTable, TruncateTable
from anabranch.segstore.handlers.read import OUTSTANDING_MAX
from anabranch.segstore.shell.container.throttle import ThrottleLimits
from kit.live_store import LiveStore, World, live_store
from kit.together import made_group
from kit.wire_client import WRITER, WireClient

SEGMENT = "scope/stream/0.#epoch.0"
BLOCK_OVERHEAD = len(
    encode_block([b""], writer_id=WRITER, first_event_number=1, base_timestamp_ms=0)
)


@pytest.fixture
async def world() -> World:
    world = World()
    await world.assign(0)
    return world


@pytest.fixture
async def live(world: World) -> AsyncIterator[LiveStore]:
    async with live_store(world) as live:
        assert await ask(live, "create", CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1))) == (
            Done(),
            b"",
        )
        yield live


async def ask_raw(live: LiveStore, verb: str, data: bytes) -> tuple[int, Message, bytes]:
    """(request id, message, payload) of the reply."""
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    live.desk.handle(verb, data, answered.set_result)
    async with asyncio.timeout(5):
        (packet,) = PacketParser().feed(await answered)
    return packet.request_id, decode_message(packet), packet.payload


async def ask(
    live: LiveStore, verb: str, message: Message, payload: bytes = b""
) -> tuple[Message, bytes]:
    data = b"".join(encode_message(message, 7, payload))
    request_id, reply, got = await ask_raw(live, verb, data)
    assert request_id == 7
    return reply, got


async def refusal(live: LiveStore, verb: str, message: Message, payload: bytes = b"") -> Failed:
    reply, _ = await ask(live, verb, message, payload)
    assert isinstance(reply, Failed), reply
    return reply


def append(
    first: int, events: list[bytes], *, container_epoch: int = 0
) -> tuple[AppendOnce, bytes]:
    block = encode_block(events, writer_id=WRITER, first_event_number=first, base_timestamp_ms=0)
    request = AppendOnce(
        segment=SEGMENT,
        container_epoch=container_epoch,
        writer_id=WRITER,
        first_event_number=first,
        count=len(events),
    )
    return request, block


def read(offset: int, *, wait_ms: int = 0, whole_appends: bool = True) -> ReadSegment:
    return ReadSegment(
        segment=SEGMENT,
        offset=offset,
        size_max=1 << 30,
        wait_ms=wait_ms,
        whole_appends=whole_appends,
    )


def test_every_verb_of_the_contract_has_a_row() -> None:
    requests = {exchange.request for exchange in SEGMENT_REQUESTS.values()}
    only_with_a_connection = {CreateTransient, UpdateTable, CompactTable, TruncateTable}
    without_a_row = {SetupAppend, ReadSegment, FlushContainer}
    assert requests == (VERBS.keys() - only_with_a_connection) | without_a_row


async def test_what_is_appended_without_a_connection_is_read_without_one(live: LiveStore) -> None:
    request, block = append(1, [b"one", b"two"])
    stored = Appended(session=0, last_event_number=2, length=len(block))
    assert await ask(live, "append", request, block) == (replace(stored, event_count=2), b"")
    assert await ask(live, "append", request, block) == (stored, b"")
    assert await ask(live, "read", read(0)) == (SegmentRead(offset=0, at_tail=True), block)


async def test_the_largest_append_fits_in_and_out_and_one_byte_more_is_refused(
    live: LiveStore,
) -> None:
    largest = PAYLOAD_SIZE_BYTES_MAX - BLOCK_OVERHEAD
    request, block = append(1, [bytes(largest)])
    assert len(block) == PAYLOAD_SIZE_BYTES_MAX
    assert isinstance((await ask(live, "append", request, block))[0], Appended)
    assert (await ask(live, "read", read(0)))[1] == block
    refused = await refusal(live, "append", *append(2, [bytes(largest + 1)]))
    assert refused.code == "invalid-request"
    assert "TCP" in refused.remedy
    assert (await ask(live, "read", read(len(block))))[1] == b""


async def test_reads_are_cut_to_what_a_reply_may_hold(live: LiveStore) -> None:
    blocks = b""
    for number in range(1, 4):
        request, block = append(number, [bytes(200_000)])
        await ask(live, "append", request, block)
        blocks += block
    whole = await ask(live, "read", read(0))
    assert len(whole[1]) == 2 * len(blocks) // 3
    assert whole == (SegmentRead(offset=0), blocks[: len(whole[1])])
    cut = await ask(live, "read", read(1, whole_appends=False))
    assert cut == (SegmentRead(offset=1), blocks[1 : 1 + PAYLOAD_SIZE_BYTES_MAX])


async def test_an_append_too_large_for_a_reply_is_left_to_tcp(live: LiveStore) -> None:
    client = await WireClient.connect(live.endpoint.host, live.endpoint.port)
    await client.setup(SEGMENT)
    block = client.append(1, [bytes(PAYLOAD_SIZE_BYTES_MAX)])
    await client.receive()
    await client.close()
    refused = await refusal(live, "read", read(0))
    assert (refused.code, refused.fields["size"]) == ("invalid-request", len(block))
    assert "TCP" in refused.remedy


async def test_a_read_at_the_tail_waits_for_the_next_append(live: LiveStore) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(ask(live, "read", read(0, wait_ms=5000)))
        await asyncio.sleep(0)
        request, block = append(1, [b"news"])
        await ask(live, "append", request, block)
    assert waiting.result() == (SegmentRead(offset=0, at_tail=True), block)


async def test_a_read_at_the_tail_ends_with_its_time_or_with_the_store(live: LiveStore) -> None:
    in_time = await ask(live, "read", read(0, wait_ms=10))
    assert in_time == (SegmentRead(offset=0, at_tail=True), b"")
    answers: list[bytes] = []
    packet = b"".join(encode_message(read(0, wait_ms=60_000), 1))
    live.desk.handle("read", packet, answers.append)
    assert answers == []
    live.store.stopping = True
    live.desk.stop_reads(Unavailable("the store is stopping"))
    assert b"unavailable" in answers[0]


async def test_reads_wait_while_answers_cannot_be_sent(live: LiveStore) -> None:
    answers: list[bytes] = []
    live.desk.pause_reads()
    live.desk.handle("read", b"".join(encode_message(read(0), 1)), answers.append)
    assert answers == []
    live.desk.resume_reads()
    assert len(answers) == 1


async def test_a_read_too_many_is_refused_by_name_and_the_others_are_answered(
    live: LiveStore,
) -> None:
    answers: list[bytes] = []
    packet = b"".join(encode_message(read(0, wait_ms=60_000), 1))
    for _ in range(OUTSTANDING_MAX + 1):
        live.desk.handle("read", packet, answers.append)
    assert len(answers) == 1
    assert b"overloaded" in answers.pop()
    request, block = append(1, [b"news"])
    await ask(live, "append", request, block)
    assert len(answers) == OUTSTANDING_MAX
    assert all(answer.endswith(block) for answer in answers)


async def test_a_setup_tells_what_is_stored_and_ends_the_session_on_a_connection(
    live: LiveStore,
) -> None:
    client = await WireClient.connect(live.endpoint.host, live.endpoint.port)
    await client.setup(SEGMENT)
    client.append(1, [b"a"])
    await client.receive()
    setup = SetupAppend(segment=SEGMENT, writer_id=WRITER, session=5)
    assert await ask(live, "setup", setup) == (AppendSetup(session=5, last_event_number=1), b"")
    client.append(2, [b"late"])
    late, _ = await client.receive()
    assert isinstance(late, Failed)
    assert late.code == "session-ended"
    await client.close()
    reply, _ = await ask(live, "append", *append(2, [b"b"]))
    assert isinstance(reply, Appended)
    (opened,) = live.store.open_containers()
    assert opened.container.sessions._live == {}, "nobody would ever end such a session"


async def test_other_epochs_and_foreign_verbs_are_refused_by_name(live: LiveStore) -> None:
    request, block = append(1, [b"e"], container_epoch=9)
    assert (await refusal(live, "append", request, block)).code == "wrong-host"
    setup = SetupAppend(segment=SEGMENT, writer_id=WRITER, session=1, container_epoch=9)
    assert (await refusal(live, "setup", setup)).code == "wrong-host"
    for verb in ("read", "nonsense"):
        refused = await refusal(live, verb, GetSegmentInfo(segment=SEGMENT))
        assert refused.code == "invalid-request"
    two = b"".join(encode_message(read(0), 1)) * 2
    assert "bad-packet" in str((await ask_raw(live, "read", two))[1])
    half = b"".join(encode_message(read(0), 1)) + b"more"
    assert "bad-packet" in str((await ask_raw(live, "read", half))[1])


async def test_a_transient_segment_needs_a_connection(live: LiveStore) -> None:
    request = CreateTransient(segment=SEGMENT, writer_id=WRITER)
    refused = await refusal(live, "create_transient", request)
    assert (refused.code, "TCP" in refused.remedy) == ("invalid-request", True)


async def test_a_store_over_its_limits_refuses_appends_and_still_reads(world: World) -> None:
    async with live_store(world, throttle_limits=ThrottleLimits(untiered=1000)) as live:
        await ask(live, "create", CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1)))
        request, block = append(1, [bytes(1000)])
        assert isinstance((await ask(live, "append", request, block))[0], Appended)
        assert (await refusal(live, "append", *append(2, [b"more"]))).code == "overloaded"
        group = made_group({SEGMENT: (2, [b"more"])})
        assert (await refusal(live, "append_together", *group)).code == "overloaded"
        assert (await ask(live, "read", read(0)))[1] == block


async def test_groups_and_lengths_need_no_connection(live: LiveStore) -> None:
    other = "scope/stream/1.#epoch.0"
    await ask(live, "create", CreateSegment(segment=other, stamp=Stamp(1, 1)))
    request, payload = made_group({SEGMENT: (1, [b"one"]), other: (1, [b"two"])})
    for _ in range(2):
        assert await ask(live, "append_together", request, payload) == (AppendedTogether(), b"")
    sizes = tuple(place.size for place in request.places)
    lengths = GetLengths(segment=SEGMENT, segments=(SEGMENT, other))
    assert await ask(live, "lengths", lengths) == (Lengths(lengths=sizes), b"")


async def test_groups_and_lengths_of_several_containers_are_refused(live: LiveStore) -> None:
    topic = backing_stream(TopicName("orders"), "0123456789ab")
    elsewhere = segment_name(topic, segment_id(0, segment_number(0, 1024)))
    request, payload = made_group({SEGMENT: (1, [b"one"]), elsewhere: (1, [b"two"])})
    refused = await refusal(live, "append_together", request, payload)
    assert (refused.code, refused.fields["other"]) == ("invalid-request", elsewhere)
    lengths = GetLengths(segment=SEGMENT, segments=(SEGMENT, elsewhere))
    assert (await refusal(live, "lengths", lengths)).code == "invalid-request"
    assert (await ask(live, "read", read(0)))[1] == b""


async def test_reads_are_counted_with_their_bytes(live: LiveStore) -> None:
    block = encode_block([b"x"], writer_id=WRITER, first_event_number=1, base_timestamp_ms=0)
    append = AppendOnce(segment=SEGMENT, writer_id=WRITER, first_event_number=1, count=1)
    await ask(live, "append", append, block)
    for _ in range(2):
        await ask(live, "read", ReadSegment(segment=SEGMENT, offset=0, size_max=1 << 20))

    metrics = live.store.metrics
    assert (metrics.reads, metrics.read_bytes) == (2, 2 * len(block))


async def test_segments_are_truncated_and_merged_without_a_connection(live: LiveStore) -> None:
    source = "scope/stream/1.#epoch.0"
    await ask(live, "create", CreateSegment(segment=source, stamp=Stamp(1, 1)))
    request, block = append(1, [b"one"])
    for segment in (SEGMENT, source):
        await ask(live, "append", replace(request, segment=segment), block)
    await ask(live, "seal", SealSegment(segment=source, stamp=Stamp(1, 2)))
    merge = MergeSegments(segment=SEGMENT, stamp=Stamp(1, 3), sources=(source,))
    merged, _ = await ask(live, "merge", merge)
    place = MergedSegment(source, len(block), len(block))
    assert merged == SegmentsMerged(merged=(place,))
    truncate = TruncateSegment(segment=SEGMENT, stamp=Stamp(1, 4), offset=len(block))
    check = CheckTruncation(segment=SEGMENT, stamp=Stamp(1, 4), offset=len(block))
    assert await ask(live, "check_truncation", check) == (Truncated(start=len(block)), b"")
    assert await ask(live, "truncate", truncate) == (Truncated(start=len(block)), b"")
    conditional = ConditionalAppend(
        segment=SEGMENT, writer_id=b"c" * 16, first_event_number=1, count=1, expected_length=1,
        is_block=False,
    )  # fmt: skip
    refused = await refusal(live, "append_if", conditional, b"raw")
    assert (refused.code, refused.fields["length"]) == ("offset-mismatch", 2 * len(block))


async def test_a_transaction_is_written_and_merged_unsealed_and_never_read(
    live: LiveStore,
) -> None:
    name = transaction_segment_name(SEGMENT, "0a" * 16)
    await ask(live, "create", CreateSegment(segment=name, stamp=Stamp(1, 1)))
    request, block = append(1, [b"one"])
    await ask(live, "append", replace(request, segment=name), block)
    for _ in range(2):
        refused = await refusal(live, "read", replace(read(0), segment=name))
        assert (refused.code, refused.fields) == ("invalid-request", {"segment": name})
        merge = MergeSegments(segment=SEGMENT, stamp=Stamp(1, 4), sources=(name,))
        place = MergedSegment(name, 0, len(block))
        assert await ask(live, "merge", merge) == (SegmentsMerged(merged=(place,)), b"")
    assert (await ask(live, "read", read(0)))[1] == block
