"""The ports of a reader's membership: the group's log, the reader, and the rest of the client."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.client.groups import updates as u
from anabranch.client.groups.state import Checkpoint, GroupSegment, ReaderGroupState


class GroupLog(Protocol):
    """The group's log and its state as far as this reader knows: a `StateSynchronizer`."""

    @property
    def state(self) -> ReaderGroupState | None: ...

    @property
    def revision(self) -> int:
        """The revision up to which the log is folded into `state`."""
        ...

    async def fetch(self, *, wait_s: float = 0.0) -> int:
        """Fold new entries, waiting for them at the end; returns their number."""
        ...

    async def append(self, updates: Sequence[u.AnyUpdate]) -> int:
        """Append unconditionally; returns the revision after the entries."""
        ...

    @property
    def bytes_since_init(self) -> int:
        """The part of the log that a new reader has to fold."""
        ...

    async def compact(self) -> bool:
        """Make the log begin with the present state, unless others append meanwhile."""
        ...

    async def update(
        self, decide: Callable[[ReaderGroupState], Sequence[u.AnyUpdate]]
    ) -> Sequence[u.AnyUpdate]:
        """Append the entries that `decide` returns for the newest state, atomically."""
        ...


class Holder(Protocol):
    """The reader, as its membership sees it. The event loop calls it; it must not wait."""

    def gained(self, segment: GroupSegment) -> None:
        """Read the segment from its position."""
        ...

    def give_up(self, segments: Iterable[str]) -> None:
        """Release these segments as soon as all given events are processed."""
        ...

    def news(self) -> tuple[u.Saved, ...]:
        """The progress since the last call."""
        ...

    def checkpoint_due(self, checkpoint: Checkpoint | None) -> None:
        """Set the checkpoint that waits for this reader, or None."""
        ...

    def wake(self) -> None:
        """Wake the application: the lease, the end or an error has changed."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Functions of the rest of the client.

    `unread(segment, offset)`: the bytes after the offset. `completed(checkpoint)`: called when this
    reader has made a checkpoint complete.
    """

    unread: Callable[[str, int], Awaitable[int]]
    completed: Callable[[Checkpoint], Awaitable[None]]
