"""Stream cuts as programs write them: segment → byte offset. Pure.

A cut is a mapping from segment ids to offsets, the positions of a reader, or the controller's
answer to a query for a cut.
"""

from collections.abc import Mapping

from anabranch.common.contracts.stream_queries import CutFound
from anabranch.common.errors import InvalidCut
from anabranch.common.model.names import SegmentId, StreamRef, parse_segment_name, segment_name
from anabranch.common.model.stream import SegmentOffset, StreamCut

Offsets = Mapping[int, int]
Positions = Mapping[str, tuple[int, int]]
Cut = Offsets | Positions | CutFound
"""See the module."""


def stream_cut(stream: StreamRef, cut: Cut) -> StreamCut:
    """The cut as it is sent, sorted by segment. Raises InvalidCut for one of another stream."""
    if isinstance(cut, CutFound):
        cut = offsets_of(cut)
    return tuple(sorted(_entry(stream, segment, place) for segment, place in cut.items()))


def named(stream: StreamRef, cut: Cut) -> dict[str, tuple[int, int]]:
    """Full segment name → position."""
    if isinstance(cut, CutFound):
        cut = offsets_of(cut)
    return {
        segment if isinstance(segment, str) else segment_name(stream, SegmentId(segment)): (
            (place, 0) if isinstance(place, int) else place
        )
        for segment, place in cut.items()
    }


def offsets_of(found: CutFound) -> dict[int, int]:
    """Segment id → offset, in the order of the keys."""
    return {segment.segment_id: segment.offset for segment in found.segments}


def _entry(stream: StreamRef, segment: int | str, place: int | tuple[int, int]) -> SegmentOffset:
    offset = place if isinstance(place, int) else place[0]
    if isinstance(segment, int):
        return SegmentOffset(SegmentId(segment), offset)
    owner, segment_id = parse_segment_name(segment)
    if owner != stream:
        raise InvalidCut("the cut belongs to another stream", stream=str(stream), segment=segment)
    return SegmentOffset(segment_id, offset)
