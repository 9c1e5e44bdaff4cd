"""Counts the appends to a container's segments as they become durable.

It counts operations of the log, with one look-up per append; only the sketch of a busy segment
looks at single events. A merge moves bytes that were appended elsewhere, so they are not counted
again; neither is a replay.

A transaction segment is no segment of the stream, and its bytes are no load before the commit: its
events are counted when they are merged, for the target. The report repeats them with the time for
which the transaction was open: from the draw of its id, by the controller's clock, to the merge.
Their keys are sampled for the target when they are appended.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from anabranch.common.contracts.load import KeySketch
from anabranch.common.model.names import SegmentKind, transaction_segment
from anabranch.common.model.transaction import drawn_ms
from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    MergedSource,
    MergeOperation,
    Operation,
)
from anabranch.segstore.domain.load.sketch import Flow, Plan, Sketch

COUNTED_MAX = 50_000
"""Segments in one period; further ones only clear `complete`."""


Living = Callable[[int], SegmentState | None]
"""The living segment with a number."""


class _Count:
    """`name` is empty for segments that are not read under their own name, or are gone. `sampled`:
    the segment whose keys these are, now or after a commit; `sketch`: its sketch."""

    __slots__ = (
        "events", "merged_event_ms", "merged_events", "merged_size", "name", "sampled", "size",
        "sketch",
    )  # fmt: skip

    def __init__(self, name: str, sampled: str, sketch: Sketch | None) -> None:
        self.name = name
        self.sampled = sampled
        self.sketch = sketch
        self.events = 0
        self.size = 0
        self.merged_events = 0
        self.merged_size = 0
        self.merged_event_ms = 0
        """Over all merged events, how long the transaction of each was open."""

    def told(self) -> "SegmentTraffic":
        over_ms = self.merged_event_ms // self.merged_events if self.merged_events else 0
        keys = None if self.sketch is None else self.sketch.summary()
        return SegmentTraffic(
            self.name, self.events, self.size, self.merged_events, self.merged_size, over_ms, keys
        )


@dataclass(frozen=True, slots=True)
class SegmentTraffic:
    """The appends to a segment; sizes in bytes.

    segment          its name
    events, size     all appends
    merged_events    the part that commits of transactions brought
    merged_size      its bytes
    merged_over_ms   for how long these transactions were open, on average over the events
    keys             where the keys lie, if the segment is sketched
    """

    segment: str
    events: int
    size: int
    merged_events: int = 0
    merged_size: int = 0
    merged_over_ms: int = 0
    keys: KeySketch | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of a container in a period. `complete`: no other segment had an append."""

    segments: tuple[SegmentTraffic, ...]
    complete: bool


class Traffic:
    """Counts for one container, from one `take` to the next."""

    def __init__(self) -> None:
        self._counts: dict[int, _Count] = {}
        self._sketches: dict[str, Sketch] = {}
        self._complete = True

    def add(self, operations: Iterable[Operation], living: Living) -> None:
        """Count these durable operations; `living` returns the segments after them, by number."""
        counts = self._counts
        for operation in operations:
            if isinstance(operation, AppendOperation):
                count = counts.get(operation.number) or self._begin(operation.number, living)
                events, sketch = operation.event_count, count.sketch
                count.events += events
                count.size += len(operation.payload)
                if sketch is not None:
                    sketch.skip -= events
                    if sketch.skip < 0:
                        sketch.look(operation.payload, events)

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
        name, sampled = _names(state)
        count = _Count(name, sampled, self._sketches.get(sampled))
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

    def flows(self, length_s: float) -> Mapping[str, Flow]:
        """The events that a sketch may sample, of this period of `length_s`: by the segment that
        has them, or will have them after a commit. To be asked before `take`."""
        events = dict.fromkeys(self._sketches, 0)
        for count in self._counts.values():
            if count.sampled:
                appended = count.events - count.merged_events
                events[count.sampled] = events.get(count.sampled, 0) + appended
        return {name: self._flow(name, found, length_s) for name, found in events.items()}

    def _flow(self, name: str, events: int, length_s: float) -> Flow:
        sketch = self._sketches.get(name)
        if sketch is None:
            return Flow(events)
        return Flow(events, 0.0 if events else sketch.quiet_s + length_s, sketch.is_full)

    def sketch(self, plans: Mapping[str, Plan]) -> None:
        """Sketch these segments from now on, and no others. To be called after `take`."""
        sketches = {name: self._sketches.get(name) or Sketch() for name in plans}
        for name, plan in plans.items():
            sketches[name].begin(plan)
        self._sketches = sketches

    @property
    def segment_count(self) -> int:
        """Of segments that were written to since the last `take`, at most."""
        return len(self._counts)


def _open_ms(sources: Iterable[MergedSource], merged_ms: int) -> int:
    """How long the oldest transaction of these sources was open."""
    found = (transaction_segment(source.segment) for source in sources)
    drawn = (drawn_ms(one.transaction) for one in found if one is not None)
    return max(0, merged_ms - min(drawn, default=merged_ms))


def _names(state: SegmentState | None) -> tuple[str, str]:
    """The name under which the segment is told, and that of the segment whose keys it has."""
    if state is None:
        return "", ""
    if state.kind is SegmentKind.STREAM:
        return state.name, state.name
    found = transaction_segment(state.name)
    return "", "" if found is None else found.parent
