"""The messages in packets, their kinds, and their encoding.

A message is a msgspec struct encoded as a MessagePack map, so that fields can be added:
receivers ignore unknown fields, and new fields have defaults. Bulk bytes are never inside a message
but in the packet's payload. `message` (the common base), `requests` and `replies` define the
messages; users import them from here.
"""

from typing import TypeVar

import msgspec

from anabranch.common import errors
from anabranch.common.errors import BadPacket
from anabranch.common.wire.malformed import MALFORMED
from anabranch.common.wire.message import (
    NO_DECISION,
    AttributeUpdate,
    AttributeValue,
    BlockPlace,
    Hello,
    KeepAlive,
    MergedSegment,
    Message,
    Stamp,
    UpdateKind,
)
from anabranch.common.wire.packet import Packet, encode_packet
from anabranch.common.wire.replies import (
    REPLIES,
    Appended,
    AppendedTogether,
    AppendSetup,
    AttributeValues,
    BatchMerged,
    Done,
    EventLocated,
    Failed,
    Lengths,
    OffsetLocated,
    Sealed,
    SegmentCreated,
    SegmentInfo,
    SegmentRead,
    SegmentsMerged,
    TableDescribed,
    TableRead,
    TableUpdated,
    Truncated,
)
from anabranch.common.wire.requests import (
    REQUESTS,
    REQUESTS_IN_FLIGHT_MAX,
    REQUESTS_REMEMBERED,
    Append,
    AppendLarge,
    AppendOnce,
    AppendTogether,
    CheckTruncation,
    ConditionalAppend,
    CreateSegment,
    CreateTransient,
    DeleteSegment,
    DescribeTable,
    FlushContainer,
    GetAttributes,
    GetEntries,
    GetLengths,
    GetSegmentInfo,
    LocateEvent,
    LocateOffset,
    LocateTime,
    MergeBatch,
    MergeSegments,
    ReadSegment,
    Request,
    ScanEntries,
    SealSegment,
    SetupAppend,
    TruncateSegment,
    UpdateAttributes,
    UpdateTable,
)

__all__ = [
    "FAILED_TEXT_LENGTH_MAX",
    "KINDS",
    "NO_DECISION",
    "REQUESTS_IN_FLIGHT_MAX",
    "REQUESTS_REMEMBERED",
    "Append",
    "AppendLarge",
    "AppendOnce",
    "AppendSetup",
    "AppendTogether",
    "Appended",
    "AppendedTogether",
    "AttributeUpdate",
    "AttributeValue",
    "AttributeValues",
    "BatchMerged",
    "BlockPlace",
    "CheckTruncation",
    "ConditionalAppend",
    "CreateSegment",
    "CreateTransient",
    "DeleteSegment",
    "DescribeTable",
    "Done",
    "EventLocated",
    "Failed",
    "FlushContainer",
    "GetAttributes",
    "GetEntries",
    "GetLengths",
    "GetSegmentInfo",
    "Hello",
    "KeepAlive",
    "Lengths",
    "LocateEvent",
    "LocateOffset",
    "LocateTime",
    "MergeBatch",
    "MergeSegments",
    "MergedSegment",
    "Message",
    "OffsetLocated",
    "ReadSegment",
    "Request",
    "ScanEntries",
    "SealSegment",
    "Sealed",
    "SegmentCreated",
    "SegmentInfo",
    "SegmentRead",
    "SegmentsMerged",
    "SetupAppend",
    "Stamp",
    "TableDescribed",
    "TableRead",
    "TableUpdated",
    "TruncateSegment",
    "Truncated",
    "UpdateAttributes",
    "UpdateKind",
    "UpdateTable",
    "decode_message",
    "encode_message",
    "error_of",
    "failed",
]

KINDS: dict[int, type[Message]] = {
    1: Hello,
    2: KeepAlive,
    **{row.kind: row.request for row in REQUESTS},
    **REPLIES,
}
"""Kind numbers are part of the protocol: add, never change."""

_KIND_OF = {message: kind for kind, message in KINDS.items()}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = {kind: msgspec.msgpack.Decoder(message) for kind, message in KINDS.items()}

FAILED_TEXT_LENGTH_MAX = 2048
"""Characters of each text in a Failed, so that it fits in a packet after any request."""

M = TypeVar("M", bound=Message)


def encode_message(
    message: Message, request_id: int, payload: bytes | memoryview = b""
) -> list[bytes | memoryview]:
    """Encode the message in a packet, as buffers to write in order."""
    return encode_packet(_KIND_OF[type(message)], request_id, _ENCODER.encode(message), payload)


def decode_message(packet: Packet) -> Message:
    """Decode the message. Raises BadPacket for an unknown kind or a malformed message."""
    decoder = _DECODERS.get(packet.kind)
    if decoder is None:
        raise BadPacket("a packet has an unknown kind", kind=packet.kind)
    try:
        return decoder.decode(packet.meta)
    except MALFORMED as error:
        raise BadPacket("a packet's message is malformed", kind=packet.kind) from error


def _told(value: errors.FieldValue) -> errors.FieldValue:
    return value[:FAILED_TEXT_LENGTH_MAX] if isinstance(value, str) else value


def failed(error: errors.AnabranchError, session: int = 0) -> Failed:
    """The reply that carries `error`; it cuts long texts of the caller."""
    return Failed(
        code=error.code,
        message=error.message[:FAILED_TEXT_LENGTH_MAX],
        remedy=error.remedy_for(None),
        fields={name: _told(value) for name, value in error.fields.items()},
        session=session,
    )


def error_of(reply: Failed) -> errors.AnabranchError:
    """The error that `reply` carries."""
    return errors.from_body(msgspec.structs.asdict(reply))
