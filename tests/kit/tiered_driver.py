"""A container driven by hand together with its tier 2, in memory and with a flusher."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, cast

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import Buffer, ChunkStorage
from anabranch.common.tier2.state import Catalog, ChunkRef, SegmentState, Tombstone
from anabranch.common.wire.messages import (
    LocateEvent,
    LocateOffset,
    LocateTime,
    Message,
    OffsetLocated,
    ReadSegment,
    Request,
    TruncateSegment,
)
from anabranch.segstore.domain.container.circumstances import NOTHING_GIVEN, InIndex
from anabranch.segstore.ports import CatalogEntry, LogAddress, TierTwo
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.pauses import drawn_from
from anabranch.segstore.shell.container.reader import (
    Found,
    read_now,
)
from anabranch.segstore.shell.container.replies import Deliver
from anabranch.segstore.shell.container.tiered_events import look_up
from anabranch.segstore.shell.memory.catch_up import CatchUp, new_catch_up
from anabranch.segstore.shell.memory.granule import Granule
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.node.leftovers import end_leftovers
from anabranch.segstore.shell.node.store import OpenContainer, Store
from anabranch.segstore.shell.tables.serving import TableLoops
from anabranch.segstore.shell.tiering.collector import Collector
from anabranch.segstore.shell.tiering.flusher import Flusher, FlushLimits
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import TierTwoLimits
from kit.container_driver import LOG_ID, SEGMENT, ContainerDriver
from kit.rng import seeded
from kit.store_parts import a_store, a_throttle
from kit.table_parts import table_parts


async def read_through(
    container: Container, tier_two: TierTwo, request: ReadSegment, window: int = 0
) -> Found:
    """One read without a store around it, wherever the bytes are."""
    at_hand: dict[Granule, bytes] = {}
    while True:
        found = read_now(container, request, at_hand.get, window)
        if isinstance(found, Found):
            return found
        for granule in found.granules:
            assert granule not in at_hand
            if isinstance(granule, LogAddress):
                at_hand[granule] = await container.log.read_aside(granule)
            else:
                at_hand[granule] = await tier_two.read(granule.ref, granule.start, granule.size)


Wait = Callable[[Coroutine[Any, Any, Any]], Any]


def ask_through(
    container: Container, tier_two: TierTwo, wait: Wait, request: Request, deliver: Deliver
) -> None:
    """One request without a desk around it, wherever the boundaries that it depends on are."""
    place = container.ask(request, deliver)
    if place is not None:
        assert not isinstance(place, InIndex), "the driver has no tables"
        given = wait(look_up(tier_two, place, NOTHING_GIVEN))
        assert container.ask(request, deliver, given) is None


class InterruptedStorage(MemoryChunkStorage):
    """Lets something happen while a flush is under way: `on_put` is called before each put."""

    def __init__(self) -> None:
        super().__init__()
        self.on_put: Callable[[], None] = lambda: None

    async def put_new(self, name: str, buffers: Sequence[Buffer]) -> None:
        self.on_put()
        await super().put_new(name, buffers)


class InterruptedTierTwo:
    """Lets something happen between what tier 2 answers and whoever waits for it."""

    def __init__(self, tier_two: TierTwo) -> None:
        self._tier_two = tier_two
        self.found: list[tuple[str, ...]] = []
        self.on_find: Callable[[], Awaitable[None]] = _nothing
        self.on_read: Callable[[], Awaitable[None]] = _nothing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tier_two, name)

    async def find(self, names: Collection[str]) -> Mapping[str, CatalogEntry | Tombstone]:
        """See `ports.TierTwo`."""
        self.found.append(tuple(names))
        found = await self._tier_two.find(names)
        happening, self.on_find = self.on_find, _nothing
        await happening()
        return found

    async def read(self, ref: ChunkRef, offset: int, length: int) -> bytes:
        """See `ports.TierTwo`."""
        data = await self._tier_two.read(ref, offset, length)
        happening, self.on_read = self.on_read, _nothing
        await happening()
        return data


async def _nothing() -> None:
    return


class TieredDriver(ContainerDriver):
    """Opens tier 2 before the log, as a store does. Call `finish` at the end."""

    def __init__(
        self,
        *,
        cache_size: int = 1 << 20,
        storage: ChunkStorage | None = None,
        residency: ResidencyLimits | None = None,
        limits: TierTwoLimits | None = None,
        container_type: type[Container] = Container,
    ) -> None:
        self.runner = asyncio.Runner()
        self._limits = limits or TierTwoLimits()
        self.storage = storage or InterruptedStorage()
        self._ids = SeededIds(1)
        self.tier_two: TierTwo
        self.flusher: Flusher
        super().__init__(cache_size=cache_size, residency=residency, container_type=container_type)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run what must wait to its end."""
        return self.runner.run(work)

    def open(self, catalog: Catalog) -> None:
        """Open tier 2 under the next epoch; its catalog counts, not the one given."""
        first = self._epoch == 0
        open_tier_two = OpenContainerTierTwo(self.storage, self._ids, self.time, self._limits)
        opening = open_tier_two(0, self._epoch + 1, LOG_ID, new_log=first)
        self.interrupted = InterruptedTierTwo(self.wait(opening))
        self.tier_two = cast("TierTwo", self.interrupted)
        self.open_from(self.tier_two)
        self.flusher = Flusher(
            self.container,
            self.tier_two,
            clock=self.time,
            throttle=self.throttle,
            call_later=self.time.call_later,
            limits=FlushLimits(bytes_max=1 << 20),
            back_off_s=drawn_from(seeded(0)),
        )

    def crash(self, catalog: Catalog | None = None) -> None:
        """Lose the memory; log and tier 2 stay."""
        self.cache = type(self.cache)(self.cache.size_max)
        self.throttle = a_throttle()
        self.open(Catalog())

    def flush(self) -> None:
        """Move what is applied to tier 2."""
        self.wait(self.flusher.flush())

    def flush_during(self, happening: Callable[[], None]) -> None:
        """Flush; `happening` takes place after the cut and before anything is in tier 2."""
        storage = self.storage
        assert isinstance(storage, InterruptedStorage)

        def once() -> None:
            storage.on_put = lambda: None
            happening()

        storage.on_put = once
        self.flush()
        storage.on_put = lambda: None

    def truncate_anywhere(self, request: TruncateSegment) -> None:
        """As the handler does it: what only tier 2 knows is looked up first."""
        with self.container.residency.pinned(request.segment):
            self.now(request.segment, lambda: None)
            ask_through(self.container, self.tier_two, self.wait, request, self._deliver())

    def locate(self, offset: int, segment: str = SEGMENT) -> OffsetLocated:
        """The first boundary at or after `offset`, wherever it is known."""
        return self._located(LocateOffset(segment=segment, offset=offset))

    def locate_time(self, time_ms: int, segment: str = SEGMENT) -> OffsetLocated:
        """The boundary before the first append that is not older, wherever it is known."""
        return self._located(LocateTime(segment=segment, time_ms=time_ms))

    def _located(self, request: Request) -> OffsetLocated:
        located = self._answer_to(request)
        assert isinstance(located, OffsetLocated)
        return located

    def _answer_to(self, request: Request) -> Message:
        segment, found = request.segment, list[Message]()
        with self.container.residency.pinned(segment):
            self.now(segment, lambda: None)
            ask_through(self.container, self.tier_two, self.wait, request, found.append)
        (answer,) = found
        return answer

    def locate_event(self, event_index: int, segment: str = SEGMENT) -> Message:
        """The answer to LocateEvent, wherever the boundary is known."""
        return self._answer_to(LocateEvent(segment=segment, event_index=event_index))

    def read(self, offset: int, *, segment: str = SEGMENT, size: int = 1 << 23) -> Found:
        """One read, wherever the bytes are."""
        request = ReadSegment(segment=segment, offset=offset, size_max=size)
        return self.read_as(request)

    def read_as(self, request: ReadSegment) -> Found:
        with self.container.residency.pinned(request.segment):
            self.now(request.segment, lambda: None)
            found: Found = self.wait(read_through(self.container, self.tier_two, request))
            return found

    def read_all(self, segment: str = SEGMENT, size: int = 1 << 23) -> bytes:
        """The segment from its start on, read as a client reads it."""
        data = b""
        known = self.known(segment)
        start = known.start if isinstance(known, SegmentState) else 0
        while True:
            found = self.read(start + len(data), segment=segment, size=size)
            data += found.data
            if found.reply.at_tail or found.reply.end_of_segment:
                return data
            assert found.data

    def end_leftovers(self) -> None:
        """What the container does beside its first requests."""
        self.wait(end_leftovers(self.container, self.tier_two, self.time, drawn_from(seeded(0))))
        self.load()

    def new_store(self) -> Store:
        """A store that serves this container alone."""
        store = a_store(1, new_catch_up(self.cache, self.time, self.time.call_later))
        store.opened(self.opened(store.catch_up))
        return store

    def opened(self, catch_up: CatchUp | None = None) -> OpenContainer:
        """The container with its loops, none of which runs."""
        shared = catch_up or new_catch_up(self.cache, self.time, self.time.call_later)
        collector = Collector(self.container, self.tier_two, self.time, self.flusher.hurry)
        loops = TableLoops(self.container, self.tier_two, self.around, table_parts(shared))
        return OpenContainer(self.container, self.tier_two, self.flusher, collector, loops)

    def finish(self) -> None:
        self.runner.close()
