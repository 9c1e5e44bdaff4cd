"""Reads the watermarks of a stream from the segment that holds them.

The segment is found by its name: controllers list no internal stream of watermarks. It does not
exist before the first watermark, and its beginning may be truncated at any time. Watermarks of
another life of the stream's name are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import BadPacket, CorruptBlock
from anabranch.common.model.names import StreamRef
from anabranch.common.model.watermark import Watermark, decode_watermark, watermark_segment
from anabranch.common.wire.block import Block
from anabranch.common.wire.messages import (
    LocateOffset,
    OffsetLocated,
    ReadSegment,
    Request,
    SegmentInfo,
    SegmentRead,
)

PAGE_SIZE_BYTES = 64 * 1024
"""How much one read asks for, and the size below which a search reads instead of halving."""

Test = Callable[[Watermark], bool]


@dataclass(frozen=True, slots=True)
class StoredMark:
    """A watermark, and the offsets at which its block begins and ends."""

    watermark: Watermark
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MarkPage:
    """Watermarks in order; the next page begins at `end`. `is_empty`: the segment ends there."""

    marks: tuple[StoredMark, ...]
    end: int
    is_empty: bool


class WatermarkLog:
    """The watermarks of one life of a stream. `calls` makes the calls of one request to a segment.

    All methods raise SegmentNotFound (no watermark exists yet), CorruptBlock (fields: segment,
    offset), and Unavailable.
    """

    def __init__(
        self, stream: StreamRef, incarnation: int, calls: Callable[[str], SegmentCalls]
    ) -> None:
        self.segment = watermark_segment(stream)
        self._incarnation = incarnation
        self._calls = calls

    async def info(self) -> SegmentInfo:
        """The segment's present bounds."""
        return await self._calls(self.segment).info()

    async def page(self, offset: int, size_max: int = PAGE_SIZE_BYTES) -> MarkPage:
        """The watermarks from `offset` on, at least one if there is one.

        Raises SegmentTruncated, and InvalidRequest if no append begins at `offset`.
        """

        def request(container_epoch: int) -> Request:
            return ReadSegment(
                segment=self.segment, container_epoch=container_epoch,
                offset=offset, size_max=size_max,
            )  # fmt: skip

        reply, data = await self._calls(self.segment).ask(request, SegmentRead)
        if reply.offset != offset:
            raise BadPacket("a reply to a read starts at another offset", segment=self.segment)
        marks: list[StoredMark] = []
        view, at = memoryview(data), 0
        while at < len(data):
            size, found = self._parsed(view, at, offset + at)
            marks += [StoredMark(mark, offset + at, offset + at + size) for mark in found]
            at += size
        return MarkPage(tuple(marks), offset + at, not data)

    def _parsed(self, view: memoryview, at: int, offset: int) -> tuple[int, list[Watermark]]:
        """The size of the block at `at`, and its watermarks of this life of the stream."""
        try:
            block = Block(view, at)
            found = [decode_watermark(bytes(payload)) for payload in block.events()]
        except CorruptBlock as error:
            raise CorruptBlock(
                "a stream's watermarks are damaged, or of a newer release",
                segment=self.segment, offset=offset, cause=str(error),
            ) from error  # fmt: skip
        mine = [mark for mark in found if mark.incarnation == self._incarnation]
        return block.header.size, mine

    async def seek(self, is_before: Test) -> tuple[StoredMark | None, int]:
        """The last watermark for which `is_before` holds, and the offset after it.

        `is_before` holds for the watermarks up to some place and for none after it. Halves the
        segment until little is left, and reads that. Raises SegmentTruncated if the segment is
        truncated meanwhile.
        """
        info = await self.info()
        low, high = info.start, info.length
        last: StoredMark | None = None
        while high - low > PAGE_SIZE_BYTES:
            middle = await self._boundary((low + high) // 2)
            found = await self.page(middle, 1) if middle < high else None
            if found is None or not found.marks:
                break
            if is_before(found.marks[0].watermark):
                last, low = found.marks[0], found.end
            else:
                high = middle
        while low < high:
            page = await self.page(low)
            for mark in page.marks:
                if mark.start >= high or not is_before(mark.watermark):
                    return last, mark.start
                last = mark
            if page.is_empty:
                break
            low = page.end
        return last, low

    async def last_before(self, offset: int, wanted: Test) -> Watermark | None:
        """The last watermark before `offset` that is `wanted`. Reads backwards."""
        start = (await self.info()).start
        high, size = offset, PAGE_SIZE_BYTES
        while start < high:
            low = start
            if high - start > size:
                low = await self._boundary(high - size)
            if low >= high:
                low = start
            found = [mark for mark in await self._between(low, high) if wanted(mark)]
            if found:
                return found[-1]
            high, size = low, 2 * size
        return None

    async def _between(self, low: int, high: int) -> list[Watermark]:
        marks: list[Watermark] = []
        while low < high:
            page = await self.page(low)
            marks += [mark.watermark for mark in page.marks if mark.start < high]
            if page.is_empty:
                break
            low = page.end
        return marks

    async def _boundary(self, offset: int) -> int:
        """The first append boundary at or after the offset."""

        def request(container_epoch: int) -> Request:
            return LocateOffset(
                segment=self.segment, container_epoch=container_epoch, offset=offset
            )

        return (await self._calls(self.segment).ask(request, OffsetLocated))[0].offset
