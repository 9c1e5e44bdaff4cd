"""Log operations: what a container's durable log holds, and their binary form.

Layout (little-endian), one operation after another in a frame::

    header   u8 kind, u8 format, u16 name size, u32 body size, u64 sequence number
    body     control (create, seal, delete): i64 incarnation, i64 revision, i64 time_ms, name
             append: u64 segment number, u64 offset, 16 B writer id, u64 first event number,
                     u32 count, u32 payload CRC32C, i64 time_ms, payload

The frame around them carries the checksum that guards the headers; the payload's own checksum
goes with it from the request to every place it is copied to. Encoding returns buffers and
decoding returns slices, so that payloads are not copied.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

from anabranch.common.errors import CorruptJournal, FormatTooNew
from anabranch.common.wire.messages import Stamp

FORMAT = 1
WRITER_ID_SIZE_BYTES = 16

_CREATE, _APPEND, _SEAL, _DELETE = 1, 2, 3, 4
_HEADER = struct.Struct("<BBHIQ")
_CONTROL = struct.Struct("<qqq")
_APPEND_BODY = struct.Struct("<QQ16sQIIq")

HEADER_SIZE_BYTES = _HEADER.size
APPEND_OVERHEAD_SIZE_BYTES = HEADER_SIZE_BYTES + _APPEND_BODY.size
"""Where an append's payload starts within its encoded operation."""


@dataclass(frozen=True, slots=True)
class CreateOperation:
    """A segment came to be, empty. Its number is this operation's sequence number."""

    segment: str
    stamp: Stamp
    time_ms: int


@dataclass(frozen=True, slots=True)
class SealOperation:
    """No more appends; repeated with a higher stamp it only raises the stamp."""

    segment: str
    stamp: Stamp
    time_ms: int


@dataclass(frozen=True, slots=True)
class DeleteOperation:
    """The segment, if there was one, is gone; a tombstone stays."""

    segment: str
    stamp: Stamp
    time_ms: int


@dataclass(frozen=True, slots=True)
class AppendOperation:
    """`payload` was added at `offset`: `count` events of a writer from `first_event_number` on."""

    number: int
    offset: int
    writer_id: bytes
    first_event_number: int
    count: int
    time_ms: int
    payload_crc: int
    payload: bytes | memoryview

    @property
    def last_event_number(self) -> int:
        return self.first_event_number + self.count - 1


ControlOperation = CreateOperation | SealOperation | DeleteOperation
Operation = ControlOperation | AppendOperation

_CONTROL_KINDS: dict[int, type[ControlOperation]] = {
    _CREATE: CreateOperation,
    _SEAL: SealOperation,
    _DELETE: DeleteOperation,
}
_KIND_OF = {operation: kind for kind, operation in _CONTROL_KINDS.items()}


@dataclass(frozen=True, slots=True)
class DecodedOperation:
    """An operation found in a frame; `at` is the position of its header in the payload."""

    sequence: int
    at: int
    operation: Operation


def encode_operation(sequence: int, operation: Operation) -> list[bytes | memoryview]:
    """The operation as buffers to be written in order; the payload is not copied."""
    if isinstance(operation, AppendOperation):
        body = _APPEND_BODY.pack(
            operation.number, operation.offset, operation.writer_id,
            operation.first_event_number, operation.count, operation.payload_crc,
            operation.time_ms,
        )  # fmt: skip
        size = len(body) + len(operation.payload)
        return [_HEADER.pack(_APPEND, FORMAT, 0, size, sequence) + body, operation.payload]
    name = operation.segment.encode()
    stamp = operation.stamp
    body = _CONTROL.pack(stamp.incarnation, stamp.revision, operation.time_ms) + name
    kind = _KIND_OF[type(operation)]
    return [_HEADER.pack(kind, FORMAT, len(name), len(body), sequence) + body]


def decode_operations(payload: bytes, first_sequence: int) -> Iterator[DecodedOperation]:
    """A frame's operations, numbered from `first_sequence` without gaps.

    Raises CorruptJournal for bytes that are no operations, FormatTooNew for a newer format.
    """
    view = memoryview(payload)
    at, sequence = 0, first_sequence
    while at < len(view):
        if len(view) - at < HEADER_SIZE_BYTES:
            raise CorruptJournal("a log operation's header is cut off", at=at)
        kind, fmt, name_size, size, stored_sequence = _HEADER.unpack_from(view, at)
        body = view[at + HEADER_SIZE_BYTES : at + HEADER_SIZE_BYTES + size]
        if fmt > FORMAT:
            raise FormatTooNew("a log operation has a newer format", found=fmt, supported=FORMAT)
        if stored_sequence != sequence or len(body) != size:
            raise CorruptJournal(
                "a log operation is out of place", expected=sequence, found=stored_sequence
            )
        yield DecodedOperation(sequence, at, _decode_body(kind, name_size, body))
        at += HEADER_SIZE_BYTES + size
        sequence += 1


def _decode_body(kind: int, name_size: int, body: memoryview) -> Operation:
    if kind == _APPEND and len(body) >= _APPEND_BODY.size:
        number, offset, writer_id, first, count, crc, time_ms = _APPEND_BODY.unpack_from(body)
        payload = body[_APPEND_BODY.size :]
        if crc32c(payload) != crc:
            raise CorruptJournal("an append's payload checksum does not match", segment=number)
        return AppendOperation(number, offset, writer_id, first, count, time_ms, crc, payload)
    control = _CONTROL_KINDS.get(kind)
    if control is None or len(body) != _CONTROL.size + name_size:
        raise CorruptJournal("a log operation is of an unknown kind or size", kind=kind)
    incarnation, revision, time_ms = _CONTROL.unpack_from(body)
    name = bytes(body[_CONTROL.size :]).decode()
    return control(name, Stamp(incarnation, revision), time_ms)
