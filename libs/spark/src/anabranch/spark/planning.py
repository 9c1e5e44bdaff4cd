"""Plans a read: selects the bytes of each segment and divides them into partitions."""

from anabranch.common.errors import InvalidPosition, InvalidRequest, SegmentTruncated
from anabranch.spark.options import Bound, ReadOptions
from anabranch.spark.partitioning import (
    Partition,
    Piece,
    dividing_lines,
    pack,
    partition_count,
)
from anabranch.spark.ports import SegmentBounds, SegmentSource, StreamBounds


async def plan_read(
    source: SegmentSource, bounds: StreamBounds, options: ReadOptions, parallelism: int
) -> list[Partition]:
    """Return the partitions; none if the read is empty.

    Raises InvalidRequest or InvalidPosition for invalid positions, SegmentTruncated.
    """
    _check_names(bounds, options)
    wanted = [await _wanted(source, segment, options) for segment in bounds.segments]
    pieces = [part for piece in wanted if piece is not None for part in source.pieces(piece)]
    if not pieces:
        return []
    count = partition_count(
        sum(piece.size for piece in pieces),
        target_bytes=options.target_partition_bytes,
        min_partitions=options.min_partitions,
        parallelism=parallelism,
    )
    boundaries = {
        place: await source.boundaries(pieces[place], lines)
        for place, lines in dividing_lines(pieces, count).items()
    }
    return pack(pieces, boundaries, count)


def _check_names(bounds: StreamBounds, options: ReadOptions) -> None:
    names = {segment.name for segment in bounds.segments}
    for bound in (options.start, options.end):
        for name in () if isinstance(bound, str) else bound:
            if name not in names:
                raise InvalidRequest(
                    "a position names an unknown segment",
                    remedy="name segments of the stream; tier 2 has only flushed ones",
                    stream=str(options.stream), segment=name,
                )  # fmt: skip


async def _wanted(
    source: SegmentSource, segment: SegmentBounds, options: ReadOptions
) -> Piece | None:
    """The segment's events from `start` on and before `end`; None without such events."""
    start = await _normalised(source, segment, _place(segment, options.start, "head"))
    end = await _normalised(source, segment, _place(segment, options.end, "tail"))
    if start >= end:
        if not isinstance(options.start, str) and start > end:
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


def _place(segment: SegmentBounds, bound: Bound, default: str) -> tuple[int, int]:
    if not isinstance(bound, str):
        if segment.name in bound:
            return bound[segment.name]
        bound = "head" if default == "head" else "tail"
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
