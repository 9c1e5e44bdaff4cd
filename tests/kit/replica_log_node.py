"""A store of the simulation of replicated logs: its journal, copies and logs, and no containers.

A keeper per container opens the log whenever the placement names this store, writes operations to
it, flushes and releases, and opens it again when its view ends.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.common.errors import AnabranchError, Corrupt, LogNotHere
from anabranch.common.model.cluster import REPLICATED, Placement, PlacementState
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.replicated_log.view import ReplicatedView
from anabranch.segstore.ports import FrameContents, LogAddress
from anabranch.segstore.ports_replica import CopyHost, Replicas
from kit.log_driver import ScriptedSource
from kit.process_objects import ProcessObjects
from kit.replica_links import SimPeers
from kit.replica_parts import ReplicaParts, StorePlacements, replica_parts
from kit.stream_log_referee import decoded, encoded

if TYPE_CHECKING:
    from kit.replica_log_world import Placed, World

LIFE_S_MAX = 20.0
IDLE_LOOKS = 200
FILES_MAX = 6
"""Journal files beyond so many must be pinned by no copy."""


class Source(ScriptedSource):
    """A container that tells the referee of what it acknowledges."""

    def __init__(
        self,
        placed: "Placed",
        container_epoch: int,
        history: list[int],
        ended: asyncio.Event,
        journal_ended: Callable[[], None],
    ) -> None:
        super().__init__(next_sequence=len(history) + 1)
        self.history = history
        self._placed = placed
        self._epoch = container_epoch
        self._ended = ended
        self._journal_ended = journal_ended

    def frame_durable(self, contents: FrameContents, address: LogAddress) -> None:
        super().frame_durable(contents, address)
        operations = decoded(self.durable[contents.first_sequence], contents.count)
        assert contents.first_sequence == len(self.history) + 1, "frames come in order"
        self.history += operations
        self._placed.acknowledged(self._epoch, contents.first_sequence, operations)

    def log_failed(self, error: AnabranchError) -> None:
        super().log_failed(error)
        self._ended.set()

    def journal_failed(self, error: AnabranchError) -> None:
        super().journal_failed(error)
        self._ended.set()
        self._journal_ended()


class Node:
    """One life of a store."""

    def __init__(self, world: "World", name: str, rate: float) -> None:
        self.name = name
        self.silent = False
        self._world = world
        self._rng = world.rng
        process = self.process = world.processes.new(name, rate)
        self._tasks: set[asyncio.Task[None]] = set()
        self.way = world.bucket_way(process)
        objects = ProcessObjects(world.placements, self.way, self.way)
        self.placements = StorePlacements(objects, name)
        self.ids = SeededIds(world.next_number())
        self.journal = world.disks.open(name, process, self.ids, process.loop.call_soon)
        peers = SimPeers(
            world.network, name, process, gone=world.is_gone, is_silent=lambda: self.silent
        )
        self.parts: ReplicaParts = replica_parts(
            self.journal,
            name,
            process,
            ids=self.ids,
            register=self.placements,
            peers=peers,
            spawn=self.spawn,
            number=world.next_number(),
            may_acknowledge_alone=lambda: True,
            flush_wanted=self._note_flush_wanted,
            failed=lambda _error: process.kill(),
        )
        self.flush_wanted: set[int] = set()
        self._never = asyncio.Event()
        self.open: dict[int, int] = {}
        """The containers that serve here, with their epochs."""
        world.network.join(name, self)
        process.start(self._run())

    def _note_flush_wanted(self, container: int) -> None:
        self._world.counts["flushes that copies asked for"] += 1
        self.flush_wanted.add(container)

    @property
    def host(self) -> CopyHost:
        """See `Hosting`."""
        return self.parts.copies

    def spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run work of a caller, or of a log."""
        task = self.process.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._world.processes.broken.append(error)

    async def _run(self) -> None:
        for container in range(self._world.container_count):
            self.spawn(self._keep(container))
        self.spawn(self._tidy())
        await self._never.wait()

    async def _keep(self, container: int) -> None:
        while True:
            try:
                await self._live(container)
            except Corrupt as error:
                raise AssertionError(f"{self.name} found damage: {error!r}") from error
            except AnabranchError:
                self._world.counts["openings and views that failed"] += 1
            await asyncio.sleep(0.05 + self._rng.random() * 0.3)

    async def _tidy(self) -> None:
        """Remove copies that are not needed, and have others pin no old journal files."""
        while True:
            await asyncio.sleep(0.5 + self._rng.random() * 2)
            try:
                await self.tidy_once()
            except AnabranchError:
                self._world.counts["tidying of copies that failed"] += 1

    async def tidy_once(self) -> None:
        """One look at the journal and the placements."""
        copies = self.parts.copies
        self.parts.log.try_again()
        pinned = [file.pinned_by for file in self.journal.live_files()[:-FILES_MAX]]
        for container in sorted(frozenset[int]().union(*pinned)):
            if not await copies.unpin(container) and self._rng.random() < 0.3:
                self._world.counts["copies dropped"] += 1
                copies.drop(container)
        every = range(self._world.container_count)
        found = [await self.placements.look(container) for container in every]
        await copies.tidy(one for one in found if one is not None)
        if len(self.journal.live_files()) < FILES_MAX:
            copies.keep_dropped()

    async def _live(self, container: int) -> None:
        """Open the log if it is this store's, and serve until the view ends."""
        found = await self.placements.look(container)
        if found is None or not self.placements.is_mine(found):
            return
        taken = await self.placements.take_epoch(container)
        try:
            await self._serve_as(taken)
        except LogNotHere as error:
            await self.placements.report_failed(
                taken, restarts=1, reason=str(error), state=PlacementState.FAILED
            )
            raise
        finally:
            self.open.pop(container, None)

    async def _serve_as(self, taken: Placement) -> None:
        container, epoch, placed = taken.container, taken.container_epoch, self._world.placed
        mine = placed[container]
        log_id = await self._log_id(taken)
        history = mine.fence(epoch, log_id)
        applied, ended = len(history), asyncio.Event()
        source = Source(mine, epoch, history, ended, self.process.kill)
        self.parts.log.continue_above(container, applied)
        view = await self.parts.log.open_log(container, log_id, epoch, source)
        try:
            await self._replay(view, source, applied)
            mine.opened(epoch, list(source.history))
            await view.release(applied)
            await self.placements.report_open(taken, log_id, REPLICATED)
            self.open[container] = epoch
            await self._serve(view, source, taken, ended)
        finally:
            view.close()

    async def _log_id(self, taken: Placement) -> str:
        """The log to continue, or a new one."""
        if taken.log_id:
            return taken.log_id
        named = self._world.placed[taken.container].log_id
        log = self.parts.log
        if named and (await log.find_log(taken.container, named)).listed == named:
            return named
        log_id = self.ids.new_id()
        await log.create_log(taken.container, log_id)
        return log_id

    async def _replay(self, view: ReplicatedView, source: Source, applied: int) -> None:
        async for frame in view.replay(applied):
            operations = decoded(frame.payload, frame.count)
            source.history += operations[len(source.history) + 1 - frame.first_sequence :]
            if self._rng.random() < 0.1:
                assert await view.read_aside(frame.address) == frame.payload
        source.next_sequence = len(source.history) + 1

    async def _serve(
        self, view: ReplicatedView, source: Source, taken: Placement, ended: asyncio.Event
    ) -> None:
        """Write until the view ends, the placement changes, or it was long enough."""
        container = taken.container
        writing = self.spawn(self._write(view, source, taken.container_epoch))
        until_s = self._world.now_s + self._rng.random() * LIFE_S_MAX
        try:
            while self._world.calm or self._world.now_s < until_s:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await ended.wait()
                if ended.is_set():
                    return
                with suppress(AnabranchError):
                    found = await self.placements.look(container)
                    if found is None or found.container_epoch != taken.container_epoch:
                        return
                    self.parts.log.replicas_changed(
                        container,
                        taken.container_epoch,
                        Replicas(found.replicas, found.isr, found.isr_min),
                    )
        finally:
            writing.cancel()
        with suppress(AnabranchError):
            await self._hand_over(view, taken)

    async def _hand_over(self, view: ReplicatedView, taken: Placement) -> None:
        """Have another member of the ISR lead, once everything is acknowledged."""
        for _ in range(IDLE_LOOKS):
            if not view.idle:
                await asyncio.sleep(0.01)
        found = await self.placements.look(taken.container)
        if found is None or not view.idle or view.ended:
            return
        others = [copy.node_id for copy in found.isr if copy.node_id != self.name]
        if others and self._rng.random() < 0.7:
            view.close()
            await self.placements.hand_over_to(taken, self._rng.choice(others))
            self._world.counts["logs handed over"] += 1

    async def _write(self, view: ReplicatedView, source: Source, epoch: int) -> None:
        rng, placed = self._rng, self._world.placed[view.container]
        with suppress(AnabranchError):
            while True:
                for _ in range(rng.randint(1, 5)):
                    operations = placed.new_operations(rng.randint(1, 3))
                    padding = rng.choice((0, 0, 0, 300))
                    source.put(encoded(operations, padding), len(operations))
                view.ready()
                await asyncio.sleep(rng.random() * 0.8)
                if rng.random() < 0.1 or view.container in self.flush_wanted:
                    self.flush_wanted.discard(view.container)
                    history = list(source.history)
                    placed.tiered.flush(epoch, history)
                    await asyncio.sleep(rng.random())
                    await view.release(len(history))
