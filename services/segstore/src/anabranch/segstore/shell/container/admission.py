"""Which new operations a container accepts: the store's throttle, and a log that may refuse them.

Only a replicated log refuses: with too few copies in sync it would acknowledge nothing, so the
container says so at once. Operations that were accepted before wait.
"""

from typing import Protocol, runtime_checkable

from anabranch.common.errors import AnabranchError
from anabranch.segstore.ports import ContainerLog
from anabranch.segstore.shell.container.throttle import Throttle


class Admission(Protocol):
    """The check that each new operation must pass."""

    @property
    def has_no_room(self) -> bool:
        """Whether accepted operations wait for an unknown time, so that queries must not wait for
        them."""
        ...

    def admit(self, size: int) -> None:
        """Count `size` more pending bytes. Raises the refusal without counting them."""
        ...


@runtime_checkable
class RefusingLog(Protocol):
    """A log that may refuse new operations."""

    @property
    def refusal(self) -> AnabranchError | None:
        """The reason for which new operations would not be acknowledged; None usually."""
        ...


class LogAdmission:
    """`Admission` of a container whose log may refuse."""

    def __init__(self, log: RefusingLog, throttle: Throttle) -> None:
        self._log = log
        self._throttle = throttle

    @property
    def has_no_room(self) -> bool:
        """See `Admission`."""
        return self._throttle.has_no_room or self._log.refusal is not None

    def admit(self, size: int) -> None:
        """See `Admission`."""
        refusal = self._log.refusal
        if refusal is not None:
            raise refusal
        self._throttle.admit(size)


def admission_of(log: ContainerLog, throttle: Throttle) -> Admission:
    """The admission of a container with this log: the throttle alone, if the log never refuses."""
    return LogAdmission(log, throttle) if isinstance(log, RefusingLog) else throttle
