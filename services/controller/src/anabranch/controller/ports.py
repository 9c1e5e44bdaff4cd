"""What the controller's workflows need from outside. Each port has a fake in tests/kit."""

from collections.abc import Sequence
from typing import Protocol

from anabranch.common.errors import AnabranchError
from anabranch.common.model.names import ScopeName, StreamName
from anabranch.common.wire.messages import Stamp


class SegmentStores(Protocol):
    """Control requests on segments, wherever they live. All are idempotent.

    A request older (by stamp) than what the segment has seen raises StaleRequest. A container
    that nobody serves at the moment raises Unavailable. Every call ends within its deadline.
    """

    async def create_segment(self, segment: str, stamp: Stamp) -> None:
        """Create it empty; already there under this stamp is success."""
        ...

    async def seal_segment(self, segment: str, stamp: Stamp) -> int:
        """Forbid appends; returns the final length in bytes. Already sealed is success."""
        ...

    async def truncate_segment(self, segment: str, offset: int, stamp: Stamp) -> None:
        """Give up what lies before the offset; at or behind the start already is success.

        Raises NotAtBoundary, InvalidRequest (beyond the end).
        """
        ...

    async def segment_length(self, segment: str) -> int:
        """Its present length in bytes. Raises SegmentNotFound."""
        ...

    async def delete_segment(self, segment: str, stamp: Stamp) -> None:
        """Delete, leaving a tombstone; unknown is success (and leaves the tombstone)."""
        ...


class StreamListing(Protocol):
    """Which streams there are, as of now."""

    async def live_streams(self, scope: ScopeName, incarnation: int) -> Sequence[StreamName]:
        """The scope's streams that are not deleted, half-created ones included.

        Whatever was stored before the call is taken into account, in every shard.
        """
        ...


class StepProgress(Protocol):
    """A step under way, as the runner knows it. Times are of `Clock.now_ms`.

    `attempts` counts how often it was begun in a row; `error` says why it failed last, `reason`
    what it waits for; a step that runs for the first time has neither.
    """

    @property
    def subject(self) -> str: ...

    @property
    def step(self) -> str: ...

    @property
    def since_ms(self) -> int: ...

    @property
    def attempts(self) -> int: ...

    @property
    def error(self) -> AnabranchError | None: ...

    @property
    def reason(self) -> str: ...


class AskPeers(Protocol):
    """Puts a query to every other live controller."""

    async def __call__(
        self, name: str, payload: bytes, timeout_s: float, /
    ) -> Sequence[tuple[str, bytes]]:
        """(controller id, encoded answer) of all who answered in time."""
        ...


class TryAgain(Exception):
    """The command could not be decided now; it must be delivered again."""

    def __init__(self, cause: AnabranchError) -> None:
        super().__init__(str(cause))
        self.cause = cause
