"""The port through which planning and reading get a stream's bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.common.wire.block import BlockHeader
from anabranch.spark.partitioning import Piece


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """A segment's readable bytes [start, length); the bytes before `start` are truncated."""

    name: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """A stream at the moment of planning: one incarnation, and its segments in order."""

    incarnation: int
    segments: tuple[SegmentBounds, ...]


class SegmentSource(Protocol):
    """One stream in the stores or in tier 2; one event loop uses it."""

    async def bounds(self) -> StreamBounds:
        """The bounds of the stream's readable segments now. Raises StreamNotFound."""
        ...

    async def block_at(self, segment: str, offset: int) -> BlockHeader:
        """The header of the block that starts at `offset`, inside the segment's bounds.

        Raises InvalidRequest if no block starts there.
        """
        ...

    def pieces(self, piece: Piece) -> Sequence[Piece]:
        """Cut the piece where the source stores its bytes apart."""
        ...

    async def boundaries(self, piece: Piece, near: Sequence[int]) -> Sequence[int]:
        """Append boundaries of the piece, ascending, among them ones at or after each offset."""
        ...

    async def read(self, piece: Piece, offset: int) -> bytes:
        """Read whole blocks from `offset` of the piece: at least one, none beyond its end."""
        ...

    async def confirm(self, incarnation: int) -> None:
        """Raise PlanOutdated if the data read since planning is of another incarnation."""
        ...

    async def close(self) -> None: ...
