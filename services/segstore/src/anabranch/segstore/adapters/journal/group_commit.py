"""Group commit: what the containers have waiting goes to the disk in one synced write.

A commit is: gather frames → one synced write → look at the fence → tell the sources, in order.
It is scheduled by the first `ready()` and again while frames wait; there is no timer. What
arrives while a write is outstanding is the next write.

Who performs the write is a `CommitWriter`: the inline one blocks the loop on purpose (a thread
beside a busy loop is slower than a fast sync), the writer process does not. State owned: the views
that have frames waiting, and the one outstanding write with what follows it.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from anabranch.common.errors import AnabranchError, Deposed, DiskFailed
from anabranch.segstore.adapters.group import Schedule, Taken, gather
from anabranch.segstore.adapters.journal.commits import CommitWriter
from anabranch.segstore.adapters.journal.files import FileWriter, PlannedFrames, PlannedWrite
from anabranch.segstore.adapters.journal.live import LiveFiles
from anabranch.segstore.adapters.journal.ownership import Ownership
from anabranch.segstore.adapters.journal.view import JournalView
from anabranch.segstore.domain.log.formats import FRAME_HEADER_SIZE_BYTES, FrameContent
from anabranch.segstore.domain.log.replay import FrameEntry
from anabranch.segstore.ports import CommitWatch, LogAddress


class _Unwatched:
    """`CommitWatch` for journals that nobody measures."""

    def begin(self) -> None:
        return

    def synced(self, frame_count: int, size: int) -> None:  # noqa: ARG002
        return

    def told(self) -> None:
        return


class GroupCommit:
    """The commits of one journal. `views`: the present view of each container, by number."""

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
        """What follows the outstanding write; None while there is none."""
        self._committing: frozenset[int] = frozenset()
        commits.start(self._written)
        self.roll()

    def is_writing(self, container: int) -> bool:
        """Whether the outstanding write holds frames of the container."""
        return container in self._committing

    # --- views --------------------------------------------------------------------------------

    def view_ready(self, view: JournalView) -> None:
        """A view's source has operations waiting."""
        if self._ownership.failure is None and self.views.get(view.container) is view:
            self._ready[view] = None
            self._schedule_commit()

    def forget(self, view: JournalView) -> None:
        """Nothing more is taken from the view."""
        self._ready.pop(view, None)

    def end(self, failure: AnabranchError) -> None:
        """Every open view's source hears `failure`."""
        views = list(self.views.values())
        self.views.clear()
        self._ready.clear()
        for view in views:
            view.source.log_failed(failure)
        self._commits.close()

    # --- one commit ---------------------------------------------------------------------------

    def _schedule_commit(self) -> None:
        if not self._scheduled and self._then is None:
            self._scheduled = True
            self._schedule(self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        if self._ownership.failure is not None or self._then is not None:
            return
        with suppress(DiskFailed, Deposed), self._ownership.ending():  # `end` tells every source
            taken = gather(self._ready)
            if taken:
                self._begin_commit(taken)

    def _begin_commit(self, taken: list[Taken[JournalView]]) -> None:
        self._watch.begin()
        contents = [_frame_content(item) for item in taken]
        size = sum(FRAME_HEADER_SIZE_BYTES + content.payload_size for content in contents)
        if not self._writer.has_room(size):
            self._ownership.check_fence()
            self.roll()
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
        if self._ownership.failure is not None:
            return
        with suppress(DiskFailed, Deposed), self._ownership.ending():
            if error is not None:
                raise error
            assert then is not None, "nothing was being written"
            then()
        if self._ready and self._ownership.failure is None:
            self._schedule_commit()

    def _commit_durable(
        self,
        taken: list[Taken[JournalView]],
        contents: list[FrameContent],
        frames: PlannedFrames,
    ) -> None:
        """Note what was written, look at the fence, and only then tell the sources."""
        addresses = list(self._note_frames(contents, frames))
        self._watch.synced(len(taken), frames.end.offset - frames.write.offset)
        self._ownership.check_fence()
        # a turn of the loop after the answers, which must not wait for it
        self._schedule(self._fill_spare)
        for item, address in zip(taken, addresses, strict=True):
            if self.views.get(item.view.container) is item.view:  # else closed meanwhile
                item.view.source.frame_durable(item.contents, address)

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

    def _fill_spare(self) -> None:
        if self._ownership.failure is not None or self._then is not None:
            return
        with suppress(DiskFailed, Deposed), self._ownership.ending():
            step = self._writer.plan_fill()
            if step is not None:
                self._write(step, lambda: self._filled(step))

    def _filled(self, step: PlannedWrite) -> None:
        self._writer.filled(step)
        self._schedule(self._fill_spare)

    def roll(self) -> None:
        """Go on in the next file."""
        former_end = self._writer.end
        self._live.begin(self._writer.roll(), former_end)


def _frame_content(item: Taken[JournalView]) -> FrameContent:
    contents = item.contents
    return FrameContent(
        item.view.container, item.view.container_epoch, contents.first_sequence, contents.count,
        contents.payload, contents.size,
    )  # fmt: skip
