"""Plans the chunks of a flush: which bytes of a cut go into which chunk.

Each run of bytes is divided into pieces of at most 64 MiB. A piece of 16 MiB or more gets a chunk
of its own; smaller pieces share chunks of at most 64 MiB. Every piece ends at an append mark, so
that a reader, a stream cut or a Spark split may start at every piece.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.common.model.topics import TOPIC_MARK
from anabranch.common.tier2.chunk import SparseEntry
from anabranch.common.tier2.state import Catalog
from anabranch.segstore.domain.container.state import (
    AppendMark,
    ContainerCut,
    SegmentCut,
    UntieredRun,
)

CHUNK_DATA_BYTES_MAX = 64 * 1024 * 1024
OWN_CHUNK_BYTES_MIN = 16 * 1024 * 1024
SPARSE_INTERVAL_BYTES = 64 * 1024
GATHERED_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    """Bytes [start, end) of a segment, both append boundaries, and the entries of the piece.

    `events_before`: the number of the segment's events before `start`; -1: not known.
    """

    segment_name: str
    segment_number: int
    start: int
    end: int
    entries: tuple[SparseEntry, ...]
    events_before: int = -1

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """In bytes of data. A single append over the largest size makes a larger chunk.

    `gathered_max`: larger extents of merged segments stay unchanged; see `gather.py`.
    """

    chunk_max: int = CHUNK_DATA_BYTES_MAX
    own_chunk_min: int = OWN_CHUNK_BYTES_MIN
    sparse_interval: int = SPARSE_INTERVAL_BYTES
    gathered_max: int = GATHERED_BYTES_MAX


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
        for piece in _pieces_of(segment, limits):
            if piece.size >= limits.own_chunk_min:
                own.append((piece,))
            else:
                small.append(piece)
    return (*own, *_packed(small, limits.chunk_max))


def check_marks(catalog: Catalog, segment: SegmentCut) -> None:
    """Assert that the cut continues where tier 2 ends, without a gap, and that its marks ascend.

    A violation is an error of the container and would lose bytes.
    """
    state = segment.state
    held = catalog.segments.get(state.name)
    known = held is not None and held.number == state.number
    reached = held.length if known and held is not None else 0
    ranges = [(run.start, run.end) for run in segment.runs]
    ranges += [(held.start, held.start + held.ref.length) for held in segment.adopted]
    for start, end in sorted(ranges):
        assert start == reached or (reached <= state.start and start <= state.start)
        assert start < end
        reached = end
    assert reached == state.length or (not ranges and state.start == state.length)
    for run in segment.runs:
        offsets = [run.start, *(mark.offset for mark in run.marks)]
        assert all(before < after for before, after in pairwise(offsets))


def _pieces_of(segment: SegmentCut, limits: ChunkLimits) -> Iterator[PlannedPiece]:
    for run, events_before in zip(segment.runs, events_before_runs(segment), strict=True):
        yield from _pieces(segment, run, events_before, limits)


def events_before_runs(segment: SegmentCut) -> Sequence[int]:
    """How many events the segment has before each of its runs; -1: not known.

    They are known for segments of topics: counted back from the end, or from the adopted extent
    that follows the run.
    """
    found = [-1] * len(segment.runs)
    if TOPIC_MARK not in segment.state.name:
        return found
    ends = {extent.start: extent.events_before for extent in segment.adopted}
    ends[segment.state.length] = segment.state.event_count
    for at in range(len(segment.runs) - 1, -1, -1):
        run = segment.runs[at]
        event_count = ends.get(run.end, -1)
        if event_count >= 0:
            found[at] = event_count - sum(mark.event_count for mark in run.marks)
            ends[run.start] = found[at]
    return found


def _pieces(
    segment: SegmentCut, run: UntieredRun, events_before: int, limits: ChunkLimits
) -> list[PlannedPiece]:
    """The run cut at marks into pieces of at most the largest chunk's size."""
    pieces: list[PlannedPiece] = []
    marks = run.marks
    start, first = run.start, 0
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
                entries=_sparse(taken, start, limits.sparse_interval),
                events_before=events_before,
            )
        )
        if events_before >= 0:
            events_before += sum(mark.event_count for mark in taken)
        start, first = taken[-1].offset, stop
    return pieces


def _sparse(marks: Sequence[AppendMark], start: int, interval: int) -> tuple[SparseEntry, ...]:
    """One entry per `interval` bytes, at the first mark that reaches it, and the last mark.

    Its time is that of the youngest append since the entry before it.
    """
    entries: list[SparseEntry] = []
    reached, event_count, youngest_ms = start, 0, marks[0].time_ms
    for mark in marks:
        event_count += mark.event_count
        youngest_ms = max(youngest_ms, mark.time_ms)
        if mark.offset >= reached + interval or mark is marks[-1]:
            reached = mark.offset
            entries.append(SparseEntry(mark.offset - start, event_count, youngest_ms))
            youngest_ms = 0
    return tuple(entries)


def _packed(pieces: Sequence[PlannedPiece], size_max: int) -> list[PlannedChunk]:
    """Pieces in order, as many to a chunk as fit; a larger piece has a chunk to itself."""
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
