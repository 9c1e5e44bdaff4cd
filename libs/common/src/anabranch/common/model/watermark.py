"""Watermarks of a stream, and the segment that keeps them.

A *watermark* states up to where all writers of a stream agree on time: at its `cut` every active
writer had noted a time of at least `lower_ms` and none a time above `upper_ms`. So an event behind
the cut is of `lower_ms` or later, if its writer kept its promise. Controllers derive watermarks
from writers' marks (`contracts/writer_times.py`); readers compare their positions with them.

The watermarks of a stream lie, ascending, in one segment: the only one of the internal stream
`_MARK<stream>` of the same scope, which no controller lists. It is created with the first watermark
and deleted with the stream. Each watermark is the one event of a block. Its beginning may be
truncated at any time.
"""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from anabranch.common.errors import CorruptBlock
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import (
    INTERNAL_MARK,
    SegmentId,
    StreamName,
    StreamRef,
    segment_id,
    segment_name,
)

FORMAT = 1
_PREFIX = f"{INTERNAL_MARK}MARK"


class MarkedSegment(NamedTuple):
    """A segment of a watermark's cut: all events before byte `offset` lie before the cut."""

    segment_id: SegmentId
    key_range: KeyRange
    offset: int


@dataclass(frozen=True, slots=True)
class Watermark:
    """One watermark. Times are writers' times in Unix ms, `lower_ms` <= `upper_ms`.

    `incarnation`: the life of the stream that it belongs to. `cut`: sorted by segment id; its
    ranges cover the key space exactly.
    """

    incarnation: int
    lower_ms: int
    upper_ms: int
    cut: tuple[MarkedSegment, ...]


def watermark_segment(stream: StreamRef) -> str:
    """The name of the segment that holds the stream's watermarks."""
    internal = StreamRef(stream.scope, StreamName(f"{_PREFIX}{stream.stream}"))
    return segment_name(internal, segment_id(0, 0))


_Row = tuple[int, float, float, int]
_Stored = tuple[int, int, int, int, tuple[_Row, ...]]
"""format, incarnation, lower, upper, (segment id, start, end, offset)…"""


def encode_watermark(watermark: Watermark) -> bytes:
    """The stored form: an array in MessagePack, which begins with the format."""
    rows = tuple(
        (at.segment_id, at.key_range.start, at.key_range.end, at.offset) for at in watermark.cut
    )
    return msgspec.msgpack.encode(
        (FORMAT, watermark.incarnation, watermark.lower_ms, watermark.upper_ms, rows)
    )


def decode_watermark(data: bytes) -> Watermark:
    """Inverse of `encode_watermark`. Raises CorruptBlock, also for a newer format."""
    try:
        found, incarnation, lower_ms, upper_ms, rows = msgspec.msgpack.decode(data, type=_Stored)
        if found != FORMAT:
            raise ValueError(f"format {found}")
        cut = tuple(
            MarkedSegment(SegmentId(number), KeyRange(start, end), offset)
            for number, start, end, offset in rows
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptBlock("not a watermark", cause=str(error)) from error
    return Watermark(incarnation, lower_ms, upper_ms, cut)
