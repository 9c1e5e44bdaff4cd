"""Counts the appends to a container's segments as they become durable.

It counts operations of the log and never looks at events, with one look-up per append. A merge
moves bytes that were appended elsewhere, so they are not counted again; neither is a replay.

A transaction segment is no segment of the stream, and its bytes are no load before the commit: its
events are counted when they are merged, for the target. The report repeats them with the time for
which the transaction was open: from the draw of its id, by the controller's clock, to the merge.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anabranch.common.model.names import SegmentKind, transaction_segment
from anabranch.common.model.transaction import drawn_ms
from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    MergedSource,
    MergeOperation,
    Operation,
)

COUNTED_MAX = 50_000
"""Segments in one period; further ones only clear `complete`."""


Living = Callable[[int], SegmentState | None]
"""The living segment with a number."""


class _Count:
    """`name` is empty for segments that are not read under their own name, or are gone."""

    __slots__ = ("events", "merged_event_ms", "merged_events", "merged_size", "name", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.events = 0
        self.size = 0
        self.merged_events = 0
        self.merged_size = 0
        self.merged_event_ms = 0
        """Over all merged events, how long the transaction of each was open."""

    def told(self) -> "SegmentTraffic":
        over_ms = self.merged_event_ms // self.merged_events if self.merged_events else 0
        return SegmentTraffic(
            self.name, self.events, self.size, self.merged_events, self.merged_size, over_ms
        )


@dataclass(frozen=True, slots=True)
class SegmentTraffic:
    """The appends to a segment; sizes in bytes.

    segment          its name
    events, size     all appends
    merged_events    the part that commits of transactions brought
    merged_size      its bytes
    merged_over_ms   for how long these transactions were open, on average over the events
    """

    segment: str
    events: int
    size: int
    merged_events: int = 0
    merged_size: int = 0
    merged_over_ms: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of a container in a period. `complete`: no other segment had an append."""

    segments: tuple[SegmentTraffic, ...]
    complete: bool


class Traffic:
    """Counts for one container, from one `take` to the next."""

    def __init__(self) -> None:
        self._counts: dict[int, _Count] = {}
        self._complete = True

    def add(self, operations: Iterable[Operation], living: Living) -> None:
        """Count these durable operations; `living` returns the segments after them, by number."""
        counts = self._counts
        for operation in operations:
            if isinstance(operation, AppendOperation):
                count = counts.get(operation.number) or self._begin(operation.number, living)
                count.events += operation.event_count
                count.size += len(operation.payload)

    def add_merged(self, operation: Operation, events: int, living: Living) -> None:
        """Count a durable merge of `events` events, if its sources are transaction segments.

        The sources of a merge are all transaction segments, or none is.
        """
        assert isinstance(operation, MergeOperation)
        if operation.commits:
            count = self._counts.get(operation.number) or self._begin(operation.number, living)
            size = sum(source.length for source in operation.sources)
            count.events += events
            count.size += size
            count.merged_events += events
            count.merged_size += size
            count.merged_event_ms += events * _open_ms(operation.sources, operation.time_ms)

    def _begin(self, number: int, living: Living) -> _Count:
        state = living(number)
        is_read = state is not None and state.kind is SegmentKind.STREAM
        count = _Count(state.name if state is not None and is_read else "")
        if len(self._counts) < COUNTED_MAX:
            self._counts[number] = count
        else:
            self._complete = False
        return count

    def take(self) -> Counted:
        """The counts since the last call, without transient segments, transaction segments, and
        segments that the frame of their first counted append also ended."""
        counts, complete = self._counts, self._complete
        self._counts, self._complete = {}, True
        segments = tuple(count.told() for count in counts.values() if count.name)
        return Counted(segments, complete)

    @property
    def segment_count(self) -> int:
        """Of segments that were written to since the last `take`, at most."""
        return len(self._counts)


def _open_ms(sources: Iterable[MergedSource], merged_ms: int) -> int:
    """How long the oldest transaction of these sources was open."""
    found = (transaction_segment(source.segment) for source in sources)
    drawn = (drawn_ms(one.transaction) for one in found if one is not None)
    return max(0, merged_ms - min(drawn, default=merged_ms))
