"""The performers of the journal's synced writes: the event loop itself, or another process.

    Journal ──write──► CommitWriter ──► disk
       ▲                    │ durable, or failed
       └──────── ended ─────┘

One write is outstanding at a time; operations that arrive meanwhile form the next group commit. The
inline writer answers before `write` returns, which saves a turn of the loop. The writer process
(`process_commits.py`) answers later, and the loop serves reads until then. The steps whose order
matters (check the fence, apply, acknowledge) stay in the journal, after the answer.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from anabranch.common.errors import AnabranchError
from anabranch.common.storage.ports import Buffer, DiskFile

Ended = Callable[[AnabranchError | OSError | None], None]
"""Called once for each write: with None when it is durable, else with the error that leaves this
unknown. Called without a write if the writer is lost. After an error no further write begins."""


class CommitWriter(Protocol):
    """Performs one synced write at a time. Owned by one journal; on the event loop's thread."""

    def start(self, ended: Ended) -> None:
        """Set the callback, once, before the first write."""
        ...

    def write(self, file: DiskFile, buffers: Sequence[Buffer], offset: int) -> None:
        """Begin (and perhaps end) a synced write; the buffers are not used after the return.

        Must not be called while another write is outstanding.
        """
        ...

    def close(self) -> None:
        """Begin no write and call nothing back from now on; harmless to repeat. The outstanding
        write may still reach the disk, without effect for any reader of the journal."""
        ...


class InlineCommits:
    """Writes on the caller's thread, which is fastest if syncs are fast."""

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
