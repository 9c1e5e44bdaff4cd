"""Random lives of streams, and what a cut of one means, told key by key.

The key space has `CELLS` cells, and every segment takes some adjacent ones whole. The model knows
of each cell only its chain: the segments that took its keys, one after the other. Nothing here is
shared with the code that it judges, and nothing is fast.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, segment_id
from anabranch.common.model.stream import FUTURE_OFFSET, SegmentOffset, SegmentRange, StreamCut
from anabranch.controller.domain.stream.history import EpochRecord, SealedSegment

CELLS = 8
BOUNDS = [cell / CELLS for cell in range(CELLS)] + [1.0]
SIZE_MAX = 3

Cut = Mapping[SegmentId, int]


@dataclass
class StreamModel:
    """A stream's life. `cells`: which a segment takes; `sizes`: bytes, of the present ones too."""

    records: list[EpochRecord] = field(default_factory=list)
    cells: dict[SegmentId, range] = field(default_factory=dict)
    sizes: dict[SegmentId, int] = field(default_factory=dict)
    present: list[SegmentId] = field(default_factory=list)
    sealed: set[SegmentId] = field(default_factory=set)

    def chain(self, cell: int) -> list[SegmentId]:
        """The segments that took the cell's keys, in order."""
        return sorted(segment for segment, cells in self.cells.items() if cell in cells)

    def epoch(self, sealed: list[SegmentId], created: list[range], size: Callable[[], int]) -> None:
        """Go on to the next epoch."""
        number, first = len(self.records), len(self.cells)
        made = [segment_id(number, first + index) for index in range(len(created))]
        for segment, cells in zip(made, created, strict=True):
            self.cells[segment], self.sizes[segment] = cells, size()
        self.sealed |= set(sealed)
        self.records.append(
            EpochRecord(
                stream_epoch=number,
                reference_epoch=number,
                created_ms=number,
                created=tuple(SegmentRange(s, keys_of(self.cells[s])) for s in made),
                sealed=tuple(SealedSegment(s, self.sizes[s]) for s in sealed),
            )
        )
        stay = [segment for segment in self.present if segment not in sealed]
        self.present = sorted(stay + made, key=lambda s: self.cells[s].start)

    # --- what a cut means ----------------------------------------------------------------------

    def first_of(self, cut: Cut, cell: int) -> SegmentId | None:
        """Where the cut lies for the cell; None: it says nothing, or two things."""
        named = [segment for segment in self.chain(cell) if segment in cut]
        if not named or any(cut[segment] != FUTURE_OFFSET for segment in named[1:]):
            return None
        return named[0]

    def is_read(self, cut: Cut, segment: SegmentId, cell: int) -> bool:
        """Whether the segment comes before the place of the cut in the cell's chain."""
        first = self.first_of(cut, cell)
        assert first is not None
        return segment < first

    def is_valid(self, cut: Cut) -> bool:
        """The cut lies somewhere for every cell, and says the same of all cells of a segment."""
        for segment, offset in cut.items():
            if segment not in self.cells or offset < FUTURE_OFFSET:
                return False
            if segment in self.sealed and offset > self.sizes[segment]:
                return False
        if any(self.first_of(cut, cell) is None for cell in range(CELLS)):
            return False
        return all(
            len({self.is_read(cut, segment, cell) for cell in cells}) == 1
            for segment, cells in self.cells.items()
        )

    def place(self, cut: Cut, cell: int) -> int:
        """The cut as one number, for the cell: every segment has a place more than bytes."""
        first = self.first_of(cut, cell)
        assert first is not None
        before = [segment for segment in self.chain(cell) if segment < first]
        return sum(SIZE_MAX + 1 for _ in before) + max(0, cut[first])

    def bytes_before(self, cut: Cut) -> set[tuple[SegmentId, int]]:
        """All bytes, as (segment, offset), that lie before the cut."""
        found = set()
        for cell in range(CELLS):
            first = self.first_of(cut, cell)
            assert first is not None
            for segment in self.chain(cell):
                if segment <= first:
                    end = max(0, cut[first]) if segment == first else self.sizes[segment]
                    found |= {(segment, offset) for offset in range(end)}
        return found

    def all_bytes(self) -> set[tuple[SegmentId, int]]:
        return {(segment, o) for segment, size in self.sizes.items() for o in range(size)}


def keys_of(cells: range) -> KeyRange:
    return KeyRange(BOUNDS[cells.start], BOUNDS[cells.stop])


def as_cut(cut: Cut) -> StreamCut:
    return tuple(sorted(SegmentOffset(segment, offset) for segment, offset in cut.items()))


@st.composite
def streams(draw: st.DrawFn, epochs_max: int = 6) -> StreamModel:
    """Lives with splits, merges, and both at once, also of several blocks of keys."""
    stream = StreamModel()

    def size() -> int:
        return draw(st.integers(0, SIZE_MAX))

    def parts(block: range) -> list[range]:
        inner = [bound for bound in block[1:] if draw(st.booleans())]
        bounds = [block.start, *inner, block.stop]
        return [range(low, high) for low, high in itertools.pairwise(bounds)]

    stream.epoch([], parts(range(CELLS)), size)
    for _ in range(draw(st.integers(0, epochs_max - 1))):
        chosen = [segment for segment in stream.present if draw(st.booleans())]
        blocks: list[range] = []
        for cells in (stream.cells[segment] for segment in chosen):
            if blocks and blocks[-1].stop == cells.start:
                blocks[-1] = range(blocks[-1].start, cells.stop)
            else:
                blocks.append(cells)
        if blocks:
            stream.epoch(chosen, [part for block in blocks for part in parts(block)], size)
    return stream


@st.composite
def read_positions(draw: st.DrawFn, stream: StreamModel) -> Cut:
    """Where a reader stands that takes a segment when it has finished all before it."""
    done: set[SegmentId] = set()
    offsets: dict[SegmentId, int] = {}

    def before(segment: SegmentId) -> set[SegmentId]:
        cells = stream.cells[segment]
        return {s for cell in cells for s in stream.chain(cell) if s < segment}

    for segment in sorted(stream.cells):
        if before(segment) <= done:
            offsets[segment] = draw(st.integers(0, stream.sizes[segment]))
            if segment in stream.sealed and draw(st.integers(0, 3)):
                del offsets[segment]
                done.add(segment)
    for segment, cells in stream.cells.items():
        chains = [stream.chain(cell) for cell in cells]
        direct = {chain[chain.index(segment) - 1] for chain in chains if chain[0] != segment}
        if segment not in done and segment not in offsets and direct & done:
            offsets[segment] = FUTURE_OFFSET
    return offsets


@st.composite
def any_offsets(draw: st.DrawFn, stream: StreamModel) -> Cut:
    """Segments and offsets that may be a cut, and mostly are none."""
    chosen = draw(st.lists(st.sampled_from(sorted(stream.cells)), min_size=1, unique=True))
    return {s: draw(st.integers(FUTURE_OFFSET - 1, SIZE_MAX + 1)) for s in chosen}


@st.composite
def touched_positions(draw: st.DrawFn, stream: StreamModel) -> Cut:
    """A reader's position of which one thing was changed, so that it may be no cut any more."""
    cut = dict(draw(read_positions(stream)))
    segment = draw(st.sampled_from(sorted(stream.cells)))
    if segment in cut and draw(st.booleans()):
        del cut[segment]
    else:
        cut[segment] = draw(st.sampled_from([FUTURE_OFFSET, 0, stream.sizes[segment]]))
    return cut
