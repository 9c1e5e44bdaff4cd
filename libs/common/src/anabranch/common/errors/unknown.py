"""The request may or may not have had its effect: read the state before repeating it."""

from anabranch.common.errors.families import Unknown


class OutcomeUnknown(Unknown):
    """Time or connection ran out after the request may have been performed."""

    code = "outcome-unknown"


class TimedOut(Unknown, TimeoutError):
    """The caller stopped waiting, and the call in progress was cancelled."""

    code = "timed-out"
