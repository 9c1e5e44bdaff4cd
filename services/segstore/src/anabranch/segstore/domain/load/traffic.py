"""What is appended to the segments of a container, counted as it becomes durable.

Counted are operations of the log and never events, one look-up per append; what a merge moves was
appended elsewhere and is not counted again, nor is what a replay brings back.

A transaction segment is nobody's load before it is committed, and it is no segment of the stream:
its events are counted when they are merged, all at once, as the target's.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anabranch.common.model.names import SegmentKind
from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    MergeOperation,
    Operation,
)

COUNTED_MAX = 50_000
"""Segments in one period; of further ones is known only that there were some."""


Living = Callable[[int], SegmentState | None]
"""The living segment with a number."""


class _Count:
    """`name` is empty for segments that nobody reads under their own name, or that are gone."""

    __slots__ = ("events", "name", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.events = 0
        self.size = 0


@dataclass(frozen=True, slots=True)
class SegmentTraffic:
    """What was appended to a segment; `size` in bytes."""

    segment: str
    events: int
    size: int


@dataclass(frozen=True, slots=True)
class Counted:
    """A period of a container. `complete`: nothing was appended to any other segment."""

    segments: tuple[SegmentTraffic, ...]
    complete: bool


class Traffic:
    """Counts for one container, from one `take` to the next."""

    def __init__(self) -> None:
        self._counts: dict[int, _Count] = {}
        self._complete = True

    def add(self, operations: Iterable[Operation], living: Living) -> None:
        """These became durable; `living` tells the segments after them, by number."""
        counts = self._counts
        for operation in operations:
            if isinstance(operation, AppendOperation):
                count = counts.get(operation.number) or self._begin(operation.number, living)
                count.events += operation.event_count
                count.size += len(operation.payload)

    def add_merged(self, operation: Operation, events: int, living: Living) -> None:
        """The merge became durable and brought `events`, which count if they are a transaction's.

        All sources of a merge are of transactions, or none is.
        """
        assert isinstance(operation, MergeOperation)
        if operation.commits:
            count = self._counts.get(operation.number) or self._begin(operation.number, living)
            count.events += events
            count.size += sum(source.length for source in operation.sources)

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
        """The counts since the last call, of segments that are neither transient nor a
        transaction's nor were gone with the append's own frame."""
        counts, complete = self._counts, self._complete
        self._counts, self._complete = {}, True
        segments = tuple(
            SegmentTraffic(count.name, count.events, count.size)
            for count in counts.values()
            if count.name
        )
        return Counted(segments, complete)
