"""Groups of appends in the fake store: all of a group's blocks are judged before one is stored."""

from collections.abc import Callable

from anabranch.common.errors import InvalidRequest, PartialDuplicate
from anabranch.common.model.hashing import container_of
from anabranch.common.wire.block import Block
from anabranch.common.wire.messages import (
    AppendedTogether,
    AppendOnce,
    AppendTogether,
    BlockPlace,
)
from anabranch.common.wire.requests import GROUP_SEGMENTS_MAX, GROUP_SIZE_BYTES_MAX
from kit.fake_segment import FakeSegment

CONTAINERS = 1 << 20
"""So many that only segments which are together share one."""


def append_together(
    request: AppendTogether, payload: bytes, segment_of: Callable[[str], FakeSegment]
) -> AppendedTogether:
    """Store the whole group, or nothing. Raises what a store raises, and `segment_of`."""
    _check(request, payload)
    at, fresh = 0, []
    for place in request.places:
        block = payload[at : at + place.size]
        at += place.size
        header = Block(block).header
        assert (header.first_event_number, header.writer_id, header.size) == (
            place.first_event_number, request.writer_id, place.size,
        )  # fmt: skip
        segment = segment_of(place.segment)
        if not segment.judge(request.writer_id, place.first_event_number, place.count):
            fresh.append((segment, _append(request, place), block))
    if fresh and len(fresh) < len(request.places):
        raise PartialDuplicate("some of the blocks are stored", segment=request.segment)
    for segment, append, block in fresh:
        segment.append(request.writer_id, append, block)
    return AppendedTogether()


def _check(request: AppendTogether, payload: bytes) -> None:
    names = [place.segment for place in request.places]
    containers = {container_of(name, CONTAINERS) for name in names}
    if (
        not names
        or request.segment != names[0]
        or len(set(names)) < len(names)
        or len(names) > GROUP_SEGMENTS_MAX
        or len(containers) > 1
        or len(payload) > GROUP_SIZE_BYTES_MAX
        or sum(place.size for place in request.places) != len(payload)
    ):
        raise InvalidRequest("the group is malformed", segment=request.segment)


def _append(request: AppendTogether, place: BlockPlace) -> AppendOnce:
    return AppendOnce(
        segment=place.segment, writer_id=request.writer_id,
        first_event_number=place.first_event_number, count=place.count,
    )  # fmt: skip
