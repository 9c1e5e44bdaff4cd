"""What a stream is, told to readers of tier 2 that ask no controller.

    s/07/3f…a9/0000000042    the stream whose name has this hash, of shard 7, at revision 42
    s/07/3f…a9/r0000000042   the receipt of that object: it was created

One object per change of a stream's state or segments, create-only; the highest revision is the
present one. Names hold a hash because object names never hold a user's words; the object itself
tells the stream's name. Revisions of a name only grow, across deletion and creation too.

    envelope  `envelope.py`, magic ANSM
    body      MessagePack map; a reader of this format ignores fields that it does not know

Format 2 tells of earlier segments too. A stream that has none is still told in format 1, and an
older reader refuses the others by name, because it would miss what they hold.
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
    """A segment of former epochs: `sealed_epoch` is the one that followed it, `size` its bytes."""

    segment_id: SegmentId
    keys: KeyRange
    sealed_epoch: int
    size: int


@dataclass(frozen=True, slots=True)
class ExportedStream:
    """A stream at `revision`. `epochs` ascend; the last one is the present one. `earlier` are the
    segments that it replaced, by id, those among them that a truncation has deleted too.

    `container_count`: of the cluster, so that a segment's container can be told by its name.
    A deleted stream has no epochs.
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
        """All segments that it tells of, each once, predecessors before their successors."""
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
    """What the names of all objects about a stream start with."""
    digest = blake2b(str(ref).encode(), digest_size=16).hexdigest()
    return f"{STREAMS_PREFIX}{shard_of(str(ref)):02d}/{digest}/"


def stream_object_name(ref: StreamRef, revision: int) -> str:
    assert 0 < revision <= NUMBER_MAX
    return f"{stream_prefix(ref)}{revision:0{_DIGITS}d}"


def revision_in(name: str) -> int | None:
    """The revision in the name of an object about a stream; None if it is not one."""
    digits = name.rpartition("/")[2]
    if not name.startswith(STREAMS_PREFIX) or len(digits) != _DIGITS:
        return None
    return int(digits) if digits.isascii() and digits.isdigit() else None


def stream_receipt_name(ref: StreamRef, revision: int) -> str:
    return f"{stream_prefix(ref)}{RECEIPT}{revision:0{_DIGITS}d}"


def receipted_revision(name: str) -> int | None:
    """The revision in the name of a receipt; None if it is not the name of one."""
    folder, _, last = name.rpartition("/")
    return revision_in(f"{folder}/{last[1:]}") if last.startswith(RECEIPT) else None


def encode_stream(stream: ExportedStream) -> bytes:
    """The object's bytes; equal values give equal bytes."""
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
    """The stream that was read from the object `name`, verified.

    Raises CorruptManifest (also if it says it is another one), FormatTooNew.
    """
    body = open_envelope(data, MAGIC, FORMAT, name=name, damaged=CorruptManifest)
    try:
        found = _from_wire(_decoder.decode(body))
    except (ValueError, RecursionError) as error:  # all of wire.malformed, and odd values
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
