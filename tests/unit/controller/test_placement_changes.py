"""Moving, abandoning and enabling containers: what becomes of their placements."""

import asyncio
from dataclasses import replace

import pytest

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.contracts.container_queries import (
    AbandonTail,
    EnableContainer,
    MoveContainer,
    UnpinContainer,
)
from anabranch.common.errors import (
    Conflict,
    InvalidRequest,
    NodeNotFound,
    RevisionConflict,
    Unavailable,
)
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import (
    Placement,
    PlacementState,
    VoidLogs,
)
from anabranch.common.runtime.clock import SystemClock
from anabranch.controller.cluster.elections import Elections
from anabranch.controller.cluster.placement_changes import PlacementChanges
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.domain.cluster.placement_actions import Replication
from anabranch.controller.domain.cluster.placement_changes import abandon, enable, move, unpin
from kit.candidates import KnownCopies
from kit.known_stores import StoresKnown
from kit.loud import loud

NODES = ("a", "b", "c")
SERVED = Placement(3, ("a",), 7, "log", PlacementState.OPEN, restarts=2)
RELEASED = Placement(3, ("b",), 7, previous_log="log", void=VoidLogs(7, 7))


def test_a_container_that_is_served_is_asked_to_leave() -> None:
    assert move(SERVED, "b", NODES) == replace(SERVED, target="b", pinned=True)
    assert move(move(SERVED, "b", NODES), "c", NODES).target == "c"


def test_a_move_to_its_own_node_is_done_and_withdraws_the_wish() -> None:
    pinned = replace(SERVED, pinned=True)
    assert move(SERVED, "a", NODES) == pinned
    assert move(replace(SERVED, target="b"), "a", NODES) == pinned


def test_what_an_operator_moved_stays_pinned_until_it_is_unpinned_or_abandoned() -> None:
    moved = move(RELEASED, "c", NODES)
    assert moved.pinned
    assert unpin(moved) == replace(moved, pinned=False)
    assert unpin(SERVED) == SERVED
    assert not abandon(replace(SERVED, pinned=True), "b", NODES, 5).pinned


def test_a_move_to_an_unknown_node_is_refused() -> None:
    with pytest.raises(NodeNotFound):
        move(SERVED, "z", NODES)
    with pytest.raises(NodeNotFound):
        abandon(SERVED, "z", NODES, 5)


def test_what_was_released_and_never_served_is_placed_elsewhere_at_once() -> None:
    moved = move(RELEASED, "c", NODES)
    assert moved.replicas == ("c",)
    assert moved.void == VoidLogs(7, 7), "nobody opened it"
    begun = replace(RELEASED, container_epoch=9)
    assert move(begun, "c", NODES).void == VoidLogs(7, 9), "what the dead one opened is empty"
    fresh = Placement(3, ("a",), 2)
    assert move(fresh, "c", NODES).void == VoidLogs(0, 2)


@pytest.mark.parametrize("state", [PlacementState.DISABLED, PlacementState.OFFLINE])
def test_what_waits_for_an_operator_cannot_be_moved_before_it_is_enabled(
    state: PlacementState,
) -> None:
    closed = replace(SERVED, state=state)
    with pytest.raises(Conflict):
        move(closed, "b", NODES)
    enabled = enable(closed)
    assert (enabled.state, enabled.container_epoch) == (PlacementState.ASSIGNED, 8)
    assert (enabled.restarts, enabled.reason) == (0, "")
    assert move(enabled, "b", NODES).target == "b"


@pytest.mark.parametrize("state", ["assigned", "open", "failed"])
def test_enabling_what_needs_it_not_changes_nothing(state: PlacementState) -> None:
    found = replace(SERVED, state=PlacementState(state))
    assert enable(found) is found


def test_abandoning_voids_every_log_that_was_opened_until_now() -> None:
    given_up = abandon(replace(SERVED, target="c"), "b", NODES, 1234)
    assert given_up == Placement(
        3, ("b",), 7, previous_log="log", void=VoidLogs(0, 7, abandoned_ms=1234)
    )
    # the store that takes over dies while it opens: to a third one, nothing more is given up
    again = abandon(replace(given_up, container_epoch=8), "c", NODES, 5678)
    assert again.void == VoidLogs(0, 8, abandoned_ms=1234)


def test_a_tail_is_not_abandoned_to_the_store_that_has_it() -> None:
    with pytest.raises(InvalidRequest):
        abandon(SERVED, "a", NODES, 5)


class RacingStore(InMemoryObjectStore):
    """Somebody else changes the placement before each of the first updates."""

    races = 2

    async def update(self, key: str, value: bytes, revision: int) -> int:
        if self.races:
            self.races -= 1
            raise RevisionConflict("changed")
        return await super().update(key, value, revision)


class NoSessionIsOver:
    """`Sessions` of stores that all live."""

    def is_down(self, store: str) -> bool:
        return False

    async def is_still_over(self, store: str) -> bool:
        return False


class Desk:
    """A controller that knows the nodes, over stored placements."""

    def __init__(self) -> None:
        self.objects = RacingStore()
        self.known = Placements(
            StoresKnown(NODES), self.objects, 4, SystemClock(), containment=loud()
        )
        self.elections = Elections(self.objects, NoSessionIsOver(), KnownCopies(), SystemClock())
        self.changes = PlacementChanges(
            self.objects, self.known, self.elections, SystemClock(), replication=Replication(3)
        )

    async def begin(self) -> None:
        await self.objects.create(placement_key(3), placement_to_bytes(SERVED))

    async def stored(self) -> Placement:
        found = await self.objects.get(placement_key(3))
        assert found is not None
        return placement_from_bytes(found.value)


async def test_a_change_is_a_compare_and_set_that_is_repeated_until_it_holds() -> None:
    desk = Desk()
    await desk.begin()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(desk.known.serve())
        await asyncio.sleep(0)
        told = await desk.changes.perform(MoveContainer(container=3, node_id="b"))
        assert (told.node_id, told.target, told.state) == ("a", "b", "open")
        assert await desk.stored() == replace(SERVED, target="b", pinned=True)
        await desk.changes.perform(UnpinContainer(container=3))
        assert await desk.stored() == replace(SERVED, target="b")
        await desk.changes.perform(EnableContainer(container=3))
        await desk.changes.perform(AbandonTail(container=3, node_id="c"))
        assert (await desk.stored()).replicas == ("c",)
        with pytest.raises(InvalidRequest):
            await desk.changes.perform(EnableContainer(container=4))
        serving.cancel()


async def test_a_container_that_nobody_has_yet_cannot_be_changed() -> None:
    with pytest.raises(Unavailable):
        await Desk().changes.perform(EnableContainer(container=2))
