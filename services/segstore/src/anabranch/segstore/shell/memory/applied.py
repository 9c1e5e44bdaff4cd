"""A container's applied state: the durable operations and the places of their bytes.

`apply` advances it by one durable operation after another, both while serving and during the replay
at open. It remembers the changes since the last flush, which tier 2 lacks, and a `ContainerCut` is
made of them. A name without such changes is *clean*: it may be evicted, because the newest manifest
describes it exactly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import assert_never

from anabranch.common.model.topics import TOPIC_MARK
from anabranch.common.tier2.state import (
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterKey,
    WriterMark,
)
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.operations import (
    APPEND_OVERHEAD_SIZE_BYTES,
    AppendOperation,
    AttributesOperation,
    CreateOperation,
    DeleteOperation,
    MergedSource,
    MergeOperation,
    Operation,
    SealOperation,
    TruncateOperation,
)
from anabranch.segstore.domain.container.state import ContainerCut, SegmentCut
from anabranch.segstore.ports import LogAddress, TieredExtents
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.read_index import ReadIndex


class Changes:
    """Everything that changed since a flush."""

    __slots__ = ("names", "numbers", "writers")

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.names: set[str] = set()
        self.writers: set[WriterKey] = set()

    def add(self, other: "Changes") -> None:
        """Add another flush's changes to these."""
        self.numbers |= other.numbers
        self.names |= other.names
        self.writers |= other.writers


class Applied:
    """State, index and changes of one container."""

    def __init__(self, sequence: int, cache: Cache, is_known: Callable[[str], bool]) -> None:
        """`sequence`: up to which operation tier 2 has everything; `is_known`: see `SegmentMap`."""
        self.state = SegmentMap(sequence, is_known)
        self.index = ReadIndex(cache)
        self.flushed_sequence = sequence
        self.untiered = 0
        """Bytes that only the journal holds."""
        self._changes = Changes()
        self._flushing: Changes | None = None
        self._touched: set[int] = set()
        self._pending: SegmentMap | None = None
        self.gone_tables: list[int] = []
        """The numbers of table segments that were deleted, until they are taken."""

    def share_with(self, pending: SegmentMap) -> None:
        """From now on, hold new segments as the same values as `pending`, which has them first."""
        self._pending = pending

    def apply(
        self, sequence: int, operation: Operation, address: LogAddress, frame_offset: int
    ) -> int:
        """Apply a durable operation at `frame_offset` of the frame at `address`.

        Returns the number of events that a merge added.
        """
        before = self._number_before(operation)
        untiered = self._untiered_of(before)
        is_table = before in self.state.tables
        counts = self._counts_merged(operation)
        self.state.apply(sequence, operation)
        match operation:
            case AppendOperation():
                payload_at = frame_offset + APPEND_OVERHEAD_SIZE_BYTES
                self.index.add_append(operation, address, payload_at)
                self._changes.writers.add((operation.number, operation.writer_id))
            case CreateOperation(segment):
                self.index.open_segment(sequence)
                self._changes.numbers.add(sequence)
                if self._pending is not None:
                    self.state.share(segment, self._pending)
                if TOPIC_MARK in segment:
                    self._touched.add(sequence)
            case DeleteOperation(segment):
                self._changes.names.add(segment)
                self._remove(before, is_table)
            case TruncateOperation(offset=offset):
                assert before is not None
                self.index.truncate(before, offset)
            case MergeOperation(sources=sources):
                assert before is not None
                self._merge(before, sources, counts)
            case AttributesOperation(client_id=client_id):
                assert before is not None
                self._changes.writers.add((before, client_id))
            case SealOperation():
                pass
            case _:
                assert_never(operation)
        self.untiered += self._untiered_of(before) - untiered
        if before is not None:
            self._changes.numbers.add(before)
            if not isinstance(operation, AttributesOperation):
                self._touched.add(before)
        return sum(counts[1:])

    def _remove(self, number: int | None, is_table: bool) -> None:
        if number is not None:
            self.index.remove(number)
            self.gone_tables += (number,) * is_table

    def _counts_merged(self, operation: Operation) -> tuple[int, ...]:
        """The events of a merge's target and of each source, before it."""
        if not isinstance(operation, MergeOperation):
            return ()
        numbers = (operation.number, *(source.number for source in operation.sources))
        living = map(self.state.living, numbers)
        return tuple(0 if state is None else state.event_count for state in living)

    def _merge(self, number: int, sources: Iterable[MergedSource], counts: Iterable[int]) -> None:
        """Give the sources' bytes to the target. Un-tiered bytes stay un-tiered."""
        for source, events_before in zip(sources, accumulate(counts), strict=False):
            self._changes.names.add(source.segment)
            self._touched.add(source.number)
            self.untiered -= self._untiered_of(source.number)
            self.index.merge(number, source.number, events_before)

    def _untiered_of(self, number: int | None) -> int:
        index = None if number is None else self.index.find(number)
        return 0 if index is None else index.untiered

    def _number_before(self, operation: Operation) -> int | None:
        if isinstance(operation, AppendOperation):
            return operation.number
        known = self.state.known(operation.segment)
        return known.number if isinstance(known, SegmentState) else None

    def end_frame(self) -> set[int]:
        """Finish a frame whose operations are all applied. Returns the numbers of the changed
        segments."""
        self.index.end_frame()
        touched, self._touched = self._touched, set()
        return touched

    def take_gone_tables(self) -> list[int]:
        """Return the numbers of deleted table segments, once."""
        gone, self.gone_tables = self.gone_tables, []
        return gone

    # --- resident segments --------------------------------------------------------------------

    def hold(
        self,
        known: SegmentState | Tombstone,
        extents: Iterable[TieredExtent],
        writers: Mapping[bytes, WriterMark],
    ) -> None:
        """Add a name that was not resident, as tier 2 describes it."""
        self.state.hold(known, writers)
        if isinstance(known, SegmentState):
            self.index.load(known, extents)

    def clean(self, segment: str) -> bool:
        """Whether the newest manifest describes the name exactly as it is here."""
        known = self.state.segments.get(segment)
        number = known.number if isinstance(known, SegmentState) else None
        return not any(
            segment in changes.names or number in changes.numbers
            for changes in (self._changes, self._flushing)
            if changes is not None
        )

    def evict(self, segment: str) -> None:
        """Forget a clean name."""
        known = self.state.segments.get(segment)
        if isinstance(known, SegmentState):
            self.index.evict(known.number)
        self.state.evict(segment)

    def forget(self, number: int, writer_id: bytes) -> bool:
        """Forget a writer's mark. False if a flush must record it first."""
        if (number, writer_id) in self._changes.writers:
            return False
        self.state.forget_writer(number, writer_id)
        return True

    # --- flushing -----------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Whether a flush would have anything to record."""
        return self.state.sequence > self.flushed_sequence

    def begin_flush(self) -> ContainerCut:
        """The cut at the current sequence. `end_flush` must follow, with its outcome."""
        assert self._flushing is None
        self.index.begin_flush()
        changes = self._flushing = self._changes
        self._changes = Changes()
        living = (self.state.living(number) for number in sorted(changes.numbers))
        known = (self.state.known(name) for name in sorted(changes.names))
        return ContainerCut(
            after_sequence=self.flushed_sequence,
            sequence=self.state.sequence,
            segments=tuple(self._cut(state) for state in living if state is not None),
            tombstones=tuple(found for found in known if isinstance(found, Tombstone)),
            writers={
                (number, writer_id): self.state.writers[number][writer_id]
                for number, writer_id in sorted(changes.writers)
                if number in self.state.names
            },
        )

    def _cut(self, state: SegmentState) -> SegmentCut:
        index = self.index.find(state.number)
        if index is None:  # It is new, and has no bytes.
            return SegmentCut(state, ())
        return SegmentCut(state, index.runs(), index.adopted)

    def end_flush(self, cut: ContainerCut, tiered: Sequence[TieredExtents] | None) -> int:
        """End the flush of `cut`, which created these extents, or failed if `tiered` is None.

        Call it in the same step of the event loop in which the catalog changed: a name that is
        loaded afterwards has the new extents.

        Returns how many bytes are no longer un-tiered.
        """
        changes, self._flushing = self._flushing, None
        assert changes is not None
        before = self.untiered
        if tiered is None:
            self._changes.add(changes)
        else:
            self.flushed_sequence = cut.sequence
            for found in tiered:
                self.untiered -= self.index.add_tiered(found.segment_number, found.extents)
                self.index.replace(found.segment_number, found.replaced)
            for segment in cut.segments:
                number, sealed = segment.state.number, segment.state.sealed
                index = self.index.get(number) if sealed else self.index.find(number)
                if index is not None:
                    index.recorded(segment.adopted)
                    index.sealed_in_tier_two = sealed
        self.index.end_flush()
        return before - self.untiered
