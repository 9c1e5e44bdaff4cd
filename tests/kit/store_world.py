"""A whole segment store on simulated disks and virtual time, crashed anywhere.

The world is one machine: a journal disk and a tier-2 disk, and the object store with the
placements, which survives. A *life* is one process: journal, tier 2, one keeper per container,
and scripted clients that talk to the real handlers. A life ends by itself, by `kill`, or by
`power_loss` at a planned disk call. `History` holds what the clients were told against what
later lives show.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from anabranch.common.contracts.cluster import placement_key, placement_to_bytes
from anabranch.common.errors import AnabranchError, Defect, DirectoryUnusable, DiskFailed
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.runtime.metrics import silent_metrics
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendSetup,
    ConditionalAppend,
    Failed,
    Message,
    ReadSegment,
    SegmentRead,
    SetupAppend,
    error_of,
)
from anabranch.segstore.adapters.journal.commits import CommitWriter, InlineCommits
from anabranch.segstore.adapters.journal.journal import Journal, open_journal
from anabranch.segstore.domain.container.circumstances import Given
from anabranch.segstore.domain.storage.plan import ChunkLimits
from anabranch.segstore.domain.storage.snapshot import SnapshotLimits
from anabranch.segstore.domain.storage.space import RewriteLimits
from anabranch.segstore.handlers.append import AppendDesk, setup_without_session
from anabranch.segstore.handlers.control import ControlDesk
from anabranch.segstore.handlers.read import ReadDesk
from anabranch.segstore.shell.container.metrics import StoreMetrics, uncounted
from anabranch.segstore.shell.container.throttle import Throttle, ThrottleLimits
from anabranch.segstore.shell.container.tracing import Commits
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.catch_up import CatchUp, new_catch_up
from anabranch.segstore.shell.memory.granule import Bytes
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.node.lifecycle import ContainerKeeper
from anabranch.segstore.shell.node.opening import Tiers
from anabranch.segstore.shell.node.placements import Placements
from anabranch.segstore.shell.tables.parts import TableParts
from anabranch.segstore.shell.tiering.flusher import FlushLimits
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import TierTwoLimits
from kit.chunk_faults import UnhurriedStorage
from kit.deferred_commits import DeferredCommits
from kit.history import History
from kit.simdisk import Crashed, SimDisk, Survival
from kit.store_parts import a_store, surroundings
from kit.table_parts import table_parts
from kit.virtual_time import VirtualClock, VirtualTimeLoop, cancel_all, close_unbegun

if TYPE_CHECKING:
    from kit.store_writer import WriterScript

NODE = "node-1"
READ_SIZE_BYTES = 3000
TIER_TWO_LIMITS = TierTwoLimits(
    chunks=ChunkLimits(gathered_max=1000),
    snapshots=SnapshotLimits(manifests_max=3, page_target=400, page_max=1500, extents_inline=3),
    gc_grace_s=5.0,
    rewrite=RewriteLimits(live_share=0.9, rest_s=0.0),
)


class Counting(Protocol):
    """A client whose attribute tells how many of its requests were performed."""

    async def check(self, client: "Client") -> None:
        """Hold the attribute against what the client was told."""
        ...


@dataclass
class World:
    """The machine and what its clients were told. Small limits make everything happen often."""

    container_count: int = 2
    node: str = NODE
    journal_file_size: int = 6 * 1024
    flush_bytes: int = 8 * 1024
    cache_bytes: int = 6 * 1024
    untiered_bytes_max: int = 1 << 30
    journal_bytes_max: int = 1 << 30
    pending_bytes_max: int = 1 << 27
    sync_s: float | None = None
    """A writer process takes this long for a write, and as long to say so; None: inline."""
    segments_in_memory: int = 2
    journal_disk: SimDisk = field(default_factory=SimDisk)
    tier_disk: SimDisk = field(default_factory=SimDisk)
    objects: InMemoryObjectStore = field(default_factory=InMemoryObjectStore)
    history: History = field(default_factory=History)
    created: set[str] = field(default_factory=set)
    counters: list["Counting"] = field(default_factory=list)
    transients: dict[str, int] = field(default_factory=dict)
    uploads: set[str] = field(default_factory=set)
    """Transient segments that are stored before a reference, and in no other way."""
    """Transient segments, and the life in which each was made."""
    lives: int = 0

    def __post_init__(self) -> None:
        self.journal_disk.share_machine(self.tier_disk)

    def limits(self) -> ThrottleLimits:
        """Where back-pressure begins."""
        return ThrottleLimits(
            pending_soft=self.pending_bytes_max // 2,
            pending_hard=self.pending_bytes_max,
            untiered=self.untiered_bytes_max,
            journal=self.journal_bytes_max,
        )

    def new_loop(self) -> VirtualTimeLoop:
        """The event loop of a life."""
        return VirtualTimeLoop()

    def clock(self, loop: VirtualTimeLoop) -> VirtualClock:
        """The clock of a life."""
        return VirtualClock(loop)

    def table_parts(self, catch_up: CatchUp, _clock: VirtualClock) -> TableParts:
        """What the tables of a life share."""
        return table_parts(catch_up)

    async def place_containers(self) -> None:
        """Assign all containers to the one node; done before is fine."""
        for container in range(self.container_count):
            key = placement_key(container)
            if await self.objects.get(key) is None:
                placement = Placement(container, (NODE,))
                await self.objects.create(key, placement_to_bytes(placement))

    def run(self, script: "Script") -> bool:
        """One life; False if it ended in a crash. Anything but a crash is raised."""
        self.journal_disk.share_machine(self.tier_disk)
        self.lives += 1
        loop = self.new_loop()
        life = Life(self, loop)
        try:
            return loop.run_until_complete(life.run(script))
        finally:
            with suppress(Crashed):
                cancel_all(loop)
            loop.close()

    def fork(self) -> "World":
        """An independent copy, to be crashed in another way."""
        twin = deepcopy(replace(self, journal_disk=SimDisk(), tier_disk=SimDisk()))
        twin.journal_disk = self.journal_disk.fork()
        twin.tier_disk = self.tier_disk.fork()
        twin.journal_disk.share_machine(twin.tier_disk)
        return twin

    def power_loss(self, survival: Survival) -> None:
        """Both disks lose power."""
        self.journal_disk.power_loss(survival)
        self.tier_disk.power_loss(survival)

    def kill(self) -> None:
        """The process dies; the machine lives."""
        self.journal_disk.kill()
        self.tier_disk.kill()


LIFE_S_MAX = 3 * 24 * 3600.0
"""Virtual seconds. A life that waits for what can never happen is found then."""

Script = Callable[["Life"], Coroutine[None, None, None]]


class _LoudMetrics(StoreMetrics):
    """A container that ends by a defect ends the life."""

    def __init__(self, found: Callable[[BaseException], None]) -> None:
        super().__init__(silent_metrics())
        self._found = found

    def note_defect(self, defect: Defect) -> None:
        self._found(defect.__cause__ or defect)


class Life:
    """One process of the store, with in-process clients."""

    def __init__(self, world: World, loop: VirtualTimeLoop) -> None:
        self.world = world
        self.loop = loop
        self.clock = world.clock(loop)
        self.ids = SeededIds(world.lives)
        self._cache = Cache(world.cache_bytes)
        catch_up = new_catch_up(self._cache, self.clock, self._call_later)
        self.store = a_store(world.container_count, catch_up)
        self._tables = world.table_parts(catch_up, self.clock)
        self.failure: AnabranchError | None = None
        self.keepers: list[ContainerKeeper] = []
        self.commits = Commits(uncounted(), self.clock, lambda: self.clock.now_ms() * 1_000_000)
        self.journal: Journal
        self.throttle: Throttle
        self._crash: asyncio.Event = asyncio.Event()
        self._problem: BaseException | None = None

    async def run(self, script: Script) -> bool:
        """Open everything, run the script, end. False after a crash."""
        self.loop.set_exception_handler(self._on_exception)
        self.loop.call_later(LIFE_S_MAX, self._found, AssertionError("the life never ended"))
        try:
            await self.world.place_containers()
            journal = open_journal(
                self.world.journal_disk,
                ids=self.ids,
                schedule=self.loop.call_soon,
                file_size=self.world.journal_file_size,
                watch=self.commits,
                commits=self._commit_writer(),
            )
            storage = UnhurriedStorage(
                self.world.tier_disk, self.ids, self.world.node, in_threads=False
            )
            storage.open()
        except Crashed:
            return False
        except (DiskFailed, DirectoryUnusable) as error:
            self.failure = error
            return False
        self.journal = journal
        self.throttle = Throttle(
            self.world.limits(),
            journal_size=lambda: journal.live_size,
            no_room=lambda: journal.no_room is not None,
        )
        tiers = Tiers(
            journal,
            OpenContainerTierTwo(storage, self.ids, self.clock, TIER_TWO_LIMITS),
            Placements(self.world.objects, self.world.node),
            self.ids,
        )
        work = [
            self._guard(script(self)),
            self._guard(self._look_for_room()),
            *map(self._guard, self._keepers(tiers)),
        ]
        tasks = [self.loop.create_task(item) for item in work]
        crashed = self.loop.create_task(self._crash.wait())
        await asyncio.wait((tasks[0], crashed), return_when=asyncio.FIRST_COMPLETED)
        if self.world.journal_disk.dead:
            return False
        if self._problem is not None:
            raise self._problem
        return not self._crash.is_set()

    async def _look_for_room(self) -> None:
        """As the journal watch does, of which a life that looks after nothing else has none."""
        while True:
            await self.clock.sleep(1.0)
            self.journal.try_again()

    def _commit_writer(self) -> CommitWriter:
        world = self.world
        if world.sync_s is None:
            return InlineCommits()
        return DeferredCommits(lambda callback: self.loop.call_later(world.sync_s or 0.0, callback))

    def _keepers(self, tiers: Tiers) -> list[Coroutine[None, None, None]]:
        around = surroundings(
            self.clock,
            self._cache,
            self.throttle,
            self._call_later,
            metrics=_LoudMetrics(self._found),
            residency=ResidencyLimits(self.world.segments_in_memory),
        )
        limits = FlushLimits(bytes_max=self.world.flush_bytes, age_s_max=5.0)
        self.keepers = [
            ContainerKeeper(
                container,
                store=self.store,
                tiers=tiers,
                around=around,
                limits=limits,
                tables=self._tables,
                store_failed=self._store_failed,
            )
            for container in range(self.world.container_count)
        ]
        return [keeper.run() for keeper in self.keepers]

    async def _guard(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Crashed:
            self._crash.set()
        except BaseExceptionGroup as group:
            if group.subgroup(Crashed) is None:
                self._problem = self._problem or group
            self._crash.set()
        except Exception as error:  # noqa: BLE001  kept and raised by `run`
            self._problem = self._problem or error
            self._crash.set()

    def _found(self, error: BaseException) -> None:
        """`run` raises it, although the store may have contained it."""
        self._problem = self._problem or error
        self._crash.set()

    def _on_exception(self, _: object, context: dict[str, object]) -> None:
        error = context.get("exception")
        if not isinstance(error, Crashed):
            problem = error if isinstance(error, BaseException) else None
            self._problem = self._problem or problem or AssertionError(context["message"])
        self._crash.set()

    def _store_failed(self, error: AnabranchError) -> None:
        """The journal ended, and with it the process."""
        self.failure = error
        self._crash.set()

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        return self.loop.call_later(seconds, callback).cancel

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run work of a handler, watched. A life may end before it begins."""
        self.loop.create_task(self._guard(work)).add_done_callback(lambda _: close_unbegun(work))

    async def opened(self) -> None:
        """Every container serves."""
        async with asyncio.timeout(600):
            while len(self.store.open_containers()) < self.world.container_count:
                await self.clock.sleep(0.01)


class Client:
    """One connection to the store of a life, by the real handlers; replies come as futures."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self._last_id = 0
        self._last_session = 0
        self._waiting: dict[int, asyncio.Future[tuple[Message, bytes]]] = {}
        self._sessions: dict[int, WriterScript] = {}
        self._desk = AppendDesk(life.store, self._replied)
        self._reads = ReadDesk(life.store, self._read_replied, life.spawn)
        self._control = ControlDesk(life.store, life.spawn)

    def _read_replied(self, message: Message, request_id: int, data: Bytes) -> None:
        self._waiting.pop(request_id).set_result((message, bytes(data)))

    def _replied(self, message: Message, request_id: int) -> None:
        if request_id in self._waiting:
            self._waiting.pop(request_id).set_result((message, b""))
        elif isinstance(message, Appended | Failed):
            self._sessions[message.session].replied(message)

    def _new_request(self) -> tuple[int, asyncio.Future[tuple[Message, bytes]]]:
        self._last_id += 1
        waiting: asyncio.Future[tuple[Message, bytes]] = self.life.loop.create_future()
        self._waiting[self._last_id] = waiting
        return self._last_id, waiting

    async def control(self, request: Message, payload: bytes = b"") -> Message:
        """Perform a control request; raises what the store answers."""
        request_id, waiting = self._new_request()
        given = Given(payload)
        self._control.ask(request, lambda message: self._replied(message, request_id), given)
        return await _answer(waiting)

    async def read(self, request: ReadSegment) -> tuple[SegmentRead, bytes]:
        """Perform a read; raises what the store answers."""
        request_id, waiting = self._new_request()
        self._reads.submit(request_id, request)
        reply, data = await waiting
        if isinstance(reply, Failed):
            raise error_of(reply)
        assert isinstance(reply, SegmentRead)
        return reply, data

    def new_session(self) -> int:
        """A session number of this connection."""
        self._last_session += 1
        return self._last_session

    async def setup(self, writer: "WriterScript", session: int) -> AppendSetup:
        """Open an append session for the writer; raises what the store answers."""
        request_id, waiting = self._new_request()
        self._sessions[session] = writer
        setup = SetupAppend(segment=writer.segment, writer_id=writer.writer_id, session=session)
        self._desk.setup(request_id, setup)
        reply = await _answer(waiting)
        assert isinstance(reply, AppendSetup)
        return reply

    def append(self, append: Append, block: bytes) -> None:
        """Send an append; its session's writer hears of it."""
        self._last_id += 1
        self._desk.append(self._last_id, append, block)

    async def last_event_number(self, request: SetupAppend) -> int:
        """What the store remembers of a writer; raises what it answers."""
        request_id, waiting = self._new_request()
        setup_without_session(
            self.life.store, request, lambda reply: self._replied(reply, request_id)
        )
        reply = await _answer(waiting)
        assert isinstance(reply, AppendSetup)
        return reply.last_event_number

    async def append_if(self, request: ConditionalAppend, block: bytes) -> Appended:
        """Append under conditions; raises what the store answers."""
        reply = await self.control(request, block)
        assert isinstance(reply, Appended)
        return reply

    async def read_all(self, segment: str, start: int = 0) -> tuple[bytes, bool]:
        """(everything durable in the segment from `start` on, whether it is sealed)."""
        content = b""
        while True:
            offset = start + len(content)
            request = ReadSegment(segment=segment, offset=offset, size_max=READ_SIZE_BYTES)
            reply, data = await self.read(request)
            content += data
            if reply.end_of_segment or (reply.at_tail and not data):
                return content, reply.end_of_segment


async def _answer(waiting: asyncio.Future[tuple[Message, bytes]]) -> Message:
    reply, _ = await waiting
    if isinstance(reply, Failed):
        raise error_of(reply)
    return reply
