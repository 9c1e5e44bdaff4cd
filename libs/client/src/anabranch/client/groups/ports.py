"""What a reader's membership needs: the group's log, the reader itself, the rest of the client."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.client.groups import updates as u
from anabranch.client.groups.state import Checkpoint, GroupSegment, ReaderGroupState


class GroupLog(Protocol):
    """The group's log and its state, as this reader knows it: a `StateSynchronizer`."""

    @property
    def state(self) -> ReaderGroupState | None: ...

    @property
    def revision(self) -> int:
        """Up to where the log is folded into `state`."""
        ...

    async def fetch(self, *, wait_s: float = 0.0) -> int:
        """Fold what came, waiting for it at the end that long → how many entries."""
        ...

    async def append(self, updates: Sequence[u.AnyUpdate]) -> int:
        """Append whatever the state is → the revision behind it."""
        ...

    @property
    def bytes_since_init(self) -> int:
        """How much of the log whoever comes new has to fold."""
        ...

    async def compact(self) -> bool:
        """Have the log begin with the present state, unless others append meanwhile."""
        ...

    async def update(
        self, decide: Callable[[ReaderGroupState], Sequence[u.AnyUpdate]]
    ) -> Sequence[u.AnyUpdate]:
        """Append what is decided on the newest state, and nothing in between."""
        ...


class Holder(Protocol):
    """The reader, as its membership sees it. Called from the event loop; must not wait."""

    def gained(self, segment: GroupSegment) -> None:
        """Read it from its position."""
        ...

    def give_up(self, segments: Iterable[str]) -> None:
        """Release these as soon as what was given of them is processed."""
        ...

    def news(self) -> tuple[u.Saved, ...]:
        """What was processed since it was told last."""
        ...

    def checkpoint_due(self, checkpoint: Checkpoint | None) -> None:
        """The group waits for this reader to reach it; None: for nothing."""
        ...

    def wake(self) -> None:
        """Something changed that the application may wait for: the lease, the end, an error."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a membership asks of the rest of the client.

    `unread`: bytes of a segment behind an offset. `completed`: this reader made a checkpoint
    complete.
    """

    unread: Callable[[str, int], Awaitable[int]]
    completed: Callable[[Checkpoint], Awaitable[None]]
