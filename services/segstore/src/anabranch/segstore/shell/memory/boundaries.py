"""The append boundary before an offset, wherever it is known: in tier 2, in memory, or waiting.

Truncation goes by boundaries, and its answer is decided against the pending state: an append
that is not yet synced makes a boundary too.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.common.errors import Unavailable
from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    MergeOperation,
    Operation,
)
from anabranch.segstore.shell.memory.read_index import ReadIndex


@dataclass(frozen=True, slots=True)
class TieredBoundary:
    """The last append boundary at or before an offset of the segment `number`, from tier 2."""

    number: int
    lower: int


def boundary_before(
    known: SegmentState | Tombstone | None,
    offset: int,
    index: ReadIndex,
    waiting: Iterable[Operation],
    tiered: TieredBoundary | None,
) -> int:
    """The last append boundary at or before `offset`; the offset itself where that is no matter.

    `waiting`: operations that wait for their sync, in order. Raises Unavailable if `tiered` is
    of a segment that was replaced.
    """
    if not isinstance(known, SegmentState) or not known.start < offset < known.length:
        return offset
    if tiered is not None:
        if tiered.number != known.number:
            raise Unavailable("the segment was replaced meanwhile", segment=known.name)
        return tiered.lower
    segment = index.get(known.number)
    if segment is None or offset >= segment.length:
        applied = segment.length if segment is not None else 0
        return _boundary_waiting(waiting, known.number, offset, applied)
    assert segment.extent_at(offset) is None
    return segment.boundary_before(offset)


def _boundary_waiting(waiting: Iterable[Operation], number: int, offset: int, lower: int) -> int:
    for found in waiting:
        if isinstance(found, AppendOperation | MergeOperation) and found.number == number:
            lower = max(lower, found.offset) if found.offset <= offset else lower
    return lower
