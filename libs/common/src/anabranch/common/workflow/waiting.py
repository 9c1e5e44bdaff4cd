"""The exception of a step that cannot continue yet, although nothing is wrong."""


class StillWaiting(Exception):
    """The step waits for a condition; `reason` describes it like a log line.

    This is not a failure: the step runs again within a second, or as soon as its aggregate is
    woken. Raise it from the step itself, not from inside a task group.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
