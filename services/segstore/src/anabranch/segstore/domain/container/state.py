"""What a container knows of its segments, as values.

The shell keeps two maps of these values: the *pending* one, against which requests are
decided, and the *applied* one, which holds only what is durable. Both move by the same
`evolve`; a pending value becomes the applied one when its frame is synced.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.common.tier2.state import SegmentState, Tombstone, WriterKey


@dataclass(frozen=True, slots=True)
class AppendMark:
    """An append boundary: after `offset` bytes the segment holds `event_count` events."""

    offset: int
    event_count: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class SegmentCut:
    """One segment's part of a cut: its state at the cut and what is not yet tiered.

    The bytes [tiered_length, state.length) are to be moved; `marks` are the append boundaries
    in that range, ascending, the last one at state.length if anything is to be moved.
    """

    state: SegmentState
    tiered_length: int
    marks: tuple[AppendMark, ...]


@dataclass(frozen=True, slots=True)
class ContainerCut:
    """Everything that changed between `after_sequence` and `sequence` (inclusive)."""

    after_sequence: int
    sequence: int
    segments: tuple[SegmentCut, ...]
    tombstones: tuple[Tombstone, ...]
    writers: Mapping[WriterKey, int]
