"""The changes that operations make to segments.

`evolve` is pure: it takes one segment's value before and an operation, and returns the value after.
`SegmentMap` folds it over a whole container. The pending and the applied state of a container, a
replay and the tests all use this one function.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never

from anabranch.common.errors import CorruptBlock, CorruptJournal, MalformedBlock
from anabranch.common.model.names import SegmentKind
from anabranch.common.tier2.state import MergedInto, SegmentState, Tombstone, WriterMark
from anabranch.common.wire.table import parse_table_block
from anabranch.segstore.domain.container.attributes import apply_changes
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.operations import (
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
from anabranch.segstore.domain.table.tail import TableChange, TableTail, change_of


def evolve(known: Known, sequence: int, operation: Operation) -> SegmentState | Tombstone:
    """The state of the operation's segment after it.

    Raises CorruptJournal if the operation cannot follow the state. `decide` never makes such an
    operation, so the log is damaged or belongs to another container.
    """
    match operation:
        case AppendOperation():
            return _evolve_append(known, operation)
        case CreateOperation(segment, stamp, _, kind):
            if isinstance(known, SegmentState):
                raise _impossible("creates a segment that exists", sequence, segment)
            return SegmentState(segment, sequence, stamp, kind=kind)
        case SealOperation(segment, stamp, _):
            if not isinstance(known, SegmentState):
                raise _impossible("seals a segment that does not exist", sequence, segment)
            return replace(known, stamp=max(stamp, known.stamp), sealed=True)
        case DeleteOperation(segment, stamp, time_ms):
            highest = stamp if known is None else max(stamp, known.stamp)
            merged = known.merged if isinstance(known, Tombstone) else None
            return Tombstone(segment, highest, sequence, time_ms, merged)
        case TruncateOperation():
            return _evolve_truncated(known, sequence, operation)
        case AttributesOperation(segment, stamp, _, _, _, changes):
            if not isinstance(known, SegmentState):
                raise _impossible("changes a segment that does not exist", sequence, segment)
            attributes = apply_changes(known.attributes, changes)
            return replace(known, stamp=max(stamp, known.stamp), attributes=attributes)
        case MergeOperation():
            return _evolve_target(known, sequence, operation)
        case _:
            assert_never(operation)


def _evolve_append(known: Known, operation: AppendOperation) -> SegmentState:
    if (
        not isinstance(known, SegmentState)
        or known.sealed
        or known.length != operation.offset
        or known.number != operation.number
    ):
        raise CorruptJournal(
            "an append in the log does not continue its segment",
            segment=operation.number,
            offset=operation.offset,
        )
    attributes = known.attributes
    if operation.changes:
        attributes = apply_changes(attributes, operation.changes)
    return SegmentState(
        known.name, known.number, known.stamp, known.start,
        known.length + len(operation.payload), known.event_count + operation.event_count, False,
        operation.time_ms, attributes, known.kind, known.start_event_count,
    )  # fmt: skip


def _evolve_truncated(known: Known, sequence: int, operation: TruncateOperation) -> SegmentState:
    offset, event_count = operation.offset, operation.event_count
    if not isinstance(known, SegmentState) or not known.start <= offset <= known.length:
        raise _impossible("truncates a segment where it cannot", sequence, operation.segment)
    if offset == known.start and event_count < 0:
        event_count = known.start_event_count
    stamp = max(operation.stamp, known.stamp)
    return replace(known, stamp=stamp, start=offset, start_event_count=event_count)


def _evolve_target(known: Known, sequence: int, operation: MergeOperation) -> SegmentState:
    """The target after a merge; `SegmentMap` adds the sources' events."""
    if (
        not isinstance(known, SegmentState)
        or (known.sealed and operation.sources)
        or (known.number, known.length) != (operation.number, operation.offset)
    ):
        raise _impossible("merges into what is not its target", sequence, operation.segment)
    added = sum(source.length for source in operation.sources)
    return replace(
        known,
        stamp=max(operation.stamp, known.stamp),
        length=known.length + added,
        modified_ms=operation.time_ms if added else known.modified_ms,
    )


def evolve_source(
    known: Known, sequence: int, operation: MergeOperation, source: MergedSource, offset: int
) -> Tombstone:
    """The tombstone of a source, whose bytes are at `offset` of the target.

    The merge of a transaction segment also seals it. Raises CorruptJournal like `evolve`.
    """
    if (
        not isinstance(known, SegmentState)
        or (not known.sealed and known.kind is not SegmentKind.TRANSACTION)
        or (known.number, known.start, known.length) != (source.number, 0, source.length)
    ):
        raise _impossible("merges a segment that is not as it says", sequence, source.segment)
    return Tombstone(
        source.segment,
        max(operation.stamp, known.stamp),
        sequence,
        operation.time_ms,
        MergedInto(operation.segment, operation.number, offset, source.length),
    )


def _impossible(what: str, sequence: int, segment: str) -> CorruptJournal:
    return CorruptJournal(f"a log operation {what}", sequence=sequence, segment=segment)


def change_in(operation: AppendOperation) -> TableChange:
    """The change that an append to a table segment makes.

    Raises CorruptJournal if its payload is not a table block: `decide` accepts no other.
    """
    if operation.change is not None:
        return operation.change
    try:
        block = parse_table_block(operation.payload, operation.offset)
    except (CorruptBlock, MalformedBlock) as error:
        raise CorruptJournal(
            "an append to a table segment is not a table block", segment=operation.number
        ) from error
    return change_of(block, operation.offset, operation.payload)


def _higher(mark: WriterMark, before: WriterMark | None) -> WriterMark:
    """Requests of one client on a table segment may be performed in any order."""
    return mark if before is None or before.last < mark.last else mark._replace(last=before.last)


class SegmentMap:
    """The segments, tombstones and writers of a container after `sequence`.

    `segments` maps names to values; `names` maps the numbers of living segments to names; `writers`
    maps number → writer id → mark; `transients` holds the names of the living transient segments;
    `tables` maps the numbers of living table segments to their tails. A container's map holds only
    resident names: `is_known` returns whether a missing name certainly has neither segment nor
    tombstone.
    """

    __slots__ = ("_is_known", "names", "segments", "sequence", "tables", "transients", "writers")

    def __init__(self, sequence: int = 0, is_known: Callable[[str], bool] = lambda _: True) -> None:
        self.sequence = sequence
        self.segments: dict[str, SegmentState | Tombstone] = {}
        self.names: dict[int, str] = {}
        self.writers: dict[int, dict[bytes, WriterMark]] = {}
        self.transients: set[str] = set()
        self.tables: dict[int, TableTail] = {}
        self._is_known = is_known

    def known(self, segment: str) -> Known:
        """The value under the name; asserts that the name is resident or certainly has no value."""
        known = self.segments.get(segment)
        assert known is not None or self._is_known(segment), f"{segment} was not loaded"
        return known

    def living(self, number: int) -> SegmentState | None:
        """The living segment with this number."""
        known = self.segments.get(self.names.get(number, ""))
        return known if isinstance(known, SegmentState) else None

    def last_event_number(self, number: int, writer_id: bytes) -> int:
        """The writer's last event number in the segment; 0 if it is unknown there."""
        writers = self.writers.get(number)
        mark = writers.get(writer_id) if writers else None
        return mark.last if mark is not None else 0

    def apply(self, sequence: int, operation: Operation) -> SegmentState | Tombstone:
        """Apply one operation; sequence numbers have no gaps. Returns the segment after it."""
        if sequence != self.sequence + 1:
            raise CorruptJournal(
                "the log's operations have a gap", expected=self.sequence + 1, found=sequence
            )
        before = self._before(operation)
        after = evolve(before, sequence, operation)
        name = after.name
        self.segments[name] = after
        self.sequence = sequence
        if isinstance(operation, AppendOperation):
            writers = self.writers.setdefault(operation.number, {})
            mark = WriterMark(operation.last_event_number, operation.time_ms)
            if known_table := self.tables.get(operation.number):
                mark = _higher(mark, writers.get(operation.writer_id))
                known_table.apply(change_in(operation))
            writers[operation.writer_id] = mark
        elif isinstance(operation, AttributesOperation):
            assert isinstance(after, SegmentState)
            writers = self.writers.setdefault(after.number, {})
            mark = WriterMark(operation.request_number, operation.time_ms)
            writers[operation.client_id] = mark
        elif isinstance(operation, CreateOperation):
            self.names[sequence] = name
            if operation.kind is SegmentKind.TRANSIENT:
                self.transients.add(name)
            elif operation.kind is SegmentKind.TABLE:
                self.tables[sequence] = TableTail(0)
        elif isinstance(operation, DeleteOperation) and isinstance(before, SegmentState):
            self._forget(before.number)
        elif isinstance(operation, MergeOperation):
            assert isinstance(after, SegmentState)
            after = self._end_sources(after, operation)
        return after

    def _before(self, operation: Operation) -> Known:
        if isinstance(operation, AppendOperation):
            return self.living(operation.number)
        return self.known(operation.segment)

    def _end_sources(self, target: SegmentState, operation: MergeOperation) -> SegmentState:
        """Turn the sources into tombstones, and count their events for the target."""
        offset, event_count = operation.offset, target.event_count
        for source in operation.sources:
            before = self.known(source.segment)
            self.segments[source.segment] = evolve_source(
                before, self.sequence, operation, source, offset
            )
            assert isinstance(before, SegmentState)
            offset += source.length
            event_count += before.event_count
            self._forget(source.number)
        target = replace(target, event_count=event_count)
        self.segments[target.name] = target
        return target

    def _forget(self, number: int) -> None:
        self.transients.discard(self.names.pop(number))
        self.writers.pop(number, None)
        self.tables.pop(number, None)

    # --- resident names -----------------------------------------------------------------------

    def hold(self, known: SegmentState | Tombstone, writers: Mapping[bytes, WriterMark]) -> None:
        """Add a name that was not resident, as a catalog describes it."""
        assert known.name not in self.segments
        self.segments[known.name] = known
        if isinstance(known, SegmentState):
            self.names[known.number] = known.name
            if known.kind is SegmentKind.TRANSIENT:
                self.transients.add(known.name)
            elif known.kind is SegmentKind.TABLE:
                self.tables[known.number] = TableTail(known.length)
            if writers:
                self.writers[known.number] = dict(writers)

    def evict(self, segment: str) -> None:
        """Forget a name that a catalog describes, so that it can be loaded again."""
        known = self.segments.pop(segment, None)
        if isinstance(known, SegmentState):
            self._forget(known.number)

    def share(self, segment: str, other: "SegmentMap") -> None:
        """Hold the same value under the name as `other` if the values are equal."""
        theirs = other.segments.get(segment)
        if theirs is not None and theirs == self.segments.get(segment):
            self.segments[segment] = theirs

    def forget_writer(self, number: int, writer_id: bytes) -> None:
        """Forget the writer's expired mark in the segment, if there is one."""
        self.writers.get(number, {}).pop(writer_id, None)

    def copy(self) -> "SegmentMap":
        """An independent map with the same content."""
        twin = SegmentMap(self.sequence, self._is_known)
        twin.segments = dict(self.segments)
        twin.names = dict(self.names)
        twin.transients = set(self.transients)
        twin.writers = {number: dict(writers) for number, writers in self.writers.items()}
        twin.tables = {number: tail.copy() for number, tail in self.tables.items()}
        return twin
