"""The ports through which planning and reading get the bytes of streams."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.block import BlockHeader
from anabranch.spark.options.bounds import Positions
from anabranch.spark.options.streams import Which
from anabranch.spark.partitioning import Piece


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """A segment's readable bytes [start, length); the bytes before `start` are truncated.

    `keys`: the keys whose events it takes; None: not known.
    """

    name: str
    start: int
    length: int
    keys: KeyRange | None = None


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

    async def cut_at(self, unix_ms: int) -> Positions:
        """The stream's cut at a time, positions of its segments. Raises StreamNotFound."""
        ...

    async def watermark(self) -> int | None:
        """The stream's last watermark in Unix ms; None: it has none, or the place knows none."""
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

    async def read_at(self, segment: str, offset: int, size: int) -> bytes:
        """Stored bytes from `offset`, an append boundary: some, and at most about `size`.

        Needs no `bounds` before it. Raises SegmentTruncated.
        """
        ...

    async def confirm(self, incarnation: int) -> None:
        """Raise PlanOutdated if the data read since planning is of another incarnation."""
        ...


class StreamPlace(Protocol):
    """The stores of a cluster, or tier 2; one event loop uses it, and its user closes it."""

    async def find(self, which: Which) -> tuple[StreamRef, ...]:
        """The streams that exist, sorted by name; those of `Named` as they were named, unchecked.

        Raises TopicNotFound, TopicNotProvisioned, ScopeNotFound, Unavailable, Corrupt errors.
        """
        ...

    def source(self, stream: StreamRef) -> SegmentSource:
        """The stream; the same object for the same stream."""
        ...

    async def read_whole(self, pieces: Sequence[Piece]) -> Sequence[bytes]:
        """All bytes of each piece, with few requests; together they must be small.

        Raises as `SegmentSource.read`.
        """
        ...

    async def close(self) -> None:
        """End all connections."""
        ...
