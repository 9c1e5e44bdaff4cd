"""Cuts of streams that were scaled, completed to a place in every segment. Pure.

A cut names the segments that have begun and are not finished. Of two segments of a stream that
share keys, the one with the higher id comes after the other; so the cut also tells of segments that
it does not name.
"""

from collections.abc import Mapping, Sequence

from anabranch.common.model.names import parse_segment_name
from anabranch.common.model.stream import FUTURE_OFFSET
from anabranch.spark.options.bounds import Positions
from anabranch.spark.places.ports import SegmentBounds

Place = tuple[int, int]
"""(offset, index) of an event in a segment."""


def completed(segments: Sequence[SegmentBounds], cut: Positions) -> dict[str, Place]:
    """The places that a cut means, by segment.

    A segment that follows one of the cut begins behind it; another one that a segment of the cut
    follows ends before it. Leaves out segments about which the cut says nothing.
    """
    named = [each for each in segments if each.name in cut]
    ids = {each.name: parse_segment_name(each.name)[1] for each in segments}
    places: dict[str, Place] = {}
    for segment in segments:
        if segment.name in cut:
            offset, index = cut[segment.name]
            is_future = offset == FUTURE_OFFSET
            places[segment.name] = (segment.start, 0) if is_future else (offset, index)
            continue
        relatives = [ids[each.name] for each in named if _share_keys(each, segment)]
        if any(other < ids[segment.name] for other in relatives):
            places[segment.name] = (segment.start, 0)
        elif relatives:
            places[segment.name] = (segment.length, 0)
    return places


def within(segments: Sequence[SegmentBounds], cut: Positions) -> Mapping[str, Place]:
    """The cut without segments that are gone, and with the rest inside the segments."""
    found: dict[str, Place] = {}
    for segment in segments:
        if segment.name not in cut:
            continue
        offset, index = cut[segment.name]
        place = (offset, index)
        if offset != FUTURE_OFFSET:
            place = min(max(place, (segment.start, 0)), (segment.length, 0))
        found[segment.name] = place
    return found


def _share_keys(one: SegmentBounds, other: SegmentBounds) -> bool:
    if one.keys is None or other.keys is None:
        return False
    return one.keys.start < other.keys.end and other.keys.start < one.keys.end
