"""The input is wrong: repeating the request will not help."""

from anabranch.common.errors.families import Invalid


class InvalidName(Invalid):
    code = "invalid-name"


class InvalidRequest(Invalid):
    code = "invalid-request"


class InvalidRanges(Invalid):
    """The new key ranges of a scale do not cover exactly the keys of the sealed segments."""

    code = "invalid-ranges"
    default_remedy = "give ranges that cover the sealed segments' keys exactly, without overlap"


class InvalidCut(Invalid):
    """The value is not a cut of this stream: fields {segment} if one segment is wrong."""

    code = "invalid-cut"
    default_remedy = "use a cut that a reader or the controller returned"


class InvalidPosition(InvalidRequest):
    """A position has no event and never will have one: fields {segment, offset, index}."""

    code = "invalid-position"
    default_remedy = "use a position that a reader returned"


class NotAtBoundary(Invalid):
    """An offset lies within an append: fields {lower}, the nearest known boundary below it."""

    code = "not-at-boundary"
    default_remedy = "use the lower boundary, or locate the next higher one"


class InvalidSetting(Invalid):
    code = "invalid-setting"
    default_remedy = "correct the setting and start again"


class MetadataNotSynced(Invalid):
    """The NATS server may lose acknowledged messages in a power cut, or cannot be checked."""

    code = "metadata-not-synced"


class ReadTokenUnknown(Invalid):
    """A demanded point is beyond what the cluster has stored: fields {shard, sequence}."""

    code = "read-token-unknown"
    default_remedy = (
        "drop the read token; it belongs to another cluster, or to a state before a restore"
    )


class EventTooLarge(Invalid):
    code = "event-too-large"
    default_remedy = "split the event; the limit is 8 MiB"


class MalformedBlock(Invalid):
    """A block contradicts itself although its checksum is right; the store stores none of it."""

    code = "malformed-block"
    default_remedy = "correct the client; docs/wire.md describes the format of a block"


class BadPacket(Invalid):
    """Bytes on a connection are not a packet of this protocol; the receiver closes it."""

    code = "bad-packet"


class CodecMissing(Invalid):
    """The operation needs a library that is not installed: fields {package}."""

    code = "codec-missing"
    default_remedy = "install the named package, then repeat"


class UnsupportedProtocol(Invalid):
    """Client and server share no protocol version."""

    code = "unsupported-protocol"
    default_remedy = "upgrade the older side"


class DirectoryUnusable(Invalid):
    """A directory cannot be used: not writable, a network file system, not a directory."""

    code = "directory-unusable"
    default_remedy = "choose a writable directory on a local disk"


class BodyTooLarge(Invalid):
    code = "body-too-large"
    default_remedy = "send fewer events in one request"


class BodyTooSlow(Invalid):
    """The caller did not send the announced body in time."""

    code = "body-too-slow"
    default_remedy = "send a smaller body, or send it faster"


class HeadersTooSlow(Invalid):
    """The caller did not send a request's headers in time; the connection is closed."""

    code = "headers-too-slow"
    default_remedy = "send the request at once"


class HeadersTooLarge(Invalid):
    """A request's headers are over the limit; the connection is closed."""

    code = "headers-too-large"
    default_remedy = "send fewer or shorter headers"


class UnsupportedMediaType(Invalid):
    code = "unsupported-media-type"
    default_remedy = "send application/json, application/x-ndjson or application/octet-stream"


class NotAcceptable(Invalid):
    """The answer cannot be encoded in a form that the caller accepts."""

    code = "not-acceptable"
    default_remedy = "accept application/octet-stream"


class IdempotencyMismatch(Invalid):
    """The caller sent an Idempotency-Key again with another request."""

    code = "idempotency-mismatch"
    default_remedy = "use a new Idempotency-Key for a new request"


class SerializationFailed(Invalid):
    """A value could not be serialized, or bytes not deserialized; no data is written or lost."""

    code = "serialization-failed"
    default_remedy = "check the value and the serializer"


class Closed(Invalid):
    """The writer, reader or client was closed before the call."""

    code = "closed"
    default_remedy = "open a new one"
