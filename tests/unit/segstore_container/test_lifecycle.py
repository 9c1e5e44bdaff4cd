"""Opening, restarting, going offline, and what the placement says of it."""

import asyncio
from collections.abc import Sequence

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import (
    AnabranchError,
    CorruptChunk,
    CorruptJournal,
    Deposed,
    DiskFailed,
    LogNotHere,
    LogNotSynced,
    NoRoom,
    OutcomeUnknown,
    RevisionConflict,
    TierTwoNotHere,
    Unavailable,
    WrongHost,
)
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.segstore.domain.container.life import (
    DISTURBED_MAX,
    RESTARTS_MAX,
    SERVED_WELL_S,
    Restart,
    Stay,
    after_failure,
    shared_log_pauses,
)
from anabranch.segstore.shell.node.placements import Placements
from kit.live_store import NODE, World, live_store


@pytest.mark.parametrize(
    ("error", "restarts", "served_s", "expected"),
    [
        (DiskFailed("x"), 0, 1.0, Restart(1)),
        (DiskFailed("x"), 1, 1.0, Restart(2)),
        (Deposed("x"), 4, 1.0, Restart(5)),
        (DiskFailed("x"), RESTARTS_MAX, 1.0, Stay(RESTARTS_MAX, PlacementState.DISABLED)),
        (DiskFailed("x"), RESTARTS_MAX, SERVED_WELL_S, Restart(1)),
        (Unavailable("x"), RESTARTS_MAX, 1.0, Restart(6)),
        (Unavailable("x"), 99, 1.0, Restart(100)),
        (OutcomeUnknown("x"), RESTARTS_MAX, 1.0, Restart(6)),
        (NoRoom("x"), RESTARTS_MAX, 1.0, Restart(6)),
        (LogNotSynced("x"), RESTARTS_MAX, 1.0, Restart(6)),
        (CorruptChunk("x"), 0, 1.0, Stay(0, PlacementState.OFFLINE)),
        (LogNotHere("x"), 0, 1.0, Stay(0, PlacementState.OFFLINE)),
    ],
)
def test_what_follows_a_failure(
    error: AnabranchError, restarts: int, served_s: float, expected: Restart | Stay
) -> None:
    assert after_failure(error, restarts, served_s) == expected


@pytest.mark.parametrize(
    ("error", "restarts", "served_s", "expected"),
    [
        (LogNotHere("x"), 0, 0.0, Stay(1, PlacementState.ELECTING)),
        (CorruptJournal("x"), 0, 0.0, Stay(1, PlacementState.ELECTING)),
        (CorruptJournal("x"), RESTARTS_MAX - 1, 0.0, Stay(RESTARTS_MAX, PlacementState.ELECTING)),
        (CorruptJournal("x"), RESTARTS_MAX, 0.0, Stay(RESTARTS_MAX, PlacementState.OFFLINE)),
        (LogNotHere("x"), RESTARTS_MAX, SERVED_WELL_S, Stay(1, PlacementState.ELECTING)),
        (CorruptChunk("x"), 0, 0.0, Stay(0, PlacementState.OFFLINE)),
        (TierTwoNotHere("x"), 0, 0.0, Stay(0, PlacementState.OFFLINE)),
        (Unavailable("x"), 99, 0.0, Restart(100)),
        (DiskFailed("x"), 1, 0.0, Restart(2)),
    ],
)
def test_a_store_without_a_whole_copy_of_a_replicated_log_asks_for_an_election(
    error: AnabranchError, restarts: int, served_s: float, expected: Restart | Stay
) -> None:
    assert after_failure(error, restarts, served_s, replicated=True) == expected


@pytest.mark.parametrize(
    ("error", "restarts", "served_s", "expected"),
    [
        (Unavailable("x"), 3, 0.0, 3),
        (Unavailable("x"), 99, 0.0, DISTURBED_MAX),
        (OutcomeUnknown("x"), 99, 0.5, DISTURBED_MAX),
        (Unavailable("x"), 99, 1.0, 1),
        (Deposed("x"), 5, 1.0, 5),
        (DiskFailed("x"), 5, 0.0, 5),
    ],
)
def test_a_disturbed_log_is_opened_again_soon(
    error: AnabranchError, restarts: int, served_s: float, expected: int
) -> None:
    assert shared_log_pauses(error, restarts, served_s) == expected


@pytest.fixture
async def world() -> World:
    world = World()
    await world.assign(0)
    return world


async def placement_of(world: World) -> Placement:
    stored = await world.placements.get(placement_key(0))
    assert stored is not None
    return placement_from_bytes(stored.value)


async def eventually(world: World, state: PlacementState, epoch: int) -> Placement:
    """The placement once it is in this state under this epoch."""
    async with asyncio.timeout(5):
        async for _ in world.placements.watch():
            found = await placement_of(world)
            if (found.state, found.container_epoch) == (state, epoch):
                return found
    raise AssertionError


async def test_every_open_takes_the_next_epoch_and_the_log_keeps_its_id(world: World) -> None:
    async with live_store(world):
        first = await placement_of(world)
    async with live_store(world):
        second = await placement_of(world)
    assert (first.state, first.container_epoch) == (PlacementState.OPEN, 1)
    assert (second.state, second.container_epoch) == (PlacementState.OPEN, 2)
    assert first.log_id == second.log_id == world.frames.logs[0] != ""


async def test_a_log_created_before_a_crash_is_found_again(world: World) -> None:
    world.frames.logs[0] = "created-before"
    async with live_store(world):
        assert (await placement_of(world)).log_id == "created-before"


async def test_a_container_that_fails_is_opened_again_under_the_next_epoch(world: World) -> None:
    async with live_store(world) as live:
        (opened,) = live.store.open_containers()
        opened.container.fail(Deposed("a newer owner"))
        with pytest.raises(Unavailable):
            live.store.by_number(0)
        again = await eventually(world, PlacementState.OPEN, 2)
        assert again.restarts == 1
    assert live.failures == []


async def test_a_container_whose_log_is_elsewhere_is_offline_and_says_so() -> None:
    world = World()
    lost = Placement(0, (NODE,), container_epoch=3, log_id="somewhere-else")
    await world.placements.create("0", placement_to_bytes(lost))
    async with live_store(world, wait_open=False):
        found = await eventually(world, PlacementState.OFFLINE, 4)
    assert found.reason.startswith("log-not-here")
    assert world.frames.logs == {}


async def test_a_damaged_log_takes_the_container_offline_by_name(world: World) -> None:
    async with live_store(world) as live:
        (opened,) = live.store.open_containers()
        world.frames.payloads.clear()
        opened.container.fail(CorruptChunk("damaged"))
        found = await eventually(world, PlacementState.OFFLINE, 1)
        assert found.reason.startswith("corrupt-chunk")


async def test_what_ends_the_journal_ends_the_store(world: World) -> None:
    async with live_store(world) as live:
        (opened,) = live.store.open_containers()
        opened.container.journal_failed(DiskFailed("the sync failed"))
        assert [error.code for error in live.failures] == ["disk-failed"]


async def test_what_ends_one_log_ends_its_container_alone_which_is_opened_again() -> None:
    world = World(containers=2)
    await world.assign(0)
    await world.assign(1)
    async with live_store(world) as live:
        failed, other = (live.store.by_number(number) for number in (0, 1))
        failed.container.log_failed(DiskFailed("this log alone cannot be written"))
        again = await eventually(world, PlacementState.OPEN, 2)
        assert again.restarts == 1
        assert live.store.by_number(1) is other
        assert live.failures == []


class BrokenListing(MemoryChunkStorage):
    """The operating system refuses the first listing of tier 2."""

    broken = True

    async def list(self, prefix: str) -> Sequence[str]:
        if self.broken:
            self.broken = False
            raise PermissionError("not yours")
        return await super().list(prefix)


async def test_what_the_operating_system_refuses_is_a_counted_failure_with_a_name() -> None:
    world = World(storage=BrokenListing())
    await world.assign(0)
    async with live_store(world):
        found = await placement_of(world)
    assert (found.state, found.container_epoch, found.restarts) == (PlacementState.OPEN, 2, 1)


class RacingStore(InMemoryObjectStore):
    """Another writer changes the placement before each of the first updates."""

    races = 2

    async def update(self, key: str, value: bytes, revision: int) -> int:
        if self.races:
            self.races -= 1
            raise RevisionConflict("changed")
        return await super().update(key, value, revision)


class UnreachableStore(InMemoryObjectStore):
    """Every second update finds nobody; more often than a container may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.updates = 0

    async def update(self, key: str, value: bytes, revision: int) -> int:
        self.updates += 1
        if self.updates % 2 == 0 and self.updates <= 4:
            raise Unavailable("nobody answers")
        return await super().update(key, value, revision)


async def test_placements_that_cannot_be_reached_are_no_failure_of_the_container() -> None:
    world = World(placements=UnreachableStore())
    await world.assign(0)
    async with live_store(world):
        found = await placement_of(world)
    assert (found.state, found.container_epoch, found.restarts) == (PlacementState.OPEN, 3, 0)


async def test_an_epoch_is_taken_once_however_often_the_placement_changes() -> None:
    objects = RacingStore()
    await objects.create("0", placement_to_bytes(Placement(0, (NODE,))))
    taken = await Placements(objects, NODE).take_epoch(0)
    assert taken.container_epoch == 1


async def test_only_the_assigned_node_takes_an_epoch() -> None:
    objects = InMemoryObjectStore()
    await objects.create("0", placement_to_bytes(Placement(0, ("other",))))
    placements = Placements(objects, NODE)
    with pytest.raises(WrongHost):
        await placements.take_epoch(0)
    with pytest.raises(WrongHost):
        await placements.take_epoch(1)


async def test_an_older_epoch_reports_nothing() -> None:
    objects = InMemoryObjectStore()
    await objects.create("0", placement_to_bytes(Placement(0, (NODE,))))
    placements = Placements(objects, NODE)
    older = await placements.take_epoch(0)
    newer = await placements.take_epoch(0)
    with pytest.raises(Deposed):
        await placements.report_open(older, "a-log")
    await placements.report_open(newer, "a-log")
    stored = await objects.get("0")
    assert isinstance(stored, StoredObject)
    assert placement_from_bytes(stored.value).log_id == "a-log"


class DeafOnce(InMemoryObjectStore):
    """The first report of a failure reaches nobody."""

    deaf = True

    async def update(self, key: str, value: bytes, revision: int) -> int:
        failed = placement_from_bytes(value).state is PlacementState.OFFLINE
        if self.deaf and failed:
            self.deaf = False
            raise Unavailable("nobody answers")
        return await super().update(key, value, revision)


async def test_a_container_that_goes_offline_says_so_until_it_is_heard() -> None:
    world = World(placements=DeafOnce())
    await world.assign(0)
    async with live_store(world) as live:
        (opened,) = live.store.open_containers()
        opened.container.fail(CorruptChunk("damaged"))
        found = await eventually(world, PlacementState.OFFLINE, 1)
        assert found.reason.startswith("corrupt-chunk")
