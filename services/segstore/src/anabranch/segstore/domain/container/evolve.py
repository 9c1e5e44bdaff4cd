"""How operations change what is known of segments.

`evolve` is pure: one segment's value before, an operation, the value after. `SegmentMap` folds
it over a whole container; the pending and the applied state of a container, a replay and the
tests all move by this one function.
"""

from typing import assert_never

from anabranch.common.errors import CorruptJournal
from anabranch.common.tier2.state import Catalog, SegmentState, Tombstone
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    CreateOperation,
    DeleteOperation,
    Operation,
    SealOperation,
)


def evolve(known: Known, sequence: int, operation: Operation) -> SegmentState | Tombstone:
    """What is known of the operation's segment after it.

    Raises CorruptJournal if the operation cannot follow what is known: `decide` never makes
    such a one, so the log was damaged or is not this container's.
    """
    match operation:
        case AppendOperation():
            return _evolve_append(known, operation)
        case CreateOperation(segment, stamp, _):
            if isinstance(known, SegmentState):
                raise _impossible("creates a segment that exists", sequence, segment)
            return SegmentState(segment, sequence, stamp)
        case SealOperation(segment, stamp, _):
            if not isinstance(known, SegmentState):
                raise _impossible("seals a segment that does not exist", sequence, segment)
            return SegmentState(
                known.name, known.number, max(stamp, known.stamp), known.start, known.length,
                known.event_count, True,
            )  # fmt: skip
        case DeleteOperation(segment, stamp, time_ms):
            highest = stamp if known is None else max(stamp, known.stamp)
            return Tombstone(segment, highest, sequence, time_ms)
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
    return SegmentState(
        known.name, known.number, known.stamp, known.start,
        known.length + len(operation.payload), known.event_count + operation.count, False,
    )  # fmt: skip


def _impossible(what: str, sequence: int, segment: str) -> CorruptJournal:
    return CorruptJournal(f"a log operation {what}", sequence=sequence, segment=segment)


class SegmentMap:
    """All segments, tombstones and writers of a container after `sequence`.

    `segments` maps names to values; `names` maps the numbers of living segments to names;
    `writers` maps number → writer id → last event number.
    """

    __slots__ = ("names", "segments", "sequence", "writers")

    def __init__(self) -> None:
        self.sequence = 0
        self.segments: dict[str, SegmentState | Tombstone] = {}
        self.names: dict[int, str] = {}
        self.writers: dict[int, dict[bytes, int]] = {}

    def known(self, segment: str) -> Known:
        """What is known under the name."""
        return self.segments.get(segment)

    def living(self, number: int) -> SegmentState | None:
        """The living segment with this number."""
        known = self.segments.get(self.names.get(number, ""))
        return known if isinstance(known, SegmentState) else None

    def last_event_number(self, number: int, writer_id: bytes) -> int:
        """The writer's last event number in the segment; 0 if it is unknown there."""
        writers = self.writers.get(number)
        return writers.get(writer_id, 0) if writers else 0

    def apply(self, sequence: int, operation: Operation) -> SegmentState | Tombstone:
        """Fold one operation in; sequence numbers have no gaps. Returns the segment after it."""
        if sequence != self.sequence + 1:
            raise CorruptJournal(
                "the log's operations have a gap", expected=self.sequence + 1, found=sequence
            )
        name = self._name_of(operation)
        before = self.segments.get(name)
        after = evolve(before, sequence, operation)
        self.segments[name] = after
        self.sequence = sequence
        if isinstance(operation, AppendOperation):
            writers = self.writers.setdefault(operation.number, {})
            writers[operation.writer_id] = operation.last_event_number
        elif isinstance(operation, CreateOperation):
            self.names[sequence] = name
        elif isinstance(operation, DeleteOperation) and isinstance(before, SegmentState):
            del self.names[before.number]
            self.writers.pop(before.number, None)
        return after

    def _name_of(self, operation: Operation) -> str:
        if isinstance(operation, AppendOperation):
            return self.names.get(operation.number, "")
        return operation.segment

    def copy(self) -> "SegmentMap":
        """An independent map with the same content."""
        twin = SegmentMap()
        twin.sequence = self.sequence
        twin.segments = dict(self.segments)
        twin.names = dict(self.names)
        twin.writers = {number: dict(writers) for number, writers in self.writers.items()}
        return twin


def map_of_catalog(catalog: Catalog) -> SegmentMap:
    """The map as tier 2's catalog tells it."""
    found = SegmentMap()
    found.sequence = catalog.applied_sequence
    found.segments = {**catalog.tombstones, **catalog.segments}
    found.names = {state.number: name for name, state in catalog.segments.items()}
    for (number, writer_id), last in catalog.writers.items():
        if number in found.names:
            found.writers.setdefault(number, {})[writer_id] = last
    return found
