"""Some stores that replicate logs to each other, and keep them in memory, on a virtual loop."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.adapters.replicated_log.copies import Copies
from anabranch.segstore.adapters.replicated_log.led import Around, Pace
from anabranch.segstore.adapters.replicated_log.log import ReplicatedLog
from anabranch.segstore.adapters.replicated_log.records import LocalLog
from anabranch.segstore.adapters.replicated_log.view import ReplicatedView
from kit.log_driver import ScriptedSource, replay_of
from kit.memory_peers import MemoryPeers, MemoryRegister
from kit.simdisk import SimDisk
from kit.virtual_time import VirtualClock, VirtualTimeLoop, run_virtual

LOG_ID = "log-0"
BACK_OFF_S = 0.1


class PlacedLog(ReplicatedLog):
    """A log whose containers are released when their log is removed."""

    def __init__(
        self, local: LocalLog, copies: Copies, around: Around, register: MemoryRegister
    ) -> None:
        super().__init__(local, copies, around)
        self._register = register

    async def remove_log(self, container: int, log_id: str) -> None:
        await super().remove_log(container, log_id)
        self._register.isrs.pop(container, None)


class Store:
    """One store. `restart` begins another process over what the store has on its disk."""

    def __init__(self, world: "ReplicaWorld", node_id: str, number: int) -> None:
        self._world = world
        self.node_id = node_id
        self._ids = SeededIds(number)
        self.frames = MemoryFrames(f"journal-{node_id}")
        self.disk = SimDisk()
        self.has_lease = True
        self.flushes_wanted: list[int] = []
        self.restart()

    def restart(self) -> None:
        """Begin a process; an older one finds the disk taken."""
        world, loop = self._world, self._world.loop
        clock = VirtualClock(loop)
        local: LocalLog = MemoryLog(self.frames, loop.call_soon)
        if world.journal_file_size:
            local = open_journal(
                self.disk, ids=self._ids, schedule=loop.call_soon,
                file_size=world.journal_file_size,
            )  # fmt: skip
        self.copies = Copies(
            local, self.node_id, self._ids, clock,
            schedule=loop.call_soon, spawn=world.spawn, on_failure=lambda _: None,
        )  # fmt: skip

        def call_later(seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
            return loop.call_later(seconds, callback).cancel

        around = Around(
            node_id=self.node_id,
            peers=world.peers_of(self.node_id),
            register=world.register,
            clock=clock,
            schedule=loop.call_soon,
            call_later=call_later,
            spawn=world.spawn,
            back_off_s=lambda _: BACK_OFF_S,
            may_acknowledge_alone=lambda: self.has_lease,
            flush_wanted=self.flushes_wanted.append,
            pace=world.pace,
        )
        self.log = PlacedLog(local, self.copies, around, world.register)
        world.logs.append(self.log)
        world.peers.hosts[self.node_id] = self.copies

    def wipe(self) -> None:
        """The store loses its disk, and begins with an empty one."""
        self.frames = MemoryFrames(f"journal-{self.node_id}-{self._ids.new_id()}")
        self.disk = SimDisk()
        self.restart()

    def history(self, container: int = 0) -> list[tuple[int, int]]:
        """The positions that the copy counts, with its base."""
        copy = self.copies._copies[container]
        return [mark.position for mark in copy.history.after(copy.history.base)]


class Led:
    """An open log, and the container that writes to it."""

    def __init__(self, view: ReplicatedView, source: ScriptedSource) -> None:
        self.view = view
        self.source = source

    async def write(self, *payloads: bytes) -> None:
        """Write these frames, one after the other, as far as they become durable at once."""
        for payload in payloads:
            self.source.put(payload)
            self.view.ready()
            await asyncio.sleep(0.01)

    @property
    def durable(self) -> list[bytes]:
        """What was acknowledged, in order."""
        return list(self.source.durable.values())

    async def replayed(self, after_sequence: int = 0) -> list[bytes]:
        """What the log replays."""
        return list((await replay_of(self.view, after_sequence)).values())


class ReplicaWorld:
    """`nodes`: the stores of every container, of which the first one leads.

    `journal_file_size`: the stores keep journals with files of this size on simulated disks; 0:
    they keep logs in memory.
    """

    def __init__(
        self,
        loop: VirtualTimeLoop,
        nodes: Sequence[str] = ("a", "b", "c"),
        isr_min: int = 1,
        pace: Pace | None = None,
        journal_file_size: int = 0,
    ) -> None:
        self.loop = loop
        self.journal_file_size = journal_file_size
        self.pace = pace or Pace()
        self.peers = MemoryPeers()
        self.register = MemoryRegister(tuple(nodes), isr_min)
        self.logs: list[ReplicatedLog] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.stores: dict[str, Store] = {}
        for node in nodes:
            self.add_store(node)

    def peers_of(self, node: str) -> MemoryPeers:
        """The other stores, as this one sees them."""
        return self.peers

    def add_store(self, node: str) -> None:
        """Begin another store."""
        self.stores[node] = Store(self, node, len(self.stores) + 1)

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def open(self, node: str, epoch: int, source: ScriptedSource) -> ReplicatedView:
        """Open the log of container 0; its first opening creates it."""
        log = self.stores[node].log
        if not self.register.isrs.get(0):
            await log.create_log(0, LOG_ID)
        return await log.open_log(0, LOG_ID, epoch, source)

    async def until(self, holds: Callable[[], bool], seconds: float = 30.0) -> None:
        """Let time pass until this holds."""
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def opened_by(self, node: str, epoch: int = 1) -> "Led":
        """Open the log, and wait until every store is in the ISR."""
        source = ScriptedSource()
        view = await self.open(node, epoch, source)
        await self.all_in_sync()
        return Led(view, source)

    async def all_in_sync(self) -> None:
        """Wait until every store is in the ISR."""
        await self.until(lambda: self.register.members() == tuple(sorted(self.stores)))

    async def settle(self) -> None:
        """Let everything happen that takes no time."""
        await asyncio.sleep(0.01)

    def end(self) -> None:
        """Close all logs."""
        for log in self.logs:
            log.close()


def in_world(
    *nodes: str, isr_min: int = 1, journal_file_size: int = 0
) -> Callable[[Callable[[ReplicaWorld], Coroutine[None, None, None]]], Callable[[], None]]:
    """Makes a test of a story that happens in a world of these stores."""

    def made(story: Callable[[ReplicaWorld], Coroutine[None, None, None]]) -> Callable[[], None]:
        async def lived() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            world = ReplicaWorld(
                loop, nodes or ("a", "b", "c"), isr_min,
                journal_file_size=journal_file_size,
            )  # fmt: skip
            try:
                await story(world)
            finally:
                world.end()
                await world.settle()
            assert not world.tasks, "every task ends with its view"

        def test() -> None:
            run_virtual(lived())

        test.__name__, test.__doc__ = story.__name__, story.__doc__
        return test

    return made
