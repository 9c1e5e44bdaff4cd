"""The numbers of the partitions that a container holds, whether they are in memory or not.

    a frame is durable ──► touched ──settle──► changed ──take_changed──► reported
    tier 2's catalog ───────add_stored──────►

Nothing is computed when a record is appended: a frame adds the numbers of its segments to a set,
and `settle` compares states once per report. The container settles before it evicts segments, so a
touched segment without a state is one that was deleted.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from anabranch.common.model.names import SegmentKind
from anabranch.common.model.topics import TOPIC_MARK
from anabranch.common.tier2.state import SegmentState


class HeldPartition(NamedTuple):
    """A segment of a topic. `base` and `leo`: the numbers of the first record that is kept (-1: not
    known), and of the next one; `size`: the bytes that are kept."""

    segment: str
    base: int
    leo: int
    size: int


class Partitions:
    """The segments of topics in one container, by segment number.

    `used_bytes` is the sum of their sizes. `complete`: those that only tier 2 knows are included.
    """

    __slots__ = ("_changed", "_gone", "_touched", "complete", "held", "used_bytes")

    def __init__(self) -> None:
        self.held: dict[int, HeldPartition] = {}
        self.used_bytes = 0
        self.complete = False
        self._touched: set[int] = set()
        self._changed: set[int] = set()
        self._gone: set[int] = set()
        """Deleted before the partitions were complete."""

    def touch(self, numbers: Collection[int]) -> None:
        """Note that durable operations changed these segments."""
        self._touched.update(numbers)

    def settle(self, living: Callable[[int], SegmentState | None]) -> None:
        """Bring the touched segments up to date; `living` returns a segment's durable state, None
        if it was deleted."""
        touched, self._touched = self._touched, set()
        for number in touched:
            state = living(number)
            if state is not None:
                self._set(state)
                continue
            self._remove(number)
            if not self.complete:
                self._gone.add(number)

    def add_stored(self, states: Mapping[str, SegmentState]) -> None:
        """Complete the partitions by those that only tier 2 knows, as it described them at some
        moment since the container opened. Segments that were settled since are newer here."""
        for state in states.values():
            if state.number not in self.held and state.number not in self._gone:
                self._set(state)
        self.complete = True
        self._gone.clear()

    def _set(self, state: SegmentState) -> None:
        if TOPIC_MARK not in state.name or state.kind is not SegmentKind.STREAM:
            return
        size = state.length - state.start
        now = HeldPartition(state.name, state.start_event_count, state.event_count, size)
        before = self.held.get(state.number)
        if now != before:
            self.held[state.number] = now
            self.used_bytes += size - (before.size if before is not None else 0)
            self._changed.add(state.number)

    def _remove(self, number: int) -> None:
        before = self.held.pop(number, None)
        if before is not None:
            self.used_bytes -= before.size
            self._changed.discard(number)

    def take_changed(self) -> Sequence[HeldPartition]:
        """The partitions that changed since the last call."""
        changed, self._changed = self._changed, set()
        return [self.held[number] for number in sorted(changed)]

    def take_all(self) -> Sequence[HeldPartition]:
        """All partitions; none of them counts as changed any more."""
        self._changed.clear()
        return list(self.held.values())
