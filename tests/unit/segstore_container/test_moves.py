"""Leaving a store, being given up, and being enabled: with live stores over shared tier 2."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import CorruptChunk, Unavailable, WrongHost
from anabranch.common.model.cluster import Placement, PlacementState, VoidLogs
from anabranch.common.storage.objects import read_highest
from anabranch.controller.domain.cluster import placement_changes
from anabranch.segstore.adapters.memory_log import MemoryFrames
from anabranch.segstore.shell.node.placements import Placements
from kit.live_store import LiveStore, World, live_store

OTHER = "node-2"
NODES = ("node-1", OTHER)


@pytest.fixture
async def world() -> World:
    world = World()
    await world.assign(0)
    return world


def beside(world: World, storage: MemoryChunkStorage | None = None) -> World:
    """Another store's world in the same cluster."""
    return replace(
        world, node=OTHER, frames=MemoryFrames("other"), storage=storage or world.storage
    )


async def placement_of(world: World) -> Placement:
    stored = await world.placements.get(placement_key(0))
    assert stored is not None
    return placement_from_bytes(stored.value)


async def change(world: World, decide: Callable[[Placement], Placement]) -> Placement:
    """What a controller does to the placement."""
    stored = await world.placements.get(placement_key(0))
    assert stored is not None
    changed = decide(placement_from_bytes(stored.value))
    await world.placements.update(placement_key(0), placement_to_bytes(changed), stored.revision)
    return changed


async def eventually(world: World, true_of: Callable[[Placement], bool]) -> Placement:
    async with asyncio.timeout(5):
        async for _ in world.placements.watch():
            found = await placement_of(world)
            if true_of(found):
                return found
    raise AssertionError


def open_on(node: str) -> Callable[[Placement], bool]:
    return lambda found: (found.replicas, found.state) == ((node,), PlacementState.OPEN)


async def test_a_container_leaves_and_the_other_store_opens_it_with_a_log_of_its_own(
    world: World,
) -> None:
    other = beside(world)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(live_store(world))
        second = await stack.enter_async_context(live_store(other, wait_open=False))
        before = await placement_of(world)
        await change(world, lambda found: placement_changes.move(found, OTHER, NODES))
        after = await eventually(world, open_on(OTHER))
        assert after.log_id not in ("", before.log_id)
        assert (after.previous_log, after.target) == (before.log_id, "")
        assert after.container_epoch > before.container_epoch
        assert world.frames.logs == {}
        with pytest.raises(WrongHost):
            first.store.by_number(0)
        await _opened(second)


async def _opened(live: LiveStore) -> None:
    async with asyncio.timeout(5):
        while not live.store.open_numbers:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_wish_that_was_withdrawn_leaves_the_container_where_it_is(world: World) -> None:
    async with live_store(world) as live:
        await change(world, lambda found: replace(found, target=OTHER))
        await change(world, lambda found: placement_changes.move(found, "node-1", NODES))
        found = await eventually(world, open_on("node-1"))
        assert found.target == ""
        await _opened(live)


async def test_what_is_opened_after_a_release_and_not_served_is_void_and_no_more(
    world: World,
) -> None:
    placements = Placements(world.placements, "node-1")
    await change(world, lambda found: replace(found, container_epoch=4, log_id="served"))
    taken = await placements.take_epoch(0)
    await change(world, lambda found: replace(found, target=OTHER))
    released = await placements.release(taken)
    assert (released.replicas, released.log_id) == ((OTHER,), "")
    assert (released.previous_log, released.void) == ("served", VoidLogs(5, 5))
    with pytest.raises(WrongHost):
        await placements.release(taken)


async def test_an_empty_tier_two_is_not_taken_for_a_container_that_moved_there(
    world: World,
) -> None:
    elsewhere = beside(world, storage=MemoryChunkStorage())
    async with live_store(world):
        await change(world, lambda found: placement_changes.move(found, OTHER, NODES))
        await eventually(world, lambda found: found.replicas == (OTHER,))
    async with live_store(elsewhere, wait_open=False):
        found = await eventually(world, lambda found: found.state is PlacementState.OFFLINE)
    assert found.reason.startswith("tier-two-not-here")
    assert "anabranch tier2 verify --container 0" in found.reason


async def test_an_abandoned_tail_is_recorded_and_its_store_serves_no_more(world: World) -> None:
    other = beside(world)
    async with live_store(world):
        lost = await placement_of(world)
    await change(world, lambda found: placement_changes.abandon(found, OTHER, NODES, 1234))
    async with live_store(other):
        taken = await placement_of(world)
        assert taken.abandoned is not None
        assert (taken.abandoned.log_id, taken.abandoned.time_ms) == (lost.log_id, 1234)
        async with live_store(world, wait_open=False) as returned:
            await asyncio.sleep(0)
            with pytest.raises((WrongHost, Unavailable)):
                returned.store.by_number(0)
        manifest = await read_highest(world.storage, 0)
        assert manifest is not None
        assert manifest.abandoned == taken.abandoned
        assert manifest.log.log_id == taken.log_id != lost.log_id
    assert (await placement_of(world)).replicas == (OTHER,)


async def test_an_abandonment_outlives_later_manifests_and_moves(world: World) -> None:
    other = beside(world)
    async with live_store(world):
        pass
    await change(world, lambda found: placement_changes.abandon(found, OTHER, NODES, 1234))
    async with live_store(other):
        await change(world, lambda found: placement_changes.move(found, "node-1", NODES))
        await eventually(world, lambda found: found.replicas == ("node-1",))
    async with live_store(world):
        found = await placement_of(world)
    assert found.abandoned is not None
    assert found.abandoned.time_ms == 1234


@pytest.mark.parametrize("enabled", [True, False])
async def test_an_offline_container_is_opened_again_when_it_is_enabled_and_not_before(
    world: World, enabled: bool
) -> None:
    async with live_store(world) as live:
        (opened,) = live.store.open_containers()
        opened.container.fail(CorruptChunk("damaged"))
        offline = await eventually(world, lambda found: found.state is PlacementState.OFFLINE)
        assert live.store.count_states()["offline",] == 1
        if enabled:
            await change(world, placement_changes.enable)
            again = await eventually(world, open_on("node-1"))
            assert again.container_epoch == offline.container_epoch + 2
        else:
            # what the watch shows late is no reason to open
            await change(world, lambda found: replace(found, state=PlacementState.ASSIGNED))
            for _ in range(50):
                await asyncio.sleep(0)
            assert not live.store.open_numbers
            assert (await placement_of(world)).container_epoch == offline.container_epoch
