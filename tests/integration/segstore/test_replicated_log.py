"""A container whose log real stores replicate; the test does what a controller would do."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts import subjects
from anabranch.common.contracts.cluster import (
    node_from_bytes,
    node_to_bytes,
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import NotEnoughReplicas, RevisionConflict
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.wire.messages import Failed, FlushContainer, ReadSegment
from kit.infra import NatsServer
from kit.patient_client import PatientClient
from kit.store_process import SEGMENT, Cluster, segment_store
from kit.wire_client import WireClient

NAMES = ("first", "second", "third")
SETTLED_S_MAX = 20.0


class Stores:
    """Three stores as processes, and the placement of one container on them."""

    def __init__(self, directory: Path, server: NatsServer, cluster: Cluster) -> None:
        self._directory = directory
        self._server = server
        self.cluster = cluster
        self._running: dict[str, AsyncExitStack] = {}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._token = directory / "join-token"
        self._token.write_text("a secret that all stores of this cluster have\n")

    async def start(self, name: str) -> None:
        stack = self._running[name] = AsyncExitStack()
        self._processes[name] = await stack.enter_async_context(
            segment_store(
                self.folder(name),
                self._server.url,
                JOURNAL="replicated",
                TIER2_LOSS="accepted",
                JOIN_TOKEN_FILE=str(self._token),
                TIER2_URL=(self._directory / "tier2").as_uri(),
            )
        )

    def signal(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)

    async def kill(self, name: str) -> None:
        self._processes.pop(name).kill()
        await self._running.pop(name).aclose()

    async def stop_all(self) -> None:
        for name in tuple(self._running):
            await self.kill(name)

    def folder(self, name: str) -> Path:
        return self._directory / name

    def name_of(self, node_id: str) -> str:
        return next(
            name for name in NAMES if node_id in (self.folder(name) / "node-id").read_text()
        )

    async def registered(self, count: int) -> tuple[str, ...]:
        """The node ids of all stores that ever were, once there are so many."""
        found: dict[str, None] = {}
        async with asyncio.timeout(SETTLED_S_MAX):
            async for stored in self.cluster.objects(subjects.NODES_BUCKET).watch():
                if stored is not None:
                    found[node_from_bytes(stored.value).node_id] = None
                if len(found) == count:
                    break
        return tuple(found)

    async def assign(self) -> None:
        """Place the container on all three, as soon as they have registered."""
        placement = Placement(0, await self.registered(3), isr_min=2)
        objects = self.cluster.objects(subjects.PLACEMENTS_BUCKET)
        await objects.create(placement_key(0), placement_to_bytes(placement))

    async def placed(self, holds: Callable[[Placement], bool]) -> Placement:
        """The placement, once this holds."""
        async with asyncio.timeout(SETTLED_S_MAX):
            async for stored in self.cluster.objects(subjects.PLACEMENTS_BUCKET).watch():
                if stored is not None:
                    found = placement_from_bytes(stored.value)
                    if holds(found):
                        return found
        raise AssertionError

    async def end_session(self, node_id: str) -> None:
        """Declare a store dead, as a controller does before it elects another leader."""
        nodes = self.cluster.objects(subjects.NODES_BUCKET)
        stored = await nodes.get(node_id)
        assert stored is not None
        over = replace(node_from_bytes(stored.value), over=True)
        await nodes.update(node_id, node_to_bytes(over), stored.revision)

    async def elect(self, dead: str) -> None:
        """Have another member of the ISR lead."""

        def elected(found: Placement) -> Placement:
            leader = next(copy.node_id for copy in found.isr if copy.node_id != dead)
            others = tuple(node for node in found.replicas if node != leader)
            return replace(
                found,
                replicas=(leader, *others),
                container_epoch=found.container_epoch + 1,
                state=PlacementState.ASSIGNED,
            )

        await self.change(elected)

    async def change(self, changed: Callable[[Placement], Placement]) -> None:
        """Change the placement, whatever else changes it."""
        placements = self.cluster.objects(subjects.PLACEMENTS_BUCKET)
        while True:
            stored = await placements.get(placement_key(0))
            assert stored is not None
            value = placement_to_bytes(changed(placement_from_bytes(stored.value)))
            with suppress(RevisionConflict):
                await placements.update(placement_key(0), value, stored.revision)
                return

    async def connect(self) -> WireClient:
        """Connect to the owner of the container."""
        owner = (await self.placed(lambda _: True)).owner
        for stored in await self.cluster.objects(subjects.NODES_BUCKET).list():
            node = node_from_bytes(stored.value)
            if node.node_id == owner:
                return await WireClient.connect(node.endpoint.host, node.endpoint.port)
        raise AssertionError("the owner is gone")


@pytest.fixture
async def stores(tmp_path: Path, nats_server: NatsServer) -> AsyncIterator[Stores]:
    client = await connect_nats(nats_target(nats_server.url), "test")
    cluster = Cluster(client)
    await cluster.prepare()
    stores = Stores(tmp_path, nats_server, cluster)
    try:
        for name in NAMES:
            await stores.start(name)
        yield stores
    finally:
        await stores.stop_all()
        await client.close()


def events(first: int, count: int) -> list[bytes]:
    return [b"%d" % number * 100 for number in range(first, first + count)]


def is_served_by_all(placement: Placement) -> bool:
    return placement.state is PlacementState.OPEN and len(placement.isr) == 3


async def test_what_was_acknowledged_survives_the_loss_of_the_leaders_disk(stores: Stores) -> None:
    await stores.assign()
    await stores.placed(is_served_by_all)
    client = PatientClient(stores.connect, SEGMENT)
    await client.create()
    expected = await client.write(1, events(1, 50))
    for round_number in range(1, 4):
        before = await stores.placed(is_served_by_all)
        leader = stores.name_of(before.owner)
        async with asyncio.TaskGroup() as group:
            first = round_number * 50 + 1
            writing = group.create_task(client.write(first, events(first, 50)))
            await stores.kill(leader)
            shutil.rmtree(stores.folder(leader) / "journal")
            await stores.elect(before.owner)
            expected += await writing
        after = await stores.placed(lambda found: found.state is PlacementState.OPEN)
        assert after.owner != before.owner
        assert await client.read_all() == expected
        await stores.start(leader)
        grown = await stores.placed(is_served_by_all)
        lost = [copy for copy in before.isr if copy.node_id == before.owner]
        assert not set(lost) & set(grown.isr)
    assert await client.last_event_number() == 200
    await client.close()


async def followers(stores: Stores) -> list[str]:
    placement = await stores.placed(is_served_by_all)
    return [stores.name_of(node) for node in placement.replicas if node != placement.owner]


async def test_appends_go_on_without_one_follower_and_wait_without_both(stores: Stores) -> None:
    await stores.assign()
    first, second = await followers(stores)
    client = PatientClient(stores.connect, SEGMENT)
    await client.create()
    await stores.kill(first)
    expected = await client.write(1, events(1, 50))
    await stores.placed(lambda found: len(found.isr) == 2)
    await stores.kill(second)
    await stores.placed(lambda found: len(found.isr) == 1)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(client.write(51, events(51, 50)))
        async with asyncio.timeout(30.0):
            while not any(isinstance(error, NotEnoughReplicas) for error in client.failures):
                assert not writing.done(), "the events were acknowledged with one copy"
                await asyncio.sleep(0.05)
        assert not writing.done()
        await stores.start(first)
        expected += await writing
    assert await client.read_all() == expected
    await stores.start(second)
    await stores.placed(is_served_by_all)
    assert await client.last_event_number() == 100
    await client.close()


async def test_all_stores_end_at_once_and_go_on_with_everything(stores: Stores) -> None:
    await stores.assign()
    await stores.placed(is_served_by_all)
    client = PatientClient(stores.connect, SEGMENT)
    await client.create()
    expected = await client.write(1, events(1, 50))
    await client.call(FlushContainer(container=0))
    expected += await client.write(51, events(51, 50))
    for name in NAMES:
        await stores.kill(name)
    for name in NAMES:
        await stores.start(name)
    assert await client.read_all() == expected
    expected += await client.write(101, events(101, 50))
    assert await client.read_all() == expected
    await stores.placed(is_served_by_all)
    await client.close()


async def test_a_paused_leader_that_wakes_up_serves_no_more(stores: Stores) -> None:
    await stores.assign()
    before = await stores.placed(is_served_by_all)
    client, old = PatientClient(stores.connect, SEGMENT), await stores.connect()
    await client.create()
    expected = await client.write(1, events(1, 50))
    leader = stores.name_of(before.owner)
    stores.signal(leader, signal.SIGSTOP)
    await stores.end_session(before.owner)
    await stores.elect(before.owner)
    await stores.placed(
        lambda found: found.owner != before.owner and found.state is PlacementState.OPEN
    )
    expected += await client.write(51, events(51, 50))
    assert await client.read_all() == expected
    stores.signal(leader, signal.SIGCONT)
    reply = await old.call(ReadSegment(segment=SEGMENT, offset=0, size_max=1 << 20, wait_ms=0))
    assert isinstance(reply, Failed)
    assert reply.code in ("wrong-host", "unavailable", "session-over", "deposed")
    await stores.placed(is_served_by_all)
    expected += await client.write(101, events(101, 50))
    assert await client.read_all() == expected
    await old.close()
    await client.close()


async def test_appends_go_on_while_nats_is_away(stores: Stores, nats_server: NatsServer) -> None:
    await stores.assign()
    await stores.placed(is_served_by_all)
    client = PatientClient(stores.connect, SEGMENT)
    await client.create()
    expected = await client.write(1, events(1, 50))
    await client.last_event_number()
    await asyncio.to_thread(nats_server.kill)
    expected += await client.write(51, events(51, 50))
    await asyncio.to_thread(nats_server.start)
    assert await client.read_all() == expected
    await client.close()


async def test_another_store_takes_the_place_of_a_lost_one(stores: Stores) -> None:
    await stores.assign()
    before = await stores.placed(is_served_by_all)
    lost = next(node for node in before.replicas if node != before.owner)
    name = stores.name_of(lost)
    client = PatientClient(stores.connect, SEGMENT)
    await client.create()
    expected = await client.write(1, events(1, 50))
    await stores.kill(name)
    shutil.rmtree(stores.folder(name))
    await stores.start(name)
    (new,) = set(await stores.registered(4)) - set(before.replicas)

    def replaced(found: Placement) -> Placement:
        others = tuple(new if node == lost else node for node in found.replicas)
        return replace(found, replicas=others)

    await stores.change(replaced)
    after = await stores.placed(
        lambda found: is_served_by_all(found) and new in {copy.node_id for copy in found.isr}
    )
    assert {copy.node_id for copy in after.isr} == set(after.replicas)
    assert after.container_epoch == before.container_epoch
    expected += await client.write(51, events(51, 50))
    await stores.kill(stores.name_of(after.owner))
    await stores.change(
        lambda found: replace(
            found,
            replicas=(new, *(node for node in found.replicas if node != new)),
            container_epoch=found.container_epoch + 1,
            state=PlacementState.ASSIGNED,
        )
    )
    assert await client.read_all() == expected
    await client.close()
