"""The one error tree, split by what the caller must do.

    AnabranchError
    ├── Retry          wait and try again; nothing was done
    ├── Conflict       the state forbids it; look at the state, then decide
    ├── Fenced         you (or the store you asked) are no longer the owner; look it up again
    ├── Invalid        the input is wrong; repeating it will not help
    ├── NotFound       the thing named does not exist (here)
    ├── Unauthorized   ask for the right to do it
    ├── Corrupt        stored or received bytes are damaged; an operator must look
    └── Unknown        it may or may not have happened; read the state before repeating

Every concrete error has a stable ``code`` that crosses process borders, a message (what
happened, to what), ``fields`` (values, not prose) and a ``remedy`` (what to do). Text is
lowercase and has no full stop. ``to_body`` and ``from_body`` carry an error over a wire.
"""

from collections.abc import Mapping
from typing import ClassVar, Self

FieldValue = str | int | float | bool | None


class AnabranchError(Exception):
    """Root of all errors that this project raises on purpose."""

    code: ClassVar[str] = "error"
    default_remedy: ClassVar[str] = "see the log of the service that answered"

    def __init__(self, message: str, *, remedy: str | None = None, **fields: FieldValue) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy or self.default_remedy
        self.fields: Mapping[str, FieldValue] = fields

    def __str__(self) -> str:
        details = " ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{self.message} ({details})" if details else self.message

    def copy(self) -> Self:
        """The same error as a new object, so that one failure can be raised to many callers."""
        return type(self)(self.message, remedy=self.remedy, **self.fields)

    def to_body(self) -> dict[str, object]:
        """The error as plain data: {code, message, remedy, fields}."""
        said = {"code": self.code, "message": self.message, "remedy": self.remedy}
        return {**said, "fields": dict(self.fields)}


class Retry(AnabranchError):
    code = "retry"
    default_remedy = "wait and try again"


class Conflict(AnabranchError):
    code = "conflict"
    default_remedy = "read the present state, then decide again"


class Fenced(AnabranchError):
    code = "fenced"
    default_remedy = "look up the present owner and ask it"


class Invalid(AnabranchError):
    code = "invalid"
    default_remedy = "correct the request"


class NotFound(AnabranchError):
    code = "not-found"
    default_remedy = "check the name"


class Unauthorized(AnabranchError):
    code = "unauthorized"
    default_remedy = "ask an administrator for the right"


class Corrupt(AnabranchError):
    code = "corrupt"
    default_remedy = "keep the files as they are and restore from a good copy"


class Unknown(AnabranchError):
    code = "unknown"
    default_remedy = "read the present state before repeating"


# --- Retry ------------------------------------------------------------------------------------


class Unavailable(Retry):
    """The container, store or controller exists but does not serve at the moment."""

    code = "unavailable"


class Overloaded(Retry):
    """A bounded queue is full; nothing was accepted."""

    code = "overloaded"


class BufferFull(Retry):
    """The writer's own buffer is full."""

    code = "buffer-full"
    default_remedy = "await drain() before writing more"


class Busy(Retry):
    """Another operation on the same thing must end first."""

    code = "busy"


class DeadlinePassed(Retry):
    """Nobody waited any more when the request came up; it was refused and nothing was done."""

    code = "deadline-passed"
    default_remedy = "send it again with a later deadline"


class ConnectionLost(Retry):
    """The connection to a server broke."""

    code = "connection-lost"


class PlanOutdated(Retry):
    """What a read was planned on is no longer there; what is there now is not damaged."""

    code = "plan-outdated"
    default_remedy = "run the read again, so that it is planned anew"


class DiskFailed(Retry):
    """A write or sync failed; the store stops rather than guess what reached the disk."""

    code = "disk-failed"
    default_remedy = "check the disk and its free space, then start the store again"


class SyncFailed(DiskFailed):
    """A sync failed: what earlier writes left on the disk is not known, so the store ends."""

    code = "sync-failed"


# --- Conflict ---------------------------------------------------------------------------------


class ScopeExists(Conflict):
    code = "scope-exists"


class ScopeNotEmpty(Conflict):
    code = "scope-not-empty"
    default_remedy = "seal and delete its streams first"


class StreamExists(Conflict):
    code = "stream-exists"


class StreamSealed(Conflict):
    code = "stream-sealed"
    default_remedy = "write to another stream; a sealed stream is read-only for ever"


class StreamNotSealed(Conflict):
    code = "stream-not-sealed"
    default_remedy = "seal the stream first"


class SegmentExists(Conflict):
    code = "segment-exists"


class SegmentSealed(Conflict):
    code = "segment-sealed"
    default_remedy = "ask the controller for its successors"


class SegmentNotSealed(Conflict):
    code = "segment-not-sealed"
    default_remedy = "seal the segment first"


class OffsetMismatch(Conflict):
    """A conditional append expected another length of the segment: fields {expected, length}."""

    code = "offset-mismatch"
    default_remedy = "read what was appended meanwhile, then decide again at the present length"


class AttributeMismatch(Conflict):
    """An attribute's value does not allow the update: fields {attribute, present}."""

    code = "attribute-mismatch"
    default_remedy = "read the attribute, then decide again"


class TooManyAttributes(Conflict):
    """The segment would have more attributes than it may: fields {limit}."""

    code = "too-many-attributes"
    default_remedy = "remove attributes that are no longer needed"


class PartialDuplicate(Conflict):
    """A block straddles what is stored: fields {last}; rebuild it from last + 1."""

    code = "partial-duplicate"


class EventGap(Conflict):
    """A block starts beyond the next event number: fields {last}."""

    code = "event-gap"
    default_remedy = "set up the append session again and resend from last + 1"


class WriterExpired(Conflict):
    """The writer id is unknown and its block does not start at event number 1."""

    code = "writer-expired"
    default_remedy = "open a new writer; what was in flight may or may not be stored"


class SessionEnded(Conflict):
    """The append session was ended by a refusal or by a newer setup of the same writer."""

    code = "session-ended"
    default_remedy = "set up the append session again"


class StaleRequest(Conflict):
    """The segment has seen a later (incarnation, revision) than the request's."""

    code = "stale-request"
    default_remedy = "reload the aggregate; a newer decision exists"


class WrongExpectedSequence(Conflict):
    """An event store's subject has moved on: fields {expected, actual}."""

    code = "wrong-expected-sequence"


class RevisionConflict(Conflict):
    """An object's revision is not the expected one: fields {expected, actual}."""

    code = "revision-conflict"


class ObjectExists(Conflict):
    """A create-only name is taken (an object, a chunk, a manifest, a file)."""

    code = "object-exists"


class DirectoryInUse(Conflict):
    code = "directory-in-use"
    default_remedy = "stop the process that uses it, or choose another directory"


class PortInUse(Conflict):
    code = "port-in-use"
    default_remedy = "choose another port, or 0 for any free one"


# --- Fenced -----------------------------------------------------------------------------------


class Deposed(Fenced):
    """A newer owner exists; nothing more may be acknowledged or made visible."""

    code = "deposed"
    default_remedy = "stop; the newer owner serves"


class WrongHost(Fenced):
    """The store does not own the segment's container under the caller's epoch."""

    code = "wrong-host"
    default_remedy = "locate the segment again"


# --- Invalid ----------------------------------------------------------------------------------


class InvalidName(Invalid):
    code = "invalid-name"


class InvalidRequest(Invalid):
    code = "invalid-request"


class NotAtBoundary(Invalid):
    """An offset lies within an append: fields {lower}, the nearest boundary known below it."""

    code = "not-at-boundary"
    default_remedy = "use the lower boundary, or locate the next higher one"


class InvalidSetting(Invalid):
    code = "invalid-setting"
    default_remedy = "correct the setting and start again"


class EventTooLarge(Invalid):
    code = "event-too-large"
    default_remedy = "split the event; the limit is 8 MiB"


class BadPacket(Invalid):
    """Bytes on a connection are not a packet of this protocol; the connection is closed."""

    code = "bad-packet"


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


class UnsupportedMediaType(Invalid):
    code = "unsupported-media-type"
    default_remedy = "send application/json, application/x-ndjson or application/octet-stream"


class NotAcceptable(Invalid):
    """What is to be answered cannot be written in a form that the caller accepts."""

    code = "not-acceptable"
    default_remedy = "accept application/octet-stream"


class IdempotencyMismatch(Invalid):
    """An Idempotency-Key came again with another request."""

    code = "idempotency-mismatch"
    default_remedy = "use a new Idempotency-Key for a new request"


class NotBuilt(Invalid):
    """The interface names it, this release does not do it."""

    code = "not-built"
    default_remedy = "see /openapi.json for what is served"


# --- NotFound ---------------------------------------------------------------------------------


class ScopeNotFound(NotFound):
    code = "scope-not-found"


class StreamNotFound(NotFound):
    code = "stream-not-found"


class SegmentNotFound(NotFound):
    code = "segment-not-found"


class SegmentMerged(SegmentNotFound):
    """The segment's bytes are another's now: fields {target, offset, length}."""

    code = "segment-merged"
    default_remedy = "read them from the target segment, at the offset"


class SegmentTruncated(NotFound):
    """The offset lies before the segment's start: fields {start}."""

    code = "segment-truncated"
    default_remedy = "continue at the segment's start offset"


class OperationNotFound(NotFound):
    code = "operation-not-found"


class ObjectNotFound(NotFound):
    code = "object-not-found"


class LogNotHere(NotFound):
    """The container's log is bound to another journal; never treated as an empty log."""

    code = "log-not-here"
    default_remedy = "start the store whose data directory holds the log"


class TierTwoNotHere(NotFound):
    """Tier 2 lists nothing for a container that has a log."""

    code = "tier-two-not-here"
    default_remedy = "point the store at the tier 2 it wrote to before"


class BinaryNotFound(NotFound):
    """A server program could not be found by setting, PATH or wheel."""

    code = "binary-not-found"


# --- Corrupt ----------------------------------------------------------------------------------


class CorruptBlock(Corrupt):
    code = "corrupt-block"


class CorruptJournal(Corrupt):
    code = "corrupt-journal"
    default_remedy = "keep the journal files as they are and inspect them offline"


class CorruptChunk(Corrupt):
    code = "corrupt-chunk"


class CorruptManifest(Corrupt):
    code = "corrupt-manifest"


class CorruptEvent(Corrupt):
    """A domain event's checksum, revision or content is wrong; its aggregate stops."""

    code = "corrupt-event"


class StreamRewound(Corrupt):
    """A stream's newest sequence is below what was already read: it was replaced or restored."""

    code = "stream-rewound"
    default_remedy = "stop the service and find out who replaced the stream's data"


class FormatTooNew(Corrupt):
    """Written by a newer release: fields {found, supported}."""

    code = "format-too-new"
    default_remedy = "start a release that knows this format; nothing was changed"


# --- Unknown ----------------------------------------------------------------------------------


class OutcomeUnknown(Unknown):
    """Time or connection ran out after the request may have been performed."""

    code = "outcome-unknown"


def _all_errors(root: type[AnabranchError]) -> dict[str, type[AnabranchError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _all_errors(child)
    return found


ERRORS_BY_CODE: Mapping[str, type[AnabranchError]] = _all_errors(AnabranchError)


def from_body(body: Mapping[str, object]) -> AnabranchError:
    """The error that `to_body` described; an unknown code becomes a plain AnabranchError."""
    kind = ERRORS_BY_CODE.get(str(body.get("code")), AnabranchError)
    fields = body.get("fields")
    error = kind(str(body.get("message", "no message")), remedy=str(body.get("remedy") or ""))
    error.fields = dict(fields) if isinstance(fields, Mapping) else {}
    return error
