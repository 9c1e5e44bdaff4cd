"""An owner's hold on its journal: the fence that it checks, and its end.

Any error inside `ending()` ends the journal: nothing is retried, and nothing more is acknowledged.
State owned: the error that ended the journal.
"""

from collections.abc import Callable

from anabranch.common.errors import AnabranchError, Deposed, DiskFailed, NoRoom
from anabranch.common.storage.ports import Disk
from anabranch.segstore.adapters.journal import layout


class Ownership:
    """The ownership of one open journal. `on_end` is called once, with the error that ended it."""

    def __init__(
        self, disk: Disk, journal_epoch: int, on_end: Callable[[AnabranchError], None]
    ) -> None:
        self._disk = disk
        self._epoch = journal_epoch
        self._on_end = on_end
        self.failure: AnabranchError | None = None
        self._ending = _Ending(self, room_needed=False)

    def check_alive(self) -> None:
        """Raises the error that ended the journal, if any."""
        if self.failure is not None:
            raise self.failure

    def check_fence(self) -> None:
        """Raises Deposed if a successor has raised its fence."""
        if not layout.fence_held(self._disk, self._epoch):
            raise Deposed("another process opened the journal", journal_epoch=self._epoch)

    def deposed(self) -> bool:
        """Whether a successor has raised its fence; False if the disk fails."""
        try:
            return not layout.fence_held(self._disk, self._epoch)
        except OSError:
            return False

    def end(self, failure: AnabranchError) -> None:
        """Stop for good; harmless to repeat, and the first failure stays."""
        if self.failure is None:
            self.failure = failure
            self._on_end(failure)

    def ending(self, *, room_needed: bool = False) -> "_Ending":
        """A block in which every error ends the journal; it is raised as DiskFailed or Deposed.

        `room_needed`: the caller can repeat the block, so NoRoom is raised as it is and ends
        nothing.
        """
        return _Ending(self, room_needed=True) if room_needed else self._ending


class _Ending:
    """A programming error also ends the journal, but is raised unchanged."""

    def __init__(self, ownership: Ownership, *, room_needed: bool) -> None:
        self._ownership = ownership
        self._room_needed = room_needed

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        if self._room_needed and isinstance(error, NoRoom):
            return
        failure = _failure_of(error)
        if not isinstance(failure, Deposed) and self._ownership.deposed():
            failure = Deposed("another process opened the journal")
        self._ownership.end(failure)
        if isinstance(error, OSError | AnabranchError):
            raise failure from error


def _failure_of(error: Exception) -> AnabranchError:
    if isinstance(error, NoRoom):  # raised for a file that holds frames, so the outcome is unknown
        return error.as_failure()
    if isinstance(error, DiskFailed | Deposed):
        return error
    return DiskFailed(f"the journal stopped: {error}")
