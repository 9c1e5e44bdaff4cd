"""Bulk reading: a stream as ranges of its segments, for programs that divide the work themselves.

    cut ──segment_ranges──► ranges, read in any order and by anybody (`read_range`)
    cut ──next_stream_cut──► a cut so many bytes further on, along all segments and scales

A range is a part of one segment, from one block boundary to another. Those between two cuts hold
every event between them once; concatenated steps of `next_stream_cut` skip and repeat nothing.
Cuts are given as in `cuts`, and come as positions, which are a reader's start as well.
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
    """See the module. Made by `Client.batch`."""

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
        """What lies between two cuts, predecessors before their successors; empty ranges are
        left out.

        `start` None: from the head; `end` None: to the tail, so that whatever was acknowledged
        before lies below. A position within a block stands for the beginning of that block, one
        behind its last event for the next block. Raises InvalidCut, InvalidPosition,
        StreamNotFound, and Unavailable when a scale does not end in time.
        """
        ref = _ref(stream)
        runs = await self._bounds(ref).runs(
            () if start is None else await self._block_cut(ref, start),
            () if end is None else await self._block_cut(ref, end),
        )
        ranges = [SegmentRange(run.name, run.start_offset, run.end_offset or 0) for run in runs]
        return [each for each in ranges if each.size > 0]

    def read_range(self, segment_range: SegmentRange) -> "RangeReader":
        """The range's events, block by block: an async iterator, see there."""
        return RangeReader(
            segment_range,
            Intake(self._control, self._directory, self._runtime, self._settings),
            self._runtime,
        )

    async def distance(self, stream: str | StreamRef, start: Cut | None, end: Cut | None) -> int:
        """How many bytes lie between two cuts, None as in `segment_ranges`, which says what it
        raises. Blocks count as they are stored, truncated ones too."""
        return sum(each.size for each in await self.segment_ranges(stream, start, end))

    async def next_stream_cut(
        self, stream: str | StreamRef, cut: Cut | None, approximate_bytes: int
    ) -> dict[str, Position]:
        """A cut about so many bytes behind `cut` (None: the head); the same one at the tail.

        Every segment moves on by an even share, to a block boundary at or behind it, but not
        beyond its present end. One whose end has been reached is replaced by its successors as
        soon as all that these replace has been. Raises EventsTruncated when `cut` lies before what
        is left, InvalidRequest for what is no cut of the stream, StreamNotFound.
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
        """Those within a block, or behind its last event, are checked; offsets need not be."""
        within = [name for name, (_, index) in places.items() if index]
        found = {name: Position(*place) for name, place in places.items()}
        return found | await checked(self._calls, places, within)

    async def _move(
        self, frontier: Frontier, segment: str, share: int, followers: Followers
    ) -> bool:
        """Move one position on → whether the segment had been read to its end already."""
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
            info=self._calls.info,
            new_backoff=self._new_backoff,
        )

    def _new_backoff(self) -> Backoff:
        return Backoff(BackoffSettings(), self._runtime.rng, self._settings.retry_timeout_s)


class RangeReader:
    """The blocks of one range, in order; made by `BatchClient.read_range`.

    Iterate over it; if that is not done to the end, close it, or use it by `async with`. It ends
    with the client at the latest.
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
        """Where the next block to be yielded lies."""
        return self._offset

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventBatch:
        """The next block.

        Raises EventsTruncated once where the beginning of what is left was truncated; the next
        call goes on behind it. Raises PlanOutdated for a range beyond the segment's end,
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
