"""What a step raises that cannot go on yet, though nothing is wrong."""


class StillWaiting(Exception):
    """What the step needs is not done yet; `reason` says what it is, in the log's manner.

    It is no failure: the step runs again within a second, or as soon as its aggregate is woken.
    Raise it from the step itself, not from inside a task group.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
