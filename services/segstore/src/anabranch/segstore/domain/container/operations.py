"""Log operations: the entries of a container's durable log, and their binary form.

Layout (little-endian), one operation after another in a frame::

    header   u8 kind, u8 format, u16 name size, u32 body size, u64 sequence number
    body     control: i64 incarnation, i64 revision, i64 time_ms, name, then
               create: u8 kind of the segment
               seal, delete: nothing
               truncate: u64 offset, and if it is known, u64 the number of events before it
               merge: u64 target's number, u64 target's length before, then per source
                   u64 number, u64 length, u16 name size, name
               attributes: 16 B client id, u64 request number, attribute changes
             append: u64 segment number, u64 offset, 16 B writer id, u64 first event number,
                     u32 count, u32 payload CRC32C, i64 time_ms, payload, attribute changes
    change   16 B id, u8 flags (1: was there before, 2: is there after), i64 before, i64 after

In an append the header's name size is the size of the attribute changes.

An operation is written in the oldest format that has it: truncate, merge, attributes and an append
with attribute changes are format 2, a merge of transaction segments, which need not be sealed, is
format 3, a create is format 4, and a truncate with a number of events is format 5. In older formats
a create has nothing after the name, and the name gives the kind.

The frame around the operations carries the checksum that guards the headers. The payload's own
checksum accompanies it from the request to every place that it is copied to. Encoding returns
buffers and decoding returns slices, so that payloads are not copied.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from crc32c import crc32c
from msgspec import Struct

from anabranch.common.errors import CorruptJournal, FormatTooNew
from anabranch.common.model.names import SegmentKind, segment_kind
from anabranch.common.wire.block import events_in
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.container.attributes import AttributeChange
from anabranch.segstore.domain.table.tail import TableChange

FORMAT = 5
_COUNTED, _KINDS_SINCE, _COMMITS = 5, 4, 3
WRITER_ID_SIZE_BYTES = 16

_CREATE, _APPEND, _SEAL, _DELETE, _TRUNCATE, _MERGE, _ATTRIBUTES = 1, 2, 3, 4, 5, 6, 7
_HEADER = struct.Struct("<BBHIQ")
_CONTROL = struct.Struct("<qqq")
_APPEND_BODY = struct.Struct("<QQ16sQIIq")
_KIND = struct.Struct("<B")
_OFFSET = struct.Struct("<Q")
_OFFSET_AND_COUNT = struct.Struct("<QQ")
_TARGET = struct.Struct("<QQ")
_SOURCE = struct.Struct("<QQH")
_CLIENT = struct.Struct("<16sQ")
_CHANGE = struct.Struct("<16sBqq")

HEADER_SIZE_BYTES = _HEADER.size
APPEND_OVERHEAD_SIZE_BYTES = HEADER_SIZE_BYTES + _APPEND_BODY.size
"""The position of an append's payload within its encoded operation."""


@dataclass(frozen=True, slots=True)
class CreateOperation:
    """Creates an empty segment. Its number is this operation's sequence number."""

    segment: str
    stamp: Stamp
    time_ms: int
    kind: SegmentKind = SegmentKind.STREAM


@dataclass(frozen=True, slots=True)
class SealOperation:
    """Ends appends; repeated with a higher stamp it only raises the stamp."""

    segment: str
    stamp: Stamp
    time_ms: int


@dataclass(frozen=True, slots=True)
class DeleteOperation:
    """Deletes the segment, if it exists, and leaves a tombstone."""

    segment: str
    stamp: Stamp
    time_ms: int


@dataclass(frozen=True, slots=True)
class TruncateOperation:
    """Moves the segment's start to `offset`; at its present start it only raises the stamp.

    `event_count`: the number of events before `offset`; -1: not known.
    """

    segment: str
    stamp: Stamp
    time_ms: int
    offset: int
    event_count: int = -1


@dataclass(frozen=True, slots=True)
class MergedSource:
    """A segment that a merge ends, as it was before: sealed, or a transaction segment."""

    segment: str
    number: int
    length: int


@dataclass(frozen=True, slots=True)
class MergeOperation:
    """Adds all bytes of each source, in this order, after the target's first `offset` bytes.

    Without sources it only raises the stamp. `commits`: the sources are transaction segments, which
    need not be sealed before, because the merge seals them.
    """

    segment: str
    stamp: Stamp
    time_ms: int
    number: int
    offset: int
    sources: tuple[MergedSource, ...]
    commits: bool = False


@dataclass(frozen=True, slots=True)
class AttributesOperation:
    """Changes attributes, by the `request_number`-th request of a client."""

    segment: str
    stamp: Stamp
    time_ms: int
    client_id: bytes
    request_number: int
    changes: tuple[AttributeChange, ...]


class AppendOperation(Struct, frozen=True):
    """Adds `payload` at `offset`: `count` events of a writer from `first_event_number` on.

    A part of a large event also takes a number, so that a repeat is recognized, but it is not an
    event: `event_count`, the result of `events_in`, counts what readers find. `change`: the parsed
    payload of an append to a table segment; None if the operation was decoded from the log. It is
    not stored.
    """

    number: int
    offset: int
    writer_id: bytes
    first_event_number: int
    count: int
    time_ms: int
    payload_crc: int
    payload: bytes | memoryview
    event_count: int
    changes: tuple[AttributeChange, ...] = ()
    change: TableChange | None = None

    @property
    def last_event_number(self) -> int:
        return self.first_event_number + self.count - 1


PlainOperation = SealOperation | DeleteOperation
ControlOperation = (
    CreateOperation | PlainOperation | TruncateOperation | MergeOperation | AttributesOperation
)
Operation = ControlOperation | AppendOperation

_PLAIN_KINDS: dict[int, type[PlainOperation]] = {
    _SEAL: SealOperation,
    _DELETE: DeleteOperation,
}
_KIND_OF = {operation: kind for kind, operation in _PLAIN_KINDS.items()}


@dataclass(frozen=True, slots=True)
class DecodedOperation:
    """An operation found in a frame; `at` is the position of its header in the payload."""

    sequence: int
    at: int
    operation: Operation


def encode_operation(sequence: int, operation: Operation) -> list[bytes | memoryview]:
    """The operation as buffers to be written in order; the payload is not copied."""
    if isinstance(operation, AppendOperation):
        return _encode_append(sequence, operation)
    kind, fmt, rest = _control_parts(operation)
    name = operation.segment.encode()
    stamp = operation.stamp
    body = _CONTROL.pack(stamp.incarnation, stamp.revision, operation.time_ms) + name + rest
    return [_HEADER.pack(kind, fmt, len(name), len(body), sequence) + body]


def _encode_append(sequence: int, operation: AppendOperation) -> list[bytes | memoryview]:
    body = _APPEND_BODY.pack(
        operation.number, operation.offset, operation.writer_id,
        operation.first_event_number, operation.count, operation.payload_crc,
        operation.time_ms,
    )  # fmt: skip
    size = len(body) + len(operation.payload)
    if not operation.changes:
        return [_HEADER.pack(_APPEND, 1, 0, size, sequence) + body, operation.payload]
    changes = _encode_changes(operation.changes)
    header = _HEADER.pack(_APPEND, 2, len(changes), size + len(changes), sequence)
    return [header + body, operation.payload, changes]


def _control_parts(operation: ControlOperation) -> tuple[int, int, bytes]:
    """(kind, format, the bytes after the name)."""
    match operation:
        case CreateOperation():
            return _CREATE, _KINDS_SINCE, _KIND.pack(operation.kind)
        case SealOperation() | DeleteOperation():
            return _KIND_OF[type(operation)], 1, b""
        case TruncateOperation(offset=offset, event_count=event_count):
            if event_count < 0:
                return _TRUNCATE, 2, _OFFSET.pack(offset)
            return _TRUNCATE, _COUNTED, _OFFSET_AND_COUNT.pack(offset, event_count)
        case MergeOperation():
            parts = [_TARGET.pack(operation.number, operation.offset)]
            for source in operation.sources:
                name = source.segment.encode()
                parts += (_SOURCE.pack(source.number, source.length, len(name)), name)
            return _MERGE, _COMMITS if operation.commits else 2, b"".join(parts)
        case AttributesOperation():
            client = _CLIENT.pack(operation.client_id, operation.request_number)
            return _ATTRIBUTES, 2, client + _encode_changes(operation.changes)
        case _:
            assert_never(operation)


def _encode_changes(changes: tuple[AttributeChange, ...]) -> bytes:
    return b"".join(
        _CHANGE.pack(
            change.attribute,
            (change.before is not None) + 2 * (change.after is not None),
            change.before or 0,
            change.after or 0,
        )
        for change in changes
    )


def decode_operations(payload: bytes, first_sequence: int) -> Iterator[DecodedOperation]:
    """A frame's operations, numbered from `first_sequence` without gaps.

    Raises CorruptJournal for bytes that are not operations, FormatTooNew for a newer format.
    """
    view = memoryview(payload)
    at, sequence = 0, first_sequence
    while at < len(view):
        if len(view) - at < HEADER_SIZE_BYTES:
            raise CorruptJournal("a log operation's header is truncated", at=at)
        kind, fmt, name_size, size, stored_sequence = _HEADER.unpack_from(view, at)
        body = view[at + HEADER_SIZE_BYTES : at + HEADER_SIZE_BYTES + size]
        if fmt > FORMAT:
            raise FormatTooNew("a log operation has a newer format", found=fmt, supported=FORMAT)
        if stored_sequence != sequence or len(body) != size:
            raise CorruptJournal(
                "a log operation is out of place", expected=sequence, found=stored_sequence
            )
        try:
            operation = _decode_body(kind, fmt, name_size, body)
        except (struct.error, ValueError) as error:
            raise CorruptJournal("a log operation is malformed", kind=kind) from error
        yield DecodedOperation(sequence, at, operation)
        at += HEADER_SIZE_BYTES + size
        sequence += 1


def _decode_body(kind: int, fmt: int, name_size: int, body: memoryview) -> Operation:
    """Raises CorruptJournal, struct.error (truncated), ValueError (invalid text or kind)."""
    if kind == _APPEND:
        return _decode_append(name_size, body)
    incarnation, revision, time_ms = _CONTROL.unpack_from(body)
    stamp = Stamp(incarnation, revision)
    rest = body[_CONTROL.size + name_size :]
    name = bytes(body[_CONTROL.size : _CONTROL.size + name_size]).decode()
    plain = _PLAIN_KINDS.get(kind)
    if plain is not None and len(body) == _CONTROL.size + name_size:
        return plain(name, stamp, time_ms)
    if kind == _CREATE:
        if fmt < _KINDS_SINCE and not rest:
            return CreateOperation(name, stamp, time_ms, segment_kind(name))
        return CreateOperation(name, stamp, time_ms, SegmentKind(*_KIND.unpack(rest)))
    if kind == _TRUNCATE:
        if fmt >= _COUNTED:
            return TruncateOperation(name, stamp, time_ms, *_OFFSET_AND_COUNT.unpack(rest))
        return TruncateOperation(name, stamp, time_ms, *_OFFSET.unpack(rest))
    if kind == _MERGE:
        number, offset = _TARGET.unpack_from(rest)
        sources = tuple(_decode_sources(rest[_TARGET.size :]))
        return MergeOperation(
            name, stamp, time_ms, number, offset, sources, commits=fmt >= _COMMITS
        )
    if kind == _ATTRIBUTES:
        client_id, request_number = _CLIENT.unpack_from(rest)
        changes = _decode_changes(rest[_CLIENT.size :])
        return AttributesOperation(name, stamp, time_ms, client_id, request_number, changes)
    raise CorruptJournal("a log operation is of an unknown kind or size", kind=kind)


def _decode_append(changes_size: int, body: memoryview) -> AppendOperation:
    number, offset, writer_id, first, count, crc, time_ms = _APPEND_BODY.unpack_from(body)
    end = len(body) - changes_size
    payload = body[_APPEND_BODY.size : end]
    if crc32c(payload) != crc:
        raise CorruptJournal("an append's payload checksum does not match", segment=number)
    changes = _decode_changes(body[end:]) if changes_size else ()
    return AppendOperation(
        number, offset, writer_id, first, count, time_ms, crc, payload,
        events_in(payload, count), changes,
    )  # fmt: skip


def _decode_sources(data: memoryview) -> Iterator[MergedSource]:
    at = 0
    while at < len(data):
        number, length, name_size = _SOURCE.unpack_from(data, at)
        at += _SOURCE.size
        if at + name_size > len(data):
            raise CorruptJournal("the name of a merged segment is truncated", number=number)
        yield MergedSource(bytes(data[at : at + name_size]).decode(), number, length)
        at += name_size


def _decode_changes(data: memoryview) -> tuple[AttributeChange, ...]:
    return tuple(
        AttributeChange(attribute, before if flags & 1 else None, after if flags & 2 else None)
        for attribute, flags, before, after in _CHANGE.iter_unpack(data)
    )
