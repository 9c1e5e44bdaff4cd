"""Containers whose logs other stores continue: hand-overs, and copies that are not there.

The log is on simulated servers that all stores reach, and says that it is replicated.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from unittest.mock import patch

import pytest

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import Unavailable
from anabranch.common.model.cluster import REPLICATED, LogCopy, Placement, PlacementState
from anabranch.common.wire.messages import Done
from anabranch.segstore.adapters.jetstream_log.log import StreamLog
from anabranch.segstore.adapters.memory_log import MemoryFrames
from anabranch.segstore.shell.node import closing
from anabranch.segstore.shell.node.placements import Placements
from kit import live_store as stores
from kit.live_store import World, live_store
from kit.rng import seeded
from kit.sim_stream import SimServers
from kit.wire_client import WireClient

OTHER = "node-2"
SEGMENT = "scope/stream/0.#epoch.0"
ISR = (LogCopy("node-1", "1"), LogCopy(OTHER, "2"))


class CalledReplicated(StreamLog):
    @property
    def journal_id(self) -> str:
        return REPLICATED


@pytest.fixture
def servers() -> SimServers:
    return SimServers(seeded(1))


@pytest.fixture
async def world(servers: SimServers, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(stores, "StreamLog", CalledReplicated)
    world = World(servers=servers)
    await world.assign(0)
    return world


def beside(world: World) -> World:
    return replace(world, node=OTHER, frames=MemoryFrames("other"))


async def placement_of(world: World) -> Placement:
    stored = await world.placements.get(placement_key(0))
    assert stored is not None
    return placement_from_bytes(stored.value)


async def change(world: World, decide: Callable[[Placement], Placement]) -> None:
    stored = await world.placements.get(placement_key(0))
    assert stored is not None
    changed = decide(placement_from_bytes(stored.value))
    await world.placements.update(placement_key(0), placement_to_bytes(changed), stored.revision)


async def until(world: World, reached: Callable[[Placement], bool]) -> Placement:
    async with asyncio.timeout(5):
        async for _ in world.placements.watch():
            found = await placement_of(world)
            if reached(found):
                return found
    raise AssertionError


def is_open_on(node: str) -> Callable[[Placement], bool]:
    return lambda found: (found.owner, found.state) == (node, PlacementState.OPEN)


async def test_a_container_is_handed_over_with_its_log_and_without_a_flush(
    world: World, servers: SimServers
) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(live_store(world))
        second = await stack.enter_async_context(live_store(beside(world), wait_open=False))
        client = await WireClient.connect(first.endpoint.host, first.endpoint.port)
        assert await client.create(SEGMENT) == Done()
        await client.close()
        before = await placement_of(world)
        (opened,) = first.store.open_containers()
        flushed = opened.tier_two.applied_sequence
        await change(world, lambda found: replace(found, isr=ISR, isr_min=2, target=OTHER))
        after = await until(world, is_open_on(OTHER))
        assert after == replace(
            before, replicas=(OTHER, "node-1"), container_epoch=before.container_epoch + 1,
            isr=ISR, isr_min=2,
        )  # fmt: skip
        assert list(servers.streams) == [before.log_id], "the log goes on"
        (taken,) = second.store.open_containers()
        assert taken.tier_two.applied_sequence == flushed
        client = await WireClient.connect(second.endpoint.host, second.endpoint.port)
        assert await client.read_all(SEGMENT) == b"", "the log has what tier 2 lacks"
        await client.close()


async def test_a_target_that_falls_out_of_sync_during_the_close_leaves_the_container_here(
    world: World,
) -> None:
    hand_over = Placements.hand_over

    async def fall_out_first(placements: Placements, taken: Placement) -> Placement:
        await change(world, lambda found: replace(found, isr=ISR[:1]))
        return await hand_over(placements, taken)

    async with live_store(world):
        before = await placement_of(world)
        with patch.object(Placements, "hand_over", fall_out_first):
            await change(world, lambda found: replace(found, isr=ISR, target=OTHER))
            after = await until(
                world, lambda found: found.container_epoch == before.container_epoch + 1
                and found.state is PlacementState.OPEN,
            )  # fmt: skip
        assert (after.owner, after.target, after.log_id) == ("node-1", "", before.log_id)


async def test_a_store_that_cannot_reach_the_placement_hands_the_container_over_later(
    world: World,
) -> None:
    hand_over, failures = Placements.hand_over, [Unavailable("x"), Unavailable("x")]

    async def reach_later(placements: Placements, taken: Placement) -> Placement:
        if failures:
            raise failures.pop()
        return await hand_over(placements, taken)

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(live_store(world))
        await stack.enter_async_context(live_store(beside(world), wait_open=False))
        with patch.object(Placements, "hand_over", reach_later):
            await change(world, lambda found: replace(found, isr=ISR, target=OTHER))
            await until(world, is_open_on(OTHER))
        assert not failures


async def test_a_log_that_confirms_nothing_holds_up_a_hand_over_for_a_while_only(
    world: World, servers: SimServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "HAND_OVER_S_MAX", 0.05)
    async with live_store(world) as live:
        before = await placement_of(world)
        client = await WireClient.connect(live.endpoint.host, live.endpoint.port)
        (opened,) = live.store.open_containers()
        with patch.object(type(opened.container), "idle", property(lambda _: False)):
            await change(world, lambda found: replace(found, isr=ISR, target=OTHER))
            found = await until(world, lambda found: found.state is PlacementState.FAILED)
        assert found.reason.startswith("unavailable")
        assert list(servers.streams) == [before.log_id]
        await change(world, lambda found: replace(found, target=""))
        await until(world, is_open_on("node-1"))
        await client.close()


async def test_a_store_that_lost_its_copy_asks_for_the_election_of_another_leader(
    world: World, servers: SimServers
) -> None:
    async with live_store(world):
        await change(world, lambda found: replace(found, isr=ISR, isr_min=2))
    before = await placement_of(world)
    streams = dict(servers.streams)
    servers.streams.clear()
    async with live_store(world, wait_open=False) as live:
        found = await until(world, lambda found: found.state is PlacementState.ELECTING)
        assert found.container_epoch == before.container_epoch + 2, "taken, and raised"
        assert (found.log_id, found.isr, found.restarts) == (before.log_id, ISR, 1)
        assert found.reason.startswith("log-not-here: this store has no copy")
        assert not live.store.open_containers()
        # the election finds that its copy is there after all, and it opens again
        servers.streams.update(streams)
        await change(world, lambda found: replace(found, state=PlacementState.ASSIGNED))
        await until(world, is_open_on("node-1"))


async def test_a_container_ends_when_a_controller_elects_its_leader(world: World) -> None:
    async with live_store(world) as live:
        await change(
            world,
            lambda found: replace(
                found, container_epoch=found.container_epoch + 1, state=PlacementState.ELECTING
            ),
        )
        async with asyncio.timeout(5):
            while live.store.open_containers() or live.store.assigned:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await change(world, lambda found: replace(found, state=PlacementState.ASSIGNED))
        await until(world, is_open_on("node-1"))
