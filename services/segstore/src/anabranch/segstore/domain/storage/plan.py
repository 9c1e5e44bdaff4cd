"""Which bytes of a cut go into which chunks.

A segment with 16 MiB or more to move gets chunks of its own, of at most 64 MiB; what is left
over and all small ranges share chunks of at most 64 MiB. Every piece ends at an append mark,
so that a reader, a stream cut or a split for Spark may start at every piece.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.common.tier2.chunk import SparseEntry
from anabranch.common.tier2.state import Catalog
from anabranch.segstore.domain.container.state import AppendMark, ContainerCut, SegmentCut

CHUNK_DATA_BYTES_MAX = 64 * 1024 * 1024
OWN_CHUNK_BYTES_MIN = 16 * 1024 * 1024
SPARSE_INTERVAL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    """Bytes [start, end) of a segment, both append boundaries, and the entries they will have."""

    segment_name: str
    segment_number: int
    start: int
    end: int
    entries: tuple[SparseEntry, ...]

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """In bytes of data. A single append over the largest size makes a larger chunk."""

    chunk_max: int = CHUNK_DATA_BYTES_MAX
    own_chunk_min: int = OWN_CHUNK_BYTES_MIN
    sparse_interval: int = SPARSE_INTERVAL_BYTES


PlannedChunk = tuple[PlannedPiece, ...]
"""The pieces of one chunk, in order."""


def plan_flush(
    catalog: Catalog, cut: ContainerCut, limits: ChunkLimits
) -> tuple[PlannedChunk, ...]:
    """The chunks that move a cut to tier 2, by segment number; a segment's pieces ascend."""
    own: list[PlannedChunk] = []
    small: list[PlannedPiece] = []
    for segment in sorted(cut.segments, key=lambda entry: entry.state.number):
        check_marks(catalog, segment)
        for piece in _pieces(segment, _events_before(catalog, segment), limits):
            if piece.size >= limits.own_chunk_min:
                own.append((piece,))
            else:
                small.append(piece)
    return (*own, *_packed(small, limits.chunk_max))


def check_marks(catalog: Catalog, segment: SegmentCut) -> None:
    """The cut begins where tier 2 ends, and its marks ascend to the segment's length.

    Breaks of this contract are the container's errors and would be lost bytes.
    """
    held = catalog.segments.get(segment.state.name)
    known = held is not None and held.number == segment.state.number
    assert segment.tiered_length == (held.length if known and held is not None else 0)
    offsets = [segment.tiered_length, *(mark.offset for mark in segment.marks)]
    assert all(before < after for before, after in pairwise(offsets))
    assert offsets[-1] == segment.state.length


def _events_before(catalog: Catalog, segment: SegmentCut) -> int:
    held = catalog.segments.get(segment.state.name)
    return held.event_count if held is not None and segment.tiered_length else 0


def _pieces(segment: SegmentCut, events_before: int, limits: ChunkLimits) -> list[PlannedPiece]:
    """The segment's range cut at marks into pieces of at most the largest chunk's size."""
    pieces: list[PlannedPiece] = []
    marks = segment.marks
    start, first = segment.tiered_length, 0
    while first < len(marks):
        fitting = bisect_right(marks, start + limits.chunk_max, first, key=lambda mark: mark.offset)
        stop = max(fitting, first + 1)
        taken = marks[first:stop]
        pieces.append(
            PlannedPiece(
                segment_name=segment.state.name,
                segment_number=segment.state.number,
                start=start,
                end=taken[-1].offset,
                entries=_sparse(taken, start, events_before, limits.sparse_interval),
            )
        )
        start, events_before, first = taken[-1].offset, taken[-1].event_count, stop
    return pieces


def _sparse(
    marks: Sequence[AppendMark], start: int, events_before: int, interval: int
) -> tuple[SparseEntry, ...]:
    """One entry per `interval` bytes, at the first mark that reaches it, and the last mark."""
    entries: list[SparseEntry] = []
    reached = start
    for mark in marks:
        if mark.offset >= reached + interval or mark is marks[-1]:
            reached = mark.offset
            entries.append(
                SparseEntry(mark.offset - start, mark.event_count - events_before, mark.time_ms)
            )
    return tuple(entries)


def _packed(pieces: Sequence[PlannedPiece], size_max: int) -> list[PlannedChunk]:
    """Pieces in order, as many to a chunk as fit; a piece over the size is a chunk by itself."""
    chunks: list[PlannedChunk] = []
    taken: list[PlannedPiece] = []
    size = 0
    for piece in pieces:
        if taken and size + piece.size > size_max:
            chunks.append(tuple(taken))
            taken, size = [], 0
        taken.append(piece)
        size += piece.size
    if taken:
        chunks.append(tuple(taken))
    return chunks
