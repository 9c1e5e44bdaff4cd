"""Finds the append boundaries next to an offset: in tier 2, in memory, or among waiting operations.

A truncation ends at a boundary, and its answer is decided against the pending state, so an append
that is not synced yet also makes a boundary.
"""

from collections.abc import Iterable

from anabranch.common.errors import Unavailable
from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container.circumstances import (
    InTierTwo,
    TieredBoundaries,
    TieredTime,
    TimesInTierTwo,
)
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    MergeOperation,
    Operation,
)
from anabranch.segstore.shell.memory.read_index import ReadIndex


def boundary_before(
    known: Known,
    offset: int,
    index: ReadIndex,
    waiting: Iterable[Operation],
    tiered: TieredBoundaries | None,
) -> int | InTierTwo:
    """The last append boundary at or before `offset`; `offset` itself if it is outside the segment.

    `waiting`: operations that wait for their sync, in order. Raises Unavailable if `tiered` belongs
    to a segment that was replaced.
    """
    if not isinstance(known, SegmentState) or not known.start < offset < known.length:
        return offset
    if tiered is not None:
        return _same(known, tiered).lower
    segment = index.get(known.number)
    if segment is None or offset >= segment.length:
        applied = segment.length if segment is not None else 0
        return _boundary_waiting(waiting, known.number, offset, applied)
    return segment.extent_at(offset) or segment.boundary_before(offset)


def boundary_after(
    known: Known, offset: int, index: ReadIndex, tiered: TieredBoundaries | None
) -> int | InTierTwo:
    """The first durable append boundary at or after `offset`; otherwise like `boundary_before`."""
    if not isinstance(known, SegmentState) or not known.start < offset < known.length:
        return offset
    if tiered is not None:
        return _same(known, tiered).higher
    segment = index.get(known.number)
    assert segment is not None
    return segment.extent_at(offset) or segment.boundary(offset)


def boundary_at_time(
    known: SegmentState, time_ms: int, index: ReadIndex, tiered: TieredTime | None
) -> int | TimesInTierTwo:
    """The durable boundary before the first append that is not older than `time_ms`.

    `tiered`: the finding of tier 2 about the extents that an earlier call named. Raises Unavailable
    if it does not cover all extents that count now.
    """
    segment = index.get(known.number)
    assert segment is not None
    in_pieces, unknown = segment.layout.older_than(time_ms)
    if tiered is None:
        return TimesInTierTwo(known.number, unknown, time_ms) if unknown else in_pieces
    if tiered.asked.number != known.number or not set(unknown) <= set(tiered.asked.extents):
        raise Unavailable("the bytes moved during the search", segment=known.name)
    found = in_pieces if tiered.offset is None else min(tiered.offset, in_pieces)
    return max(found, known.start)


def _same(known: SegmentState, tiered: TieredBoundaries) -> TieredBoundaries:
    """The boundaries, if they belong to this segment. They never change."""
    if tiered.number != known.number:
        raise Unavailable(
            "another incarnation has replaced the segment meanwhile", segment=known.name
        )
    return tiered


def _boundary_waiting(waiting: Iterable[Operation], number: int, offset: int, lower: int) -> int:
    for found in waiting:
        if isinstance(found, AppendOperation | MergeOperation) and found.number == number:
            lower = max(lower, found.offset) if found.offset <= offset else lower
    return lower
