"""Validates positions from applications before a reader group keeps them.

The controller and a group's log do not know blocks, so they store any position. A position at which
no event can lie would stop every reader that gets the segment. The client therefore checks the
block before it sends the position:

    (offset, index) ──index < events──► unchanged
                    ──index = events──► (offset of the next block, 0)
                    ──else, or no block begins there──► InvalidPosition

A truncated or deleted position is unchanged: a reader skips it and raises EventsTruncated. A
segment's end has no block yet, so the only valid index there is 0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.client.reading.ranges import SegmentRanges
from anabranch.client.reading.times.instants import Instant
from anabranch.common.errors import (
    CorruptBlock,
    InvalidPosition,
    InvalidRequest,
    SegmentNotFound,
    SegmentTruncated,
)
from anabranch.common.model.names import StreamRef, parse_segment_name, segment_name
from anabranch.common.model.reader_group import (
    PositionCut,
    ReaderGroupConfig,
    SegmentPosition,
)
from anabranch.common.wire.block import verify_block


class Places:
    """Checks positions before a command carries them, and finds where streams end now."""

    def __init__(self, ranges: SegmentRanges) -> None:
        self._ranges = ranges

    async def checked_config(self, config: ReaderGroupConfig) -> ReaderGroupConfig:
        """See `checked_config`."""
        return await checked_config(self._ranges, config)

    async def checked_cut(self, stream: StreamRef, cut: PositionCut) -> PositionCut:
        """See `checked_cut`."""
        return await checked_cut(self._ranges, stream, cut)

    async def at_time(self, stream: StreamRef, instant: Instant) -> PositionCut:
        """The stream's cut at a time, by segment id. Raises as `SegmentRanges.cut_at`."""
        found = (await self._ranges.cut_at(stream, instant)).positions
        return tuple(
            sorted(SegmentPosition(parse_segment_name(name)[1], *at) for name, at in found.items())
        )

    async def tail(self, stream: StreamRef) -> PositionCut:
        """The ends of the stream's current segments, by segment id."""
        ends = await self._ranges.tail(stream)
        found = sorted((parse_segment_name(name)[1], end) for name, end in ends.items())
        return tuple(SegmentPosition(*at) for at in found)


async def checked_config(ranges: SegmentRanges, config: ReaderGroupConfig) -> ReaderGroupConfig:
    """The configuration with every stream's start and end checked. Raises InvalidPosition,
    CorruptBlock, Unavailable."""
    streams = []
    for each in config.streams:
        start = await checked_cut(ranges, each.ref, each.start)
        within = [at for at in each.end if at.event_index]  # an offset stands for its block's end
        ends = dict(zip(within, await checked_cut(ranges, each.ref, tuple(within)), strict=True))
        end = tuple(ends.get(at, at) for at in each.end)
        streams.append(replace(each, start=start, end=end))
    return replace(config, streams=tuple(streams))


async def checked_cut(ranges: SegmentRanges, stream: StreamRef, cut: PositionCut) -> PositionCut:
    """The same places of the stream's segments. Raises InvalidPosition."""
    found = []
    for at in cut:
        place = Position(at.offset, at.event_index)
        place = await _checked(ranges, segment_name(stream, at.segment_id), place)
        found.append(replace(at, offset=place.offset, event_index=place.event_index))
    return tuple(found)


async def checked(
    ranges: SegmentRanges, positions: Mapping[str, tuple[int, int]], segments: Iterable[str]
) -> dict[str, Position]:
    """The same places, by full segment name; only those of `segments`. Raises InvalidPosition."""
    return {
        name: await _checked(ranges, name, Position(*positions[name]))
        for name in segments
        if name in positions
    }


async def _checked(ranges: SegmentRanges, segment: str, place: Position) -> Position:
    if place in (FUTURE, Position(0)):
        return place  # every segment begins at 0, whichever stores are up
    if place.offset < 0 or place.event_index < 0:
        raise _misplaced("a position is negative", segment, place)
    try:
        if place.event_index == 0 and await ranges.boundary(segment, place.offset) == place.offset:
            return place
        return await _normalised(ranges, segment, place)
    except (SegmentTruncated, SegmentNotFound):
        return place
    except InvalidRequest as error:
        raise _misplaced(error.message, segment, place) from error


async def _normalised(ranges: SegmentRanges, segment: str, place: Position) -> Position:
    data = await ranges.block_at(segment, place.offset)
    if not data:
        if place.event_index == 0:
            return place
        raise _misplaced("the position lies beyond the segment's last event", segment, place)
    try:
        header = verify_block(data)
    except CorruptBlock as error:
        if await ranges.boundary(segment, place.offset) == place.offset:
            raise
        raise _misplaced("no block begins at the position", segment, place) from error
    if place.event_index > header.event_count:
        raise _misplaced("the position lies beyond its block's events", segment, place)
    if place.event_index == header.event_count:
        return Position(place.offset + header.size)
    return place


def _misplaced(message: str, segment: str, place: Position) -> InvalidPosition:
    return InvalidPosition(message, segment=segment, offset=place.offset, index=place.event_index)
