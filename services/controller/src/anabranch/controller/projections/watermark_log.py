"""The watermarks of streams, as they lie in the segments of `common.model.watermark`.

A segment of watermarks is created with the first one, under a stamp that is the same for every
controller and lies below the stamp of the stream's deletion. So a late creation meets the tombstone
and is refused, and so is a late append. An append names the length that the segment had when the
last watermark was read: of two controllers that append at the same time, one is refused and reads
again.

Only the bytes of the segment tell what was stored. After an error, and in a new controller, the
last watermark is read back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from anabranch.common.errors import SegmentNotFound
from anabranch.common.model.names import StreamRef
from anabranch.common.model.watermark import (
    Watermark,
    decode_watermark,
    encode_watermark,
    watermark_segment,
)
from anabranch.common.runtime.ids import IdSource
from anabranch.common.wire.block import Block
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import Stamp
from anabranch.controller.ports import SegmentStores

FIRST_REVISION = 1
"""Of the stamp under which a segment of watermarks is created and truncated. The stream was created
with it, so its deletion has a later one."""
READ_SIZE_BYTES = 64 * 1024
KEPT_SIZE_BYTES_MAX = 8 * 1024 * 1024
KEPT_SIZE_BYTES = 6 * 1024 * 1024
"""What stays when the segment has become too large."""
TRIM_STEP_BYTES = 64 * 1024
"""The segment is looked at when it has grown by so much, and less than that is not given up."""


@dataclass(frozen=True, slots=True)
class Tail:
    """A segment of watermarks, as it was when it was last seen.

    start, length       its bytes; 0 while it does not exist
    last                its last watermark, if it has one
    writer_id, number   the writer of the next append, and the event number in it
    trim_at             at which length it is looked at again
    exists              whether it was created
    """

    start: int
    length: int
    last: Watermark | None
    writer_id: bytes
    number: int
    trim_at: int
    exists: bool


class WatermarkLog:
    """Reads and appends watermarks. Every method raises Unavailable, and the store's errors."""

    def __init__(self, stores: SegmentStores, ids: IdSource) -> None:
        self._stores = stores
        self._ids = ids

    async def tail(self, stream: StreamRef, incarnation: int) -> Tail:
        """The end of the stream's segment. Raises CorruptBlock, FormatTooNew."""
        segment = watermark_segment(stream)
        writer_id = self._ids.new_bytes()
        try:
            bounds = await self._stores.segment_bounds(segment)
            last = await self._last(segment, bounds.start, bounds.length, incarnation)
        except SegmentNotFound:
            return Tail(0, 0, None, writer_id, 1, TRIM_STEP_BYTES, exists=False)
        trim_at = bounds.start + TRIM_STEP_BYTES
        return Tail(bounds.start, bounds.length, last, writer_id, 1, trim_at, exists=True)

    async def append(
        self, stream: StreamRef, tail: Tail, watermark: Watermark, now_ms: int
    ) -> Tail:
        """Append it behind the tail; returns the new tail. Raises OffsetMismatch (the segment has
        another tail), and StaleRequest, SegmentNotFound or OutcomeUnknown (it was deleted)."""
        segment = watermark_segment(stream)
        if not tail.exists:
            stamp = Stamp(watermark.incarnation, FIRST_REVISION)
            await self._stores.create_segment(segment, stamp)
        block = encode_block(
            [encode_watermark(watermark)],
            writer_id=tail.writer_id,
            first_event_number=tail.number,
            base_timestamp_ms=now_ms,
        )
        await self._stores.append_if(segment, block, tail.length)
        return replace(
            tail,
            length=tail.length + len(block),
            last=watermark,
            number=tail.number + 1,
            exists=True,
        )

    async def trim(
        self, stream: StreamRef, tail: Tail, is_before_head: Callable[[Watermark], bool]
    ) -> Tail:
        """Give up what is too old or too much, if the segment has grown enough since the last time.

        The last watermark before the stream's head stays, and some before it may. Raises the errors
        of the store, and of a watermark that cannot be read.
        """
        if tail.length < tail.trim_at or tail.last is None:
            return tail
        segment, incarnation = watermark_segment(stream), tail.last.incarnation
        start = tail.start
        if tail.length - start > KEPT_SIZE_BYTES_MAX:
            start = await self._stores.boundary_at(segment, tail.length - KEPT_SIZE_BYTES)
        end = tail.length
        while end - start > TRIM_STEP_BYTES:
            middle = await self._stores.boundary_at(segment, (start + end) // 2)
            if middle >= end:
                break
            data = await self._stores.read_appends(segment, middle, 1)
            if all(is_before_head(one) for one in _watermarks(data)):
                start = middle
            else:
                end = middle
        if start > tail.start:
            stamp = Stamp(incarnation, FIRST_REVISION)
            await self._stores.truncate_segment(segment, start, stamp)
        return replace(tail, start=start, trim_at=tail.length + TRIM_STEP_BYTES)

    async def _last(
        self, segment: str, start: int, length: int, incarnation: int
    ) -> Watermark | None:
        """The last watermark of this life of the stream."""
        size = READ_SIZE_BYTES
        while start < length:
            offset = start
            if length - size > start:
                offset = await self._stores.boundary_at(segment, length - size)
            found = [
                one
                for one in await self._read(segment, offset, length)
                if one.incarnation == incarnation
            ]
            if found:
                return found[-1]
            if offset == start:
                return None
            size *= 4
        return None

    async def _read(self, segment: str, offset: int, length: int) -> list[Watermark]:
        """The watermarks between the boundary and that length, at least."""
        found: list[Watermark] = []
        while offset < length:
            data = await self._stores.read_appends(segment, offset, READ_SIZE_BYTES)
            if not data:
                break
            found.extend(_watermarks(data))
            offset += len(data)
        return found


def _watermarks(data: bytes) -> Iterator[Watermark]:
    """Those in whole blocks. Raises CorruptBlock, FormatTooNew."""
    at = 0
    while at < len(data):
        block = Block(data, at)
        for event in block:
            yield decode_watermark(event)
        at += block.header.size
