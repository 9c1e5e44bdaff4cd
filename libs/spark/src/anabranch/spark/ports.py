"""Where a stream's bytes come from, as planning and reading see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.common.wire.block import BlockHeader
from anabranch.spark.partitioning import Piece


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """A segment's readable bytes [start, length); what lies before was truncated."""

    name: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """A stream at the moment of planning: one life of its name, and its segments in order."""

    incarnation: int
    segments: tuple[SegmentBounds, ...]


class SegmentSource(Protocol):
    """The stores, or tier 2. One stream; used by one event loop."""

    async def bounds(self) -> StreamBounds:
        """What can be read now. Raises StreamNotFound."""
        ...

    async def block_at(self, segment: str, offset: int) -> BlockHeader:
        """The header of the block that starts at `offset`, inside the segment's bounds.

        Raises InvalidRequest where none does.
        """
        ...

    def pieces(self, piece: Piece) -> Sequence[Piece]:
        """The piece as the source holds it: cut where its bytes lie apart."""
        ...

    async def boundaries(self, piece: Piece, near: Sequence[int]) -> Sequence[int]:
        """Append boundaries of the piece, ascending, among them such at or after the offsets."""
        ...

    async def read(self, piece: Piece, offset: int) -> bytes:
        """Whole blocks from `offset` of the piece, at least one, none beyond its end."""
        ...

    async def confirm(self, incarnation: int) -> None:
        """Raises PlanOutdated if what was read since planning is of another incarnation."""
        ...

    async def close(self) -> None: ...
