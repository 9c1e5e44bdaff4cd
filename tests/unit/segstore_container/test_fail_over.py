"""Containers with shared logs: their leases, the end of a session, and failures over stores."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import Deposed, SessionOver, Unavailable
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import JETSTREAM, Placement, PlacementState
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.tier2.manifest import LogBinding
from anabranch.common.wire.messages import (
    Appended,
    Done,
    Failed,
    FlushContainer,
    GetSegmentInfo,
    ReadSegment,
    SegmentRead,
    SetupAppend,
)
from anabranch.segstore.adapters.jetstream_log.log import StreamLog
from anabranch.segstore.adapters.memory_log import MemoryFrames
from anabranch.segstore.domain.container.life import RESTARTS_MAX
from anabranch.segstore.shell.node.session import StoreSession
from anabranch.segstore.shell.node.store import OpenContainer
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from kit.live_store import NODE, LiveStore, World, live_store
from kit.rng import seeded
from kit.sim_stream import SimClient, SimServers
from kit.stream_log import around_of
from kit.wire_client import WireClient

OTHER = "node-2"
SEGMENT = "scope/stream/0.#epoch.0"
FOREVER_S = 3600.0


class SetClock(SystemClock):
    """The machine's clocks; the monotonic one can be moved."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.fixture
def servers() -> SimServers:
    return SimServers(seeded(1))


@pytest.fixture
async def world(servers: SimServers) -> World:
    world = World(servers=servers)
    await world.assign(0)
    return world


def beside(world: World) -> World:
    return replace(world, node=OTHER, frames=MemoryFrames("other"))


class Shared:
    """A store with a session, whose beats the test confirms."""

    def __init__(self, live: LiveStore, session: StoreSession, clock: SetClock) -> None:
        self.live = live
        self.session = session
        self.clock = clock

    def beat(self) -> None:
        self.session.renewed(self.clock.monotonic())

    async def client(self) -> WireClient:
        return await WireClient.connect(self.live.endpoint.host, self.live.endpoint.port)


@asynccontextmanager
async def shared_store(world: World, *, wait_open: bool = True) -> AsyncIterator[Shared]:
    clock = SetClock()
    stores: list[LiveStore] = []

    def end_all(error: SessionOver) -> None:
        for live in stores:
            live.store.end_all(error)

    session = StoreSession("a-session", FOREVER_S, clock, end_all)
    session.renewed(clock.monotonic())
    async with live_store(world, wait_open=wait_open, clock=clock, session=session) as live:
        stores.append(live)
        yield Shared(live, session, clock)


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


def open_under(epoch: int) -> Callable[[Placement], bool]:
    return lambda found: (found.state, found.container_epoch) == (PlacementState.OPEN, epoch)


async def test_an_open_placement_names_the_home_of_a_log_that_stores_share(world: World) -> None:
    async with shared_store(world):
        assert (await placement_of(world)).log_home == JETSTREAM
    own = World()
    await own.assign(0)
    async with live_store(own):
        assert (await placement_of(own)).log_home == ""


async def test_a_released_placement_names_no_home_of_a_log(world: World) -> None:
    async with shared_store(world):
        await change(world, lambda found: replace(found, target=OTHER))
        released = await until(world, lambda found: found.owner == OTHER)
    assert (released.log_id, released.log_home) == ("", "")


async def test_without_its_lease_a_store_refuses_everything_but_appends_of_a_session(
    world: World,
) -> None:
    async with shared_store(world) as store:
        client = await store.client()
        assert await client.create(SEGMENT) == Done()
        await client.setup(SEGMENT)
        client.append(1, [b"before"])
        await client.receive()
        store.clock.ahead_s += FOREVER_S
        refused = (
            GetSegmentInfo(segment=SEGMENT),
            ReadSegment(segment=SEGMENT, offset=0, size_max=10),
            SetupAppend(segment=SEGMENT, writer_id=bytes(16), session=9),
            FlushContainer(container=0),
        )
        for request in refused:
            reply = await client.call(request)
            assert isinstance(reply, Failed), request
            assert (reply.code, "lease" in reply.message) == (Unavailable.code, True), request
        client.append(2, [b"meanwhile"])
        reply, _ = await client.receive()
        assert isinstance(reply, Appended)
        store.beat()
        assert isinstance(await client.call(refused[1]), SegmentRead)
        await client.close()


async def test_a_container_in_the_store_s_own_journal_needs_no_lease() -> None:
    world = World()
    await world.assign(0)
    async with live_store(world) as live:
        client = await WireClient.connect(live.endpoint.host, live.endpoint.port)
        assert await client.create(SEGMENT) == Done()
        await client.close()


async def test_no_epoch_is_taken_before_the_first_beat_of_a_session(world: World) -> None:
    clock = SetClock()
    session = StoreSession("a-session", FOREVER_S, clock, lambda _error: None)
    async with live_store(world, wait_open=False, clock=clock, session=session):
        await asyncio.sleep(0.05)  # sleep: nothing may happen, however long it takes
        assert (await placement_of(world)).container_epoch == 0
        session.renewed(clock.monotonic())
        await until(world, open_under(1))


async def test_a_session_that_is_over_ends_its_containers_which_open_again_in_the_next_one(
    world: World,
) -> None:
    async with shared_store(world) as store:
        (former,) = store.live.store.open_containers()
        store.session.over("another", SessionOver("declared dead"))
        assert isinstance(former.container.failure, SessionOver)
        assert not store.live.store.open_numbers
        store.beat()
        again = await until(world, open_under(2))
        assert again.restarts == 0, "the container itself did not fail"


class SlowReports(InMemoryObjectStore):
    """Holds up the answer to the report that a container is open."""

    def __init__(self) -> None:
        super().__init__()
        self.reported = asyncio.Event()
        self.answer = asyncio.Event()

    async def update(self, key: str, value: bytes, revision: int) -> int:
        written = await super().update(key, value, revision)
        if placement_from_bytes(value).state is PlacementState.OPEN and not self.answer.is_set():
            self.reported.set()
            await self.answer.wait()
        return written


async def test_a_container_that_opens_while_its_session_ends_never_serves(
    servers: SimServers,
) -> None:
    placements = SlowReports()
    world = World(servers=servers, placements=placements)
    await world.assign(0)
    async with shared_store(world, wait_open=False) as store:
        await placements.reported.wait()
        served: list[int] = []
        serve = store.live.store.opened

        def note(opened: OpenContainer) -> None:
            served.append(opened.container.container_epoch)
            serve(opened)

        store.live.store.opened = note  # type: ignore[method-assign]
        store.session.over("another", SessionOver("declared dead"))
        store.beat()
        placements.answer.set()
        await until(world, open_under(2))
        await asyncio.sleep(0)
        assert served in ([], [2])


async def test_a_container_that_was_placed_elsewhere_ends_at_once(world: World) -> None:
    async with shared_store(world) as store:
        (former,) = store.live.store.open_containers()
        async with live_store(beside(world), wait_open=False):
            await change(world, lambda found: replace(found, replicas=(OTHER,)))
            await until(world, open_under(2))
            assert former.container.failure is not None
            assert not store.live.store.open_numbers


async def test_a_container_whose_epoch_another_process_took_opens_again(world: World) -> None:
    """The other process may have ended before it opened the container."""
    async with shared_store(world) as store:
        (former,) = store.live.store.open_containers()
        await change(
            world, lambda found: replace(found, container_epoch=2, state=PlacementState.ASSIGNED)
        )
        await until(world, open_under(3))
        assert isinstance(former.container.failure, Deposed)


async def test_a_container_opens_in_the_log_that_another_opening_chose_meanwhile(
    servers: SimServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(servers=servers)
    await world.assign(0)
    loop = asyncio.get_running_loop()
    log = StreamLog(SimClient(servers), around_of(loop, loop.create_task), SeededIds(9))
    await log.create_log(0, "another-log")
    newest_log = OpenContainerTierTwo.newest_log
    looked: list[int] = []

    async def look(self: OpenContainerTierTwo, container: int) -> LogBinding | None:
        found = await newest_log(self, container)
        looked.append(container)
        if len(looked) == 1:
            await self(0, 1, "another-log", new_log=True)
        return found

    monkeypatch.setattr(OpenContainerTierTwo, "newest_log", look)
    await change(world, lambda found: replace(found, container_epoch=1))
    async with shared_store(world, wait_open=False):
        opened = await until(world, open_under(3))
    assert opened.log_id == "another-log"


async def test_failures_are_counted_over_stores(world: World) -> None:
    await change(world, lambda found: replace(found, restarts=RESTARTS_MAX))
    async with shared_store(world) as store:
        (opened,) = store.live.store.open_containers()
        opened.container.fail(Deposed("once more"))
        found = await until(world, lambda found: found.state is PlacementState.DISABLED)
        assert found.restarts == RESTARTS_MAX


async def test_a_journal_counts_failures_of_its_own_store_alone() -> None:
    world = World()
    await world.assign(0)
    await change(world, lambda found: replace(found, restarts=RESTARTS_MAX))
    async with live_store(world) as live:
        (opened,) = live.store.open_containers()
        opened.container.fail(Deposed("the first time here"))
        assert (await until(world, open_under(2))).restarts == 1


async def test_a_container_that_served_well_begins_to_count_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.segstore.shell.node.lifecycle.SERVED_WELL_S", 0.01)
    await change(world, lambda found: replace(found, restarts=RESTARTS_MAX))
    async with shared_store(world):
        found = await until(world, lambda found: not found.restarts)
        assert found.state is PlacementState.OPEN


async def test_a_store_opens_a_container_that_failed_over_to_it_with_all_its_events(
    world: World,
) -> None:
    async with shared_store(world) as store:
        client = await store.client()
        assert await client.create(SEGMENT) == Done()
        await client.setup(SEGMENT)
        data = client.append(1, [b"event"])
        await client.receive()
        await client.close()
        before = await placement_of(world)
        async with shared_store(beside(world), wait_open=False) as other:
            await change(
                world,
                lambda found: replace(
                    found, replicas=(OTHER,), state=PlacementState.ASSIGNED, pinned=False
                ),
            )
            after = await until(world, open_under(before.container_epoch + 1))
            assert (after.log_id, after.log_home) == (before.log_id, JETSTREAM)
            client = await other.client()
            assert await client.read_all(SEGMENT) == data
            # and back to the first store
            await client.close()
            await change(
                world,
                lambda found: replace(found, replicas=(NODE,), state=PlacementState.ASSIGNED),
            )
            await until(world, open_under(before.container_epoch + 2))
            client = await store.client()
            assert await client.read_all(SEGMENT) == data
            await client.close()
