"""Who performs the journal's synced writes: the event loop itself, or another process.

    Journal ──write──► CommitWriter ──► disk
       ▲                    │ durable, or failed
       └──────── ended ─────┘

One write is outstanding at a time; what arrives meanwhile is the next group commit. The inline
writer answers before `write` returns, so that it costs no turn of the loop; the writer process
(`process_commits.py`) answers later, and the loop serves reads until then. Everything that has an
order (look at the fence, apply, acknowledge) stays in the journal, after the answer.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from anabranch.common.errors import AnabranchError
from anabranch.common.storage.ports import Buffer, DiskFile

Ended = Callable[[AnabranchError | OSError | None], None]
"""Told once for each write: None when it is durable, else why that is not known. Told without a
write when the writer is lost. After an error nothing is written any more."""


class CommitWriter(Protocol):
    """Performs one synced write at a time. Owned by one journal; on the event loop's thread."""

    def start(self, ended: Ended) -> None:
        """Called once, before the first write."""
        ...

    def write(self, file: DiskFile, buffers: Sequence[Buffer], offset: int) -> None:
        """Begin (and perhaps end) a synced write; the buffers are not used after the return.

        Must not be called while one is outstanding.
        """
        ...

    def close(self) -> None:
        """Write nothing more and tell nothing more; repeated is success. What is outstanding may
        still reach the disk, which no reader of the journal will notice."""
        ...


class InlineCommits:
    """Writes on the caller's thread: the fastest way where a sync is fast."""

    def __init__(self) -> None:
        self._ended: Ended

    def start(self, ended: Ended) -> None:
        """See `CommitWriter`."""
        self._ended = ended

    def write(self, file: DiskFile, buffers: Sequence[Buffer], offset: int) -> None:
        """See `CommitWriter`."""
        try:
            file.write_synced(buffers, offset)
        except (AnabranchError, OSError) as error:
            self._ended(error)
            return
        self._ended(None)

    def close(self) -> None:
        """See `CommitWriter`. Nothing is ever outstanding."""
