"""What only a caller over HTTP can get wrong: branches of the one error tree.

The codes leave the process in problem documents alone; `http.problem` gives each its status.
"""

from anabranch.common.errors import Invalid, Retry


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


class TooBusy(Retry):
    """A bound of the gateway is reached; nothing was done."""

    code = "too-busy"
