"""It may or may not have happened: read the state before repeating."""

from anabranch.common.errors.families import Unknown


class OutcomeUnknown(Unknown):
    """Time or connection ran out after the request may have been performed."""

    code = "outcome-unknown"


class TimedOut(Unknown, TimeoutError):
    """The caller waited no longer; what was under way was cancelled."""

    code = "timed-out"
