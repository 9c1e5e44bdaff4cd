"""Reads one segment ahead of its reader, up to its share of the read-ahead.

    read (waits at the tail) ──bytes──► verified blocks (`segment_blocks`) ──► sink

While the fetcher reads old events, it sends the next read before it verifies the last one's blocks,
so that the store and this process work concurrently. The read position moves only after a block was
verified and handed over, so an interruption loses and repeats nothing. A damaged block ends the
fetcher with CorruptBlock, after everything before was delivered.
"""

import asyncio
from collections.abc import Callable

from anabranch.client.backoff import Backoff
from anabranch.client.reading.segment_blocks import Answer, FetchedBlock, SegmentBlocks
from anabranch.client.settings import ReaderSettings
from anabranch.client.wire.control import SegmentDirectory
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.messages import SegmentRead


class SegmentFetcher:
    """One segment of one reader; `place` is where it reads next, and its end."""

    def __init__(
        self,
        segment: str,
        *,
        settings: ReaderSettings,
        share_bytes: int,
        directory: SegmentDirectory,
        clock: Clock,
        backoff: Backoff,
        tasks: asyncio.TaskGroup,
        fetched: Callable[[FetchedBlock], None],
    ) -> None:
        self.segment = segment
        calls = SegmentCalls(segment, directory=directory, clock=clock, backoff=backoff)
        self.place = SegmentBlocks(calls, self._room_for_large)
        self._settings = settings
        self._share_bytes = share_bytes
        self._clock = clock
        self._tasks = tasks
        self._fetched = fetched
        self._under_way: asyncio.Task[Answer | AnabranchError] | None = None
        self._held_bytes = 0
        self._large_waits = False
        self._room = asyncio.Event()
        self._room.set()

    def consumed(self, size: int) -> None:
        """Note that the reader has consumed `size` bytes, so that more may be read ahead."""
        self._held_bytes -= size
        if self._held_bytes < (1 if self._large_waits else self._share_bytes):
            self._room.set()

    def share(self, size: int) -> None:
        """Set the share of the read-ahead, in bytes."""
        self._share_bytes = size
        if self._large_waits:
            return
        if self._held_bytes < size:
            self._room.set()
        else:
            self._room.clear()

    async def run(self) -> bool:
        """Read until the end. Returns whether that is the end of a sealed segment, and not
        `place.end_offset`, though both may be the same place.

        Raises errors that a retry cannot cure. May run again, from its place.
        """
        try:
            while self.place.wants(self.place.offset):
                await self._room.wait()
                if await self._read_once():
                    return True
            return False
        finally:
            if self._under_way is not None:
                self._under_way.cancel()
                self._under_way = None

    async def _read_once(self) -> bool:
        """One read; returns whether the segment has ended."""
        place = self.place
        asked = self._under_way or self._begin(place.offset)
        self._under_way = asked
        answer = await asked
        self._under_way = None
        place.hold(answer)
        assert not isinstance(answer, AnabranchError), "hold has raised it"
        reply, data = answer
        await self._read_on(reply, place.offset + len(data), len(data))
        while (block := await place.next()) is not None:
            self._held_bytes += block.held_size
            self._fetched(block)
        if self._held_bytes >= self._share_bytes:
            self._room.clear()
        return reply.end_of_segment and place.wants(place.offset)

    async def _read_on(self, reply: SegmentRead, offset: int, size: int) -> None:
        """Send the next read, if there is more to read and room for it."""
        is_last = reply.at_tail or reply.end_of_segment or not self.place.wants(offset)
        if not is_last and self._held_bytes + size < self._share_bytes:
            self._under_way = self._begin(offset)
            await self._clock.sleep(0)  # the read is sent when its task begins

    def _begin(self, offset: int) -> asyncio.Task[Answer | AnabranchError]:
        return self._tasks.create_task(self._ask(offset))

    async def _ask(self, offset: int) -> Answer | AnabranchError:
        settings = self._settings
        size_max = min(settings.read_size_bytes, self._share_bytes)
        try:
            return await self.place.read(offset, size_max, settings.wait_ms)
        except AnabranchError as error:
            return error

    async def _room_for_large(self) -> None:
        """Wait until everything before was consumed, so that a segment holds at most one large
        event, and nothing beside it."""
        self._large_waits = True
        try:
            while self._held_bytes > 0:
                self._room.clear()
                await self._room.wait()
        finally:
            self._large_waits = False
