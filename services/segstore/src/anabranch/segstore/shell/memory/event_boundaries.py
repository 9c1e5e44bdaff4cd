"""Finds the append boundary next to an event's number, and the number of events before a boundary.

A segment's state counts all its events, so the numbers of the appends in memory are counted back
from its end. The extents of a topic's segment say how many events lie before them. Memory thus
answers for everything that only the journal has, and names the extents to look into for the rest.
"""

from collections.abc import Iterable

from anabranch.common.errors import RecordEvicted, Unavailable
from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container.circumstances import (
    EventBoundary,
    EventsInTierTwo,
    TieredBoundaries,
    TieredEvent,
)
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    MergeOperation,
    Operation,
)
from anabranch.segstore.shell.memory.layout import Gap
from anabranch.segstore.shell.memory.read_index import ReadIndex


def events_before(
    known: Known,
    boundary: int,
    index: ReadIndex,
    *,
    durable: SegmentState | None,
    waiting: Iterable[Operation],
    tiered: TieredBoundaries | None,
) -> int:
    """How many events the segment has before `boundary`; -1: not known.

    `known` is the pending state, `durable` the durable one of the same segment, and `waiting` are
    the operations in between.
    """
    if not isinstance(known, SegmentState):
        return -1
    if boundary >= known.length:
        return known.event_count
    if boundary <= known.start:
        return known.start_event_count if boundary == known.start else -1
    if tiered is not None:
        same = (tiered.number, tiered.lower) == (known.number, boundary)
        return tiered.event_count if same else -1
    segment = index.get(known.number)
    if segment is None or durable is None or boundary > segment.length:
        after = _events_waiting(known.number, boundary, waiting)
        return -1 if after < 0 else known.event_count - after
    return segment.layout.events_before(boundary, durable.event_count)


def _events_waiting(number: int, boundary: int, waiting: Iterable[Operation]) -> int:
    """The events of the waiting appends from `boundary` on; -1 if a merge is among them."""
    count = 0
    for found in waiting:
        if isinstance(found, AppendOperation | MergeOperation) and found.number == number:
            if isinstance(found, MergeOperation):
                return -1
            count += found.event_count if found.offset >= boundary else 0
    return count


def boundary_at_event(
    known: SegmentState, event_index: int, index: ReadIndex, tiered: TieredEvent | None
) -> EventBoundary | EventsInTierTwo:
    """The last known durable boundary with at most `event_index` events before it.

    `known` is the durable state. Raises RecordEvicted, and Unavailable if `tiered` belongs to a
    segment that was replaced.
    """
    if event_index >= known.event_count:
        return EventBoundary(known.length, known.event_count)
    if event_index < known.start_event_count:
        raise evicted(known.name, event_index, known.start_event_count)
    segment = index.get(known.number)
    assert segment is not None
    layout, gaps = segment.layout, segment.layout.gaps()
    event_count = layout.events_before(layout.tiered_end, known.event_count)
    assert event_count >= 0
    runs = [(layout.tiered_end, event_count, known.event_count)]
    runs += [(gap.start, end - gap.events, end) for gap in gaps if (end := _known(gap)) >= 0]
    for start, first, end in runs:
        if first <= event_index < end:
            offset, count = layout.boundary_of_event(start, event_index - first)
            return _not_before_start(known, EventBoundary(offset, first + count))
    if tiered is None:
        return EventsInTierTwo(
            known.number, event_index, tuple(layout.extents),
            {gap.following.start: gap.events for gap in gaps}, event_count,
            known.start, known.start_event_count,
        )  # fmt: skip
    if (tiered.asked.number, tiered.asked.event_index) != (known.number, event_index):
        raise Unavailable("another segment has replaced this one meanwhile", segment=known.name)
    if known.start != tiered.asked.start and known.start_event_count < 0:
        raise Unavailable("the segment was truncated during the search", segment=known.name)
    if event_index < tiered.start_event_count:
        raise evicted(known.name, event_index, tiered.start_event_count)
    return _not_before_start(known, tiered.boundary, tiered.start_event_count)


def _known(gap: Gap) -> int:
    """The events before the end of a gap; -1: not known."""
    return gap.following.events_before


def _not_before_start(
    known: SegmentState, found: EventBoundary, start_event_count: int = -1
) -> EventBoundary:
    """The boundary, or the segment's start if this lies behind it."""
    if found.offset >= known.start:
        return found
    return EventBoundary(known.start, max(known.start_event_count, start_event_count))


def evicted(segment: str, event_index: int, next_available: int) -> RecordEvicted:
    """The refusal of a search for an event that a truncation has removed."""
    return RecordEvicted(
        "the record is no longer kept",
        segment=segment, offset=event_index, next_available=next_available,
    )  # fmt: skip
