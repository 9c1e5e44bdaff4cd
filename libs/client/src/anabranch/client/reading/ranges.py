"""Stored bytes of segments, for bulk readers that choose the ranges: a data source, an archiver.

A request for a range returns all of it or raises an error. Blocks are returned as they are stored,
so the caller that decodes them verifies them.
"""

from collections.abc import Iterable

from anabranch.client.backoff import Backoff
from anabranch.client.reading.bounds import Start, StreamBounds
from anabranch.client.reading.frontier import Standing
from anabranch.client.reading.times.cut_at import TimeCut
from anabranch.client.reading.times.follower import WatermarkFollower, new_follower
from anabranch.client.reading.times.instants import Instant
from anabranch.client.settings import BackoffSettings
from anabranch.client.wire.control import ControlPlane, SegmentDirectory, current_segments
from anabranch.client.wire.followers import Followers
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.contracts.queries import SegmentList
from anabranch.common.contracts.stream_queries import SegmentRun
from anabranch.common.errors import BadPacket, PlanOutdated
from anabranch.common.model.names import StreamRef
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng
from anabranch.common.wire.messages import (
    LocateOffset,
    OffsetLocated,
    ReadSegment,
    Request,
    SegmentInfo,
    SegmentRead,
)

READ_SIZE_BYTES = 4 * 1024 * 1024
RETRY_TIMEOUT_S = 60.0


class SegmentRanges:
    """Made by `Client.ranges`. Every call gives up after 60 s without an answer."""

    def __init__(
        self, control: ControlPlane, directory: SegmentDirectory, *, clock: Clock, rng: Rng
    ) -> None:
        self._control = control
        self._directory = directory
        self._clock = clock
        self._rng = rng

    async def segments(self, stream: StreamRef) -> SegmentList:
        """The stream's segments, sorted by key range. Raises StreamNotFound."""
        return await current_segments(self._control, stream)

    async def runs(self, stream: StreamRef) -> list[SegmentRun]:
        """All of the stream as it is now: the runs of its segments from the head to the tail.

        Predecessors come before their successors. Every `end_offset` is known, and everything that
        was acknowledged before the call lies below. Raises StreamNotFound, and Unavailable if a
        scale does not end in time.
        """
        return await self._bounds(stream).runs()

    async def tail(self, stream: StreamRef) -> dict[str, int]:
        """The current segments' full names → their lengths.

        They include everything that was acknowledged before the call. Raises StreamNotFound, and
        Unavailable as `runs`.
        """
        return await self._bounds(stream).tail()

    async def cut_at(self, stream: StreamRef, instant: Instant) -> TimeCut:
        """The stream's cut at a time, see `TimeCut`. Raises InvalidRequest for a time without a
        zone, StreamNotFound, CorruptBlock, Unavailable."""
        found = await self._bounds(stream).at_time(instant)
        return TimeCut({each.name: at for each, at in found.standings}, found.basis)

    async def standings(self, stream: StreamRef, start: Start) -> tuple[int, list[Standing]]:
        """The stream's incarnation, and the cut of `start` with the keys of each segment.

        Positions may omit segments; their keys get the head. Raises InvalidRequest,
        InvalidPosition, StreamNotFound.
        """
        bounds = self._bounds(stream)
        standings = await bounds.start(start)
        return bounds.incarnation, standings

    async def info(self, segment: str) -> SegmentInfo:
        """The segment's present bounds. Raises SegmentNotFound."""
        return await self.calls(segment).info()

    async def boundary(self, segment: str, offset: int) -> int:
        """The first append boundary at or after `offset`.

        Raises SegmentNotFound, SegmentTruncated, InvalidRequest (beyond the segment's end).
        """

        def request(container_epoch: int) -> Request:
            return LocateOffset(segment=segment, container_epoch=container_epoch, offset=offset)

        return (await self.calls(segment).ask(request, OffsetLocated))[0].offset

    async def block_at(self, segment: str, offset: int) -> bytes:
        """The stored bytes of the block at `offset`, and perhaps of more; none at the tail.

        Raises SegmentNotFound, SegmentTruncated, InvalidRequest (beyond the end, within a block).
        """

        def request(container_epoch: int) -> Request:
            return ReadSegment(
                segment=segment, container_epoch=container_epoch, offset=offset, size_max=1
            )

        return (await self.calls(segment).ask(request, SegmentRead))[1]

    async def prepare(self, segments: Iterable[str]) -> None:
        """Look up the stores of many segments in few queries, before `read` is called for each.

        If no controller answers, `read` looks up its segment itself.
        """
        await self._directory.prepare(segments)

    async def read(self, segment: str, offset: int, end: int) -> bytes:
        """Whole appends from `offset`, at least one and about 4 MiB, none beyond `end`.

        Both are append boundaries, `offset` the lower one. Raises SegmentNotFound,
        SegmentTruncated, InvalidRequest, and PlanOutdated if the segment is shorter.
        """
        assert offset < end
        size_max = min(READ_SIZE_BYTES, end - offset)

        def request(container_epoch: int) -> Request:
            return ReadSegment(
                segment=segment, container_epoch=container_epoch, offset=offset, size_max=size_max
            )

        reply, data = await self.calls(segment).ask(request, SegmentRead)
        if reply.offset != offset:
            raise BadPacket("a reply to a read starts at another offset", segment=segment)
        if not data or offset + len(data) > end:
            raise PlanOutdated(
                "a segment does not contain the planned range",
                segment=segment, offset=offset, end=end, have=len(data),
            )  # fmt: skip
        return data

    def _bounds(self, stream: StreamRef) -> StreamBounds:
        return StreamBounds(
            stream,
            control=self._control,
            directory=self._directory,
            clock=self._clock,
            calls=self.calls,
            new_backoff=self._new_backoff,
        )

    def followers(self, stream: StreamRef) -> Followers:
        """The successors of the stream's segments."""
        return Followers(self._control, stream, self._clock, self._new_backoff)

    def watermarks(self, stream: StreamRef, incarnation: int) -> WatermarkFollower:
        """A follower of the watermarks of this life of the stream."""
        return new_follower(
            stream, incarnation, directory=self._directory, clock=self._clock, rng=self._rng
        )

    def calls(self, segment: str) -> SegmentCalls:
        """The calls for one request to the segment's store."""
        backoff = self._new_backoff()
        return SegmentCalls(segment, directory=self._directory, clock=self._clock, backoff=backoff)

    def _new_backoff(self) -> Backoff:
        return Backoff(BackoffSettings(), self._rng, RETRY_TIMEOUT_S)
