"""`DurableDataLog` in memory: the same rules without a disk, for ephemeral stores and tests.

Written frames live as long as their `MemoryFrames`. A second `MemoryLog` over them deposes the
first, as a second opener of a journal's directory would.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.common.errors import (
    AnabranchError,
    Deposed,
    LogNotHere,
    ObjectExists,
    ObjectNotFound,
    Unavailable,
)
from anabranch.segstore.adapters.group import Schedule, gather
from anabranch.segstore.domain.log.pinning import LiveLogFile
from anabranch.segstore.domain.log.replay import FrameEntry, continuous
from anabranch.segstore.domain.storage.log_choice import LogsHere
from anabranch.segstore.ports import FrameSource, LogAddress, ReplayedFrame


@dataclass(slots=True)
class MemoryFrames:
    """The contents that a journal would hold on disk. `owner` counts the openings."""

    journal_id: str
    owner: int = 0
    logs: dict[int, str] = field(default_factory=dict)
    payloads: dict[int, bytes] = field(default_factory=dict)
    entries: dict[int, deque[FrameEntry]] = field(default_factory=dict)
    next_position: int = 1


class MemoryView:
    """`ContainerLog` of one container."""

    def __init__(
        self, log: "MemoryLog", container: int, container_epoch: int, source: FrameSource
    ) -> None:
        self._log = log
        self.container = container
        self.container_epoch = container_epoch
        self.source = source

    @property
    def log_id(self) -> str:
        return self._log.logs()[self.container]

    def ready(self) -> None:
        self._log.view_ready(self)

    async def replay(self, after_sequence: int) -> AsyncIterator[ReplayedFrame]:
        for frame in self._log.replay(self.container, after_sequence):
            yield frame

    async def read_aside(self, address: LogAddress) -> bytes:
        return self._log.read(address)

    async def release(self, applied_sequence: int) -> None:
        await self._log.release(self.container, applied_sequence)

    def close(self) -> None:
        self._log.close_view(self)


class MemoryLog:
    """An open log. All calls come from the event loop's thread."""

    def __init__(self, frames: MemoryFrames, schedule: Schedule) -> None:
        self._kept = frames
        self._schedule = schedule
        frames.owner += 1
        self._owner = frames.owner
        self._views: dict[int, MemoryView] = {}
        self._epochs: dict[int, int] = {
            container: max((entry.container_epoch for entry in entries), default=0)
            for container, entries in frames.entries.items()
        }
        self._ready: dict[MemoryView, None] = {}
        self._scheduled = False
        self._failure: AnabranchError | None = None

    @property
    def journal_id(self) -> str:
        return self._kept.journal_id

    @property
    def failure(self) -> AnabranchError | None:
        return self._failure

    @property
    def bound_to_store(self) -> bool:
        """See `DurableDataLog`."""
        return True

    def logs(self) -> Mapping[int, str]:
        """Container → log id."""
        return self._kept.logs

    def highest_epoch(self, container: int) -> int:
        """The highest container epoch under which a log of the container was opened here."""
        return self._epochs.get(container, 0)

    def oldest_sequence(self, container: int) -> int:
        """The first operation of the container's frames that were not released; 0 without one."""
        entries = self._kept.entries.get(container)
        return entries[0].first_sequence if entries else 0

    async def find_log(self, container: int, log_id: str) -> LogsHere:  # noqa: ARG002
        """See `DurableDataLog`."""
        return LogsHere(self._kept.logs.get(container), bool(self._kept.entries.get(container)))

    async def create_log(self, container: int, log_id: str) -> None:
        self._check_owned()
        known = self._kept.logs.setdefault(container, log_id)
        if known != log_id:
            raise ObjectExists(
                "this store holds another log of the container", container=container, log_id=known
            )

    async def remove_log(self, container: int, log_id: str) -> None:  # noqa: ARG002
        self._check_owned()
        assert container not in self._views, "the log is in use"
        self._kept.logs.pop(container, None)
        for entry in self._kept.entries.pop(container, deque()):
            del self._kept.payloads[entry.position]

    async def open_log(
        self, container: int, log_id: str, container_epoch: int, source: FrameSource
    ) -> MemoryView:
        self._check_owned()
        if self._kept.logs.get(container) != log_id:
            raise LogNotHere(
                "this store does not hold the container's log", container=container, log_id=log_id
            )
        if container_epoch <= self._epochs.get(container, 0):
            raise Deposed(
                "the container was already opened under this epoch or a higher one",
                container=container, container_epoch=container_epoch,
            )  # fmt: skip
        self._epochs[container] = container_epoch
        older = self._views.get(container)
        view = self._views[container] = MemoryView(self, container, container_epoch, source)
        if older is not None:
            self._ready.pop(older, None)
            older.source.log_failed(
                Deposed("the container was opened again", container_epoch=container_epoch)
            )
        return view

    @property
    def no_room(self) -> AnabranchError | None:
        """See `DurableDataLog`: there is always room."""
        return None

    def try_again(self) -> None:
        """See `DurableDataLog`."""

    @property
    def live_size(self) -> int:
        """An open reads nothing."""
        return 0

    def live_files(self) -> Sequence[LiveLogFile]:
        """There are no files."""
        return ()

    def close(self) -> None:
        """End the log without keeping the waiting frames; harmless to repeat."""
        self._end(Unavailable("the log was closed"))

    def view_ready(self, view: MemoryView) -> None:
        """Schedule a commit, because the view's source has operations waiting."""
        if self._failure is None and self._views.get(view.container) is view:
            self._ready[view] = None
            if not self._scheduled:
                self._scheduled = True
                self._schedule(self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        try:
            self._check_owned()
        except AnabranchError as error:
            self._end(error)
            return
        for taken in gather(self._ready):
            view, contents = taken.view, taken.contents
            position = self._kept.next_position
            self._kept.next_position += 1
            self._kept.payloads[position] = b"".join(contents.payload)
            entry = FrameEntry(
                view.container_epoch, contents.first_sequence,
                contents.first_sequence + contents.count - 1, 0, position, contents.size,
            )  # fmt: skip
            self._kept.entries.setdefault(view.container, deque()).append(entry)
            view.source.frame_durable(contents, LogAddress(0, position, contents.size))
        for view in list(self._ready):
            self.view_ready(view)

    def replay(self, container: int, after_sequence: int) -> Iterator[ReplayedFrame]:
        """See `ContainerLog.replay`."""
        for entry in continuous(list(self._kept.entries.get(container, ())), after_sequence):
            address = LogAddress(0, entry.position, entry.payload_size)
            count = entry.last_sequence - entry.first_sequence + 1
            yield ReplayedFrame(entry.first_sequence, count, address, self.read(address))

    def read(self, address: LogAddress) -> bytes:
        """See `ContainerLog.read`. Raises ObjectNotFound for a released frame."""
        payload = self._kept.payloads.get(address.position)
        if payload is None:
            raise ObjectNotFound("the frame was released", position=address.position)
        return payload

    async def release(self, container: int, applied_sequence: int) -> None:
        """See `ContainerLog.release`."""
        entries = self._kept.entries.get(container, deque())
        while entries and entries[0].last_sequence <= applied_sequence:
            del self._kept.payloads[entries.popleft().position]

    def close_view(self, view: MemoryView) -> None:
        """See `ContainerLog.close`."""
        self._ready.pop(view, None)
        if self._views.get(view.container) is view:
            del self._views[view.container]

    def _check_owned(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._kept.owner != self._owner:
            raise Deposed("the log was opened again")

    def _end(self, failure: AnabranchError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        views = list(self._views.values())
        self._views.clear()
        self._ready.clear()
        for view in views:
            view.source.journal_failed(failure)
