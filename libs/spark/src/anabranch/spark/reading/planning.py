"""Plans a read: selects the bytes of each segment and divides them into partitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.errors import InvalidPosition, InvalidRequest, SegmentTruncated
from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.spark.options.bounds import AtTime, Bound, Positions
from anabranch.spark.options.read import Division, ReadOptions
from anabranch.spark.partitioning import (
    Partition,
    Piece,
    dividing_lines,
    pack,
    partition_count,
)
from anabranch.spark.places.ports import SegmentBounds, SegmentSource, StreamBounds, StreamPlace


@dataclass(frozen=True, slots=True)
class Plan:
    """The partitions of a read; none if it is empty. `incarnations`: of the streams planned."""

    incarnations: Mapping[StreamRef, int]
    partitions: Sequence[Partition]


async def plan_read(streams: StreamPlace, options: ReadOptions, parallelism: int) -> Plan:
    """Plan the read of all its streams.

    Raises InvalidRequest or InvalidPosition for invalid positions, SegmentTruncated, and as
    `StreamPlace.find` and `SegmentSource.bounds`.
    """
    found = await streams.find(options.which)
    _check_streams(found, options)
    incarnations: dict[StreamRef, int] = {}
    pieces: list[Piece] = []
    for stream in found:
        source = streams.source(stream)
        bounds = await source.bounds()
        incarnations[stream] = bounds.incarnation
        start = await _resolved(source, stream, options.start)
        end = await _resolved(source, stream, options.end)
        pieces += await _pieces(source, stream, bounds, (start, end))
    return Plan(incarnations, await divide(streams, pieces, options.division, parallelism))


async def divide(
    streams: StreamPlace, pieces: Sequence[Piece], division: Division, parallelism: int
) -> list[Partition]:
    """Divide pieces, as their sources cut them, into partitions."""
    if not pieces:
        return []
    count = partition_count(
        sum(piece.size for piece in pieces),
        target_bytes=division.target_partition_bytes,
        min_partitions=division.min_partitions,
        parallelism=parallelism,
    )
    boundaries = {
        place: await _source_of(streams, pieces[place]).boundaries(pieces[place], lines)
        for place, lines in dividing_lines(pieces, count).items()
    }
    return pack(pieces, boundaries, count)


def _source_of(streams: StreamPlace, piece: Piece) -> SegmentSource:
    return streams.source(parse_segment_name(piece.segment)[0])


def _check_streams(streams: Sequence[StreamRef], options: ReadOptions) -> None:
    """Raises InvalidRequest for a position in a stream that is not read."""
    for bound in (options.start, options.end):
        if isinstance(bound, str | AtTime):
            continue
        for name in bound:
            if parse_segment_name(name)[0] not in streams:
                raise InvalidRequest(
                    "a position names a segment of a stream that the read does not cover",
                    remedy="name segments of the streams that the read names", segment=name,
                )  # fmt: skip


async def _resolved(source: SegmentSource, stream: StreamRef, bound: Bound) -> Positions | str:
    """The bound in one stream: `head`, `tail`, or the positions of its segments."""
    if isinstance(bound, AtTime):
        return await source.cut_at(bound.unix_ms)
    if isinstance(bound, str):
        return bound
    return {name: at for name, at in bound.items() if parse_segment_name(name)[0] == stream}


async def _pieces(
    source: SegmentSource,
    stream: StreamRef,
    bounds: StreamBounds,
    limits: tuple[Positions | str, Positions | str],
) -> list[Piece]:
    """The pieces of one stream, in the order of its segments, as the source cuts them."""
    names = {segment.name for segment in bounds.segments}
    for limit in limits:
        for name in () if isinstance(limit, str) else limit:
            if name not in names:
                raise InvalidRequest(
                    "a position names an unknown segment",
                    remedy="name segments of the stream; tier 2 has only flushed ones",
                    stream=str(stream), segment=name,
                )  # fmt: skip
    wanted = [await _wanted(source, segment, *limits) for segment in bounds.segments]
    return [part for piece in wanted if piece is not None for part in source.pieces(piece)]


async def _wanted(
    source: SegmentSource, segment: SegmentBounds, first: Positions | str, last: Positions | str
) -> Piece | None:
    """The segment's events from `first` on and before `last`; None without such events."""
    start = await _normalised(source, segment, _place(segment, first, "head"))
    end = await _normalised(source, segment, _place(segment, last, "tail"))
    if start >= end:
        if not isinstance(first, str) and start > end:
            raise InvalidRequest(
                "the start lies after the end", segment=segment.name,
                start=str(list(start)), end=str(list(end)),
            )  # fmt: skip
        return None
    await _block_size(source, segment, start)
    size = await _block_size(source, segment, end)
    end_offset, keep = end
    return Piece(
        segment.name,
        start[0],
        end_offset + size if keep else end_offset,
        skip=start[1],
        keep=keep,
    )


def _place(segment: SegmentBounds, bound: Positions | str, default: str) -> tuple[int, int]:
    if not isinstance(bound, str):
        if segment.name in bound:
            return bound[segment.name]
        bound = default
    return (segment.start if bound == "head" else segment.length), 0


def _check_inside(segment: SegmentBounds, place: tuple[int, int]) -> None:
    offset, index = place
    if offset < segment.start:
        raise SegmentTruncated(
            "a position lies before the segment's start; its events are gone",
            segment=segment.name, start=segment.start, offset=offset,
        )  # fmt: skip
    if offset > segment.length or (offset == segment.length and index):
        raise InvalidRequest(
            "a position lies beyond the readable part of the segment",
            remedy=(
                "correct the position; if tier 2 lacks it, run `anabranch segstore flush`, or read "
                "from the stores"
            ),
            segment=segment.name, length=segment.length, offset=offset,
        )  # fmt: skip


async def _normalised(
    source: SegmentSource, segment: SegmentBounds, place: tuple[int, int]
) -> tuple[int, int]:
    """Normalise a position: after a block's last event it is the start of the next block.

    Raises InvalidRequest, InvalidPosition, SegmentTruncated.
    """
    _check_inside(segment, place)
    offset, index = place
    if index == 0:
        return place
    header = await source.block_at(segment.name, offset)
    if index > header.event_count:
        raise InvalidPosition(
            "a position lies beyond its block's events",
            segment=segment.name, offset=offset, index=index, events=header.event_count,
        )  # fmt: skip
    return (offset + header.size, 0) if index == header.event_count else place


async def _block_size(source: SegmentSource, segment: SegmentBounds, place: tuple[int, int]) -> int:
    """The size of the block at a position; 0 at the segment's bounds. Raises InvalidRequest."""
    offset, index = place
    if index == 0 and offset in (segment.start, segment.length):
        return 0
    return (await source.block_at(segment.name, offset)).size
