"""A writer process as the simulation sees it: the write happens later, the answer later still."""

from collections.abc import Callable, Sequence

from anabranch.common.errors import AnabranchError
from anabranch.common.storage.ports import Buffer, DiskFile
from anabranch.segstore.adapters.group import Schedule
from anabranch.segstore.adapters.journal.commits import Ended

Write = Callable[[], None]


class DeferredCommits:
    """`CommitWriter`: performs each write, and tells of it, in turns of their own.

    `later` schedules both; one that keeps them lets a test decide when the child gets to it.
    """

    def __init__(self, later: Schedule) -> None:
        self._later = later
        self._ended: Ended
        self.outstanding = 0
        self.closed = False
        self.requested: tuple[DiskFile, bytes, int] | None = None
        """File, bytes and offset of the write that was asked for last."""

    def start(self, ended: Ended) -> None:
        """See `CommitWriter`."""
        self._ended = ended

    def write(self, file: DiskFile, buffers: Sequence[Buffer], offset: int) -> None:
        """See `CommitWriter`. The bytes are copied, as into shared memory."""
        assert not self.closed
        self.outstanding += 1
        assert self.outstanding == 1, "a second write was begun before the first one ended"
        data = b"".join(buffers)
        self.requested = (file, data, offset)
        self._later(lambda: self._perform(file, data, offset))

    def _perform(self, file: DiskFile, data: bytes, offset: int) -> None:
        """In the child; it does so even if its parent gave up."""
        error: AnabranchError | OSError | None = None
        try:
            file.write_synced([data], offset)
        except (AnabranchError, OSError) as caught:
            error = caught
        self._later(lambda: self._answer(error))

    def _answer(self, error: AnabranchError | OSError | None) -> None:
        if not self.closed:
            self.outstanding -= 1
            self._ended(error)

    def close(self) -> None:
        """See `CommitWriter`."""
        self.closed = True
