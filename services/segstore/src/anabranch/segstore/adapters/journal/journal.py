"""`DurableDataLog` over a `Disk`: one journal for all containers of a process.

A commit is: gather frames → one synced write → look at the fence → tell the sources, in order.
It is scheduled by the first `ready()` and again while frames wait; there is no timer. What
arrives while a write is being synced is the next write. Any error ends the journal: every
source hears it once, nothing is tried again, nothing more is acknowledged.

All calls come from one thread, the event loop's; the writes block it on purpose (a thread
beside a busy loop is slower than the sync itself).
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
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
from anabranch.segstore.adapters.journal.files import FileWriter, LiveFile
from anabranch.segstore.adapters.journal.reading import frame_payload, frame_payload_in
from anabranch.segstore.adapters.journal.recovery import OpenReport, Recovered, recover
from anabranch.segstore.domain.log.formats import FRAME_HEADER_SIZE_BYTES, FrameContent
from anabranch.segstore.domain.log.replay import FrameEntry, continuous
from anabranch.segstore.ports import CommitWatch, FrameSource, LogAddress, ReplayedFrame

FILE_SIZE_BYTES_DEFAULT = 64 * 1024 * 1024


class _ContainerFrames:
    """What the journal knows of one container: frames not yet released, and marks."""

    __slots__ = ("entries", "highest_epoch", "last_sequence", "released_sequence")

    def __init__(self, entries: list[FrameEntry], highest_epoch: int) -> None:
        self.entries = deque(entries)
        self.highest_epoch = highest_epoch
        self.last_sequence = entries[-1].last_sequence if entries else 0
        self.released_sequence = 0


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
        self._files: dict[int, LiveFile] = {file.file_id: file for file in recovered.files}
        self._frames = {
            container: _ContainerFrames(entries, recovered.highest_epochs[container])
            for container, entries in recovered.entries.items()
        }
        self._views: dict[int, JournalView] = {}
        self._ready: dict[JournalView, None] = {}
        self._scheduled = False
        self._failure: AnabranchError | None = None
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

    def open_log(
        self, container: int, log_id: str, container_epoch: int, source: FrameSource
    ) -> JournalView:
        self._check_alive()
        if self._logs.get(container) != log_id:
            raise LogNotHere(
                "the container's log is not in this journal",
                container=container, log_id=log_id, journal=self._journal_id,
            )  # fmt: skip
        frames = self._frames.setdefault(container, _ContainerFrames([], 0))
        if container_epoch <= frames.highest_epoch:
            raise Deposed(
                "the container was opened under this epoch or a higher one",
                container=container, container_epoch=container_epoch,
                highest=frames.highest_epoch,
            )  # fmt: skip
        frames.highest_epoch = container_epoch
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
        if not self._scheduled:
            self._scheduled = True
            self._schedule(self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        if self._failure is not None:
            return
        try:
            self._commit_once()
        except (DiskFailed, Deposed):
            return  # every source was told by `end`
        if self._ready and self._failure is None:
            self._schedule_commit()

    def _commit_once(self) -> None:
        with _Ending(self):
            taken = gather(self._ready)
            if not taken:
                return
            self._watch.begin()
            addresses = self._write(taken)
            size = sum(FRAME_HEADER_SIZE_BYTES + found.payload_size for found in addresses)
            self._watch.synced(len(taken), size)
            self._check_fence()
            for item, address in zip(taken, addresses, strict=True):
                item.view.source.frame_durable(item.contents, address)
        self._watch.told()
        self._schedule(self._fill_spare)

    def _fill_spare(self) -> None:
        """A turn of the loop after the commit, whose answers must not wait for it."""
        if self._failure is not None:
            return
        with suppress(DiskFailed, Deposed), _Ending(self):
            self._writer.fill_spare()

    def _write(self, taken: list[Taken[JournalView]]) -> list[LogAddress]:
        contents = [_frame_content(item) for item in taken]
        size = sum(FRAME_HEADER_SIZE_BYTES + content.payload_size for content in contents)
        if not self._writer.has_room(size):
            self._check_fence()
            self._roll()
        positions = self._writer.write(contents)
        file_id = self._writer.file_id
        last_sequences = self._files[file_id].last_sequences
        addresses = []
        for content, position in zip(contents, positions, strict=True):
            entry = FrameEntry(
                content.container_epoch, content.first_sequence,
                content.first_sequence + content.count - 1,
                file_id, position, content.payload_size,
            )  # fmt: skip
            frames = self._frames[content.container]
            assert frames.last_sequence in (0, content.first_sequence - 1), "a gap in a log"
            frames.last_sequence = entry.last_sequence
            frames.entries.append(entry)
            last_sequences[content.container] = entry.last_sequence
            addresses.append(LogAddress(file_id, position, content.payload_size))
        return addresses

    def _roll(self) -> None:
        live = self._writer.roll()
        self._files[live.file_id] = live

    # --- what a view asks ---------------------------------------------------------------------

    def replay(self, container: int, after_sequence: int) -> Iterator[ReplayedFrame]:
        """See `ContainerLog.replay`."""
        entries = list(self._frames[container].entries)
        for entry in continuous(entries, after_sequence):
            address = LogAddress(entry.file_id, entry.position, entry.payload_size)
            count = entry.last_sequence - entry.first_sequence + 1
            payload = self.read(container, address)
            yield ReplayedFrame(entry.first_sequence, count, address, payload)

    def read(self, container: int, address: LogAddress) -> bytes:
        """See `ContainerLog.read`. Raises ObjectNotFound if the file was released."""
        self._check_alive()
        live = self._files.get(address.file_id)
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
        if address.file_id not in self._files:
            raise _released(address)
        work = partial(frame_payload_in, self._disk, container, address)
        payload = await asyncio.to_thread(work) if self._in_threads else work()
        self._check_alive()
        if address.file_id not in self._files:
            raise _released(address)
        if payload is None:
            raise _damaged(container, address)
        return payload

    def release(self, container: int, applied_sequence: int) -> None:
        """See `ContainerLog.release`."""
        frames = self._frames[container]
        frames.released_sequence = max(frames.released_sequence, applied_sequence)
        while frames.entries and frames.entries[0].last_sequence <= applied_sequence:
            frames.entries.popleft()
        if self._failure is None:
            with _Ending(self):
                self._collect()

    def _collect(self) -> None:
        """Retire the oldest files that nobody needs, one at a time, never the present one.

        Each is durably gone before the next, so that no older file outlives a younger one.
        """
        for file_id, live in list(self._files.items()):
            if file_id == self._writer.file_id or not self._applied(live):
                return
            self._check_fence()
            self._writer.retire(live)
            del self._files[file_id]

    def _applied(self, live: LiveFile) -> bool:
        return all(
            self._frames[container].released_sequence >= last
            for container, last in live.last_sequences.items()
        )

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
        for live in self._files.values():
            live.file.close()
        self._files.clear()
        for view in views:
            view.source.log_failed(failure)


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
    in_threads: bool = False,
) -> Journal:
    """Open (or initialise) the journal in `disk` as its only owner from now on.

    `file_size` in bytes; `watch` measures the commits. `in_threads`: `read_aside` waits in a
    thread, where disk and checksums leave the event loop alone. Raises FormatTooNew (nothing was
    changed), CorruptJournal, Deposed (another opener came later), DiskFailed.
    """
    recovered = recover(disk, ids.new_id())
    return Journal(
        disk, recovered, schedule, file_size=file_size, watch=watch, in_threads=in_threads
    )
