"""Finds the byte at which to read a partition from, for a record number or a time.

    number ──LocateEvent──► (byte, number of the record there), at or before the wanted record
    time ──LocateTime──► byte ──some LocateEvent──► (byte, number), at or before that byte

The reader then skips the records before the wanted one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.client.topics.offsets import (
    Bounds,
    Offset,
    evicted,
    first_number,
    resumed_number,
)
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import RecordEvicted, SegmentTruncated, Unavailable
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.messages import (
    EventLocated,
    LocateEvent,
    LocateTime,
    OffsetLocated,
    ReadSegment,
    Request,
    SegmentInfo,
    SegmentRead,
)

_SCAN_SIZE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """A place to read from: the block at byte `offset` begins with record `number`.

    Records below `wanted`, and blocks before byte `wanted_offset`, are not asked for. `end_offset`
    is the length of the partition when the place was found.
    """

    offset: int
    number: int
    wanted: int = 0
    wanted_offset: int = 0
    end_offset: int = 0
    lost: RecordEvicted | None = None
    """The records between the one that was asked for and this place were evicted."""


def bounds_of(info: SegmentInfo) -> Bounds:
    """The numbers of the records that the partition keeps. Raises Unavailable."""
    start = info.start_event_count
    if start < 0:
        if info.start:
            raise Unavailable(
                "the store does not know the numbers of the records that it keeps",
                segment=info.segment,
            )
        start = 0
    return Bounds(start, info.event_count)


class PartitionPlaces:
    """The places of one partition. `calls` makes the calls of one request to its segment."""

    def __init__(
        self, segment: str, topic: str, partition: int, calls: Callable[[str], SegmentCalls]
    ) -> None:
        self._segment = segment
        self._topic = topic
        self._partition = partition
        self._calls = calls

    async def first(self, offset: Offset, last_seen: int | None) -> Place:
        """Where a consumer starts that has committed `last_seen` (None: nothing).

        Raises InvalidRequest (beyond the end), SegmentNotFound, Unavailable.
        """
        info = await self.info()
        bounds = bounds_of(info)
        if last_seen is not None and offset.yields_to_committed:
            return await self.at(resumed_number(last_seen, bounds), info)
        if offset.is_time:
            return await self._at_time(offset.value, info)
        number = first_number(offset, bounds, topic=self._topic, partition=self._partition)
        return await self.at(number, info)

    async def info(self) -> SegmentInfo:
        """The partition's present bounds. Raises SegmentNotFound, Unavailable."""
        return await self._calls(self._segment).info()

    async def at(self, number: int, info: SegmentInfo) -> Place:
        """The place of a record, or of the first one that is kept if this one was evicted.

        The record is not beyond the end. Raises SegmentNotFound, Unavailable.
        """
        asked = number
        while True:
            bounds = bounds_of(info)
            if number >= bounds.end:
                return Place(info.length, bounds.end, end_offset=info.length)
            if number <= bounds.start:
                lost = self._evicted(asked, bounds.start) if asked < bounds.start else None
                return Place(info.start, bounds.start, end_offset=info.length, lost=lost)
            try:
                found = await self._locate(number)
            except RecordEvicted:  # by a truncation since `info`
                info = await self.info()
                number = max(number, bounds_of(info).start)
                continue
            return Place(found.offset, found.event_index, number, end_offset=info.length)

    def _evicted(self, number: int, next_available: int) -> RecordEvicted:
        return evicted(number, next_available, topic=self._topic, partition=self._partition)

    async def _locate(self, number: int) -> EventLocated:
        def request(container_epoch: int) -> Request:
            return LocateEvent(
                segment=self._segment, container_epoch=container_epoch, event_index=number
            )

        return (await self._calls(self._segment).ask(request, EventLocated))[0]

    async def _at_time(self, time_ms: int, info: SegmentInfo) -> Place:
        def request(container_epoch: int) -> Request:
            return LocateTime(
                segment=self._segment, container_epoch=container_epoch, time_ms=time_ms
            )

        offset = (await self._calls(self._segment).ask(request, OffsetLocated))[0].offset
        while True:
            try:
                return await self._before(offset, info)
            except RecordEvicted:
                info = await self.info()

    async def number_at(self, offset: int) -> int:
        """The number of the first record of the block at byte `offset`.

        Raises SegmentTruncated, SegmentNotFound, Unavailable.
        """
        info = await self.info()
        if offset < info.start:
            raise SegmentTruncated(
                "the block was truncated", segment=self._segment, offset=offset, start=info.start
            )
        place = await self._before(offset, info)
        at, number = place.offset, place.number
        while at < offset:
            size_max = min(_SCAN_SIZE_BYTES, offset - at)
            data = await self._read(at, size_max)
            end = at + len(data)
            scanned = 0
            while at < min(end, offset):
                header = parse_header(data, scanned)
                scanned, at = scanned + header.size, at + header.size
                number += header.event_count
        return number

    async def _read(self, offset: int, size_max: int) -> bytes:
        def request(container_epoch: int) -> Request:
            return ReadSegment(
                segment=self._segment,
                container_epoch=container_epoch,
                offset=offset,
                size_max=size_max,
            )

        return (await self._calls(self._segment).ask(request, SegmentRead))[1]

    async def _before(self, offset: int, info: SegmentInfo) -> Place:
        """The last known place at or before byte `offset`: a binary search over record numbers."""
        bounds = bounds_of(info)
        best = EventLocated(offset=info.start, event_index=bounds.start)
        low, high = bounds.start, bounds.end
        while low < high:
            middle = (low + high + 1) // 2
            found = await self._locate(middle)
            if found.offset <= offset:
                best, low = found, middle
            else:
                high = min(middle, found.event_index) - 1
        return Place(best.offset, best.event_index, wanted_offset=offset, end_offset=info.length)
