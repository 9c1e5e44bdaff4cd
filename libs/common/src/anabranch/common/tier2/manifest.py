"""The manifest: one numbered step of a container's catalog, create-only.

The manifests up to n, applied in order (or the snapshot that n names and the manifests after
it), give the exact state of the container at n's `applied_sequence`. A manifest may serve by its
mere existence: the fence manifest of a container epoch changes nothing and takes the number that a
deposed owner would write next.

    envelope  `envelope.py`, magic ANMF
    body      MessagePack map; a reader of this format ignores fields that it does not know
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from anabranch.common.errors import CorruptManifest
from anabranch.common.model.cluster import Abandonment
from anabranch.common.tier2 import wire as w
from anabranch.common.tier2.envelope import open_envelope, seal_envelope
from anabranch.common.tier2.names import manifest_name
from anabranch.common.tier2.state import (
    ChunkRef,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterKey,
    WriterMark,
)
from anabranch.common.wire.malformed import MALFORMED

MAGIC = b"ANMF"
FORMAT = 6
"""Format 2 added attributes, the time of the last change and the target of a merged segment;
format 3 the time of a writer's last events; format 4 the kind of a segment; format 5 added extents
that take the places of dropped ones, where before they only followed the extents that stay; format
6 added the number of events before a segment's start, and before an extent of a topic's segment."""


@dataclass(frozen=True, slots=True)
class LogBinding:
    """The log of the operations after the manifest; `closed`: the log is empty and stays so."""

    log_id: str
    closed: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """The page index of a snapshot of the state after manifest `through`."""

    through: int
    index: ChunkRef


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """A segment's new state, with the extents that the change adds and drops."""

    state: SegmentState
    added: tuple[TieredExtent, ...] = ()
    dropped: tuple[TieredExtent, ...] = ()


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes since the state of the previous manifest.

    A tombstone deletes the segment with its name, its extents and its writer numbers. A segment
    with a new number replaces the one with its name. No name is in both.
    """

    segments: tuple[SegmentChange, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    tombstones_dropped: tuple[str, ...] = ()
    writers: Mapping[WriterKey, WriterMark] = field(default_factory=dict)
    writers_dropped: tuple[WriterKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """Manifest `number` of a container, written under `container_epoch` by the owner `nonce`."""

    container: int
    number: int
    container_epoch: int
    nonce: bytes
    log: LogBinding
    applied_sequence: int
    snapshot: SnapshotRef | None = None
    changes: Changes = field(default_factory=Changes)
    abandoned: Abandonment | None = None
    """The container's last abandonment; every later manifest repeats it."""


class _SegmentChangeWire(w.Entry, frozen=True):
    state: w.SegmentWire
    added: tuple[w.ExtentWire, ...]
    dropped: tuple[w.ExtentWire, ...]
    attributes: dict[bytes, int] = {}  # noqa: RUF012  empty in format 1


class _SnapshotWire(w.Entry, frozen=True):
    through: int
    index: w.RefWire


class _AbandonmentWire(w.Entry, frozen=True):
    log_id: str
    applied_sequence: int
    time_ms: int


class _ManifestWire(msgspec.Struct, frozen=True, omit_defaults=True):
    container: int
    number: int
    epoch: int
    nonce: bytes
    log_id: str
    log_closed: bool
    applied_sequence: int
    snapshot: _SnapshotWire | None
    segments: tuple[_SegmentChangeWire, ...]
    tombstones: tuple[w.TombstoneWire, ...]
    tombstones_dropped: tuple[str, ...]
    writers: tuple[w.WriterWire, ...]
    writers_dropped: tuple[w.WriterKeyWire, ...]
    abandoned: _AbandonmentWire | None = None
    """Omitted if None; a reader that does not know the field loses only this record."""


_decoder = msgspec.msgpack.Decoder(_ManifestWire)


def encode_manifest(manifest: Manifest) -> bytes:
    """Encode the manifest; equal manifests give equal bytes."""
    changes, snapshot, abandoned = manifest.changes, manifest.snapshot, manifest.abandoned
    body = _ManifestWire(
        container=manifest.container,
        number=manifest.number,
        epoch=manifest.container_epoch,
        nonce=manifest.nonce,
        log_id=manifest.log.log_id,
        log_closed=manifest.log.closed,
        applied_sequence=manifest.applied_sequence,
        snapshot=None if snapshot is None else _snapshot_to_wire(snapshot),
        segments=tuple(
            _SegmentChangeWire(
                w.segment_to_wire(change.state),
                w.extents_to_wire(change.added),
                w.extents_to_wire(change.dropped),
                w.attributes_to_wire(change.state.attributes),
            )
            for change in changes.segments
        ),
        tombstones=tuple(map(w.tombstone_to_wire, changes.tombstones)),
        tombstones_dropped=changes.tombstones_dropped,
        writers=tuple(
            w.writer_to_wire(key, changes.writers[key]) for key in sorted(changes.writers)
        ),
        writers_dropped=tuple(w.WriterKeyWire(*key) for key in changes.writers_dropped),
        abandoned=None if abandoned is None else _abandonment_to_wire(abandoned),
    )
    return seal_envelope(MAGIC, FORMAT, msgspec.msgpack.encode(body))


def _snapshot_to_wire(snapshot: SnapshotRef) -> _SnapshotWire:
    return _SnapshotWire(snapshot.through, w.ref_to_wire(snapshot.index))


def _abandonment_to_wire(found: Abandonment) -> _AbandonmentWire:
    return _AbandonmentWire(found.log_id, found.applied_sequence, found.time_ms)


def _abandonment_from_wire(wire: _AbandonmentWire) -> Abandonment:
    return Abandonment(wire.log_id, wire.applied_sequence, wire.time_ms)


def _snapshot_from_wire(wire: _SnapshotWire) -> SnapshotRef:
    return SnapshotRef(wire.through, w.ref_from_wire(wire.index))


def decode_manifest(data: bytes, container: int, number: int) -> Manifest:
    """Decode and verify the manifest with this container and number.

    Raises CorruptManifest (also if it names another container or number), FormatTooNew.
    """
    name = manifest_name(container, number)
    body = open_envelope(data, MAGIC, FORMAT, name=name, damaged=CorruptManifest)
    try:
        found = _decoder.decode(body)
    except MALFORMED as error:
        raise CorruptManifest("the manifest is malformed", name=name) from error
    if (found.container, found.number) != (container, number):
        raise CorruptManifest(
            "the manifest names another container or number",
            name=name, container=found.container, number=found.number,
        )  # fmt: skip
    return _from_wire(found)


def _from_wire(found: _ManifestWire) -> Manifest:
    snapshot, abandoned = found.snapshot, found.abandoned
    return Manifest(
        container=found.container,
        number=found.number,
        container_epoch=found.epoch,
        nonce=found.nonce,
        log=LogBinding(found.log_id, found.log_closed),
        applied_sequence=found.applied_sequence,
        snapshot=None if snapshot is None else _snapshot_from_wire(snapshot),
        changes=Changes(
            segments=tuple(
                SegmentChange(
                    w.segment_from_wire(change.state, change.attributes),
                    w.extents_from_wire(change.added),
                    w.extents_from_wire(change.dropped),
                )
                for change in found.segments
            ),
            tombstones=tuple(map(w.tombstone_from_wire, found.tombstones)),
            tombstones_dropped=found.tombstones_dropped,
            writers=w.writers_from_wire(found.writers),
            writers_dropped=tuple(
                (key.segment_number, key.writer_id) for key in found.writers_dropped
            ),
        ),
        abandoned=None if abandoned is None else _abandonment_from_wire(abandoned),
    )
