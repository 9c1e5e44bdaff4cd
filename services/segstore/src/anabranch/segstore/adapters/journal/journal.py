"""`DurableDataLog` over a `Disk`: one journal for all containers of a process.

Any error ends the journal: every source is notified once by `journal_failed`, nothing is retried,
and nothing more is acknowledged. The only exception is `NoRoom` while something new is created.

All calls come from one thread, the event loop's. Fences, headers and names are written inline;
`group_commit.py` describes the writing of frames and zeros.

State owned: the list of logs, the live files and the frames in them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from anabranch.common.errors import (
    AnabranchError,
    CorruptJournal,
    Deposed,
    LogNotHere,
    NoRoom,
    ObjectExists,
    ObjectNotFound,
    Unavailable,
)
from anabranch.common.runtime.ids import IdSource
from anabranch.common.storage.ports import Disk
from anabranch.segstore.adapters.group import Schedule
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.commits import CommitWriter, InlineCommits
from anabranch.segstore.adapters.journal.files import FileWriter
from anabranch.segstore.adapters.journal.group_commit import GroupCommit
from anabranch.segstore.adapters.journal.live import LiveFiles
from anabranch.segstore.adapters.journal.ownership import Ownership
from anabranch.segstore.adapters.journal.reading import (
    frame_payload,
    frame_payload_in,
    reading_threads,
)
from anabranch.segstore.adapters.journal.recovery import OpenReport, Recovered, recover
from anabranch.segstore.adapters.journal.view import JournalView
from anabranch.segstore.domain.log.pinning import LiveLogFile
from anabranch.segstore.domain.log.replay import continuous
from anabranch.segstore.domain.storage.log_choice import LogsHere
from anabranch.segstore.ports import CommitWatch, FrameSource, LogAddress, ReplayedFrame

FILE_SIZE_BYTES_DEFAULT = 64 * 1024 * 1024


class Journal:
    """An open journal. Only `open_journal` creates it."""

    def __init__(
        self,
        disk: Disk,
        recovered: Recovered,
        schedule: Schedule,
        *,
        file_size: int,
        watch: CommitWatch | None,
        commits: CommitWriter,
        in_threads: bool,
    ) -> None:
        self._threads = reading_threads() if in_threads else None
        self._disk = disk
        self._journal_id = recovered.journal_id
        self._epoch = recovered.journal_epoch
        self.report: OpenReport = recovered.report
        self._logs = dict(recovered.logs)
        self._live = LiveFiles(recovered.files, recovered.entries, recovered.highest_epochs)
        self._ownership = Ownership(disk, self._epoch, self._ended)
        self._writer = FileWriter(
            disk,
            self._journal_id,
            self._epoch,
            file_size,
            recovered.end,
            uncopied=recovered.uncopied,
        )
        self._group = GroupCommit(
            self._ownership, self._writer, self._live,
            schedule=schedule, commits=commits, watch=watch,
        )  # fmt: skip

    # --- ports.DurableDataLog -----------------------------------------------------------------

    @property
    def journal_id(self) -> str:
        return self._journal_id

    @property
    def failure(self) -> AnabranchError | None:
        return self._ownership.failure

    @property
    def bound_to_store(self) -> bool:
        return True

    def logs(self) -> Mapping[int, str]:
        """The journal's list of logs: container → log id, durable."""
        return self._logs

    def highest_epoch(self, container: int) -> int:
        """The highest container epoch under which a log of the container was opened here."""
        closed = layout.closed_epochs(self._disk).get(container, 0)
        return max(self._live.highest_epoch(container), closed)

    def oldest_sequence(self, container: int) -> int:
        """The first operation of the container's frames that were not released; 0 without one."""
        return self._live.oldest_sequence(container)

    async def find_log(self, container: int, log_id: str) -> LogsHere:  # noqa: ARG002
        return LogsHere(self._logs.get(container), self._live.has_frames(container))

    async def create_log(self, container: int, log_id: str) -> None:
        self._ownership.check_alive()
        known = self._logs.get(container)
        if known == log_id:
            return
        if known is not None:
            raise ObjectExists(
                "this journal holds another log of the container",
                container=container, log_id=known,
            )  # fmt: skip
        with self._ownership.ending(room_needed=True):
            self._ownership.check_fence()
            layout.create_log(self._disk, container, log_id, f"{self._epoch:08x}")
        self._logs[container] = log_id

    async def remove_log(self, container: int, log_id: str) -> None:  # noqa: ARG002
        self._ownership.check_alive()
        assert container not in self._group.views, "the log is in use"
        if self._group.is_writing(container):
            raise Unavailable(
                "the last frames of the container are still being written", container=container
            )
        with self._ownership.ending(room_needed=True):
            self._ownership.check_fence()
            layout.remove_log(self._disk, container, self._live.highest_epoch(container))
            self._logs.pop(container, None)
            self._live.forget(container)
            self._group.collect()

    async def open_log(
        self, container: int, log_id: str, container_epoch: int, source: FrameSource
    ) -> JournalView:
        self._ownership.check_alive()
        if self._logs.get(container) != log_id:
            raise LogNotHere(
                "the container's log is not in this journal",
                container=container, log_id=log_id, journal=self._journal_id,
            )  # fmt: skip
        highest = self._live.highest_epoch(container)
        if container_epoch <= highest:
            raise Deposed(
                "the container was already opened under this epoch or a higher one",
                container=container, container_epoch=container_epoch,
                highest=highest,
            )  # fmt: skip
        if self._group.is_writing(container):
            raise Unavailable(
                "the last frames of the container's older view are still being written",
                container=container,
            )
        self._live.take_epoch(container, container_epoch)
        older = self._group.views.get(container)
        view = self._group.views[container] = JournalView(self, container, container_epoch, source)
        if older is not None:
            self._group.forget(older)
            older.source.log_failed(
                Deposed("the container was opened again", container_epoch=container_epoch)
            )
        return view

    def close(self) -> None:
        """End the journal without writing the waiting frames; harmless to repeat."""
        self.end(Unavailable("the journal was closed"))

    def end(self, failure: AnabranchError) -> None:
        """Stop for good, and notify the source of every open view once, by `journal_failed`."""
        self._ownership.end(failure)

    # --- calls of a view ----------------------------------------------------------------------

    def view_ready(self, view: JournalView) -> None:
        """See `ContainerLog.ready`."""
        self._group.view_ready(view)

    def replay(self, container: int, after_sequence: int) -> Iterator[ReplayedFrame]:
        """See `ContainerLog.replay`."""
        for entry in continuous(self._live.entries(container), after_sequence):
            address = LogAddress(entry.file_id, entry.position, entry.payload_size)
            count = entry.last_sequence - entry.first_sequence + 1
            payload = self.read(container, address)
            yield ReplayedFrame(entry.first_sequence, count, address, payload)

    def read(self, container: int, address: LogAddress) -> bytes:
        """See `ContainerLog.read`. Raises ObjectNotFound if the file was released."""
        self._ownership.check_alive()
        live = self._live.get(address.file_id)
        if live is None:
            raise _released(address)
        payload = frame_payload(live.file, container, address)
        if payload is None:
            raise _damaged(container, address)
        return payload

    async def read_aside(self, container: int, address: LogAddress) -> bytes:
        """See `ContainerLog.read_aside`. Opens the file anew. The result counts only if the file
        is still live afterwards: it may have been retired and reused during the read."""
        self._ownership.check_alive()
        if self._live.get(address.file_id) is None:
            raise _released(address)
        work = partial(frame_payload_in, self._disk, container, address)
        try:
            payload = work() if self._threads is None else await self._threads.run(work)
        except NoRoom:  # no descriptor is left: read from the open file, and block the loop
            return self.read(container, address)
        self._ownership.check_alive()
        if self._live.get(address.file_id) is None:
            raise _released(address)
        if payload is None:
            raise _damaged(container, address)
        return payload

    async def release(self, container: int, applied_sequence: int) -> None:
        """See `ContainerLog.release`."""
        self._live.release(container, applied_sequence)
        if self._ownership.failure is None:
            with self._ownership.ending():
                self._group.collect()

    @property
    def no_room(self) -> NoRoom | None:
        """See `DurableDataLog`."""
        return self._group.no_room

    def try_again(self) -> None:
        """See `DurableDataLog`."""
        self._group.try_again()

    @property
    def live_size(self) -> int:
        """See `DurableDataLog`."""
        return self._live.size(self._writer.end)

    def live_files(self) -> Sequence[LiveLogFile]:
        """See `DurableDataLog`."""
        return self._live.facts(self._writer.end)

    def close_view(self, view: JournalView) -> None:
        """See `ContainerLog.close`."""
        self._group.forget(view)
        if self._group.views.get(view.container) is view:
            del self._group.views[view.container]

    def _ended(self, failure: AnabranchError) -> None:
        self._writer.close()
        self._live.close()
        self._group.end(failure)


def _released(address: LogAddress) -> ObjectNotFound:
    return ObjectNotFound(
        "the journal file was released", file=layout.journal_file(address.file_id)
    )


def _damaged(container: int, address: LogAddress) -> CorruptJournal:
    return CorruptJournal(
        "a frame is damaged", container=container,
        file=layout.journal_file(address.file_id), position=address.position,
    )  # fmt: skip


def open_journal(
    disk: Disk,
    *,
    ids: IdSource,
    schedule: Schedule,
    file_size: int = FILE_SIZE_BYTES_DEFAULT,
    watch: CommitWatch | None = None,
    commits: CommitWriter | None = None,
    in_threads: bool = False,
) -> Journal:
    """Open (or initialise) the journal in `disk` as its only owner from now on.

    `file_size` in bytes; `watch` measures the commits; `commits` performs them (default: inline),
    and is closed with the journal, or if the open fails. `in_threads`: `read_aside` uses a thread,
    so that reads and checksums do not block the event loop. Raises FormatTooNew (without a change),
    CorruptJournal, Deposed (another opener came later), DiskFailed.
    """
    commits = commits or InlineCommits()
    try:
        return Journal(
            disk,
            recover(disk, ids.new_id()),
            schedule,
            file_size=file_size,
            watch=watch,
            commits=commits,
            in_threads=in_threads,
        )
    except NoRoom as error:
        commits.close()
        raise error.as_failure() from error
    except BaseException:
        commits.close()
        raise
