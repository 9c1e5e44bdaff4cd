"""A container driven by hand together with its tier 2, in memory and with a flusher."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import Buffer, ChunkStorage
from anabranch.common.tier2.state import Catalog, SegmentState
from anabranch.common.wire.messages import ReadSegment, TruncateSegment
from anabranch.segstore.ports import TierTwo
from anabranch.segstore.shell.boundaries import TieredBoundary
from anabranch.segstore.shell.flusher import Flusher, FlushLimits
from anabranch.segstore.shell.reader import (
    Found,
    boundary_before,
    read_now,
    read_tiered,
    truncation_place,
)
from anabranch.segstore.shell.segment_index import InTierTwo
from anabranch.segstore.shell.throttle import Throttle, ThrottleLimits
from anabranch.segstore.shell.tier2_open import OpenContainerTierTwo
from kit.container_driver import LOG_ID, SEGMENT, ContainerDriver
from kit.tier2_catalog import catalog_of


class InterruptedStorage(MemoryChunkStorage):
    """Lets something happen while a flush is under way: `on_put` is called before each put."""

    def __init__(self) -> None:
        super().__init__()
        self.on_put: Callable[[], None] = lambda: None

    async def put_new(self, name: str, buffers: Sequence[Buffer]) -> None:
        self.on_put()
        await super().put_new(name, buffers)


class TieredDriver(ContainerDriver):
    """Opens tier 2 before the log, as a store does. Call `finish` at the end."""

    def __init__(self, *, cache_size: int = 1 << 20, storage: ChunkStorage | None = None) -> None:
        self.runner = asyncio.Runner()
        self.storage = storage or InterruptedStorage()
        self._ids = SeededIds(1)
        self.tier_two: TierTwo
        self.flusher: Flusher
        super().__init__(cache_size=cache_size)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run what must wait to its end."""
        return self.runner.run(work)

    def open(self, catalog: Catalog) -> None:
        """Open tier 2 under the next epoch; its catalog counts, not the one given."""
        first = self._epoch == 0
        open_tier_two = OpenContainerTierTwo(self.storage, self._ids, self.time)
        opening = open_tier_two(0, self._epoch + 1, LOG_ID, new_log=first)
        self.tier_two = self.wait(opening)
        super().open(self.wait(catalog_of(self.tier_two)))
        self.flusher = Flusher(
            self.container,
            self.tier_two,
            clock=self.time,
            throttle=self.throttle,
            call_later=self.time.call_later,
            limits=FlushLimits(bytes_max=1 << 20),
        )

    def crash(self, catalog: Catalog | None = None) -> None:
        """Lose the memory; log and tier 2 stay."""
        self.cache = type(self.cache)(self.cache.size_max)
        self.throttle = Throttle(ThrottleLimits())
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
        place = truncation_place(self.container, request)
        boundary = None
        if place is not None:
            lower = self.wait(boundary_before(self.tier_two, place, request.offset))
            boundary = TieredBoundary(place.number, lower)
        self.container.truncate(request, self._deliver(), boundary)

    def read(self, offset: int, *, segment: str = SEGMENT, size: int = 1 << 23) -> Found:
        """One read, wherever the bytes are."""
        request = ReadSegment(segment=segment, offset=offset, size_max=size)
        return self.read_as(request)

    def read_as(self, request: ReadSegment) -> Found:
        found = read_now(self.container, request)
        if isinstance(found, InTierTwo):
            reading = read_tiered(self.container, self.tier_two, request, found)
            tiered = self.wait(reading)
            assert isinstance(tiered, Found)
            return tiered
        return found

    def read_all(self, segment: str = SEGMENT, size: int = 1 << 23) -> bytes:
        """The segment from its start on, read as a client reads it."""
        data = b""
        known = self.container.applied.state.known(segment)
        start = known.start if isinstance(known, SegmentState) else 0
        while True:
            found = self.read(start + len(data), segment=segment, size=size)
            data += found.data
            if found.reply.at_tail or found.reply.end_of_segment:
                return data
            assert found.data

    def finish(self) -> None:
        self.runner.close()
