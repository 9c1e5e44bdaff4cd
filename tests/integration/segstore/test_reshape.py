"""Truncation, merges, conditions and attributes over both doors of a live store."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from anabranch.common.model.hashing import container_of
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Appended,
    AttributeUpdate,
    AttributeValue,
    AttributeValues,
    ConditionalAppend,
    Done,
    Failed,
    FlushContainer,
    GetAttributes,
    MergedSegment,
    MergeSegments,
    Message,
    ReadSegment,
    SealSegment,
    SegmentRead,
    SegmentsMerged,
    Stamp,
    Truncated,
    TruncateSegment,
    UpdateAttributes,
)
from kit.live_store import LiveStore, World, live_store
from kit.wire_client import WRITER, WireClient

SEGMENT, SOURCE = "scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0"
COUNTER = b"how many so far."


@pytest.fixture
async def live() -> AsyncIterator[LiveStore]:
    world = World()
    await world.assign(0)
    async with live_store(world) as live:
        yield live


@pytest.fixture
async def client(live: LiveStore) -> AsyncIterator[WireClient]:
    client = await WireClient.connect(live.endpoint.host, live.endpoint.port)
    yield client
    await client.close()


def code_of(reply: Message) -> str:
    assert isinstance(reply, Failed), reply
    return reply.code


def truncation(offset: int) -> TruncateSegment:
    return TruncateSegment(segment=SEGMENT, stamp=Stamp(1, 2), offset=offset)


async def written(client: WireClient, segment: str, count: int = 3) -> list[bytes]:
    assert await client.create(segment) == Done()
    await client.setup(segment)
    blocks = [client.append(number, [b"%d" % number * 40]) for number in range(1, count + 1)]
    last = 0
    while last < count:
        reply, _ = await client.receive()
        assert isinstance(reply, Appended)
        last = reply.last_event_number
    return blocks


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_segment_is_truncated_at_a_boundary_wherever_its_bytes_are(
    client: WireClient, flushed: bool
) -> None:
    blocks = await written(client, SEGMENT)
    if flushed:
        assert await client.call(FlushContainer(container=0)) == Done()
    size = len(blocks[0])
    refused = await client.call(truncation(size + 1))
    assert isinstance(refused, Failed)
    assert (refused.code, refused.fields["lower"]) == ("not-at-boundary", size)
    assert await client.call(truncation(size)) == Truncated(start=size)
    gone = await client.call(ReadSegment(segment=SEGMENT, offset=0, size_max=99))
    assert code_of(gone) == "segment-truncated"
    assert (await client.read(SEGMENT, size))[1] == b"".join(blocks[1:])


async def test_a_read_that_waits_at_the_tail_is_answered_by_a_truncation(
    client: WireClient,
) -> None:
    length = len(b"".join(await written(client, SEGMENT)))
    request = ReadSegment(segment=SEGMENT, offset=length, size_max=99, wait_ms=60_000)
    waiting = client.send(request)
    client.send(truncation(length))
    replies = [await client.receive_packet() for _ in range(2)]
    assert waiting in {packet.request_id for packet in replies if packet is not None}


async def test_a_merge_wakes_readers_of_the_target(client: WireClient) -> None:
    target = await written(client, SEGMENT)
    source = b"".join(await written(client, SOURCE))
    await client.call(SealSegment(segment=SOURCE, stamp=Stamp(1, 2)))
    length = len(b"".join(target))
    client.send(ReadSegment(segment=SEGMENT, offset=length, size_max=9999, wait_ms=60_000))
    client.send(MergeSegments(segment=SEGMENT, stamp=Stamp(1, 3), sources=(SOURCE,)))
    found = dict([await client.receive(), await client.receive()])
    place = MergedSegment(SOURCE, length, len(source))
    assert found == {
        SegmentRead(offset=length, at_tail=True): source,
        SegmentsMerged(merged=(place,)): b"",
    }
    gone = await client.call(ReadSegment(segment=SOURCE, offset=0, size_max=99))
    assert code_of(gone) == "segment-merged"


async def test_a_merge_across_containers_is_refused(live: LiveStore, client: WireClient) -> None:
    live.store.container_count = 4
    names = [f"scope/stream/{number}.#epoch.0" for number in range(40)]
    target = next(name for name in names if container_of(name, 4) == 0)
    other = next(name for name in names if container_of(name, 4) != 0)
    await client.create(target)
    request = MergeSegments(segment=target, stamp=Stamp(1, 3), sources=(other,))
    assert code_of(await client.call(request)) == "invalid-request"


async def test_conditions_and_attributes_over_tcp(client: WireClient) -> None:
    await client.create(SEGMENT)
    block = encode_block([b"one"], writer_id=WRITER, first_event_number=1, base_timestamp_ms=0)
    append = ConditionalAppend(
        segment=SEGMENT,
        writer_id=WRITER,
        first_event_number=1,
        count=1,
        expected_length=0,
        updates=(AttributeUpdate(COUNTER, "accumulate", 1),),
    )
    stored = Appended(session=0, last_event_number=1, length=len(block))
    assert await client.call(append, block) == replace(stored, event_count=1)
    assert await client.call(append, block) == stored
    update = UpdateAttributes(
        segment=SEGMENT,
        stamp=Stamp(1, 1),
        client_id=b"c" * 16,
        request_number=1,
        updates=(AttributeUpdate(COUNTER, "replace-if-equals", 5, 1),),
    )
    assert await client.call(update) == Done()
    assert await client.call(update) == Done()
    values = await client.call(GetAttributes(segment=SEGMENT))
    assert values == AttributeValues(values=(AttributeValue(COUNTER, 5),))
