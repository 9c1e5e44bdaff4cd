"""The blocks of one segment from a place on: the caller reads, and takes them one after the other.

    read ──bytes──► hold ──► next: a verified block; the place moves behind it ──► None: read on

Every block's checksum is verified. Blocks without events, which are the parts of large events, are
skipped; the parts are read when their reference is met. The place moves only behind a block that is
complete, so an interruption loses and repeats nothing: the next read continues at the place.

The caller gives the start. An index equal to the block's number of events means the next block. If
no event can lie there, `hold` or `next` raises InvalidPosition.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from anabranch.client.reading.large_events import fetch_large
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
from anabranch.common.wire.block import HEADER_SIZE_BYTES, Block
from anabranch.common.wire.messages import (
    LocateOffset,
    OffsetLocated,
    ReadSegment,
    Request,
    SegmentRead,
)

Answer = tuple[SegmentRead, bytes]
_NOTHING = memoryview(b"")


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


async def at_once() -> None:
    """Read a large event without a wait for room."""


class SegmentBlocks:
    """One segment, read from (`offset`, `index`) to `end_offset` (None: to its end).

    `room_for_large` returns when a large event may be read into memory.
    """

    def __init__(
        self, calls: SegmentCalls, room_for_large: Callable[[], Awaitable[None]] = at_once
    ) -> None:
        self.segment = calls.segment
        self.offset = 0
        self.index = 0
        self.end_offset: int | None = None
        self._calls = calls
        self._room_for_large = room_for_large
        self._has_begun = False
        """Whether a block was found at the start."""
        self._view = _NOTHING
        self._at = 0

    def wants(self, offset: int) -> bool:
        """Whether the offset lies before the end."""
        return self.end_offset is None or offset < self.end_offset

    async def read(self, offset: int, size_max: int, wait_ms: int = 0) -> Answer:
        """Read whole appends from the offset, at least one; at the tail, wait for one so long.

        Raises as `SegmentCalls.ask`.
        """

        def request(container_epoch: int) -> Request:
            return ReadSegment(
                segment=self.segment,
                container_epoch=container_epoch,
                offset=offset,
                size_max=size_max,
                wait_ms=wait_ms,
            )

        timeout_s = wait_ms / 1000 + ANSWER_TIME_S
        return await self._calls.ask(request, SegmentRead, timeout_s=timeout_s)

    def hold(self, answer: Answer | AnabranchError) -> None:
        """Keep the answer to a read at the place, for `next`.

        Raises the error; InvalidPosition, BadPacket.
        """
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
        self._view, self._at = memoryview(data), 0

    async def next(self) -> FetchedBlock | None:
        """The next block with events of the held answer; None at its end.

        Raises InvalidPosition, CorruptBlock, CodecMissing, SegmentTruncated (of a large event,
        with the position after it as its start), and the errors of reading.
        """
        while self._at < len(self._view) and self.wants(self.offset):
            block = await self._verified()
            found = FetchedBlock(self.segment, self.offset, block, self.index)
            if self.index > len(block):
                raise self._misplaced("the position lies beyond its block's events")
            has_events = self.index < len(block)
            if has_events and block.header.is_large:
                await self._room_for_large()
                await self._fetch_large(block)
            self._at += block.header.size
            self.offset, self.index = found.next_offset, 0
            if has_events:
                return found
        self._view, self._at = _NOTHING, 0  # blocks that are still used keep what they need
        return None

    async def _verified(self) -> Block:
        try:
            block = Block(self._view, self._at)
        except CorruptBlock as error:
            if not self._has_begun and await self._boundary() != self.offset:
                raise self._misplaced("no block begins at the position") from error
            raise self._corrupt(error) from error
        self._has_begun = True
        return block

    async def _fetch_large(self, block: Block) -> None:
        """Put the event that the block refers to into the block."""
        try:
            block.put_event(await fetch_large(self._read_parts, block.reference(self.offset)))
        except EventsTruncated as error:
            start = error.fields.get("start")
            behind = self.offset + block.header.size
            raise SegmentTruncated(
                error.message, segment=self.segment, offset=self.offset,
                start=max(behind, start) if isinstance(start, int) else behind,
            ) from error  # fmt: skip
        except CorruptBlock as error:
            raise self._corrupt(error) from error

    async def _read_parts(self, offset: int, size: int) -> bytes:
        return (await self.read(offset, size))[1]

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
