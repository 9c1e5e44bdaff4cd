"""Reading durable bytes: at once from memory and the journal, or with a wait from tier 2.

`read_now` and `locate_now` answer from the pieces, or say which extent of tier 2 holds the
offset; `read_tiered` and `locate_tiered` then wait for it. What is read from tier 2 is not put
in memory. Append boundaries in tier 2 are found by walking over the blocks' headers, which say
their sizes, from the last boundary that the chunk lists; extents begin and end on boundaries.
"""

from dataclasses import dataclass

from anabranch.common.errors import (
    CorruptBlock,
    FormatTooNew,
    InvalidRequest,
    SegmentTruncated,
    Unavailable,
)
from anabranch.common.tier2.state import SegmentState, TieredExtent
from anabranch.common.wire.block import (
    BLOCK_SIZE_BYTES_MAX,
    HEADER_SIZE_BYTES,
    parse_header,
)
from anabranch.common.wire.messages import (
    LocateOffset,
    OffsetLocated,
    ReadSegment,
    SegmentRead,
    TruncateSegment,
)
from anabranch.segstore.domain.container.decide import gone
from anabranch.segstore.ports import TierTwo
from anabranch.segstore.shell.container import Container
from anabranch.segstore.shell.segment_index import InTierTwo, SegmentIndex

READ_SIZE_BYTES_MAX = 8 * 1024 * 1024
_WINDOW_SIZE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """A read's answer and its payload; `number` is the segment's."""

    number: int
    reply: SegmentRead
    data: bytes


def read_now(container: Container, request: ReadSegment) -> Found | InTierTwo:
    """Up to `size_max` bytes (at most 8 MiB, or one larger append), or where they are.

    At the tail the answer is empty. Raises SegmentNotFound, SegmentTruncated, InvalidRequest.
    """
    state, index = _segment(container, request.segment, request.offset)
    if request.size_max < 1:
        raise InvalidRequest("a read asks for at least one byte", size_max=request.size_max)
    offset = request.offset
    if offset == state.length:
        return _found(state, offset, b"")
    place = index.extent_at(offset)
    if place is not None:
        return place
    size_max = min(request.size_max, READ_SIZE_BYTES_MAX)
    end = index.range_end(offset, size_max, whole_appends=request.whole_appends)
    return _found(state, offset, index.fetch(offset, end, container.log.read))


async def read_tiered(
    container: Container, tier_two: TierTwo, request: ReadSegment, place: InTierTwo
) -> Found:
    """As `read_now`, from one extent.

    Raises InvalidRequest, CorruptChunk, Unavailable (another segment has the name now).
    """
    extent = place.extent
    at = request.offset - extent.start
    left = extent.ref.length - at
    size = min(request.size_max, READ_SIZE_BYTES_MAX)
    if request.whole_appends:
        size = max(size, HEADER_SIZE_BYTES)
    size = min(size, left)
    data = await tier_two.read(extent.ref, at, size)
    if request.whole_appends and size < left:
        whole = _whole_blocks(data)
        if whole == 0:
            needed = _first_append_size(data, left)
            data = await tier_two.read(extent.ref, at, needed)
            whole = needed
        data = data[:whole]
    state, _ = _segment(container, request.segment, request.offset)
    if state.number != place.number:
        raise Unavailable("the segment was replaced while it was read", segment=request.segment)
    return _found(state, request.offset, data)


def _found(state: SegmentState, offset: int, data: bytes) -> Found:
    at_end = offset + len(data) == state.length
    reply = SegmentRead(
        offset=offset,
        at_tail=at_end and not state.sealed,
        end_of_segment=at_end and state.sealed,
    )
    return Found(state.number, reply, data)


def _segment(container: Container, segment: str, offset: int) -> tuple[SegmentState, SegmentIndex]:
    container.check_serving()
    state = container.applied.state.known(segment)
    if not isinstance(state, SegmentState):
        raise gone(state, segment)
    if offset < state.start:
        raise SegmentTruncated(
            "the offset lies before the segment's start", segment=segment, start=state.start
        )
    if offset > state.length:
        raise InvalidRequest(
            "the offset lies beyond the segment's end", offset=offset, length=state.length
        )
    index = container.applied.index.get(state.number)
    assert index is not None
    return state, index


def _whole_blocks(data: bytes) -> int:
    """The size of the run of whole blocks that `data` begins with."""
    at = 0
    while len(data) - at >= HEADER_SIZE_BYTES:
        try:
            size = parse_header(data, at).size
        except (CorruptBlock, FormatTooNew):
            break
        if at + size > len(data):
            break
        at += size
    return at


def _first_append_size(data: bytes, left: int) -> int:
    """The size of the append at the start of `data`, of which not all is there.

    Raises InvalidRequest where the segment does not hold blocks and its boundaries are unknown.
    """
    try:
        size = parse_header(data).size if len(data) >= HEADER_SIZE_BYTES else left
    except (CorruptBlock, FormatTooNew):
        size = left
    if size > min(left, BLOCK_SIZE_BYTES_MAX):
        raise InvalidRequest(
            "the append boundaries of this range are not known",
            remedy="read without whole_appends, or from an append boundary",
        )
    return size


# --- locating -----------------------------------------------------------------------------------


def locate_now(container: Container, request: LocateOffset) -> OffsetLocated | InTierTwo:
    """The first append boundary at or after the offset, or which extent knows it.

    Raises SegmentNotFound, SegmentTruncated, InvalidRequest.
    """
    state, index = _segment(container, request.segment, request.offset)
    if request.offset in (state.start, state.length):
        return OffsetLocated(offset=request.offset)
    place = index.extent_at(request.offset)
    if place is not None:
        return place
    return OffsetLocated(offset=index.boundary(request.offset))


async def locate_tiered(
    tier_two: TierTwo, request: LocateOffset, place: InTierTwo
) -> OffsetLocated:
    """As `locate_now`; the extent's end where its boundaries are not known."""
    extent = place.extent
    _, higher = await _boundaries(tier_two, extent, request.offset - extent.start)
    return OffsetLocated(offset=extent.start + higher)


def truncation_place(container: Container, request: TruncateSegment) -> InTierTwo | None:
    """The extent whose boundaries must be looked up before a truncation; None: none must."""
    container.check_serving()
    state = container.applied.state.known(request.segment)
    if not isinstance(state, SegmentState) or not state.start < request.offset < state.length:
        return None
    index = container.applied.index.get(state.number)
    assert index is not None
    return index.extent_at(request.offset)


async def boundary_before(tier_two: TierTwo, place: InTierTwo, offset: int) -> int:
    """The last append boundary known at or before `offset`, which lies in the extent."""
    extent = place.extent
    lower, _ = await _boundaries(tier_two, extent, offset - extent.start)
    return extent.start + lower


async def _boundaries(tier_two: TierTwo, extent: TieredExtent, wanted: int) -> tuple[int, int]:
    """The boundaries at or around `wanted`: (highest at or below, lowest at or above).

    All relative to the extent. Walks over the blocks from the chunk's last sparse entry before
    `wanted`. Where there are no blocks, the sparse entries are all that is known.
    """
    at, beyond = await tier_two.entries_around(extent.ref, wanted)
    window, window_at = b"", 0
    while at < wanted:
        if at + HEADER_SIZE_BYTES > window_at + len(window):
            window_at = at
            window = await _window(tier_two, extent, at)
        try:
            size = parse_header(window, at - window_at).size
        except (CorruptBlock, FormatTooNew):
            return at, beyond
        if at + size > wanted:
            return at, min(at + size, extent.ref.length)
        at += size
    return at, at


async def _window(tier_two: TierTwo, extent: TieredExtent, at: int) -> bytes:
    size = min(_WINDOW_SIZE_BYTES, extent.ref.length - at)
    return await tier_two.read(extent.ref, at, size)
