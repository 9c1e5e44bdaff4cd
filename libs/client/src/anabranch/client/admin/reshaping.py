"""Splits and merges of segments as a scale: the segments to seal, and the ranges that replace them.
Pure.

`present` are the current segments of the stream.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from anabranch.common.contracts.commands import NewRange
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.errors import InvalidRanges, InvalidRequest, ScaleRefused
from anabranch.common.model.stream import SEGMENT_COUNT_MAX


class Reshaping(NamedTuple):
    """Ids of segments, and the ranges that cover exactly their keys."""

    seal: tuple[int, ...]
    new_ranges: tuple[NewRange, ...]


def split(present: Sequence[SegmentInStream], segment_id: int, parts: int) -> Reshaping:
    """The segment in so many parts of equal width; its ends stay exactly the same.

    Raises ScaleRefused for a segment that is not current, InvalidRequest if the number of parts is
    out of range or too high for the width.
    """
    if not 2 <= parts <= SEGMENT_COUNT_MAX:
        raise InvalidRequest(
            "a split needs at least two parts",
            remedy=f"ask for 2 to {SEGMENT_COUNT_MAX} parts",
            parts=parts,
        )
    segment = _current(present, segment_id)
    start, width = segment.key_start, segment.key_end - segment.key_start
    bounds = [start + width * index / parts for index in range(parts)] + [segment.key_end]
    ranges = [NewRange(key_start=bounds[i], key_end=bounds[i + 1]) for i in range(parts)]
    if any(keys.key_start >= keys.key_end for keys in ranges):
        raise InvalidRequest(
            "the segment has too few keys for so many parts", segment=segment_id, parts=parts
        )
    return Reshaping((segment_id,), tuple(ranges))


def merge(present: Sequence[SegmentInStream], segment_ids: Sequence[int]) -> Reshaping:
    """The segments as one; their order does not matter.

    Raises ScaleRefused for one that is not current, InvalidRanges for segments whose keys do not
    lie side by side, InvalidRequest for fewer than two.
    """
    if len(set(segment_ids)) != len(segment_ids) or len(segment_ids) < 2:
        raise InvalidRequest("a merge needs at least two different segments")
    sources = sorted((_current(present, one) for one in segment_ids), key=lambda s: s.key_start)
    for left, right in itertools.pairwise(sources):
        if left.key_end != right.key_start:
            raise InvalidRanges(
                "the segments are not adjacent",
                remedy="merge segments with adjacent key ranges",
                segment=left.segment_id,
                other=right.segment_id,
            )
    whole = NewRange(key_start=sources[0].key_start, key_end=sources[-1].key_end)
    return Reshaping(tuple(one.segment_id for one in sources), (whole,))


def _current(present: Sequence[SegmentInStream], segment_id: int) -> SegmentInStream:
    for segment in present:
        if segment.segment_id == segment_id:
            return segment
    raise ScaleRefused("the segment is not a current segment of the stream", segment=segment_id)
