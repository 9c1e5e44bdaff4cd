"""A container's state of its segments, as values.

The shell keeps two maps of these values: requests are decided against the *pending* one, and the
*applied* one holds durable state only. Both change by the same `evolve`; a pending value becomes
the applied one when its frame is synced.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.common.tier2.state import (
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterKey,
    WriterMark,
)


@dataclass(frozen=True, slots=True)
class AppendMark:
    """An append boundary: the append that ends at `offset` has `event_count` events."""

    offset: int
    event_count: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class UntieredRun:
    """Bytes of a segment that only the journal holds, from `start` to the last mark.

    `marks` are the append boundaries after `start`, ascending, at least one.
    """

    start: int
    marks: tuple[AppendMark, ...]

    @property
    def end(self) -> int:
        return self.marks[-1].offset


@dataclass(frozen=True, slots=True)
class SegmentCut:
    """One segment's part of a cut: its state at the cut, and the bytes that the catalog lacks.

    A flush moves the `runs`. The `adopted` extents are already in tier 2, as bytes of segments that
    were merged into this one. Both ascend. Together they reach without a gap from the catalog's end
    of the segment, or from the segment's start if that is higher, to the segment's length.
    """

    state: SegmentState
    runs: tuple[UntieredRun, ...]
    adopted: tuple[TieredExtent, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerCut:
    """Everything that changed between `after_sequence` and `sequence` (inclusive)."""

    after_sequence: int
    sequence: int
    segments: tuple[SegmentCut, ...]
    tombstones: tuple[Tombstone, ...]
    writers: Mapping[WriterKey, WriterMark]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all segments and tombstones in it."""
        segments = (segment.state.name for segment in self.segments)
        return (*segments, *(tombstone.name for tombstone in self.tombstones))
