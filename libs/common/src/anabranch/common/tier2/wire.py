"""Shapes that manifests and pages share, as MessagePack arrays.

Entries are arrays: compact, and a reader of this format ignores elements added at the end.
Each has a pair of functions to and from the container's own values.
"""

import msgspec

from anabranch.common.model.names import SegmentKind, segment_kind
from anabranch.common.tier2.state import (
    Attributes,
    ChunkRef,
    MergedInto,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterKey,
    WriterMark,
)
from anabranch.common.wire.messages import Stamp


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """Base of all entries."""


class RefWire(Entry, frozen=True):
    name: str
    offset: int
    length: int
    crc: int


class ExtentWire(Entry, frozen=True):
    start: int
    ref: RefWire
    events_before: int = -1  # since format 6


class SegmentWire(Entry, frozen=True):
    name: str
    number: int
    incarnation: int
    revision: int
    start: int
    length: int
    event_count: int
    sealed: bool
    modified_ms: int = 0  # since format 2
    kind: SegmentKind | None = None  # since format 4; before, the name tells it
    start_event_count: int | None = None  # since format 6; before, not known unless `start` is 0


class MergedWire(Entry, frozen=True):
    target: str
    target_number: int
    offset: int
    length: int


class TombstoneWire(Entry, frozen=True):
    name: str
    incarnation: int
    revision: int
    sequence: int
    deleted_ms: int
    merged: MergedWire | None = None  # since format 2


class WriterWire(Entry, frozen=True):
    segment_number: int
    writer_id: bytes
    event_number: int
    stored_ms: int = 0  # since format 3


class WriterKeyWire(Entry, frozen=True):
    segment_number: int
    writer_id: bytes


def ref_to_wire(ref: ChunkRef) -> RefWire:
    return RefWire(ref.name, ref.offset, ref.length, ref.crc)


def ref_from_wire(wire: RefWire) -> ChunkRef:
    return ChunkRef(wire.name, wire.offset, wire.length, wire.crc)


def extents_to_wire(extents: tuple[TieredExtent, ...]) -> tuple[ExtentWire, ...]:
    return tuple(
        ExtentWire(extent.start, ref_to_wire(extent.ref), extent.events_before)
        for extent in extents
    )


def extents_from_wire(wires: tuple[ExtentWire, ...]) -> tuple[TieredExtent, ...]:
    return tuple(
        TieredExtent(wire.start, ref_from_wire(wire.ref), wire.events_before) for wire in wires
    )


def segment_to_wire(state: SegmentState) -> SegmentWire:
    return SegmentWire(
        name=state.name,
        number=state.number,
        incarnation=state.stamp.incarnation,
        revision=state.stamp.revision,
        start=state.start,
        length=state.length,
        event_count=state.event_count,
        sealed=state.sealed,
        modified_ms=state.modified_ms,
        kind=state.kind,
        start_event_count=state.start_event_count,
    )


def attributes_to_wire(attributes: Attributes) -> dict[bytes, int]:
    """Sorted, so that equal attributes give equal bytes."""
    return {key: attributes[key] for key in sorted(attributes)}


def segment_from_wire(wire: SegmentWire, attributes: Attributes) -> SegmentState:
    """The attributes have a field of their own beside the segment's entry."""
    return SegmentState(
        name=wire.name,
        number=wire.number,
        stamp=Stamp(wire.incarnation, wire.revision),
        start=wire.start,
        length=wire.length,
        event_count=wire.event_count,
        sealed=wire.sealed,
        modified_ms=wire.modified_ms,
        attributes=attributes,
        kind=segment_kind(wire.name) if wire.kind is None else wire.kind,
        start_event_count=_start_event_count(wire),
    )


def _start_event_count(wire: SegmentWire) -> int:
    if wire.start_event_count is not None:
        return wire.start_event_count
    return -1 if wire.start else 0


def tombstone_to_wire(tombstone: Tombstone) -> TombstoneWire:
    return TombstoneWire(
        name=tombstone.name,
        incarnation=tombstone.stamp.incarnation,
        revision=tombstone.stamp.revision,
        sequence=tombstone.sequence,
        deleted_ms=tombstone.deleted_ms,
        merged=None if tombstone.merged is None else _merged_to_wire(tombstone.merged),
    )


def _merged_to_wire(merged: MergedInto) -> MergedWire:
    return MergedWire(merged.target, merged.target_number, merged.offset, merged.length)


def tombstone_from_wire(wire: TombstoneWire) -> Tombstone:
    return Tombstone(
        name=wire.name,
        stamp=Stamp(wire.incarnation, wire.revision),
        sequence=wire.sequence,
        deleted_ms=wire.deleted_ms,
        merged=None if wire.merged is None else _merged_from_wire(wire.merged),
    )


def _merged_from_wire(wire: MergedWire) -> MergedInto:
    return MergedInto(wire.target, wire.target_number, wire.offset, wire.length)


def writer_to_wire(key: WriterKey, mark: WriterMark) -> WriterWire:
    return WriterWire(*key, *mark)


def writers_from_wire(wires: tuple[WriterWire, ...]) -> dict[WriterKey, WriterMark]:
    return {
        (wire.segment_number, wire.writer_id): WriterMark(wire.event_number, wire.stored_ms)
        for wire in wires
    }
