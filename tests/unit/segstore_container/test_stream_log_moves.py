"""Containers whose logs are on shared servers: taken over, moved, and their streams deleted."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import Unavailable
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.wire.messages import (
    Appended,
    AppendedTogether,
    CreateSegment,
    Done,
    Stamp,
)
from anabranch.controller.domain.cluster import placement_changes
from anabranch.segstore.adapters.memory_log import MemoryFrames
from anabranch.segstore.shell.node.placements import Placements
from kit.live_store import LiveStore, World, live_store
from kit.rng import seeded
from kit.sim_stream import SimServers
from kit.together import made_group
from kit.wire_client import WireClient

OTHER = "node-2"
NODES = ("node-1", OTHER)
SEGMENT = "scope/stream/0.#epoch.0"


@pytest.fixture
def servers() -> SimServers:
    return SimServers(seeded(1))


@pytest.fixture
async def world(servers: SimServers) -> World:
    world = World(servers=servers)
    await world.assign(0)
    return world


def beside(world: World) -> World:
    """Another store's world in the same cluster."""
    return replace(world, node=OTHER, frames=MemoryFrames("other"))


async def placement_of(world: World) -> Placement:
    stored = await world.placements.get(placement_key(0))
    assert stored is not None
    return placement_from_bytes(stored.value)


async def change(world: World, decide: Callable[[Placement], Placement]) -> None:
    """What a controller does to the placement."""
    stored = await world.placements.get(placement_key(0))
    assert stored is not None
    changed = decide(placement_from_bytes(stored.value))
    await world.placements.update(placement_key(0), placement_to_bytes(changed), stored.revision)


async def open_on(world: World, node: str) -> Placement:
    async with asyncio.timeout(5):
        async for _ in world.placements.watch():
            found = await placement_of(world)
            if (found.replicas, found.state) == ((node,), PlacementState.OPEN):
                return found
    raise AssertionError


async def client_of(live: LiveStore) -> WireClient:
    return await WireClient.connect(live.endpoint.host, live.endpoint.port)


async def append(client: WireClient, first: int, count: int) -> bytes:
    setup = await client.setup(SEGMENT)
    assert setup.last_event_number == first - 1
    data = b"".join(client.append(first + index, [b"event"]) for index in range(count))
    reply = None
    while not isinstance(reply, Appended) or reply.last_event_number < first + count - 1:
        reply, _ = await client.receive()
    return data


async def test_another_store_opens_the_log_of_one_that_died_and_finds_all_events(
    world: World, servers: SimServers
) -> None:
    async with live_store(world) as first:
        client = await client_of(first)
        assert await client.create(SEGMENT) == Done()
        data = await append(client, 1, 5)
        await client.close()
        before = await placement_of(world)
    await change(world, lambda found: replace(found, replicas=(OTHER,)))
    async with live_store(beside(world)) as second:
        client = await client_of(second)
        assert await client.read_all(SEGMENT) == data
        data += await append(client, 6, 2)
        assert await client.read_all(SEGMENT) == data
        await client.close()
    assert (await placement_of(world)).log_id == before.log_id
    assert list(servers.streams) == [before.log_id]


async def test_a_moved_container_gets_a_new_log_and_the_closed_one_is_deleted(
    world: World, servers: SimServers
) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(live_store(world))
        await stack.enter_async_context(live_store(beside(world), wait_open=False))
        before = await placement_of(world)
        await change(world, lambda found: placement_changes.move(found, OTHER, NODES))
        after = await open_on(world, OTHER)
        assert after.log_id not in ("", before.log_id)
        async with asyncio.timeout(5):
            while list(servers.streams) != [after.log_id]:  # noqa: ASYNC110
                await asyncio.sleep(0)


async def test_a_closed_log_stays_until_the_placement_was_released(
    world: World, servers: SimServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = asyncio.Event()

    async def out_of_reach(_self: Placements, _taken: Placement) -> Placement:
        tried.set()
        raise Unavailable("no placement can be reached")

    async with live_store(world):
        before = await placement_of(world)
        with monkeypatch.context() as patch:
            patch.setattr(Placements, "release", out_of_reach)
            await change(world, lambda found: replace(found, target=OTHER))
            await tried.wait()
            assert list(servers.streams) == [before.log_id]
    # the store died between the last manifest and the release, and its container is taken over
    await change(world, lambda found: replace(found, replicas=(OTHER,), target=""))
    async with live_store(beside(world)):
        assert (await placement_of(world)).log_id == before.log_id
        assert list(servers.streams) == [before.log_id]


async def test_a_container_whose_stream_is_gone_is_offline_and_gets_no_empty_log(
    world: World, servers: SimServers
) -> None:
    async with live_store(world):
        pass
    servers.streams.clear()
    async with live_store(world, wait_open=False), asyncio.timeout(5):
        async for _ in world.placements.watch():
            found = await placement_of(world)
            if found.state is PlacementState.OFFLINE:
                break
    assert found.reason.startswith("log-not-here")
    assert not servers.streams


async def test_a_failed_log_ends_its_container_alone_which_opens_again(
    world: World, servers: SimServers
) -> None:
    async with live_store(world) as live:
        before = await placement_of(world)
        servers.streams[before.log_id].last += 1  # the next publication is refused
        client = await client_of(live)
        client.send(CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1)))
        async with asyncio.timeout(5):
            async for _ in world.placements.watch():
                found = await placement_of(world)
                if found.container_epoch > before.container_epoch:
                    break
        assert not live.failures, "the store goes on"
        await client.close()


@pytest.mark.parametrize("lost", range(4))
async def test_a_group_in_several_messages_counts_only_with_all_of_them(
    world: World, servers: SimServers, lost: int
) -> None:
    names = [SEGMENT.replace("/0.", f"/{number}.") for number in range(3)]
    request, payload = made_group({name: (1, [bytes(900)]) for name in names})
    async with live_store(world) as live:
        client = await client_of(live)
        for name in names:
            assert await client.create(name) == Done()
        log_id = (await placement_of(world)).log_id
        before = servers.streams[log_id].last
        assert await client.call(request, payload) == AppendedTogether()
        parts = servers.streams[log_id].last - before
        assert parts > 2, "a message is smaller than the group"
        await client.close()
    servers.lose_tail(log_id, lost)
    async with live_store(world) as again:
        await open_on(world, "node-1")
        client = await client_of(again)
        content = b"".join([await client.read_all(name) for name in names])
        assert content == (payload if lost == 0 else b"")
        assert await client.call(request, payload) == AppendedTogether()
        assert b"".join([await client.read_all(name) for name in names]) == payload
        await client.close()
