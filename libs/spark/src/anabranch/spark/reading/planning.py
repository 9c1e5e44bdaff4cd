"""Plans a read: selects the bytes of each segment and divides them into partitions.

Planning asks stores and tier 2 several questions at a time, and asks about the whole stream where
that answers for all its segments.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.common.errors import InvalidPosition, InvalidRequest, SegmentTruncated
from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.common.workflow.bounded import answers, for_each
from anabranch.spark.options.bounds import AtTime, Bound, Positions
from anabranch.spark.options.read import Division, ReadOptions
from anabranch.spark.partitioning import (
    Partition,
    Piece,
    dividing_lines,
    pack,
    part_of,
    partition_count,
)
from anabranch.spark.places.ports import SegmentBounds, SegmentSource, StreamBounds, StreamPlace
from anabranch.spark.reading.cuts import Place, completed, within
from anabranch.spark.reading.filters import ALL, Wanted

STREAMS_AT_ONCE = 8
QUESTIONS_AT_ONCE = 16
"""About segments of one stream, or chunks of one read."""

BACK_BYTES = (0, 128 * 1024, 1024 * 1024, 16 * 1024 * 1024)
"""How far before a wanted offset a boundary at or before it is looked for: chunks know about one
per 64 KiB, and a block has at most 16 MiB."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The partitions of a read; none if it is empty.

    `incarnations`: of the streams planned. `watermarks`: of those that have one, in Unix ms, as of
    the end of the read; only if the read has the column.
    """

    incarnations: Mapping[StreamRef, int]
    partitions: Sequence[Partition]
    watermarks: Mapping[StreamRef, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Positions that were true when they were found, and need not be any more."""

    positions: Positions


@dataclass(frozen=True, slots=True)
class _StreamPlan:
    incarnation: int
    watermark: int | None
    pieces: Sequence[Piece]


async def plan_read(
    streams: StreamPlace, options: ReadOptions, parallelism: int, wanted: Wanted = ALL
) -> Plan:
    """Plan the read of all its streams, without segments and bytes that are not `wanted`.

    Raises InvalidRequest or InvalidPosition for invalid positions, SegmentTruncated, and as
    `StreamPlace.find` and `SegmentSource.bounds`.
    """
    named = await streams.find(options.which)
    _check_streams(named, options)
    found = [stream for stream in named if wanted.admits_stream(stream)]

    async def one(stream: StreamRef) -> _StreamPlan:
        return await _plan_stream(streams.source(stream), stream, options, wanted)

    plans = dict(zip(found, await answers(found, STREAMS_AT_ONCE, one), strict=True))
    pieces = [piece for each in plans.values() for piece in each.pieces]
    return Plan(
        {stream: each.incarnation for stream, each in plans.items()},
        await divide(streams, pieces, options.division, parallelism),
        {stream: each.watermark for stream, each in plans.items() if each.watermark is not None},
    )


async def _plan_stream(
    source: SegmentSource, stream: StreamRef, options: ReadOptions, wanted: Wanted
) -> _StreamPlan:
    """The order matters: the watermark and the cuts lie within bounds that are asked for later."""
    watermark = None
    if "watermark" in options.columns and options.end == "tail":
        watermark = await source.watermark()
    start = await _resolved(source, stream, options.start)
    end = await _resolved(source, stream, options.end)
    bounds = await source.bounds()
    limits = _places(stream, bounds, start), _places(stream, bounds, end)
    segments = [each for each in bounds.segments if wanted.admits(stream, each)]
    pieces = await _pieces(source, segments, limits, is_given=isinstance(start, Mapping))
    if wanted.limits_offsets:
        pieces = await _between_offsets(source, pieces, wanted)
    return _StreamPlan(bounds.incarnation, watermark, pieces)


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
    lines = dividing_lines(pieces, count)
    boundaries: dict[int, Sequence[int]] = {}

    async def ask(places: Sequence[int]) -> None:
        for place in places:
            source = _source_of(streams, pieces[place])
            boundaries[place] = await source.boundaries(pieces[place], lines[place])

    await for_each(_by_object(pieces, lines), QUESTIONS_AT_ONCE, ask)
    return pack(pieces, boundaries, count)


def _by_object(pieces: Sequence[Piece], places: Iterable[int]) -> list[list[int]]:
    """The places by the chunk or segment of their pieces, so that a footer is read once."""
    found: dict[str, list[int]] = {}
    for place in places:
        extent = pieces[place].extent
        name = pieces[place].segment if extent is None else extent.ref.name
        found.setdefault(name, []).append(place)
    return list(found.values())


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


async def _resolved(source: SegmentSource, stream: StreamRef, bound: Bound) -> Bound | _Cut:
    """The bound in one stream: `head`, `tail`, the positions of its segments, or a cut."""
    if isinstance(bound, AtTime):
        return _Cut(await source.cut_at(bound.unix_ms))
    if isinstance(bound, str):
        return bound
    return {name: at for name, at in bound.items() if parse_segment_name(name)[0] == stream}


async def _pieces(
    source: SegmentSource,
    segments: Sequence[SegmentBounds],
    limits: tuple[Mapping[str, Place], Mapping[str, Place]],
    *,
    is_given: bool,
) -> list[Piece]:
    """The pieces of some segments, in order, as the source cuts them.

    `is_given`: a user gave the starts, which must not lie after the ends.
    """
    first, last = limits

    async def wanted(segment: SegmentBounds) -> Piece | None:
        places = (
            first.get(segment.name, (segment.start, 0)),
            last.get(segment.name, (segment.length, 0)),
        )
        return await _wanted(source, segment, *places, is_given=is_given)

    found = await answers(segments, QUESTIONS_AT_ONCE, wanted)
    return [part for piece in found if piece is not None for part in source.pieces(piece)]


async def _between_offsets(
    source: SegmentSource, pieces: Sequence[Piece], wanted: Wanted
) -> list[Piece]:
    """The pieces without bytes that hold only blocks at unwanted offsets."""
    stop = wanted.offset_stop

    async def narrow(piece: Piece) -> Piece | None:
        if piece.end <= wanted.offset_first or (stop is not None and stop <= piece.start):
            return None
        return await _narrowed(source, piece, wanted.offset_first, stop)

    found = await answers(pieces, QUESTIONS_AT_ONCE, narrow)
    return [piece for piece in found if piece is not None]


async def _narrowed(source: SegmentSource, piece: Piece, first: int, stop: int | None) -> Piece:
    """The part between the last known boundary up to `first` and the first one from `stop` on."""
    near = [first - back for back in BACK_BYTES if piece.start < first - back]
    near += [stop] if stop is not None and stop < piece.end else []
    if not near:
        return piece
    known = await source.boundaries(piece, sorted(near))
    starts = [at for at in known if piece.start < at <= first]
    ends = [] if stop is None else [at for at in known if stop <= at < piece.end]
    return part_of(piece, max(starts, default=piece.start), min(ends, default=piece.end))


def _places(stream: StreamRef, bounds: StreamBounds, limit: Bound | _Cut) -> Mapping[str, Place]:
    """The places of segments that the limit determines. Raises InvalidRequest."""
    match limit:
        case "head":
            return {segment.name: (segment.start, 0) for segment in bounds.segments}
        case "tail":
            return {segment.name: (segment.length, 0) for segment in bounds.segments}
        case _Cut():
            return completed(bounds.segments, within(bounds.segments, limit.positions))
        case AtTime():
            raise AssertionError("times are resolved before")
    names = {segment.name for segment in bounds.segments}
    for name in limit:
        if name not in names:
            raise InvalidRequest(
                "a position names an unknown segment",
                remedy="name segments of the stream; tier 2 has only flushed ones",
                stream=str(stream), segment=name,
            )  # fmt: skip
    return completed(bounds.segments, limit)


async def _wanted(
    source: SegmentSource, segment: SegmentBounds, first: Place, last: Place, *, is_given: bool
) -> Piece | None:
    """The segment's events from `first` on and before `last`; None without such events."""
    start = await _normalised(source, segment, first)
    end = await _normalised(source, segment, last)
    if start >= end:
        if is_given and start > end:
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
