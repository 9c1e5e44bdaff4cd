"""The input is wrong: repeating the request will not help."""

from anabranch.common.errors.families import Invalid
from anabranch.common.errors.remedy import Remedy


class InvalidName(Invalid):
    """A name has characters or a form that are not allowed. Fields: name."""

    code = "invalid-name"
    default_remedy = Remedy("use ASCII letters, digits, dots and hyphens")


class InvalidKey(Invalid):
    """A key does not fit the configuration of its table. Fields: size, expected or limit."""

    code = "invalid-key"
    default_remedy = Remedy("use keys of the sizes with which the table was created")


class InvalidRequest(Invalid):
    """A value of the request is wrong, or values contradict each other."""

    code = "invalid-request"
    default_remedy = Remedy(
        "correct the value",
        http="correct the request; `GET /openapi.json` describes every route",
        command="correct the value; `--help` after the command describes it",
    )


class InvalidRanges(Invalid):
    """The new key ranges of a scale do not cover exactly the keys of the sealed segments."""

    code = "invalid-ranges"
    default_remedy = Remedy(
        "give ranges that cover the sealed segments' keys exactly, without overlap"
    )


class InvalidCut(Invalid):
    """The value is not a cut of this stream. Fields: stream, segment."""

    code = "invalid-cut"
    default_remedy = Remedy(
        "use a cut that a reader or the controller returned",
        http="use a cut that a reader returned, or `GET {stream_path}/cuts/tail`",
        command="use a cut that `anabranch stream cut {stream} --tail --json` printed",
    )


class InvalidPosition(InvalidRequest):
    """A position has no event and never will have one. Fields: segment, offset, index."""

    code = "invalid-position"
    default_remedy = Remedy(
        "use a position that a reader returned",
        api="use a position that `reader.positions()` returned",
        http="use a Next-Position or an id that an answer contained",
    )


class NotAtBoundary(Invalid):
    """An offset lies within an append. Fields: segment, offset, lower (the nearest boundary)."""

    code = "not-at-boundary"
    default_remedy = Remedy("use the lower boundary, or locate the next higher one")


class InvalidSetting(Invalid):
    """A setting is wrong, or settings contradict each other."""

    code = "invalid-setting"
    default_remedy = Remedy(
        "correct the setting and start again",
        api="correct the setting",
    )


class MetadataNotSynced(Invalid):
    """The NATS server may lose acknowledged messages in a power cut, or cannot be checked."""

    code = "metadata-not-synced"
    default_remedy = Remedy("let the NATS server sync always, as docs/operations.md describes")


class LogNotSynced(Invalid):
    """A NATS server of a container's log may lose acknowledged events in a power cut, or cannot be
    checked. Fields: server."""

    code = "log-not-synced"
    default_remedy = Remedy("let every NATS server sync always, as docs/operations.md describes")


class ReadTokenUnknown(Invalid):
    """A demanded point is beyond the events of the cluster. Fields: shard, sequence."""

    code = "read-token-unknown"
    default_remedy = Remedy(
        "drop the read token; it belongs to another cluster, or to a state before a restore",
        http="omit Anabranch-Read-Token; it belongs to another cluster, or to one before a restore",
    )


class EventTooLarge(Invalid):
    """An event is over the limit of its writer or of the data format. Fields: size, limit."""

    code = "event-too-large"
    default_remedy = Remedy(
        "split the event; the limit is 8 MiB",
        api="split the event, or open the writer with `WriterSettings(large_events=True)`",
        http="split the event; only the Python client writes events over 8 MiB",
        command="split the event; only the Python client writes events over 8 MiB",
    )


class MalformedBlock(Invalid):
    """A block contradicts itself although its checksum is right; the store stores none of it."""

    code = "malformed-block"
    default_remedy = Remedy("correct the client; docs/wire.md describes the format of a block")


class BadPacket(Invalid):
    """Bytes on a connection are not a packet of this protocol, and the receiver closes it."""

    code = "bad-packet"
    default_remedy = Remedy(
        "use client and servers of one release; docs/wire.md describes the packets"
    )


class CodecMissing(Invalid):
    """The operation needs a library that is not installed. Fields: package."""

    code = "codec-missing"
    default_remedy = Remedy("install the named package, then repeat")


class UnsupportedProtocol(Invalid):
    """Client and server share no protocol version."""

    code = "unsupported-protocol"
    default_remedy = Remedy("upgrade the older side")


class DirectoryUnusable(Invalid):
    """A directory cannot be used: not writable, a network file system, not a directory."""

    code = "directory-unusable"
    default_remedy = Remedy("choose a writable directory on a local disk")


class BodyTooLarge(Invalid):
    """The body of a request has too many bytes or events. Fields: size or events, limit."""

    code = "body-too-large"
    default_remedy = Remedy("send a smaller body, with fewer events")


class BodyTooSlow(Invalid):
    """The caller did not send the announced body in time. Fields: seconds."""

    code = "body-too-slow"
    default_remedy = Remedy("send a smaller body, or send it faster")


class HeadersTooSlow(Invalid):
    """The caller did not send a request's headers in time, and the connection is closed."""

    code = "headers-too-slow"
    default_remedy = Remedy("send the headers at once")


class HeadersTooLarge(Invalid):
    """A request's headers are over the limit, and the connection is closed. Fields: limit."""

    code = "headers-too-large"
    default_remedy = Remedy("send fewer or shorter headers")


class UnsupportedMediaType(Invalid):
    """The body has a media type that the route does not take. Fields: media_type."""

    code = "unsupported-media-type"
    default_remedy = Remedy(
        "send application/json, application/x-ndjson or application/octet-stream"
    )


class NotAcceptable(Invalid):
    """The answer cannot be encoded in a form that the caller accepts."""

    code = "not-acceptable"
    default_remedy = Remedy("accept application/octet-stream")


class IdempotencyMismatch(Invalid):
    """The caller sent an Idempotency-Key again with another request."""

    code = "idempotency-mismatch"
    default_remedy = Remedy("use a new Idempotency-Key for a new request")


class SerializationFailed(Invalid):
    """A value could not be serialized, or bytes not deserialized; no data is written or lost."""

    code = "serialization-failed"
    default_remedy = Remedy("check the value and the serializer")


class Closed(Invalid):
    """The writer, reader or client was closed before the call."""

    code = "closed"
    default_remedy = Remedy("open a new one")


class InvalidTopic(Invalid):
    """The spec of a topic is wrong. Fields: topic, why."""

    code = "invalid-topic"
    default_remedy = Remedy("correct the spec of the topic")
