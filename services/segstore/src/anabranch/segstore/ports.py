"""Ports of the segment store. Each has a conformance suite that every adapter passes.

    DurableDataLog    tier 1: one journal per process, one `ContainerLog` view per container
    TierTwo           a container's catalog and extents in tier 2, over the shared ChunkStorage

`Disk` and `ChunkStorage` are in `anabranch.common.storage.ports`. Errors of the operating system
surface as `DiskFailed` (writes, syncs) or OSError (the rest).
"""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import NoReturn, Protocol

from msgspec import Struct

from anabranch.common.errors import AnabranchError
from anabranch.common.model.cluster import Abandonment, VoidLogs
from anabranch.common.storage.ports import Buffer
from anabranch.common.tier2.manifest import LogBinding
from anabranch.common.tier2.state import (
    ChunkRef,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterMark,
)
from anabranch.segstore.domain.container.state import ContainerCut
from anabranch.segstore.domain.log.pinning import LiveLogFile
from anabranch.segstore.domain.storage.log_choice import LogsHere


class LogAddress(Struct, frozen=True, gc=False):
    """The place of a frame: file, byte position of the frame's header, size of the payload."""

    file_id: int
    position: int
    payload_size: int


class FrameContents(Struct, frozen=True):
    """`count` whole operations from `first_sequence` on, encoded, ready to be framed.

    `more`: further operations may wait behind them.
    """

    first_sequence: int
    count: int
    payload: Sequence[Buffer]
    size: int
    more: bool = True


@dataclass(frozen=True, slots=True)
class ReplayedFrame:
    """A frame found at open, checksum verified."""

    first_sequence: int
    count: int
    address: LogAddress
    payload: bytes


class FrameSource(Protocol):
    """A container as its log sees it. All calls come from the event loop's thread."""

    def take_frame(self, size_max: int) -> FrameContents | None:
        """The next pending operations that fit; None if none waits.

        The frame is larger than `size_max` if the first operation is, or the group of operations
        that it begins, which one frame must hold. The log keeps every frame as a whole.
        """
        ...

    def frame_durable(self, contents: FrameContents, address: LogAddress) -> None:
        """Apply and acknowledge: the frame is synced, and the journal still owns its directory.

        Called once per taken frame, in the order taken. It is not called after the view was closed
        or the log or the journal failed.
        """
        ...

    def log_failed(self, error: AnabranchError) -> None:
        """End the container, because its log failed; the other containers continue.

        No taken or waiting operation becomes durable through this view; acknowledge nothing more.
        Called at most once, and then never `journal_failed`.
        """
        ...

    def journal_failed(self, error: AnabranchError) -> None:
        """End the container and the store, because the journal failed for all containers.

        Otherwise like `log_failed`.
        """
        ...


class CommitWatch(Protocol):
    """An observer that measures group commits. Called in turn, from the event loop's thread."""

    def begin(self) -> None:
        """The write of a group commit begins."""
        ...

    def synced(self, frame_count: int, size: int) -> None:
        """The commit of `size` bytes of frames is durable; the sources are notified next."""
        ...

    def told(self) -> None:
        """The sources were notified: no request waits for this commit any more."""
        ...


class ContainerLog(Protocol):
    """The view of one container's log under one container epoch."""

    @property
    def log_id(self) -> str: ...

    def ready(self) -> None:
        """The source has operations; a group commit will take them soon."""
        ...

    def replay(self, after_sequence: int) -> AsyncIterator[ReplayedFrame]:
        """Frames found at open that hold operations after `after_sequence`, in order.

        Raises CorruptJournal on a gap in the sequence numbers or a bad frame; Unavailable.
        """
        ...

    async def read_aside(self, address: LogAddress) -> bytes:
        """A frame's payload, checksum verified; does not block commits.

        Raises ObjectNotFound if the frame was released, even during the read; CorruptJournal,
        Deposed, Unavailable.
        """
        ...

    async def release(self, applied_sequence: int) -> None:
        """Note that everything up to here is durable in tier 2, so that files may be removed.
        Repeatable."""
        ...

    def close(self) -> None:
        """Stop taking frames from the source, and notify it no more; the log stays."""
        ...


class DurableDataLog(Protocol):
    """The place of the logs that a process opens: its own journal, opened (fenced, scanned, made
    durable), or servers that several processes share."""

    @property
    def journal_id(self) -> str: ...

    @property
    def bound_to_store(self) -> bool:
        """Whether only this store can open the logs that are here."""
        ...

    @property
    def failure(self) -> AnabranchError | None:
        """The error that ended it for every container; None while it runs."""
        ...

    async def find_log(self, container: int, log_id: str) -> LogsHere:
        """The container's log here. A journal has at most one, and tells it whatever `log_id` is;
        another place only tells whether it has `log_id`. Raises Unavailable."""
        ...

    async def create_log(self, container: int, log_id: str) -> None:
        """Create a log; durable on return. Repeating it with the same id is harmless.

        Raises ObjectExists if the container has another log here; Unavailable.
        """
        ...

    async def remove_log(self, container: int, log_id: str) -> None:
        """Remove the container's log, with its frames; durable on return.

        A log that the container gets here later is another one. Harmless if there is no log.
        Raises Unavailable.
        """
        ...

    async def open_log(
        self, container: int, log_id: str, container_epoch: int, source: FrameSource
    ) -> ContainerLog:
        """Open the container's view under an epoch above those of all its frames.

        Deposes a view that is still open: its source gets `log_failed`. Raises LogNotHere, Deposed
        (epoch not above), Unavailable (frames of an older view are still being written, or no
        server answers), CorruptJournal.
        """
        ...

    @property
    def no_room(self) -> AnabranchError | None:
        """The error that prevents writing while the disk is full; None otherwise. Frames wait,
        the throttle refuses new ones, and reads continue."""
        ...

    def try_again(self) -> None:
        """Check whether there is room by now. Call it from time to time; without need it does
        nothing."""
        ...

    @property
    def live_size(self) -> int:
        """Bytes that an open would have to read, in all files that still exist."""
        ...

    def live_files(self) -> Sequence[LiveLogFile]:
        """These files, oldest first, with the containers whose release each one awaits."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """Everything that tier 2 records about one living segment; `writers`: id → mark."""

    state: SegmentState
    extents: tuple[TieredExtent, ...]
    writers: Mapping[bytes, WriterMark]


FetchRange = Callable[[int, int, int], Awaitable[bytes]]
"""(segment number, offset, length) → the bytes, from memory or the journal."""


class StoredCatalog(Protocol):
    """The records of tier 2 about one container's segments."""

    @property
    def applied_sequence(self) -> int:
        """The sequence number of the newest manifest's state: at open, then after each flush."""
        ...

    def knows_nothing_of(self, name: str) -> bool:
        """Whether the catalog certainly holds nothing under this name, as far as known without
        reading."""
        ...

    async def find(self, names: Collection[str]) -> Mapping[str, CatalogEntry | Tombstone]:
        """The newest manifest's records of these names; unknown names are left out.

        Raises CorruptManifest, Deposed, Unavailable.
        """
        ...

    def entries(self) -> AsyncIterator[CatalogEntry | Tombstone]:
        """All records of the newest manifest, in no particular order. Raises the errors of
        `find`."""
        ...


class TierTwo(StoredCatalog, Protocol):
    """One container's catalog in tier 2, opened under one container epoch."""

    async def flush(self, cut: ContainerCut, fetch: FetchRange) -> "Sequence[TieredExtents]":
        """Move a cut to tier 2: chunks, then the next manifest, then the look for a successor.

        On return the state at `cut.sequence` is durable and the log up to it may be released. An
        empty cut writes nothing, unless copies wait.
        Raises Deposed (nothing was made visible by us after the successor's fence), SyncFailed;
        DiskFailed, Unavailable and OutcomeUnknown, after which the flush may be retried.
        """
        ...

    @property
    def unfinished(self) -> bool:
        """Whether a flush failed when its manifest may have been created. The next flush must
        then be of the same cut."""
        ...

    async def close(self) -> None:
        """Write the last manifest of this owner. No operation and no flush may follow.

        Call it when all accepted operations are flushed, and again after a failure. Raises Deposed,
        Busy (a flush runs), and the errors of `flush`.
        """
        ...

    async def leave_receipts(self) -> NoReturn:
        """Leave a receipt of each newest manifest soon after its creation, until cancelled.

        Failures are retried: only a receipt reveals to other processes that a manifest was deleted.
        """
        ...

    async def confirm(self) -> None:
        """Leave the receipt that is due, if any. Raises the errors of tier 2; may be repeated."""
        ...

    @property
    def abandoned(self) -> Abandonment | None:
        """The container's last abandonment."""
        ...

    async def collect(self) -> bool:
        """Delete some of the garbage; returns whether another call is useful at once.

        Raises Deposed (nothing was deleted after the successor was seen), CorruptManifest;
        DiskFailed, Unavailable, OSError: call again later.
        """
        ...

    async def rewrite(self) -> bool:
        """Copy the live bytes of some mostly dead objects into a new one, beside any flush.

        Returns `copied`. Does nothing while copies wait, or if the last flush failed. Raises the
        errors of `collect`.
        """
        ...

    @property
    def copied(self) -> bool:
        """Whether copies wait for a flush, which may be of an empty cut, to replace the
        originals."""
        ...

    @property
    def dead_bytes(self) -> int:
        """Dead bytes in objects that cannot go, because other bytes of them live."""
        ...

    async def check_owner(self) -> None:
        """Check that no other owner has opened the container since. Raises Deposed, Unavailable."""
        ...

    async def read(self, ref: ChunkRef, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` of the reference, checksum verified. Raises CorruptChunk."""
        ...

    async def entry_counts(self, ref: ChunkRef) -> tuple[tuple[int, int], ...]:
        """The boundaries that the chunk lists, ascending up to the end of the reference, each with
        the number of events before it; both relative to the reference. Raises CorruptChunk.
        """
        ...

    async def entry_times(self, ref: ChunkRef) -> tuple[tuple[int, int], ...]:
        """The boundaries that the chunk lists, ascending up to the end of the reference, each with
        the time of the youngest append since the one before it. Raises CorruptChunk.
        """
        ...


@dataclass(frozen=True, slots=True)
class TieredExtents:
    """The extents that a flush added to a segment, adjacent to those it had, and those that hold
    the same ranges as before in another object."""

    segment_number: int
    extents: tuple[TieredExtent, ...]
    replaced: tuple[TieredExtent, ...] = ()


class OpenTierTwo(Protocol):
    """Opens a container's tier 2."""

    async def __call__(
        self,
        container: int,
        container_epoch: int,
        log_id: str,
        *,
        new_log: bool = False,
        void: VoidLogs | None = None,
    ) -> TierTwo:
        """List, write the fence manifest of this epoch, load the catalog.

        `new_log`: the placement names no log yet, so that tier 2 may be empty; the first
        manifest is created then. Raises Deposed (a manifest of this epoch or a higher one
        exists), TierTwoNotHere (empty, and not `new_log`), LogNotHere (the manifests name
        another log, which is neither closed nor `void`), CorruptManifest, FormatTooNew.
        """
        ...

    async def newest_log(self, container: int) -> LogBinding | None:
        """The log that the highest manifest names; None if there is no manifest. Changes nothing.

        Raises Unavailable, CorruptManifest, FormatTooNew.
        """
        ...
