"""Descriptions of streams in tier 2, for readers that do not query a controller.

    s/07/3f…a9/0000000042    the stream whose name has this hash, of shard 7, at revision 42
    s/07/3f…a9/r0000000042   the receipt of that object: it was created

Each change of a stream's state or segments creates one object; the highest revision is the present
one. Object names contain a hash because they never contain a user's words; the object itself
contains the stream's name. The revisions of a name only grow, also across deletion and creation.

    envelope  `envelope.py`, magic ANSM
    body      MessagePack map; a reader of this format ignores fields that it does not know

Format 2 added earlier segments. A stream without them is still written in format 1. An older reader
raises FormatTooNew for the others, because it would miss their earlier segments.
"""

from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from anabranch.common.errors import CorruptManifest
from anabranch.common.model.hashing import shard_of
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import ScopeName, SegmentId, StreamName, StreamRef
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.tier2.envelope import open_envelope, seal_envelope
from anabranch.common.tier2.names import NUMBER_MAX, RECEIPT

MAGIC = b"ANSM"
FORMAT = 2
FORMAT_WITHOUT_EARLIER = 1
STREAMS_PREFIX = "s/"
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class ExportedEpoch:
    """The segments of one stream epoch, sorted by key, covering [0, 1) exactly."""

    stream_epoch: int
    segments: tuple[SegmentRange, ...]


@dataclass(frozen=True, slots=True)
class EarlierSegment:
    """A segment of earlier epochs. `sealed_epoch`: the epoch that replaced it. `size`: in bytes."""

    segment_id: SegmentId
    keys: KeyRange
    sealed_epoch: int
    size: int


@dataclass(frozen=True, slots=True)
class ExportedStream:
    """A stream at `revision`.

    `epochs` ascend; the last one is the present one. `earlier` are the replaced segments, sorted by
    id, including segments that a truncation has deleted. `container_count` is the cluster's, and
    with it a segment's name determines its container. A deleted stream has no epochs.
    """

    ref: StreamRef
    incarnation: int
    revision: int
    state: StreamState
    created_ms: int
    container_count: int
    epochs: tuple[ExportedEpoch, ...]
    earlier: tuple[EarlierSegment, ...] = ()

    def segment_ids(self) -> list[SegmentId]:
        """The ids of all segments, each once, predecessors before their successors."""
        present = {part.segment_id for epoch in self.epochs for part in epoch.segments}
        return sorted(present | {part.segment_id for part in self.earlier})


class _SegmentWire(msgspec.Struct, array_like=True, frozen=True):
    segment_id: int
    key_start: float
    key_end: float


class _EarlierWire(msgspec.Struct, array_like=True, frozen=True):
    segment_id: int
    key_start: float
    key_end: float
    sealed_epoch: int
    size: int


class _EpochWire(msgspec.Struct, frozen=True):
    stream_epoch: int
    segments: tuple[_SegmentWire, ...]


class _StreamWire(msgspec.Struct, frozen=True, omit_defaults=True):
    scope: str
    stream: str
    incarnation: int
    revision: int
    state: str
    created_ms: int
    container_count: int
    epochs: tuple[_EpochWire, ...]
    earlier: tuple[_EarlierWire, ...] = ()


_decoder = msgspec.msgpack.Decoder(_StreamWire)


def stream_prefix(ref: StreamRef) -> str:
    """The prefix of the names of all objects about a stream."""
    digest = blake2b(str(ref).encode(), digest_size=16).hexdigest()
    return f"{STREAMS_PREFIX}{shard_of(str(ref)):02d}/{digest}/"


def stream_object_name(ref: StreamRef, revision: int) -> str:
    assert 0 < revision <= NUMBER_MAX
    return f"{stream_prefix(ref)}{revision:0{_DIGITS}d}"


def revision_in(name: str) -> int | None:
    """The revision in the name of a stream's object; None for any other name."""
    digits = name.rpartition("/")[2]
    if not name.startswith(STREAMS_PREFIX) or len(digits) != _DIGITS:
        return None
    return int(digits) if digits.isascii() and digits.isdigit() else None


def stream_receipt_name(ref: StreamRef, revision: int) -> str:
    return f"{stream_prefix(ref)}{RECEIPT}{revision:0{_DIGITS}d}"


def receipted_revision(name: str) -> int | None:
    """The revision in the name of a receipt; None for any other name."""
    folder, _, last = name.rpartition("/")
    return revision_in(f"{folder}/{last[1:]}") if last.startswith(RECEIPT) else None


def encode_stream(stream: ExportedStream) -> bytes:
    """Encode the stream; equal values give equal bytes."""
    body = _StreamWire(
        scope=stream.ref.scope,
        stream=stream.ref.stream,
        incarnation=stream.incarnation,
        revision=stream.revision,
        state=stream.state.value,
        created_ms=stream.created_ms,
        container_count=stream.container_count,
        epochs=tuple(
            _EpochWire(
                epoch.stream_epoch,
                tuple(_SegmentWire(s.segment_id, s.keys.start, s.keys.end) for s in epoch.segments),
            )
            for epoch in stream.epochs
        ),
        earlier=tuple(
            _EarlierWire(s.segment_id, s.keys.start, s.keys.end, s.sealed_epoch, s.size)
            for s in stream.earlier
        ),
    )
    written = FORMAT if stream.earlier else FORMAT_WITHOUT_EARLIER
    return seal_envelope(MAGIC, written, msgspec.msgpack.encode(body))


def decode_stream(data: bytes, name: str) -> ExportedStream:
    """Decode and verify the stream of the object `name`.

    Raises CorruptManifest (also if the object describes another stream), FormatTooNew.
    """
    body = open_envelope(data, MAGIC, FORMAT, name=name, damaged=CorruptManifest)
    try:
        found = _from_wire(_decoder.decode(body))
    except (ValueError, RecursionError) as error:  # all of `MALFORMED`, and invalid values
        raise CorruptManifest("a stream's description in tier 2 is malformed", name=name) from error
    if found.revision != revision_in(name) or not name.startswith(stream_prefix(found.ref)):
        raise CorruptManifest("an object of tier 2 describes another stream", name=name)
    return found


def _from_wire(wire: _StreamWire) -> ExportedStream:
    return ExportedStream(
        ref=StreamRef(ScopeName(wire.scope), StreamName(wire.stream)),
        incarnation=wire.incarnation,
        revision=wire.revision,
        state=StreamState(wire.state),
        created_ms=wire.created_ms,
        container_count=wire.container_count,
        epochs=tuple(
            ExportedEpoch(
                epoch.stream_epoch,
                tuple(
                    SegmentRange(SegmentId(s.segment_id), KeyRange(s.key_start, s.key_end))
                    for s in epoch.segments
                ),
            )
            for epoch in wire.epochs
        ),
        earlier=tuple(
            EarlierSegment(
                SegmentId(s.segment_id), KeyRange(s.key_start, s.key_end), s.sealed_epoch, s.size
            )
            for s in wire.earlier
        ),
    )
