"""Short rows for segments in snapshots and history chunks, because there are many.

A state may hold thousands of segments, and field names would be most of its bytes. This module
makes types for tuples of values that are rows in JSON.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import SegmentOffset, SegmentRange, StreamCut

R = TypeVar("R")
RangeRow = tuple[SegmentId, float, float]
OffsetRow = tuple[SegmentId, int]


def reading(rows: TypeAdapter[list[R]], read: Callable[[R], object]) -> BeforeValidator:
    """Convert rows to values; values, which are in a tuple, stay unchanged."""

    def values(found: object) -> object:
        if isinstance(found, tuple):
            return found
        return tuple(read(row) for row in rows.validate_python(found))

    return BeforeValidator(values)


def _range_rows(segments: tuple[SegmentRange, ...]) -> list[RangeRow]:
    return [(s.segment_id, s.keys.start, s.keys.end) for s in segments]


def _offset_rows(cut: StreamCut) -> list[OffsetRow]:
    return [(place.segment_id, place.offset) for place in cut]


SegmentRanges = Annotated[
    tuple[SegmentRange, ...],
    reading(
        TypeAdapter(list[RangeRow]), lambda row: SegmentRange(row[0], KeyRange(row[1], row[2]))
    ),
    PlainSerializer(_range_rows),
]
"""Rows of segment, start and end of its keys."""
SegmentOffsets = Annotated[
    StreamCut,
    reading(TypeAdapter(list[OffsetRow]), lambda row: SegmentOffset(*row)),
    PlainSerializer(_offset_rows),
]
"""Rows of segment and offset."""
