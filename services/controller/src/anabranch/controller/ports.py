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


class TryAgain(Exception):
    """The command could not be decided now; it must be delivered again."""

    def __init__(self, cause: AnabranchError) -> None:
        super().__init__(str(cause))
        self.cause = cause
