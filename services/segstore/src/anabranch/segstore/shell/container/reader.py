"""Reading durable bytes: at once from memory, or with a wait from the journal and tier 2.

`read_now` answers from the pieces in memory and from granules at hand, or returns the granules that
it needs. The caller fetches these and calls again, as often as necessary: every wait may change
where the bytes are, so the read is decided anew after it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.common.errors import (
    CorruptBlock,
    FormatTooNew,
    InvalidRequest,
)
from anabranch.common.model.names import SegmentKind
from anabranch.common.tier2.state import ChunkRef, SegmentState
from anabranch.common.wire.block import (
    BLOCK_SIZE_BYTES_MAX,
    HEADER_SIZE_BYTES,
    parse_header,
)
from anabranch.common.wire.messages import (
    ReadSegment,
    SegmentRead,
)
from anabranch.segstore.domain.container.decide import decide_read, kind_of
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.memory.granule import (
    Bytes,
    Granule,
    Look,
    granule_size,
    joined,
    part,
    windows,
)
from anabranch.segstore.shell.memory.segment_index import SegmentIndex

READ_SIZE_BYTES_MAX = 8 * 1024 * 1024
FRAMES_SIZE_BYTES_MAX = 16 * 1024 * 1024
"""How much one answer may read of the journal: frames also hold other segments' appends."""
EXTENTS_PER_READ_MAX = 64


@dataclass(frozen=True, slots=True)
class Found:
    """A read's answer and its payload; `number` is the segment's."""

    number: int
    reply: SegmentRead
    data: Bytes


@dataclass(frozen=True, slots=True)
class Needed:
    """The granules that a read needs; `number` is the segment's."""

    number: int
    granules: tuple[Granule, ...]


def read_now(
    container: Container, request: ReadSegment, look: Look, window: int = 0
) -> Found | Needed:
    """Up to `size_max` bytes (at most 8 MiB, or one larger append), or the granules to fetch.

    `window` is the number of bytes of a chunk that are read at once. With 0, only the requested
    range is read, because no read is expected to follow. At the tail the answer is empty. Raises
    SegmentNotFound, SegmentTruncated, InvalidRequest, CorruptJournal.
    """
    state, index = _segment(container, request.segment, request.offset)
    if request.size_max < 1:
        raise InvalidRequest("a read must ask for at least one byte", size_max=request.size_max)
    if request.offset == state.length:
        return _found(state, request.offset, b"")
    if index.extent_at(request.offset) is None:
        found = _from_pieces(index, request, look)
    else:
        found = _from_tier_two(index, request, look, window)
    if isinstance(found, list):
        return Needed(state.number, tuple(dict.fromkeys(found)))
    return _found(state, request.offset, found)


def _from_pieces(index: SegmentIndex, request: ReadSegment, look: Look) -> Bytes | list[Granule]:
    offset = request.offset
    size_max = min(request.size_max, READ_SIZE_BYTES_MAX)
    end = index.range_end(offset, size_max, whole_appends=request.whole_appends)
    at_hand: dict[LogAddress, bytes] = {}
    missing: list[Granule] = []
    size = 0
    for start, address in index.absent(offset, end):
        size += address.payload_size
        if size > FRAMES_SIZE_BYTES_MAX and start > offset:
            end = start  # a piece begins on an append boundary
            break
        frame = look(address)
        if frame is None:
            missing.append(address)
        else:
            at_hand[address] = frame
    return missing or index.fetch(offset, end, at_hand.__getitem__)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """`size` bytes from `start` of a reference, which has `left` bytes from `start` on."""

    ref: ChunkRef
    start: int
    size: int
    left: int


def _from_tier_two(
    index: SegmentIndex, request: ReadSegment, look: Look, window: int
) -> Bytes | list[Granule]:
    """Read from one extent, and from those after it if that costs no extra wait."""
    size_max = min(request.size_max, READ_SIZE_BYTES_MAX)
    if request.whole_appends:
        size_max = max(size_max, HEADER_SIZE_BYTES)
    count_max = EXTENTS_PER_READ_MAX if window else 1
    stretches = list(_stretches(index, request.offset, size_max, count_max))
    parts: list[Bytes] = []
    missing: list[Granule] = []
    for stretch in stretches:
        data = _bytes_of(stretch, look, window)
        if isinstance(data, list):
            missing += data
        else:
            parts.append(data)
    if missing:
        return missing
    last = stretches[-1]
    if request.whole_appends and last.size < last.left:
        whole = _whole_blocks(parts[-1])
        if whole == 0 and len(parts) == 1:
            needed = _first_append_size(parts[0], last.left)
            return _bytes_of(_Stretch(last.ref, last.start, needed, last.left), look, window)
        parts[-1] = memoryview(parts[-1])[:whole]
    return joined([found for found in parts if found] if len(parts) > 1 else parts)


def _stretches(
    index: SegmentIndex, offset: int, size_max: int, count_max: int
) -> Iterator[_Stretch]:
    """The parts of the `size_max` bytes from `offset` that only tier 2 has, extent by extent."""
    end = min(offset + size_max, index.length)
    for _ in range(count_max):
        place = index.extent_at(offset) if offset < end else None
        if place is None:
            return
        extent = place.extent
        start = offset - extent.start
        left = extent.ref.length - start
        size = min(end - offset, left)
        yield _Stretch(extent.ref, start, size, left)
        offset += size


def _bytes_of(stretch: _Stretch, look: Look, window: int) -> Bytes | list[Granule]:
    parts: list[Bytes] = []
    missing: list[Granule] = []
    end = stretch.start + stretch.size
    for granule in windows(stretch.ref, stretch.start, stretch.size, window):
        data = look(granule)
        if data is None:
            missing.append(granule)
            continue
        first = max(stretch.start - granule.start, 0)
        parts.append(part(data, first, min(end - granule.start, granule.size)))
    return missing or joined(parts)


def granules_ahead(
    container: Container, number: int, offset: int, size: int, window: int
) -> Iterator[Granule]:
    """The granules that a reader at `offset` needs next, for about `size` bytes."""
    index = container.applied.index.get(number)
    if index is None:
        return
    for place in index.ahead(offset, offset + size):
        if isinstance(place, LogAddress):
            found: Iterator[Granule] = iter((place,))
        else:
            extent = place.extent
            start = max(offset - extent.start, 0)
            found = windows(extent.ref, start, extent.ref.length - start, window)
        for granule in found:
            yield granule
            size -= granule_size(granule)
            if size <= 0:
                return


def _found(state: SegmentState, offset: int, data: Bytes) -> Found:
    at_end = offset + len(data) == state.length
    reply = SegmentRead(
        offset=offset,
        at_tail=at_end and not state.sealed,
        end_of_segment=at_end and state.sealed,
    )
    return Found(state.number, reply, data)


def _segment(container: Container, segment: str, offset: int) -> tuple[SegmentState, SegmentIndex]:
    container.check_serving()
    known = container.applied.state.known(segment)
    if kind_of(known, segment) is SegmentKind.TRANSACTION:
        raise InvalidRequest(
            "a transaction segment cannot be read, because the transaction may abort",
            remedy="read the stream's segments; a commit merges its events into them",
            segment=segment,
        )
    state = decide_read(known, segment, offset)
    index = container.applied.index.get(state.number)
    assert index is not None
    return state, index


def _whole_blocks(data: Bytes) -> int:
    """The size of the whole blocks at the beginning of `data`."""
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


def _first_append_size(data: Bytes, left: int) -> int:
    """The size of the append at the start of `data`, which holds only a part of it.

    Raises InvalidRequest if the range does not hold blocks, so that its boundaries are unknown.
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
