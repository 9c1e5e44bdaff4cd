"""The later and the earlier one of two cuts of a stream, for every key. Pure.

Of two segments of a stream that share keys, the one with the higher id comes after the other. Two
cuts of a stream, joined in this way, make a cut again: a cut that has begun a segment has passed
the predecessors of this segment for all of their keys.
"""

from collections.abc import Callable, Iterable

from anabranch.client.reading.frontier import FUTURE, Position, Standing, share_keys
from anabranch.common.contracts.queries import SegmentInStream


def later_of(one: Iterable[Standing], other: Iterable[Standing]) -> list[Standing]:
    """For every key the later place of the two."""
    found = _by_segment(one, other, max)
    begun = [segment for segment, at in found if at != FUTURE]
    return [
        (segment, at) for segment, at in found if not any(_after(new, segment) for new in begun)
    ]


def earlier_of(one: Iterable[Standing], other: Iterable[Standing]) -> list[Standing]:
    """For every key the earlier place of the two."""
    found = _by_segment(one, other, min)
    joined: list[Standing] = []
    for segment, at in found:
        older = [old for old, _ in found if _after(segment, old)]
        if not _cover(segment, older):
            joined.append((segment, at))
    return joined


def _by_segment(
    one: Iterable[Standing],
    other: Iterable[Standing],
    choose: Callable[[Position, Position], Position],
) -> list[Standing]:
    """The segments of both, by id; a segment of both has the chosen place."""
    found: dict[int, Standing] = {}
    for segment, at in (*one, *other):
        known = found.get(segment.segment_id)
        found[segment.segment_id] = (segment, at if known is None else choose(known[1], at))
    return [found[number] for number in sorted(found)]


def _after(new: SegmentInStream, old: SegmentInStream) -> bool:
    return new.segment_id > old.segment_id and share_keys(new, old)


def _cover(segment: SegmentInStream, others: Iterable[SegmentInStream]) -> bool:
    """Whether the others have all keys of the segment."""
    at = segment.key_start
    for other in sorted(others, key=lambda each: each.key_start):
        if other.key_start > at:
            return False
        at = max(at, other.key_end)
    return at >= segment.key_end
