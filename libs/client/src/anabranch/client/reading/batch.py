"""Bulk reading: a stream as ranges of its segments, for programs that divide the work themselves.

    cut ──segment_ranges──► ranges; any process reads them, in any order (`read_range`)
    cut ──next_stream_cut──► a cut so many bytes further on, along all segments and scales

A range is a part of one segment, from one block boundary to another. The ranges between two cuts
hold every event between them once; consecutive steps of `next_stream_cut` skip and repeat nothing.
Methods take cuts in any form of `cuts` and return positions, which are also a reader's start.
"""

from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from anabranch.client.backoff import Backoff
from anabranch.client.cuts import Cut, named, stream_cut
from anabranch.client.reading.bounds import Start, StreamBounds
from anabranch.client.reading.events import EventBatch
from anabranch.client.reading.frontier import Frontier, Position
from anabranch.client.reading.intake import Intake, SegmentEnd, SegmentFailed
from anabranch.client.reading.places import checked
from anabranch.client.reading.ranges import SegmentRanges
from anabranch.client.runtime import Runtime
from anabranch.client.settings import BackoffSettings, ReaderSettings
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.client.wire.followers import Followers
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    EventsTruncated,
    InvalidRequest,
    PlanOutdated,
    SegmentNotFound,
    SegmentTruncated,
)
from anabranch.common.model.names import (
    StreamRef,
    parse_segment_name,
    segment_name,
    stream_ref,
)
from anabranch.common.model.stream import StreamCut


@dataclass(frozen=True, slots=True, order=True)
class SegmentRange:
    """The bytes of a segment from `start` to `end`; both are block boundaries."""

    segment: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class BatchClient:
    """Divides a stream into ranges; made by `Client.batch`. See the module.

    ::

        for segment_range in await client.batch.segment_ranges("plant/sensors"):
            async for batch in client.batch.read_range(segment_range):
                print(len(batch))
    """

    def __init__(
        self,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: ReaderSettings,
    ) -> None:
        self._control = control
        self._directory = directory
        self._runtime = runtime
        self._settings = settings
        self._calls = SegmentRanges(control, directory, clock=runtime.clock, rng=runtime.rng)

    async def segment_ranges(
        self, stream: str | StreamRef, start: Cut | None = None, end: Cut | None = None
    ) -> list[SegmentRange]:
        """The ranges between two cuts without empty ones, predecessors before their successors.

        With `start` None, from the head. With `end` None, to the tail, so that the ranges contain
        every event that was acknowledged before the call. A position within a block stands for the
        beginning of that block, one after its last event for the next block. Raises InvalidCut,
        InvalidPosition, StreamNotFound, and Unavailable if a scale does not end in time.

        ::

            ranges = await client.batch.segment_ranges("plant/sensors", start=saved)
        """
        ref = _ref(stream)
        runs = await self._bounds(ref).runs(
            () if start is None else await self._block_cut(ref, start),
            () if end is None else await self._block_cut(ref, end),
        )
        ranges = [SegmentRange(run.name, run.start_offset, run.end_offset or 0) for run in runs]
        return [each for each in ranges if each.size > 0]

    def read_range(self, segment_range: SegmentRange) -> "RangeReader":
        """The range's events, block by block: an async iterator.

        ::

            async for batch in client.batch.read_range(segment_range):
                print(batch.payloads)
        """
        return RangeReader(
            segment_range,
            Intake(self._control, self._directory, self._runtime, self._settings),
            self._runtime,
        )

    async def distance(self, stream: str | StreamRef, start: Cut | None, end: Cut | None) -> int:
        """The number of bytes between two cuts, None as in `segment_ranges`. Blocks count with
        their stored size, including truncated ones. Raises as `segment_ranges`.

        ::

            unread = await client.batch.distance("plant/sensors", saved, None)
        """
        return sum(each.size for each in await self.segment_ranges(stream, start, end))

    async def next_stream_cut(
        self, stream: str | StreamRef, cut: Cut | None, approximate_bytes: int
    ) -> dict[str, Position]:
        """A cut about so many bytes after `cut` (None: the head); the same cut at the tail.

        Every segment advances by an even share, to a block boundary at or after it, but not beyond
        its present end. When a segment's end is reached, its successors replace it as soon as all
        their other predecessors have been reached too. Raises EventsTruncated if `cut` lies before
        the head, InvalidRequest if it is no cut of the stream, StreamNotFound.

        ::

            cut = await client.batch.next_stream_cut("plant/sensors", None, 64 * 1024 * 1024)
        """
        if approximate_bytes < 1:
            raise InvalidRequest("the size must be at least one byte", bytes=approximate_bytes)
        ref = _ref(stream)
        start: Start = "head" if cut is None else await self._checked(named(ref, cut))
        frontier = Frontier(await self._bounds(ref).start(start))
        await self._directory.prepare(frontier.begun)
        share = max(1, approximate_bytes // max(1, len(frontier.begun)))
        followers = Followers(self._control, ref, self._runtime.clock, self._new_backoff)
        pending = frontier.begun
        while pending:  # ends, because a segment is opened once, and there are only so many
            segment = pending.pop()
            if await self._move(frontier, segment, share, followers):
                successors = await followers.after(segment)
                pending += frontier.finish(segment, successors)
        return dict(frontier.positions)

    async def _block_cut(self, ref: StreamRef, cut: Cut) -> StreamCut:
        """The cut at the beginnings of the blocks that it names."""
        found = stream_cut(ref, cut)
        places = await self._checked(named(ref, cut))
        return tuple(
            replace(at, offset=places[segment_name(ref, at.segment_id)].offset) for at in found
        )

    async def _checked(self, places: dict[str, tuple[int, int]]) -> dict[str, Position]:
        """Check positions within a block or after its last event; offsets alone need no check."""
        within = [name for name, (_, index) in places.items() if index]
        found = {name: Position(*place) for name, place in places.items()}
        return found | await checked(self._calls, places, within)

    async def _move(
        self, frontier: Frontier, segment: str, share: int, followers: Followers
    ) -> bool:
        """Advance one position. Returns whether the segment had already been read to its end."""
        place = frontier.positions[segment]
        start: int | None = None
        try:
            info = await self._calls.info(segment)
            start = info.start
            if place.offset >= start:
                if place.offset >= info.length:
                    return info.sealed
                target = min(place.offset + share, info.length)
                reached = await self._calls.boundary(segment, target)
                frontier.positions[segment] = Position(reached)
                return False
        except SegmentTruncated as error:  # since its start was asked for
            found = error.fields.get("start")
            start = found if isinstance(found, int) else start
        except SegmentNotFound as error:
            await followers.in_place_of(segment, error)
            start = None
        raise EventsTruncated(
            "the cut lies before the stream's head",
            remedy="continue from the stream's head, or from the segment's start",
            stream=str(parse_segment_name(segment)[0]), segment=segment, offset=place.offset,
            start=start,
        )  # fmt: skip

    def _bounds(self, stream: StreamRef) -> StreamBounds:
        return StreamBounds(
            stream,
            control=self._control,
            directory=self._directory,
            clock=self._runtime.clock,
            calls=self._calls.calls,
            new_backoff=self._new_backoff,
        )

    def _new_backoff(self) -> Backoff:
        return Backoff(BackoffSettings(), self._runtime.rng, self._settings.retry_timeout_s)


class RangeReader:
    """The blocks of one range, in order; made by `BatchClient.read_range`.

    Iterate to the end, or close it, or use it with `async with`. It ends with the client at the
    latest.

    ::

        async with client.batch.read_range(segment_range) as blocks:
            async for batch in blocks:
                print(batch.payloads)
    """

    def __init__(self, segment_range: SegmentRange, intake: Intake, runtime: Runtime) -> None:
        self.range = segment_range
        self._intake = intake
        self._runtime = runtime
        self._offset = segment_range.start
        self._started = False
        self._ended = False
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading. Repeatable."""
        self._closed = True
        self._runtime.open_parts.discard(self)
        await self._intake.close()

    @property
    def offset(self) -> int:
        """The byte offset of the next block to yield."""
        return self._offset

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventBatch:
        """The next block.

        If the beginning of the remaining range was truncated, it raises EventsTruncated once, and
        the next call continues after it. Raises PlanOutdated for a range beyond the segment's end,
        SegmentNotFound, StreamNotFound, CorruptBlock, CodecMissing, Closed.
        """
        if self._ended:
            raise StopAsyncIteration
        if self._closed:
            raise Closed("the reader of the range is closed", segment=self.range.segment)
        if not self._started:
            self._started = True
            self._runtime.open_parts.add(self)
            self._intake.open(self.range.segment, Position(self.range.start), self.range.end)
        match await self._intake.next():
            case EventBatch() as batch:
                self._offset = batch.next.offset
                self._intake.consumed(batch)
                return batch
            case SegmentFailed(_, error, place):
                self._failed(error, place)
                raise error
            case SegmentEnd(segment, _, reached) if not reached and self._offset < self.range.end:
                self._ended = True
                raise PlanOutdated(
                    "a segment does not contain the planned range",
                    segment=segment, offset=self._offset, end=self.range.end,
                )  # fmt: skip
        self._ended = True
        self._runtime.open_parts.discard(self)
        raise StopAsyncIteration

    def _failed(self, error: AnabranchError, place: Position | None) -> None:
        """All of a deleted segment counts as read."""
        is_gone = isinstance(error, EventsTruncated) and error.fields.get("start") is None
        if place is None:
            self._ended = True
            self._runtime.open_parts.discard(self)
        self._offset = self.range.end if is_gone or place is None else place.offset


def _ref(stream: str | StreamRef) -> StreamRef:
    return stream if isinstance(stream, StreamRef) else stream_ref(stream)
