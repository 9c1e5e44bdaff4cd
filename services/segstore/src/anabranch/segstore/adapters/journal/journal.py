"""`DurableDataLog` over a `Disk`: one journal for all containers of a process.

A commit is: gather frames → one synced write → look at the fence → tell the sources, in order.
It is scheduled by the first `ready()` and again while frames wait; there is no timer. What
arrives while a write is outstanding is the next write. Any error ends the journal: every
source hears it once, nothing is tried again, nothing more is acknowledged.

All calls come from one thread, the event loop's. Who performs the write is a `CommitWriter`: the
inline one blocks the loop on purpose (a thread beside a busy loop is slower than a fast sync), the
writer process does not. All but frames and zeros is written inline: fences, headers, names.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from anabranch.common.errors import (
    AnabranchError,
    CorruptJournal,
    Deposed,
    DiskFailed,
    LogNotHere,
    ObjectExists,
    ObjectNotFound,
    Unavailable,
)
from anabranch.common.runtime.ids import IdSource
from anabranch.common.storage.ports import Disk
from anabranch.segstore.adapters.group import Schedule, Taken, gather
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.commits import CommitWriter, InlineCommits
from anabranch.segstore.adapters.journal.files import FileWriter, PlannedFrames, PlannedWrite
from anabranch.segstore.adapters.journal.live import LiveFiles
from anabranch.segstore.adapters.journal.reading import frame_payload, frame_payload_in
from anabranch.segstore.adapters.journal.recovery import OpenReport, Recovered, recover
from anabranch.segstore.domain.log.formats import FRAME_HEADER_SIZE_BYTES, FrameContent
from anabranch.segstore.domain.log.pinning import LiveLogFile
from anabranch.segstore.domain.log.replay import FrameEntry, continuous
from anabranch.segstore.ports import CommitWatch, FrameSource, LogAddress, ReplayedFrame

FILE_SIZE_BYTES_DEFAULT = 64 * 1024 * 1024


class JournalView:
    """`ContainerLog`: one container's part of the journal under one container epoch."""

    def __init__(
        self, journal: "Journal", container: int, container_epoch: int, source: FrameSource
    ) -> None:
        self._journal = journal
        self.container = container
        self.container_epoch = container_epoch
        self.source = source

    @property
    def log_id(self) -> str:
        return self._journal.logs()[self.container]

    def ready(self) -> None:
        self._journal.view_ready(self)

    def replay(self, after_sequence: int) -> Iterator[ReplayedFrame]:
        return self._journal.replay(self.container, after_sequence)

    def read(self, address: LogAddress) -> bytes:
        return self._journal.read(self.container, address)

    async def read_aside(self, address: LogAddress) -> bytes:
        return await self._journal.read_aside(self.container, address)

    def release(self, applied_sequence: int) -> None:
        self._journal.release(self.container, applied_sequence)

    def close(self) -> None:
        self._journal.close_view(self)


class _Unwatched:
    """`CommitWatch` for journals that nobody measures."""

    def begin(self) -> None:
        return

    def synced(self, frame_count: int, size: int) -> None:  # noqa: ARG002
        return

    def told(self) -> None:
        return


class Journal:
    """An open journal. Made by `open_journal` only."""

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
        self._in_threads = in_threads
        self._watch = watch or _Unwatched()
        self._disk = disk
        self._schedule = schedule
        self._journal_id = recovered.journal_id
        self._epoch = recovered.journal_epoch
        self.report: OpenReport = recovered.report
        self._logs = dict(recovered.logs)
        self._live = LiveFiles(recovered.files, recovered.entries, recovered.highest_epochs)
        self._views: dict[int, JournalView] = {}
        self._ready: dict[JournalView, None] = {}
        self._scheduled = False
        self._then: Callable[[], None] | None = None
        """What follows the outstanding write; None while there is none."""
        self._committing: frozenset[int] = frozenset()
        """Containers whose frames the outstanding write holds."""
        self._failure: AnabranchError | None = None
        self._commits = commits
        commits.start(self._written)
        self._writer = FileWriter(disk, self._journal_id, self._epoch, file_size, recovered.end)
        self._roll()

    # --- ports.DurableDataLog -----------------------------------------------------------------

    @property
    def journal_id(self) -> str:
        return self._journal_id

    @property
    def failure(self) -> AnabranchError | None:
        return self._failure

    def logs(self) -> Mapping[int, str]:
        return self._logs

    def create_log(self, container: int, log_id: str) -> None:
        self._check_alive()
        known = self._logs.get(container)
        if known == log_id:
            return
        if known is not None:
            raise ObjectExists(
                "the container has another log in this journal",
                container=container, log_id=known,
            )  # fmt: skip
        with _Ending(self):
            self._check_fence()
            layout.create_log(self._disk, container, log_id, f"{self._epoch:08x}")
        self._logs[container] = log_id

    def has_frames(self, container: int) -> bool:
        return self._live.has_frames(container)

    def remove_log(self, container: int) -> None:
        self._check_alive()
        assert container not in self._views, "the log is in use"
        if container in self._committing:
            raise Unavailable(
                "the last frames of the container are still being written", container=container
            )
        with _Ending(self):
            self._check_fence()
            layout.remove_log(self._disk, container, self._live.highest_epoch(container))
            self._logs.pop(container, None)
            self._live.forget(container)
            self._collect()

    def open_log(
        self, container: int, log_id: str, container_epoch: int, source: FrameSource
    ) -> JournalView:
        self._check_alive()
        if self._logs.get(container) != log_id:
            raise LogNotHere(
                "the container's log is not in this journal",
                container=container, log_id=log_id, journal=self._journal_id,
            )  # fmt: skip
        highest = self._live.highest_epoch(container)
        if container_epoch <= highest:
            raise Deposed(
                "the container was opened under this epoch or a higher one",
                container=container, container_epoch=container_epoch,
                highest=highest,
            )  # fmt: skip
        if container in self._committing:
            raise Unavailable(
                "the last frames of the container's older view are still being written",
                container=container,
            )
        self._live.take_epoch(container, container_epoch)
        older = self._views.get(container)
        view = self._views[container] = JournalView(self, container, container_epoch, source)
        if older is not None:
            self._ready.pop(older, None)
            older.source.log_failed(
                Deposed("the container was opened again", container_epoch=container_epoch)
            )
        return view

    def close(self) -> None:
        """End the journal; what waits is not written. Repeated is success."""
        self.end(Unavailable("the journal was closed"))

    # --- group commit -------------------------------------------------------------------------

    def view_ready(self, view: JournalView) -> None:
        """A view's source has operations waiting."""
        if self._failure is None and self._views.get(view.container) is view:
            self._ready[view] = None
            self._schedule_commit()

    def _schedule_commit(self) -> None:
        if not self._scheduled and self._then is None:
            self._scheduled = True
            self._schedule(self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        if self._failure is not None or self._then is not None:
            return
        with suppress(DiskFailed, Deposed), _Ending(self):  # every source is told by `end`
            taken = gather(self._ready)
            if taken:
                self._begin_commit(taken)

    def _begin_commit(self, taken: list[Taken[JournalView]]) -> None:
        self._watch.begin()
        contents = [_frame_content(item) for item in taken]
        size = sum(FRAME_HEADER_SIZE_BYTES + content.payload_size for content in contents)
        if not self._writer.has_room(size):
            self._check_fence()
            self._roll()
        frames = self._writer.plan_frames(contents)
        self._committing = frozenset(content.container for content in contents)

        def durable() -> None:
            self._commit_durable(taken, contents, frames)
            self._watch.told()

        self._write(frames.write, durable)

    def _write(self, write: PlannedWrite, then: Callable[[], None]) -> None:
        """Have it performed, and go on with `then` when it is durable, at once or later."""
        assert self._then is None, "one write is outstanding at a time"
        self._then = then
        self._commits.write(write.file, write.buffers, write.offset)

    def _written(self, error: AnabranchError | OSError | None) -> None:
        """See `commits.Ended`."""
        then, self._then = self._then, None
        self._committing = frozenset()
        if self._failure is not None:
            return
        with suppress(DiskFailed, Deposed), _Ending(self):
            if error is not None:
                raise error
            assert then is not None, "nothing was being written"
            then()
        if self._ready and self._failure is None:
            self._schedule_commit()

    def _commit_durable(
        self,
        taken: list[Taken[JournalView]],
        contents: list[FrameContent],
        frames: PlannedFrames,
    ) -> None:
        """Note what was written, look at the fence, and only then tell the sources."""
        addresses = self._note_frames(contents, frames)
        self._watch.synced(len(taken), frames.end.offset - frames.write.offset)
        self._check_fence()
        # a turn of the loop after the answers, which must not wait for it
        self._schedule(self._fill_spare)
        for item, address in zip(taken, addresses, strict=True):
            if self._views.get(item.view.container) is item.view:  # else closed meanwhile
                item.view.source.frame_durable(item.contents, address)

    def _note_frames(self, contents: list[FrameContent], frames: PlannedFrames) -> list[LogAddress]:
        self._writer.advance(frames)
        file_id = frames.end.file_id
        addresses = []
        for content, position in zip(contents, frames.positions, strict=True):
            entry = FrameEntry(
                content.container_epoch, content.first_sequence,
                content.first_sequence + content.count - 1,
                file_id, position, content.payload_size,
            )  # fmt: skip
            self._live.add(content.container, entry)
            addresses.append(LogAddress(file_id, position, content.payload_size))
        return addresses

    def _fill_spare(self) -> None:
        if self._failure is not None or self._then is not None:
            return
        with suppress(DiskFailed, Deposed), _Ending(self):
            step = self._writer.plan_fill()
            if step is not None:
                self._write(step, lambda: self._filled(step))

    def _filled(self, step: PlannedWrite) -> None:
        self._writer.filled(step)
        self._schedule(self._fill_spare)

    def _roll(self) -> None:
        former_end = self._writer.end
        self._live.begin(self._writer.roll(), former_end)

    # --- what a view asks ---------------------------------------------------------------------

    def replay(self, container: int, after_sequence: int) -> Iterator[ReplayedFrame]:
        """See `ContainerLog.replay`."""
        for entry in continuous(self._live.entries(container), after_sequence):
            address = LogAddress(entry.file_id, entry.position, entry.payload_size)
            count = entry.last_sequence - entry.first_sequence + 1
            payload = self.read(container, address)
            yield ReplayedFrame(entry.first_sequence, count, address, payload)

    def read(self, container: int, address: LogAddress) -> bytes:
        """See `ContainerLog.read`. Raises ObjectNotFound if the file was released."""
        self._check_alive()
        live = self._live.get(address.file_id)
        if live is None:
            raise _released(address)
        payload = frame_payload(live.file, container, address)
        if payload is None:
            raise _damaged(container, address)
        return payload

    async def read_aside(self, container: int, address: LogAddress) -> bytes:
        """See `ContainerLog.read_aside`. The file is opened anew, and what was read of it counts
        only if it is still live: it may have been retired, and written again, meanwhile."""
        self._check_alive()
        if self._live.get(address.file_id) is None:
            raise _released(address)
        work = partial(frame_payload_in, self._disk, container, address)
        payload = await asyncio.to_thread(work) if self._in_threads else work()
        self._check_alive()
        if self._live.get(address.file_id) is None:
            raise _released(address)
        if payload is None:
            raise _damaged(container, address)
        return payload

    def release(self, container: int, applied_sequence: int) -> None:
        """See `ContainerLog.release`."""
        self._live.release(container, applied_sequence)
        if self._failure is None:
            with _Ending(self):
                self._collect()

    def _collect(self) -> None:
        """Retire the oldest files that nobody needs, one at a time, never the present one.

        Each is durably gone before the next, so that no older file outlives a younger one.
        """
        while (live := self._live.oldest_free()) is not None:
            self._check_fence()
            self._writer.retire(live)
            self._live.remove(live)

    @property
    def live_size(self) -> int:
        """See `DurableDataLog`."""
        return self._live.size(self._writer.end)

    def live_files(self) -> Sequence[LiveLogFile]:
        """See `DurableDataLog`."""
        return self._live.facts(self._writer.end)

    def close_view(self, view: JournalView) -> None:
        """See `ContainerLog.close`."""
        self._ready.pop(view, None)
        if self._views.get(view.container) is view:
            del self._views[view.container]

    # --- the end ------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _check_fence(self) -> None:
        if not layout.fence_held(self._disk, self._epoch):
            raise Deposed("another process opened the journal", journal_epoch=self._epoch)

    def deposed(self) -> bool:
        """Whether a successor has raised its fence; a disk that cannot tell counts as no."""
        try:
            return not layout.fence_held(self._disk, self._epoch)
        except OSError:
            return False

    def end(self, failure: AnabranchError) -> None:
        """Stop for good: every open view's source hears `failure` once."""
        if self._failure is not None:
            return
        self._failure = failure
        views = list(self._views.values())
        self._views.clear()
        self._ready.clear()
        self._writer.close()
        self._live.close()
        for view in views:
            view.source.log_failed(failure)
        self._commits.close()


def _frame_content(item: Taken[JournalView]) -> FrameContent:
    contents = item.contents
    return FrameContent(
        item.view.container, item.view.container_epoch, contents.first_sequence, contents.count,
        contents.payload, contents.size,
    )  # fmt: skip


def _released(address: LogAddress) -> ObjectNotFound:
    return ObjectNotFound(
        "the journal file was released", file=layout.journal_file(address.file_id)
    )


def _damaged(container: int, address: LogAddress) -> CorruptJournal:
    return CorruptJournal(
        "a frame is damaged", container=container,
        file=layout.journal_file(address.file_id), position=address.position,
    )  # fmt: skip


class _Ending:
    """Any error inside ends the journal, and leaves as DiskFailed or Deposed.

    A programmer's error leaves as it is, after the sources were told that nothing is certain.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        failure = _failure_of(error)
        if not isinstance(failure, Deposed) and self._journal.deposed():
            failure = Deposed("another process opened the journal")
        self._journal.end(failure)
        if isinstance(error, OSError | AnabranchError):
            raise failure from error


def _failure_of(error: Exception) -> AnabranchError:
    if isinstance(error, DiskFailed | Deposed):
        return error
    return DiskFailed(f"the journal stopped: {error}")


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
    and is closed with the journal, or if it cannot be opened. `in_threads`: `read_aside` waits in
    a thread, where disk and checksums leave the event loop alone. Raises FormatTooNew (nothing
    was changed), CorruptJournal, Deposed (another opener came later), DiskFailed.
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
    except BaseException:
        commits.close()
        raise
