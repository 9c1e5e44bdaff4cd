"""What tier 2 tells of a container's segments, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.common.model.names import SegmentKind
from anabranch.common.wire.messages import Stamp

WriterKey = tuple[int, bytes]
"""(segment number, writer id)."""


class WriterMark(NamedTuple):
    """How far a segment has a writer's events, or a client's requests.

    `last` is the number of the last one that was stored, `stored_ms` when that was; 0: not known,
    for it was recorded before the time was.
    """

    last: int
    stored_ms: int = 0


Attributes = Mapping[bytes, int]
"""What callers keep with a segment: 16-byte ids, signed 64-bit values; never changed in place."""


@dataclass(frozen=True, slots=True)
class SegmentState:
    """One living segment. Offsets and lengths in bytes.

    `number` is the sequence number of the operation that created it: unique in the container
    and kept for life. `stamp` is the highest (incarnation, revision) seen. `modified_ms` is when
    bytes were last added, by an append or a merge; 0 is never. `kind` never changes.
    """

    name: str
    number: int
    stamp: Stamp
    start: int = 0
    length: int = 0
    event_count: int = 0
    sealed: bool = False
    modified_ms: int = 0
    attributes: Attributes = field(default_factory=dict)
    kind: SegmentKind = SegmentKind.STREAM


@dataclass(frozen=True, slots=True)
class MergedInto:
    """Where a merged segment's bytes are: `length` of them at `offset` of the target.

    `target_number` tells lives of the target's name apart.
    """

    target: str
    target_number: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What remains of a deleted or merged segment: requests with a lower stamp are refused."""

    name: str
    stamp: Stamp
    sequence: int
    deleted_ms: int
    merged: MergedInto | None = None


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """Where an extent's bytes are in tier 2: `length` bytes at `offset` of an object.

    `crc` is the CRC32C of exactly these bytes.
    """

    name: str
    offset: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class TieredExtent:
    """`ref.length` bytes of a segment from `start` on, kept in tier 2."""

    start: int
    ref: ChunkRef


@dataclass(frozen=True, slots=True)
class Catalog:
    """The exact state of a container at `applied_sequence`, as its manifests tell it.

    `extents[number]` are sorted by start, adjacent, and cover [start, length) of the segment.
    """

    applied_sequence: int = 0
    segments: Mapping[str, SegmentState] = field(default_factory=dict)
    tombstones: Mapping[str, Tombstone] = field(default_factory=dict)
    writers: Mapping[WriterKey, WriterMark] = field(default_factory=dict)
    extents: Mapping[int, tuple[TieredExtent, ...]] = field(default_factory=dict)
