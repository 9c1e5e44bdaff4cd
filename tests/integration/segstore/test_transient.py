"""Transient segments over real connections: they end with them."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch.common.errors import Unavailable
from anabranch.common.wire.messages import (
    NO_DECISION,
    CreateTransient,
    Failed,
    GetSegmentInfo,
    MergeSegments,
    Message,
    Sealed,
    SealSegment,
    SegmentCreated,
    SegmentsMerged,
)
from anabranch.segstore.handlers import transient
from kit.live_store import LiveStore, World, live_store
from kit.wire_client import WRITER, WireClient

SEGMENT = "scope/stream/0.#epoch.0"
CREATE = CreateTransient(segment=SEGMENT, writer_id=WRITER)


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
async def observer(live: LiveStore) -> AsyncIterator[WireClient]:
    """A connection of its own, over which the parent was made."""
    client = await connect(live)
    await client.create(SEGMENT)
    yield client
    await client.close()


async def connect(live: LiveStore) -> WireClient:
    return await WireClient.connect(live.endpoint.host, live.endpoint.port)


def code_of(reply: Message) -> str:
    assert isinstance(reply, Failed), reply
    return reply.code


async def made(client: WireClient) -> str:
    reply = await client.call(CREATE)
    assert isinstance(reply, SegmentCreated), reply
    return reply.segment


async def written(client: WireClient, name: str) -> bytes:
    await client.setup(name)
    block = client.append(1, [b"large", b"event"])
    await client.receive()
    assert isinstance(await client.call(SealSegment(segment=name, stamp=NO_DECISION)), Sealed)
    return block


async def refusal_of(observer: WireClient, name: str) -> str:
    """Ask for the segment until it is not there any more, and the container serves."""
    async with asyncio.timeout(5):
        while True:
            reply = await observer.call(GetSegmentInfo(segment=name))
            if isinstance(reply, Failed) and reply.code != "unavailable":
                return reply.code


async def test_what_a_connection_left_behind_ends_with_it(
    live: LiveStore, observer: WireClient
) -> None:
    client = await connect(live)
    first, second = await made(client), await made(client)
    assert first != second
    await written(client, first)
    assert not isinstance(await observer.call(GetSegmentInfo(segment=first)), Failed)
    await client.close()
    assert await refusal_of(observer, first) == "segment-not-found"
    assert await refusal_of(observer, second) == "segment-not-found"


async def test_what_was_merged_stays_when_the_connection_ends(
    live: LiveStore, observer: WireClient
) -> None:
    client = await connect(live)
    name = await made(client)
    block = await written(client, name)
    merge = MergeSegments(segment=SEGMENT, stamp=NO_DECISION, sources=(name,))
    assert isinstance(await client.call(merge), SegmentsMerged)
    await client.close()
    assert code_of(await observer.call(GetSegmentInfo(segment=name))) == "segment-merged"
    assert await observer.read_all(SEGMENT) == block
    assert isinstance(await observer.call(merge), SegmentsMerged)


async def test_a_merge_sent_with_the_connections_last_breath_happens_or_does_not(
    live: LiveStore, observer: WireClient
) -> None:
    client = await connect(live)
    name = await made(client)
    block = await written(client, name)
    client.send(MergeSegments(segment=SEGMENT, stamp=NO_DECISION, sources=(name,)))
    await client.close()
    expected = {"segment-merged": block, "segment-not-found": b""}
    assert await observer.read_all(SEGMENT) == expected[await refusal_of(observer, name)]


async def test_a_request_without_time_for_its_answer_leaves_nothing(
    live: LiveStore, observer: WireClient
) -> None:
    client = await connect(live)
    client.send(CREATE)
    await client.close()
    (opened,) = live.store.open_containers()
    state = opened.container.applied.state
    async with asyncio.timeout(5):
        while state.sequence < 3:  # the parent, the transient segment, its end
            await observer.call(GetSegmentInfo(segment=SEGMENT))
    assert state.transients == set()


async def test_one_too_many_of_a_connection_is_refused_until_another_is_gone(
    live: LiveStore, observer: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transient, "TRANSIENTS_MAX", 2)
    first = await made(observer)
    await made(observer)
    assert code_of(await observer.call(CREATE)) == "overloaded"
    await written(observer, first)
    merge = MergeSegments(segment=SEGMENT, stamp=NO_DECISION, sources=(first,))
    assert isinstance(await observer.call(merge), SegmentsMerged)
    await made(observer)
    assert code_of(await observer.call(CREATE)) == "overloaded"


async def test_a_container_that_is_opened_again_has_none_although_the_connection_lives(
    live: LiveStore, observer: WireClient
) -> None:
    name = await made(observer)
    (opened,) = live.store.open_containers()
    opened.container.fail(Unavailable("a fault"))
    assert await refusal_of(observer, name) == "segment-not-found"
    assert await made(observer) != name


async def test_a_new_store_has_none(world: World) -> None:
    async with live_store(world) as live:
        client = await connect(live)
        await client.create(SEGMENT)
        name = await made(client)
        live.store.stopping = True  # as in a process that ends: nothing more is handled
        (opened,) = live.store.open_containers()
        opened.container.stop_accepting()
        await client.close()
    async with live_store(world) as live:
        client = await connect(live)
        assert code_of(await client.call(GetSegmentInfo(segment=name))) == "segment-not-found"
        await client.close()
