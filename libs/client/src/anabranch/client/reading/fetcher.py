"""Reads one segment ahead of its reader, up to its share of the read-ahead.

    ReadSegment (waits at the tail; `segment_calls`) ──bytes──► verified blocks ──► sink

While the fetcher reads old events, it sends the next read before it verifies the last one's blocks,
so that the store and this process work concurrently. The read position moves only after a whole
reply was verified and handed over, so an interruption loses and repeats nothing. The fetcher
verifies every block's checksum; a damaged block ends it with CorruptBlock, after everything before
was delivered. It skips the parts of large events, and fetches them when it meets the reference.

The caller gives the start. An index equal to the block's number of events means the next block. If
no event can lie there, the fetcher ends with InvalidPosition.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.client.backoff import Backoff
from anabranch.client.reading.large_events import fetch_large
from anabranch.client.settings import ReaderSettings
from anabranch.client.wire.control import SegmentDirectory
from anabranch.client.wire.segment_calls import ANSWER_TIME_S, SegmentCalls
from anabranch.common.errors import (
    AnabranchError,
    BadPacket,
    CorruptBlock,
    EventsTruncated,
    InvalidPosition,
    InvalidRequest,
    SegmentTruncated,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.block import HEADER_SIZE_BYTES, Block, LargeReference
from anabranch.common.wire.messages import (
    LocateOffset,
    OffsetLocated,
    ReadSegment,
    Request,
    SegmentRead,
)

_Answer = tuple[SegmentRead, bytes] | AnabranchError


@dataclass(frozen=True, slots=True)
class FetchedBlock:
    """A verified block at `offset` of `segment`, to be yielded from `start_index` on, up to
    `stop_index` (None: to its end)."""

    segment: str
    offset: int
    block: Block
    start_index: int = 0
    stop_index: int | None = None

    @property
    def next_offset(self) -> int:
        return self.offset + self.block.header.size

    @property
    def held_size(self) -> int:
        """The memory that it needs: its stored size, or the size of its large event."""
        header = self.block.header
        return header.size if header.codec else HEADER_SIZE_BYTES + header.body_size


class SegmentFetcher:
    """One segment of one reader, read from (`offset`, `index`) to `end_offset` or its end."""

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
        self.offset = 0
        self.index = 0
        self.end_offset: int | None = None
        self._settings = settings
        self._share_bytes = share_bytes
        self._calls = SegmentCalls(segment, directory=directory, clock=clock, backoff=backoff)
        self._clock = clock
        self._tasks = tasks
        self._fetched = fetched
        self._under_way: asyncio.Task[_Answer] | None = None
        self._held_bytes = 0
        self._large_waits = False
        self._has_begun = False
        """Whether a block was found at the start."""
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
        `end_offset`, though both may be the same place.

        Raises errors that a retry cannot cure. May run again, from its (`offset`, `index`).
        """
        try:
            while self._wants(self.offset):
                await self._room.wait()
                if await self._read_once():
                    return True
            return False
        finally:
            if self._under_way is not None:
                self._under_way.cancel()
                self._under_way = None

    def _wants(self, offset: int) -> bool:
        return self.end_offset is None or offset < self.end_offset

    async def _read_once(self) -> bool:
        """One read; returns whether the segment has ended."""
        asked = self._under_way or self._begin(self.offset)
        self._under_way = asked
        answer = await asked
        self._under_way = None
        if isinstance(answer, AnabranchError):
            if isinstance(answer, InvalidRequest) and not self._has_begun:
                raise self._misplaced(answer.message) from answer
            raise answer
        reply, data = answer
        if reply.offset != self.offset:
            raise BadPacket("a reply to a read starts at another offset", segment=self.segment)
        if not data and not reply.at_tail and not reply.end_of_segment:
            raise BadPacket("a reply to a read is empty", segment=self.segment)
        if not data and self.index:
            raise self._misplaced("the position lies beyond the segment's last event")
        await self._read_on(reply, self.offset + len(data), len(data))
        await self._deliver(data)
        return reply.end_of_segment and self._wants(self.offset)

    async def _read_on(self, reply: SegmentRead, offset: int, size: int) -> None:
        """Send the next read, if there is more to read and room for it."""
        is_last = reply.at_tail or reply.end_of_segment or not self._wants(offset)
        if not is_last and self._held_bytes + size < self._share_bytes:
            self._under_way = self._begin(offset)
            await self._clock.sleep(0)  # the read is sent when its task begins

    def _begin(self, offset: int) -> asyncio.Task[_Answer]:
        return self._tasks.create_task(self._ask(offset))

    async def _ask(self, offset: int) -> _Answer:
        settings = self._settings

        def request(container_epoch: int) -> Request:
            return ReadSegment(
                segment=self.segment,
                container_epoch=container_epoch,
                offset=offset,
                size_max=min(settings.read_size_bytes, self._share_bytes),
                wait_ms=settings.wait_ms,
            )

        timeout_s = settings.wait_ms / 1000 + ANSWER_TIME_S
        try:
            return await self._calls.ask(request, SegmentRead, timeout_s=timeout_s)
        except AnabranchError as error:
            return error

    async def _deliver(self, data: bytes) -> None:
        view = memoryview(data)
        at = 0
        while at < len(data):
            offset = self.offset
            if self.end_offset is not None and offset >= self.end_offset:
                return  # written after the end was set
            block = await self._verified(view, at)
            at += block.header.size
            if self.index == len(block):  # after its last event, or a part, which has none
                self.offset, self.index = offset + block.header.size, 0
                continue
            if self.index > len(block):
                raise self._misplaced("the position lies beyond its block's events")
            if block.header.is_large:
                await self._fetch_large(block)
            fetched = FetchedBlock(self.segment, offset, block, self.index)
            self.index = 0
            self.offset = fetched.next_offset
            self._held_bytes += fetched.held_size
            self._fetched(fetched)
        if self._held_bytes >= self._share_bytes:
            self._room.clear()

    async def _fetch_large(self, block: Block) -> None:
        """Put the event that the block refers to into the block.

        This waits until everything before was consumed, so a segment holds at most one large event,
        and nothing beside it. If the event was truncated, raises SegmentTruncated with the position
        after it as the start.
        """
        self._large_waits = True
        try:
            while self._held_bytes > 0:
                self._room.clear()
                await self._room.wait()
        finally:
            self._large_waits = False
        try:
            block.put_event(await fetch_large(self._read, LargeReference.parse(block[0])))
        except EventsTruncated as error:
            start = error.fields.get("start")
            behind = self.offset + block.header.size
            raise SegmentTruncated(
                error.message, segment=self.segment, offset=self.offset,
                start=max(behind, start) if isinstance(start, int) else behind,
            ) from error  # fmt: skip
        except CorruptBlock as error:
            raise self._corrupt(error) from error

    async def _read(self, offset: int, size: int) -> bytes:
        def request(container_epoch: int) -> Request:
            return ReadSegment(
                segment=self.segment, container_epoch=container_epoch, offset=offset, size_max=size
            )

        return (await self._calls.ask(request, SegmentRead))[1]

    async def _verified(self, view: memoryview, at: int) -> Block:
        try:
            block = Block(view, at)
        except CorruptBlock as error:
            if not self._has_begun and await self._boundary() != self.offset:
                raise self._misplaced("no block begins at the position") from error
            raise self._corrupt(error) from error
        self._has_begun = True
        return block

    async def _boundary(self) -> int:
        """The first append boundary at or after the offset."""

        def request(container_epoch: int) -> Request:
            return LocateOffset(
                segment=self.segment, container_epoch=container_epoch, offset=self.offset
            )

        return (await self._calls.ask(request, OffsetLocated))[0].offset

    def _misplaced(self, message: str) -> InvalidPosition:
        return InvalidPosition(message, segment=self.segment, offset=self.offset, index=self.index)

    def _corrupt(self, error: CorruptBlock) -> CorruptBlock:
        return CorruptBlock(
            error.message, segment=self.segment, offset=self.offset, cause=str(error)
        )
