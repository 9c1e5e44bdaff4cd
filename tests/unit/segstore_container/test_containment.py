"""A defect in one container ends that one alone; its keeper opens it again."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from anabranch.common.contracts.cluster import placement_from_bytes, placement_key
from anabranch.common.errors import Defect
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.wire.messages import CreateSegment, Failed, Message, Stamp
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.metrics import StoreMetrics
from anabranch.segstore.shell.tiering.collector import Collector
from anabranch.segstore.shell.tiering.flusher import Flusher
from kit.client_bench import until
from kit.live_store import LiveStore, World, live_store

BAD = 0


def once(real: Callable[..., Any], of: Callable[[Any], int]) -> Callable[..., Any]:
    """`real`, but the first call about container BAD raises what nobody expected."""
    struck: list[bool] = []

    def strike(self: Any, *given: Any, **more: Any) -> Any:
        if of(self) == BAD and not struck:
            struck.append(True)
            raise KeyError("nobody expected this")
        return real(self, *given, **more)

    return strike


LOOPS = ("collector", "flusher")
PLANTS: dict[str, tuple[Any, str, Callable[[Any], int]]] = {
    "collector": (Collector, "run", lambda one: one._container.container),
    "flusher": (Flusher, "run", lambda one: one._container.container),
    "frame applied": (Container, "frame_durable", lambda one: one.container),
    "frame taken": (Container, "take_frame", lambda one: one.container),
}


async def placement_of(world: World, container: int) -> Placement:
    stored = await world.placements.get(placement_key(container))
    assert stored is not None
    return placement_from_bytes(stored.value)


@pytest.mark.parametrize("plant", PLANTS)
async def test_a_defect_in_one_container_leaves_the_others_open(plant: str) -> None:
    kind, method, of = PLANTS[plant]
    world = World(containers=2)
    await world.assign(0)
    await world.assign(1)
    noted: list[Defect] = []
    with (
        patch.object(kind, method, once(getattr(kind, method), of)),
        patch.object(StoreMetrics, "note_defect", lambda _, defect: noted.append(defect)),
    ):
        async with live_store(world, wait_open=False) as live:
            await until(lambda: live.store.open_numbers >= {1} if plant in LOOPS else both(live))
            replies: dict[int, Message] = {}
            for opened in live.store.open_containers():
                number = opened.container.container
                request = CreateSegment(segment=f"a/b/{number}.#epoch.0", stamp=Stamp(1, 1))
                opened.container.ask(request, partial(replies.__setitem__, number))
            await until(lambda: 1 in replies)
            bad = await opened_again(world)
            other = await placement_of(world, 1)
    assert not isinstance(replies[1], Failed)
    assert (bad.restarts, other.container_epoch, other.restarts) == (1, 1, 0)
    assert live.failures == []
    assert len(noted) == 1


def both(live: LiveStore) -> bool:
    return live.store.open_numbers >= {0, 1}


async def opened_again(world: World) -> Placement:
    """The bad one's placement once its keeper has opened it for the second time."""
    async with asyncio.timeout(5):
        async for _ in world.placements.watch():
            found = await placement_of(world, BAD)
            if (found.state, found.container_epoch) == (PlacementState.OPEN, 2):
                return found
    raise AssertionError
