"""A segment store in the test's event loop: real TCP, real keepers, everything else in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.contracts.cluster import placement_key, placement_to_bytes
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import Endpoint, Placement
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.jetstream_log.log import StreamLog
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.adapters.table_index.memory import MemoryIndexes
from anabranch.segstore.handlers.control import ControlDesk
from anabranch.segstore.ports import DurableDataLog
from anabranch.segstore.server.nats_door import PacketDesk
from anabranch.segstore.server.tcp import Served, TcpLimits, TcpServer
from anabranch.segstore.shell.container.lease import Session
from anabranch.segstore.shell.container.throttle import Throttle, ThrottleLimits
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.catch_up import CatchUp
from anabranch.segstore.shell.memory.outgoing import SIZE_BYTES_MAX, Outgoing
from anabranch.segstore.shell.memory.read_ahead import ReadAhead
from anabranch.segstore.shell.node.assignments import Assignments
from anabranch.segstore.shell.node.lifecycle import ContainerKeeper
from anabranch.segstore.shell.node.opening import Tiers
from anabranch.segstore.shell.node.placements import Placements
from anabranch.segstore.shell.node.store import Store
from anabranch.segstore.shell.tiering.flusher import FlushLimits
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from kit.sim_stream import SimClient, SimServers
from kit.store_parts import a_store, a_throttle, surroundings
from kit.stream_log import around_of
from kit.table_parts import table_parts

NODE = "node-1"


@dataclass
class World:
    """What outlives a store: its log, its indexes, tier 2 and the cluster's placements."""

    containers: int = 1
    node: str = NODE
    frames: MemoryFrames = field(default_factory=lambda: MemoryFrames("a-journal"))
    servers: SimServers | None = None
    """Servers with the logs of all stores, in place of the store's own log."""
    storage: MemoryChunkStorage = field(default_factory=MemoryChunkStorage)
    placements: InMemoryObjectStore = field(default_factory=InMemoryObjectStore)
    indexes: MemoryIndexes = field(default_factory=MemoryIndexes)

    async def assign(self, container: int) -> None:
        placement = Placement(container, (self.node,))
        await self.placements.create(placement_key(container), placement_to_bytes(placement))


@dataclass
class LiveStore:
    """A store that serves."""

    endpoint: Endpoint
    store: Store
    throttle: Throttle
    desk: PacketDesk
    failures: list[AnabranchError]
    server: TcpServer


def call_later(seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
    return asyncio.get_running_loop().call_later(seconds, callback).cancel


@asynccontextmanager
async def live_store(
    world: World,
    *,
    cache_size: int = 1 << 24,
    wait_open: bool = True,
    tcp: TcpLimits | None = None,
    throttle_limits: ThrottleLimits | None = None,
    unsent_max: int = SIZE_BYTES_MAX,
    clock: Clock | None = None,
    session: Session | None = None,
) -> AsyncIterator[LiveStore]:
    """Open everything that is assigned to the world's node and serve until the block ends."""
    clock, changed = clock or SystemClock(), asyncio.Event()
    failures: list[AnabranchError] = []
    cache = Cache(cache_size)
    catch_up = CatchUp(ReadAhead(cache, clock, call_later), outgoing=Outgoing(unsent_max))
    store = a_store(world.containers, catch_up, on_changed=changed.set)
    throttle = a_throttle(throttle_limits)
    around = surroundings(clock, cache, throttle, call_later, session=session)
    placements = Placements(world.placements, world.node)
    log, ids = _log_of(world)
    tiers = Tiers(log, OpenContainerTierTwo(world.storage, ids, clock), placements, ids)

    new_keeper = partial(
        ContainerKeeper,
        store=store, tiers=tiers, around=around, limits=FlushLimits(),
        tables=table_parts(catch_up, indexes=world.indexes), store_failed=failures.append,
    )  # fmt: skip
    assignments = Assignments(
        objects=world.placements,
        placements=placements,
        store=store,
        clock=clock,
        back_off_s=around.back_off_s,
        new_keeper=new_keeper,
    )
    async with asyncio.TaskGroup() as group:

        def spawn(work: Coroutine[None, None, None]) -> None:
            group.create_task(work)

        server = TcpServer(
            Served(
                store=store, throttle=throttle, clock=clock, call_later=call_later, spawn=spawn,
                node_id=world.node, ids=ids, limits=tcp or TcpLimits(),
            )
        )  # fmt: skip
        endpoint = await server.start("127.0.0.1", 0)
        following = group.create_task(assignments.run())
        desk = PacketDesk(ControlDesk(store, spawn), throttle)
        try:
            if wait_open:
                await _all_open(world, store, changed)
            yield LiveStore(endpoint, store, throttle, desk, failures, server)
        finally:
            store.stopping = True
            server.close()
            desk.stop_reads(Unavailable("the store is stopping"))
            following.cancel()
    log.close()


def _log_of(world: World) -> tuple[DurableDataLog, SeededIds]:
    """The log of the next process of the world's node, and the ids that it draws."""
    loop = asyncio.get_running_loop()
    own = MemoryLog(world.frames, loop.call_soon)
    ids = SeededIds(1000 * sum(world.node.encode()) + world.frames.owner)
    if world.servers is None:
        return own, ids
    return StreamLog(SimClient(world.servers), around_of(loop, loop.create_task), ids), ids


async def _all_open(world: World, store: Store, changed: asyncio.Event) -> None:
    async with asyncio.timeout(5):
        while len(store.open_numbers) < len(await world.placements.list()):
            await changed.wait()
            changed.clear()
