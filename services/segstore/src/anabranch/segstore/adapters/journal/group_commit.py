"""Group commit: one synced write for all frames that wait in the containers.

A commit gathers frames, writes them with one sync, checks the fence, and notifies the sources, in
this order. The first `ready()` schedules it, and it repeats while frames wait; there is no timer.
Frames that arrive while a write is outstanding form the next one.

*No room.* Frames that do not fit into the present file wait for the next file. If it cannot be
created, because the disk is full or no file descriptor is left, `no_room` holds the error, and
`try_again` is called from time to time. Nothing was written then, so no outcome is unknown: the
gathered frames are kept and written first. In contrast, a failed write or sync of frames ends the
journal.

A `CommitWriter` performs the write. The inline one blocks the loop on purpose (a thread beside a
busy loop is slower than a fast sync); the writer process does not. State owned: the views that have
frames waiting, and the one outstanding write with its continuation.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from anabranch.common.errors import AnabranchError, Deposed, DiskFailed, NoRoom
from anabranch.segstore.adapters.group import Schedule, Taken, gather
from anabranch.segstore.adapters.journal.commits import CommitWriter
from anabranch.segstore.adapters.journal.files import FileWriter, PlannedFrames, PlannedWrite
from anabranch.segstore.adapters.journal.live import LiveFiles
from anabranch.segstore.adapters.journal.ownership import Ownership
from anabranch.segstore.adapters.journal.view import JournalView
from anabranch.segstore.domain.log.formats import FRAME_HEADER_SIZE_BYTES, FrameContent
from anabranch.segstore.domain.log.replay import FrameEntry
from anabranch.segstore.ports import CommitWatch, LogAddress

_TOLD = suppress(DiskFailed, Deposed)
"""Around what may end the journal, which notifies the sources by itself."""


class _Unwatched:
    """`CommitWatch` for journals that are not measured."""

    def begin(self) -> None:
        return

    def synced(self, frame_count: int, size: int) -> None:  # noqa: ARG002
        return

    def told(self) -> None:
        return


class GroupCommit:
    """The commits of one journal. `views`: the open view of each container, by number."""

    def __init__(
        self,
        ownership: Ownership,
        writer: FileWriter,
        live: LiveFiles,
        *,
        schedule: Schedule,
        commits: CommitWriter,
        watch: CommitWatch | None,
    ) -> None:
        self._ownership = ownership
        self._writer = writer
        self._live = live
        self._schedule = schedule
        self._commits = commits
        self._watch = watch or _Unwatched()
        self.views: dict[int, JournalView] = {}
        self._ready: dict[JournalView, None] = {}
        self._scheduled = False
        self._then: Callable[[], None] | None = None
        """The continuation of the outstanding write; None without one."""
        self._committing: frozenset[int] = frozenset()
        self._held: list[Taken[JournalView]] = []
        """Frames that were taken from their sources, and wait for the next file."""
        self.no_room: NoRoom | None = None
        """The error for which the waiting frames have no file."""
        commits.start(self._written)
        self._begin_next_file()

    def is_writing(self, container: int) -> bool:
        """Whether the outstanding write holds frames of the container."""
        return container in self._committing

    # --- views --------------------------------------------------------------------------------

    def view_ready(self, view: JournalView) -> None:
        """Schedule a commit, because the view's source has operations waiting."""
        if self._ownership.failure is None and self.views.get(view.container) is view:
            self._ready[view] = None
            self._schedule_commit()

    def forget(self, view: JournalView) -> None:
        """Take no more frames from the view, and drop those whose write has not begun."""
        self._ready.pop(view, None)
        self._held = [item for item in self._held if item.view is not view]

    def end(self, failure: AnabranchError) -> None:
        """Notify the source of every open view of `failure`."""
        views = list(self.views.values())
        self.views.clear()
        self._ready.clear()
        self._held.clear()
        for view in views:
            view.source.journal_failed(failure)
        self._commits.close()

    # --- one commit ---------------------------------------------------------------------------

    def _schedule_commit(self) -> None:
        if not self._scheduled and self._then is None:
            self._scheduled = True
            self._schedule(self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        if self._ownership.failure is not None or self._then is not None or self.no_room:
            return
        with _TOLD, self._ownership.ending():
            taken, self._held = self._held, []
            if not taken:
                taken = gather(self._ready)
            if taken:
                self._begin_commit(taken)

    def _begin_commit(self, taken: list[Taken[JournalView]]) -> None:
        contents = [_frame_content(item) for item in taken]
        size = sum(FRAME_HEADER_SIZE_BYTES + content.payload_size for content in contents)
        if not self._writer.has_room(size):
            self._held = taken
            if not self._begin_next_file():
                return
            self._held = []
        self._watch.begin()
        frames = self._writer.plan_frames(contents)
        self._committing = frozenset(content.container for content in contents)

        def durable() -> None:
            self._commit_durable(taken, contents, frames)
            self._watch.told()

        self._write(frames.write, durable)

    def _write(self, write: PlannedWrite, then: Callable[[], None]) -> None:
        """Perform the write, and call `then` when it is durable, at once or later."""
        assert self._then is None, "one write is outstanding at a time"
        self._then = then
        self._commits.write(write.file, write.buffers, write.offset)

    def _written(self, error: AnabranchError | OSError | None) -> None:
        """See `commits.Ended`."""
        then, self._then = self._then, None
        self._committing = frozenset()
        if self._ownership.failure is not None:
            return
        with _TOLD, self._ownership.ending():
            if error is not None:
                raise error
            assert then is not None, "nothing was being written"
            then()
        if (self._ready or self._held) and self._ownership.failure is None:
            self._schedule_commit()

    def _commit_durable(
        self,
        taken: list[Taken[JournalView]],
        contents: list[FrameContent],
        frames: PlannedFrames,
    ) -> None:
        """Record the written frames, check the fence, and only then notify the sources."""
        addresses = list(self._note_frames(contents, frames))
        self._watch.synced(len(taken), frames.end.offset - frames.write.offset)
        self._ownership.check_fence()
        for item, address in zip(taken, addresses, strict=True):
            if self.views.get(item.view.container) is item.view:  # it may have been closed
                item.view.source.frame_durable(item.contents, address)
        if self._writer.wants_preparing:  # in the next turn of the loop: no answer waits for it
            self._schedule(self._prepare)

    def _note_frames(
        self, contents: list[FrameContent], frames: PlannedFrames
    ) -> Iterator[LogAddress]:
        self._writer.advance(frames)
        file_id = frames.end.file_id
        for content, position in zip(contents, frames.positions, strict=True):
            entry = FrameEntry(
                content.container_epoch, content.first_sequence,
                content.first_sequence + content.count - 1,
                file_id, position, content.payload_size,
            )  # fmt: skip
            self._live.add(content.container, entry)
            yield LogAddress(file_id, position, content.payload_size)

    # --- files --------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make the file after the present one, because the disk may be full when it is needed, and
        write zeros ahead of small commits."""
        if self._ownership.failure is not None or self._then is not None:
            return
        with _TOLD, self._ownership.ending():
            with suppress(NoRoom):
                self._writer.make_spare()
            zeros = self._writer.plan_zeros()
            if zeros is not None:
                self._write(zeros, lambda: self._writer.filled(zeros))

    def try_again(self) -> None:
        """Check whether there is room by now; does nothing if none was missing."""
        if self._ownership.failure is not None:
            return
        if self.no_room is None and self._writer.has_spare:
            return
        with _TOLD, self._ownership.ending():
            self._retire_free()
            self._look_for_room()

    def collect(self) -> None:
        """Retire the files that no container needs, after a release, and use their room if it was
        missing. `Ownership.ending` must surround it."""
        if self._retire_free():
            self._look_for_room()

    def _look_for_room(self) -> None:
        if self._then is not None:
            return
        if self.no_room is None:
            self._prepare()
        elif self._begin_next_file():
            self._schedule_commit()

    def _retire_free(self) -> bool:
        """Retire the oldest files that no container needs, one at a time; False if there are none.

        The present file is never retired. The oldest file that remains is recorded first. Each file
        is durably gone before the next one is retired, so that no older file outlives a younger
        one.
        """
        free = self._live.oldest_free()
        if not free:
            return False
        self._ownership.check_fence()
        try:
            self._writer.note_oldest(self._live.next_id(free[-1]))
        except NoRoom:
            return False  # the next release, file or attempt repeats it
        for live in free:
            self._ownership.check_fence()
            self._writer.retire(live)
            self._live.remove(live)
        return True

    def _begin_next_file(self) -> bool:
        """Continue in the next file; False if there is no room for it.

        The former file may be one that no container needs: its last frame may have been released
        while it was the present one. No later release would then retire it.
        """
        self._ownership.check_fence()
        try:
            self._writer.prepare_next()
        except NoRoom as error:
            self.no_room = error
            return False
        former_end = self._writer.end
        self._live.begin(self._writer.roll(self._live.oldest_id), former_end)
        self.no_room = None
        self._retire_free()
        return True


def _frame_content(item: Taken[JournalView]) -> FrameContent:
    contents = item.contents
    return FrameContent(
        item.view.container, item.view.container_epoch, contents.first_sequence, contents.count,
        contents.payload, contents.size,
    )  # fmt: skip
