"""The state of a container's segments in tier 2, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.common.model.names import SegmentKind
from anabranch.common.wire.messages import Stamp

WriterKey = tuple[int, bytes]
"""(segment number, writer id)."""


class WriterMark(NamedTuple):
    """The point up to which a segment has a writer's events, or a client's requests.

    `last` is the number of the last stored one, `stored_ms` the time at which it was stored; 0: not
    known, because an older release recorded it.
    """

    last: int
    stored_ms: int = 0


Attributes = Mapping[bytes, int]
"""Callers' values of a segment: 16-byte ids, signed 64-bit values. Never changed in place."""
NO_ATTRIBUTES: Attributes = {}


@dataclass(frozen=True, slots=True)
class SegmentState:
    """One living segment. Offsets and lengths in bytes.

    `number` is the sequence number of the operation that created it: unique in the container and
    constant. `stamp` is the highest (incarnation, revision) seen. `modified_ms` is the time
    at which an append or a merge last added bytes; 0: never. `kind` never changes.
    `event_count` counts the events since the creation, truncated ones included, so it never falls.
    `start_event_count` is the number of events before `start`; -1: not known.
    """

    name: str
    number: int
    stamp: Stamp
    start: int = 0
    length: int = 0
    event_count: int = 0
    sealed: bool = False
    modified_ms: int = 0
    attributes: Attributes = field(default_factory=lambda: NO_ATTRIBUTES)
    kind: SegmentKind = SegmentKind.STREAM
    start_event_count: int = 0


@dataclass(frozen=True, slots=True)
class MergedInto:
    """The place of a merged segment's bytes: `length` bytes at `offset` of the target.

    `target_number` distinguishes successive segments with the target's name.
    """

    target: str
    target_number: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The remainder of a deleted or merged segment; it refuses requests with a lower stamp."""

    name: str
    stamp: Stamp
    sequence: int
    deleted_ms: int
    merged: MergedInto | None = None


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """The place of an extent's bytes in tier 2: `length` bytes at `offset` of an object.

    `crc` is the CRC32C of exactly these bytes.
    """

    name: str
    offset: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class TieredExtent:
    """`ref.length` bytes of a segment from `start` on, kept in tier 2.

    `events_before`: the number of the segment's events before `start`; -1: not known. It is kept
    for segments of topics.
    """

    start: int
    ref: ChunkRef
    events_before: int = -1


@dataclass(frozen=True, slots=True)
class Catalog:
    """The exact state of a container at `applied_sequence`, according to its manifests.

    `extents[number]` are sorted by start and adjacent. They begin at or before the segment's start
    and end at its length.
    """

    applied_sequence: int = 0
    segments: Mapping[str, SegmentState] = field(default_factory=dict)
    tombstones: Mapping[str, Tombstone] = field(default_factory=dict)
    writers: Mapping[WriterKey, WriterMark] = field(default_factory=dict)
    extents: Mapping[int, tuple[TieredExtent, ...]] = field(default_factory=dict)
