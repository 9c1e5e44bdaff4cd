"""A store's process in a simulated cluster: the real parts from its session to its containers."""

import asyncio
from collections.abc import Callable, Coroutine

from anabranch.common.errors import AnabranchError
from anabranch.common.model.cluster import Endpoint, NodeRecord
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.jetstream_log.log import StreamLog
from anabranch.segstore.adapters.jetstream_log.view import Around
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.domain.storage.plan import ChunkLimits
from anabranch.segstore.domain.storage.snapshot import SnapshotLimits
from anabranch.segstore.ports import DurableDataLog
from anabranch.segstore.ports_replica import ReplicatedLogs
from anabranch.segstore.shell.container.lease import NoSession
from anabranch.segstore.shell.container.pauses import drawn_from
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.catch_up import new_catch_up
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.node.assignments import Assignments
from anabranch.segstore.shell.node.lifecycle import ContainerKeeper
from anabranch.segstore.shell.node.opening import Tiers
from anabranch.segstore.shell.node.placements import Placements
from anabranch.segstore.shell.node.registration import Announcement
from anabranch.segstore.shell.node.session import LEASE_S, StoreSession
from anabranch.segstore.shell.tables.parts import TableParts
from anabranch.segstore.shell.tiering.flusher import FlushLimits
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import TierTwoLimits
from kit.failover_services import Services
from kit.rng import seeded
from kit.store_parts import a_store, a_throttle, surroundings
from kit.table_parts import table_parts

CACHE_BYTES = 16 * 1024
FLUSH = FlushLimits(bytes_max=4 * 1024, age_s_max=5.0)
TIER_TWO = TierTwoLimits(
    chunks=ChunkLimits(gathered_max=1000),
    snapshots=SnapshotLimits(manifests_max=3, page_target=400, page_max=1500, extents_inline=3),
    gc_grace_s=60.0,
)


class StoreProcess:
    """One life of a store. `frames`: the contents of its own journal; None: its logs are shared.

    `former_may_run`: it took the node over from a process that may be alive.
    """

    def __init__(
        self,
        services: Services,
        node_id: str,
        rate: float,
        frames: MemoryFrames | None,
        *,
        former_may_run: bool = False,
    ) -> None:
        self.node_id = node_id
        self._former_may_run = former_may_run
        self.frames = frames
        number = services.next_number()
        process = self.process = services.processes.new(node_id, rate)
        self.ways = services.ways_of(process)
        self._services = services
        self._ids = SeededIds(number)
        self._back_off_s = drawn_from(seeded(number))
        self._tasks: set[asyncio.Task[None]] = set()
        cache = Cache(CACHE_BYTES)
        self._placements = Placements(
            services.objects(services.placements, self.ways), self.node_id
        )
        self._log = self._new_log(frames)
        shared = not self._log.bound_to_store
        self.store = a_store(
            services.container_count, new_catch_up(cache, process.clock, self._call_later)
        )
        self.session = StoreSession(
            self._ids.new_id(),
            LEASE_S if shared else 0.0,
            process.clock,
            self.store.end_all,
        )
        self._around = surroundings(
            process.clock, cache, a_throttle(), self._call_later,
            residency=ResidencyLimits(2), session=self.session if shared else NoSession(),
        )  # fmt: skip
        self._ended = asyncio.Event()
        self._tables = table_parts(self.store.catch_up)
        process.start(self._run())

    def _new_log(self, frames: MemoryFrames | None) -> DurableDataLog:
        loop = self.process.loop
        if frames is not None:
            return MemoryLog(frames, loop.call_soon)
        around = Around(self.process.clock, loop.call_soon, self._call_later, self.spawn)
        return StreamLog(self._services.streams(self.ways), around, self._ids)

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        return self.process.loop.call_later(seconds, callback).cancel

    def spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run work of a log, or for other stores."""
        task = self.process.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def run_apart(self, work: Coroutine[None, None, None]) -> None:
        """Run work of a handler."""
        self.spawn(work)

    async def _run(self) -> None:
        services, process = self._services, self.process
        announcement = Announcement(
            services.objects(services.nodes, self.ways),
            self._record(),
            self.session,
            join_token="",
            ids=self._ids,
            clock=process.clock,
            failed=self._fail,
        )
        loop = process.loop
        tasks = {
            loop.create_task(self._announce(announcement)),
            loop.create_task(self._assignments().run()),
            loop.create_task(self._beside()),
        }
        await self._ended.wait()
        self.store.stopping = True
        for opened in self.store.open_containers():
            opened.container.stop_accepting()
        await process.clock.sleep(0.5)
        while tasks:
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=0.1)
        await announcement.end()

    def _replicated(self) -> ReplicatedLogs | None:
        """The same place as the log, if stores replicate the logs."""
        return None

    async def _beside(self) -> None:
        """What runs beside the containers."""
        await self._ended.wait()

    def _record(self) -> NodeRecord:
        return NodeRecord(self.node_id, Endpoint(self.node_id, 1), self._log.journal_id)

    async def _announce(self, announcement: Announcement) -> None:
        if self._former_may_run:
            await announcement.wait_for_former()
        await announcement.run()

    def _fail(self, _error: AnabranchError) -> None:
        """The journal ended, or another process has the node's id: so the process ends."""
        self.process.kill()

    def stop(self) -> None:
        """Ask the process to end in order; call it in its process."""
        self._ended.set()

    def _assignments(self) -> Assignments:
        services = self._services
        objects = services.objects(services.placements, self.ways)
        placements = self._placements
        clock = self.process.clock
        open_tier_two = OpenContainerTierTwo(services.chunks(self.ways), self._ids, clock, TIER_TWO)
        tiers = Tiers(self._log, open_tier_two, placements, self._ids, self._replicated())
        tables: TableParts = self._tables

        def new_keeper(container: int) -> ContainerKeeper:
            return ContainerKeeper(
                container,
                store=self.store,
                tiers=tiers,
                around=self._around,
                limits=FLUSH,
                tables=tables,
                store_failed=self._fail,
            )

        return Assignments(
            objects=objects,
            placements=placements,
            store=self.store,
            clock=clock,
            back_off_s=self._back_off_s,
            new_keeper=new_keeper,
        )
