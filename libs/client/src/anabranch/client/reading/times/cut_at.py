"""Finds the cut of a stream at a time: by watermarks where they reach back to it, else by the times
at which the stores took the appends.

    by watermarks   the cut of the last watermark whose upper bound is at or before the time
    by block times  from the cut that was current an hour before, segment by segment, predecessors
                    first: the store is asked for the first append that is not older (`LocateTime`);
                    a segment that is older as a whole is followed by its successors

The hour covers clocks of controllers and stores that are apart. No cut lies before the head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from anabranch.client.reading.frontier import Frontier, Position, Standing
from anabranch.client.reading.joining import later_of
from anabranch.client.reading.times.log import WatermarkLog
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.client.wire.followers import Followers
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.stream_queries import CutFound, HeadCut, SegmentsAtTime, StreamQuery
from anabranch.common.errors import InvalidRequest, SegmentNotFound, SegmentTruncated, Unavailable
from anabranch.common.model.names import SegmentId, StreamRef, segment_name
from anabranch.common.model.watermark import Watermark
from anabranch.common.wire.messages import LocateTime, OffsetLocated, Request

CLOCKS_APART_MS = 3_600_000
ATTEMPTS = 3
"""How often a search among watermarks that are truncated meanwhile begins again."""

Basis = Literal["watermarks", "block times"]


class TimeCut(NamedTuple):
    """The cut of a stream at a time: segment → position, and its basis.

    `basis` "watermarks": the cut of the last watermark whose upper bound is at or before the time.
    At that cut no active writer had noted a later time, so events of a later time lie behind the
    cut, if their writers note time at least as often as watermarks are made. "block times": all
    appends before the cut were taken by their stores before the time.

    ::

        cut = await client.streams.cut_at("plant/sensors", datetime(2026, 11, 20, 12, tzinfo=UTC))
        async with client.reader("plant/sensors", cut.positions) as reader:
            event = await anext(reader)
    """

    positions: dict[str, Position]
    basis: Basis


@dataclass(frozen=True, slots=True)
class FoundCut:
    """The cut, its basis, and the life of the stream that it is of."""

    standings: list[Standing]
    basis: Basis
    incarnation: int


class CutsByTime:
    """The cuts of one stream. `calls` makes the calls of one request to a segment."""

    def __init__(
        self,
        stream: StreamRef,
        *,
        control: ControlPlane,
        followers: Followers,
        calls: Callable[[str], SegmentCalls],
    ) -> None:
        self._stream = stream
        self._control = control
        self._followers = followers
        self._calls = calls

    async def find(self, time_ms: int) -> FoundCut:
        """The cut at the time. Raises StreamNotFound, CorruptBlock, Unavailable."""
        scope, stream = self._stream.scope, self._stream.stream
        head = await self._ask("head_cut", HeadCut(scope=scope, stream=stream))
        mark = await self._last_mark(head.incarnation, time_ms)
        if mark is not None:
            cut = later_of(self._standings_of(mark), _standings(head))
            return FoundCut(cut, "watermarks", head.incarnation)
        earlier_ms = max(0, time_ms - CLOCKS_APART_MS)
        query = SegmentsAtTime(scope=scope, stream=stream, time_ms=earlier_ms)
        begin = await self._ask("segments_at_time", query)
        cut = await self._by_block_times(_standings(begin), time_ms)
        return FoundCut(cut, "block times", begin.incarnation)

    async def _ask(self, name: str, query: StreamQuery) -> CutFound:
        return await self._control.query(name, query, CutFound, timeout_s=QUERY_TIMEOUT_S)

    # --- by watermarks --------------------------------------------------------------------

    async def _last_mark(self, incarnation: int, time_ms: int) -> Watermark | None:
        """The last watermark whose upper bound is at or before the time.

        Lower bounds ascend, so they are halved; upper bounds may fall when a writer goes.
        """
        log = WatermarkLog(self._stream, incarnation, self._calls)
        for _ in range(ATTEMPTS):
            try:
                _, end = await log.seek(lambda mark: mark.lower_ms <= time_ms)
                return await log.last_before(end, lambda mark: mark.upper_ms <= time_ms)
            except SegmentNotFound:
                return None
            except (SegmentTruncated, InvalidRequest):
                continue
        raise Unavailable("the stream's watermarks change too fast", stream=str(self._stream))

    def _standings_of(self, mark: Watermark) -> list[Standing]:
        return [
            (
                SegmentInStream(
                    segment_id=row.segment_id,
                    name=segment_name(self._stream, SegmentId(row.segment_id)),
                    key_start=row.key_range.start,
                    key_end=row.key_range.end,
                ),
                Position(row.offset),
            )
            for row in mark.cut
        ]

    # --- by block times -------------------------------------------------------------------

    async def _by_block_times(self, begin: list[Standing], time_ms: int) -> list[Standing]:
        frontier = Frontier(begin)
        pending = frontier.begun
        while pending:  # ends, because a segment is opened once, and there are only so many
            segment = pending.pop()
            try:
                if await self._move(frontier, segment, time_ms):
                    pending += frontier.finish(segment, await self._followers.after(segment))
            except SegmentNotFound as error:
                successors = await self._followers.in_place_of(segment, error)
                pending += frontier.finish(segment, successors)
        return frontier.standings

    async def _move(self, frontier: Frontier, segment: str, time_ms: int) -> bool:
        """Advance one position. Returns whether that is the end of a sealed segment."""

        def request(container_epoch: int) -> Request:
            return LocateTime(segment=segment, container_epoch=container_epoch, time_ms=time_ms)

        located, _ = await self._calls(segment).ask(request, OffsetLocated)
        offset = max(located.offset, frontier.positions[segment].offset)
        frontier.positions[segment] = Position(offset)
        info = await self._calls(segment).info()
        return info.sealed and offset >= info.length


def _standings(found: CutFound) -> list[Standing]:
    return [(at, Position(at.offset)) for at in found.segments]
