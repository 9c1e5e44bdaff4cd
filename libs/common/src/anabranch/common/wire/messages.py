"""The messages that packets carry, and their kinds.

A message is a msgspec struct encoded as a MessagePack map, so that fields can be added:
unknown fields are ignored, new ones have defaults. Bulk bytes are never inside a message but
in the packet's payload. Segments are named in full (``scope/stream/0.#epoch.0``). The field
`container_epoch`, where present, is what the caller looked up; a store that serves another
epoch answers WrongHost (0 = not looked up, accept any).

Every control request carries the stamp {incarnation, revision} of the aggregate decision that
it performs; a container refuses older ones (StaleRequest). Those about transient segments, and
their merge, carry `NO_DECISION`.
"""

from typing import Literal, TypeVar

import msgspec

from anabranch.common import errors
from anabranch.common.errors import BadPacket
from anabranch.common.wire.malformed import MALFORMED
from anabranch.common.wire.packet import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_OLDEST,
    Packet,
    encode_packet,
)


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class Stamp(msgspec.Struct, frozen=True, order=True):
    """The (incarnation, aggregate revision) at which a control request was decided."""

    incarnation: int
    revision: int


NO_DECISION = Stamp(0, 0)
"""Of requests about transient segments, which no aggregate decides."""

UpdateKind = Literal["create", "replace", "replace-if-greater", "replace-if-equals", "accumulate"]


class AttributeUpdate(msgspec.Struct, frozen=True):
    """What is to become of one attribute; `attribute` is its id, 16 bytes.

    create              set it; it must be absent
    replace             set it, whatever it is
    replace-if-greater  set it; it must be absent or lower
    replace-if-equals   set it; it must equal `expected` (None: be absent)
    accumulate          add to it; absent counts as 0

    `value` is a signed 64-bit number, or None with the two that replace unconditionally or if
    equal: then the attribute is removed.
    """

    attribute: bytes
    kind: UpdateKind
    value: int | None
    expected: int | None = None


class AttributeValue(msgspec.Struct, frozen=True):
    """An attribute as it is."""

    attribute: bytes
    value: int


class MergedSegment(msgspec.Struct, frozen=True):
    """Where a merged segment's `length` bytes are in the target."""

    source: str
    offset: int
    length: int


# --- both directions --------------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """First packet of both sides: the protocol versions that the sender speaks."""

    high: int = PROTOCOL_VERSION
    low: int = PROTOCOL_VERSION_OLDEST
    node_id: str = ""


class KeepAlive(Message, frozen=True, kw_only=True):
    """Nothing; sent when a side has been silent. Never answered."""


# --- requests ---------------------------------------------------------------------------------


class Request(Message, frozen=True, kw_only=True):
    """Common fields of requests.

    `trace_parent` (W3C traceparent) continues a trace. `token` is carried and ignored today: it is
    reserved for who the caller is, so that asking for it needs no new protocol version. An append
    has none; the setup of its session speaks for it.
    """

    segment: str
    container_epoch: int = 0
    trace_parent: str = ""
    token: str = ""


class CreateSegment(Request, frozen=True, kw_only=True):
    """Create an empty segment. → Done; repeated with the same stamp → Done."""

    stamp: Stamp


class CreateTransient(Request, frozen=True, kw_only=True):
    """Create an empty segment that lives no longer than this connection. → SegmentCreated.

    `segment` is its parent. It is written, sealed and read under the name that the answer tells
    and may be merged into its parent; what is left of it is deleted when the connection ends, and
    when its container is opened again. `writer_id` has 16 bytes; its first eight become part of
    the name. Every request makes another segment.
    """

    writer_id: bytes


class SealSegment(Request, frozen=True, kw_only=True):
    """Forbid further appends. → Sealed; repeated → Sealed."""

    stamp: Stamp


class DeleteSegment(Request, frozen=True, kw_only=True):
    """Delete, leaving a tombstone, also of an unknown segment. → Done; repeated → Done."""

    stamp: Stamp


class TruncateSegment(Request, frozen=True, kw_only=True):
    """Give up what lies before `offset`, an append boundary. → Truncated.

    An offset at or below the present start changes nothing and is success. Works on sealed
    segments. NotAtBoundary names the nearest lower boundary that is known.
    """

    stamp: Stamp
    offset: int


class MergeSegments(Request, frozen=True, kw_only=True):
    """Append all of each source to `segment`, in this order, all or none. → SegmentsMerged.

    The sources are sealed, never truncated, and of the same container; what they are afterwards
    is known as merged. Their attributes and writers' numbers end. Repeated → the same answer.
    Transient sources are merged into their parent only, and not together with others; the stamp
    is `NO_DECISION`, which is not held against the parent's and does not change it.

    Transaction segments need not be sealed, for the merge is their seal. They are merged into a
    segment of their parent's stream and number, and not together with others. One that is
    forgotten is answered as empty if `segment` has seen this very stamp.
    """

    stamp: Stamp
    sources: tuple[str, ...]


class UpdateAttributes(Request, frozen=True, kw_only=True):
    """Perform all updates or none. → Done; recognised when repeated → Done.

    `request_number` counts the requests of `client_id` (16 bytes) on the segment from 1 without
    gaps, in one sequence with the events that are appended under this id. AttributeMismatch
    names the attribute that did not allow it.
    """

    stamp: Stamp
    client_id: bytes
    request_number: int
    updates: tuple[AttributeUpdate, ...]


class GetAttributes(Request, frozen=True, kw_only=True):
    """→ AttributeValues: those asked for, or all if none is named; absent ones are left out."""

    attributes: tuple[bytes, ...] = ()


class GetSegmentInfo(Request, frozen=True, kw_only=True):
    """→ SegmentInfo. `even_gone`: also of a segment that was deleted or merged."""

    even_gone: bool = False


class LocateOffset(Request, frozen=True, kw_only=True):
    """→ OffsetLocated: the first append boundary at or after `offset`."""

    offset: int


class SetupAppend(Request, frozen=True, kw_only=True):
    """Open the append session `session` of (writer id, segment) on this connection.

    → AppendSetup. Ends an older session of the same writer and segment, wherever it is.
    """

    writer_id: bytes
    session: int


class Append(Message, frozen=True, kw_only=True):
    """Append the payload to the session's segment, whole or not at all.

    `count` events numbered from `first_event_number`, contiguous per (writer id, segment).
    `is_block`: the payload is one block of `wire.block`, which the store verifies. → Appended,
    cumulative: the reply to a later append of the session answers the earlier ones too.
    """

    session: int
    first_event_number: int
    count: int
    is_block: bool = True
    trace_parent: str = ""


class AppendOnce(Request, frozen=True, kw_only=True):
    """Append the payload as `Append` does, without a session. → Appended with `session` 0.

    For callers without a connection of their own, such as those on NATS. The numbers decide as
    always, so a repeat is safe. Needs no live session of the writer and ends none: the next
    append of a session is judged by the numbers that this one leaves behind.
    """

    writer_id: bytes
    first_event_number: int
    count: int
    is_block: bool = True


class ConditionalAppend(AppendOnce, frozen=True, kw_only=True):
    """Append as `AppendOnce` does if the conditions hold, and update attributes with it.

    `expected_length`: the segment's length before the append (None: any); else OffsetMismatch.
    `updates`: all are performed with the append, or nothing is. What is stored already is
    acknowledged before any condition is looked at, so a repeat is safe. → Appended.
    """

    expected_length: int | None = None
    updates: tuple[AttributeUpdate, ...] = ()


class ReadSegment(Request, frozen=True, kw_only=True):
    """Read from `offset`, up to about `size_max` bytes, waiting ≤ `wait_ms` at the tail.

    → SegmentRead with the bytes as payload. `whole_appends`: what is returned ends on an
    append boundary (at least one append is returned even if it is longer than `size_max`);
    `offset` must then be a boundary. Of a transaction segment nothing is read: InvalidRequest.
    """

    offset: int
    size_max: int
    wait_ms: int = 0
    whole_appends: bool = True


class FlushContainer(Message, frozen=True, kw_only=True):
    """Move everything acknowledged so far to tier 2. → Done when the manifest is durable."""

    container: int
    token: str = ""


# --- replies ----------------------------------------------------------------------------------


class Done(Message, frozen=True, kw_only=True):
    """The request was performed, now or before, and is durable."""


class SegmentCreated(Message, frozen=True, kw_only=True):
    """The transient segment is there, under this name."""

    segment: str


class SegmentInfo(Message, frozen=True, kw_only=True):
    """A segment as the store has it; lengths and offsets in bytes.

    `tiered_length`: where what is in tier 2 without a gap ends. `sealed_in_tier_two`: tier 2
    knows it as sealed. `modified_ms`: when bytes were last added, 0 for never. Of what is gone
    only `deleted` and, if it was merged, `length` and where its bytes are now say something.
    """

    segment: str
    start: int
    length: int
    tiered_length: int
    sealed: bool
    event_count: int
    container: int
    container_epoch: int
    sealed_in_tier_two: bool = False
    modified_ms: int = 0
    deleted: bool = False
    merged_into: str = ""
    merged_offset: int = 0


class Sealed(Message, frozen=True, kw_only=True):
    """The segment is sealed at `length`."""

    length: int


class Truncated(Message, frozen=True, kw_only=True):
    """The segment starts at `start`, which may lie beyond what was asked for."""

    start: int


class SegmentsMerged(Message, frozen=True, kw_only=True):
    """Where each source's bytes are now, in the order asked for."""

    merged: tuple[MergedSegment, ...]


class AttributeValues(Message, frozen=True, kw_only=True):
    """Ascending by id."""

    values: tuple[AttributeValue, ...]


class OffsetLocated(Message, frozen=True, kw_only=True):
    offset: int


class AppendSetup(Message, frozen=True, kw_only=True):
    """The session is open; `last_event_number` is 0 for a writer unknown to the segment.

    `sealed`: appends will be refused, but the caller now knows what to resend elsewhere.
    """

    session: int
    last_event_number: int
    sealed: bool = False


class Appended(Message, frozen=True, kw_only=True):
    """Everything up to `last_event_number` of the session is durable; `length` after it."""

    session: int
    last_event_number: int
    length: int


class SegmentRead(Message, frozen=True, kw_only=True):
    """The payload holds the segment's bytes from `offset`.

    `at_tail`: nothing lies beyond at the moment; `end_of_segment`: sealed and nothing ever will.
    """

    offset: int
    at_tail: bool = False
    end_of_segment: bool = False


class Failed(Message, frozen=True, kw_only=True):
    """The request was refused or failed: the body of an `errors.AnabranchError`.

    After a Failed reply to an Append its session is over until the next SetupAppend.
    """

    code: str
    message: str
    remedy: str = ""
    fields: dict[str, str | int | float | bool | None] = {}
    session: int = 0


KINDS: dict[int, type[Message]] = {
    1: Hello, 2: KeepAlive,
    10: CreateSegment, 11: SealSegment, 12: DeleteSegment, 13: GetSegmentInfo,
    14: LocateOffset, 15: SetupAppend, 16: Append, 17: ReadSegment, 18: FlushContainer,
    19: AppendOnce, 20: TruncateSegment, 21: MergeSegments, 22: UpdateAttributes,
    23: GetAttributes, 24: ConditionalAppend, 25: CreateTransient,
    40: Done, 41: SegmentInfo, 42: Sealed, 43: OffsetLocated, 44: AppendSetup,
    45: Appended, 46: SegmentRead, 47: Failed, 48: Truncated, 49: SegmentsMerged,
    50: AttributeValues, 51: SegmentCreated,
}  # fmt: skip
"""Kind numbers are part of the protocol: add, never change."""

_KIND_OF = {message: kind for kind, message in KINDS.items()}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = {kind: msgspec.msgpack.Decoder(message) for kind, message in KINDS.items()}

FAILED_TEXT_LENGTH_MAX = 2048
"""Characters of each text in a Failed, so that it fits in a packet whatever was asked."""

M = TypeVar("M", bound=Message)


def encode_message(
    message: Message, request_id: int, payload: bytes | memoryview = b""
) -> list[bytes | memoryview]:
    """The message in a packet, as buffers to be written in order."""
    return encode_packet(_KIND_OF[type(message)], request_id, _ENCODER.encode(message), payload)


def decode_message(packet: Packet) -> Message:
    """The packet's message. Raises BadPacket for an unknown kind or a malformed message."""
    decoder = _DECODERS.get(packet.kind)
    if decoder is None:
        raise BadPacket("a packet is of an unknown kind", kind=packet.kind)
    try:
        return decoder.decode(packet.meta)
    except MALFORMED as error:
        raise BadPacket("a packet's message is malformed", kind=packet.kind) from error


def _told(value: errors.FieldValue) -> errors.FieldValue:
    return value[:FAILED_TEXT_LENGTH_MAX] if isinstance(value, str) else value


def failed(error: errors.AnabranchError, session: int = 0) -> Failed:
    """The reply that carries `error`; a caller's own long words come back cut."""
    return Failed(
        code=error.code,
        message=error.message[:FAILED_TEXT_LENGTH_MAX],
        remedy=error.remedy,
        fields={name: _told(value) for name, value in error.fields.items()},
        session=session,
    )


def error_of(reply: Failed) -> errors.AnabranchError:
    """The error that `reply` carries."""
    return errors.from_body(msgspec.structs.asdict(reply))
