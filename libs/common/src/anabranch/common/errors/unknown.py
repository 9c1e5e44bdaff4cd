"""The request may or may not have had its effect: read the state before repeating it."""

from anabranch.common.errors.families import Unknown
from anabranch.common.errors.remedy import Remedy


class OutcomeUnknown(Unknown):
    """Time or connection ran out after the request may have been performed. Fields: operation."""

    code = "outcome-unknown"
    default_remedy = Remedy(
        "read the present state before you repeat the request",
        api='`client.operations.wait("{operation}")` waits for the operation',
        http="wait for the operation: `GET /v1/operations/{operation}?wait=30`",
        command="wait for the operation: `anabranch operation describe {operation} --wait`",
    )


class TimedOut(Unknown, TimeoutError):
    """The caller stopped waiting, and the call in progress was cancelled. Fields: timeout_s."""

    code = "timed-out"
    default_remedy = Remedy(
        "read the present state before you repeat the request",
        api="read the present state before you repeat the call, or allow it more time",
    )
