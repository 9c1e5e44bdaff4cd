"""Reads a stream from the stores, over the client's connections: all acknowledged events."""

from collections.abc import Sequence
from typing import assert_never

from anabranch.client.client import Client
from anabranch.common.errors import (
    CorruptBlock,
    InvalidRequest,
    PlanOutdated,
    SegmentNotFound,
    SegmentTruncated,
    TopicNotProvisioned,
)
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.topics import TopicName
from anabranch.common.wire.block import BlockHeader, parse_header
from anabranch.common.workflow.bounded import answers
from anabranch.spark.options.bounds import Positions
from anabranch.spark.options.streams import Matching, Named, OfTopic, Tagged, Which
from anabranch.spark.partitioning import Piece
from anabranch.spark.places.ports import SegmentBounds, StreamBounds

REQUESTS_AT_ONCE = 8
"""Reads of small pieces in flight; each answer has about 4 MiB at most."""


class StorePlace:
    """Implements `ports.StreamPlace`. Owns `client`, which the caller need not enter."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._sources: dict[StreamRef, StoreSource] = {}

    async def find(self, which: Which) -> tuple[StreamRef, ...]:
        """See the port."""
        match which:
            case Named(streams):
                return streams
            case OfTopic(topic):
                return (await described_stream(self.client, topic),)
            case Tagged(scope, tag):
                return await self._of_scope(scope, tag)
            case Matching():
                scopes = [which.scope] if which.scope else await self._scopes()
                listed = [await self._of_scope(scope) for scope in scopes]
                return tuple(ref for each in listed for ref in each if which.matches(ref))
            case other:
                assert_never(other)

    async def _scopes(self) -> list[ScopeName]:
        return sorted([ScopeName(name) async for name in self.client.scopes.list()])

    async def _of_scope(self, scope: ScopeName, tag: str = "") -> tuple[StreamRef, ...]:
        names = [name async for name in self.client.streams.list(scope, tag=tag)]
        return tuple(StreamRef(scope, StreamName(name)) for name in sorted(names))

    def source(self, stream: StreamRef) -> "StoreSource":
        """See the port."""
        return self._sources.setdefault(stream, StoreSource(self.client, stream))

    async def read_whole(self, pieces: Sequence[Piece]) -> Sequence[bytes]:
        """See the port: several reads are in flight."""
        ranges = self.client.ranges()
        await ranges.prepare(piece.segment for piece in pieces)

        async def whole(piece: Piece) -> bytes:
            parts: list[bytes] = []
            at = piece.start
            while at < piece.end:
                parts.append(await ranges.read(piece.segment, at, piece.end))
                at += len(parts[-1])
            return parts[0] if len(parts) == 1 else b"".join(parts)

        return await answers(pieces, REQUESTS_AT_ONCE, whole)

    async def close(self) -> None:
        """See the port."""
        await self.client.close()


class StoreSource:
    """Implements `ports.SegmentSource`."""

    def __init__(self, client: Client, stream: StreamRef) -> None:
        self._client = client
        self._ranges = client.ranges()
        self._stream = stream
        self._lengths: dict[str, int] = {}

    async def bounds(self) -> StreamBounds:
        """See the port: all segments from the head to the present tail."""
        listed = await self._ranges.segments(self._stream)
        found: list[SegmentBounds] = []
        for run in await self._ranges.runs(self._stream):
            assert run.end_offset is not None, "runs to the tail have their ends"
            self._lengths[run.name] = run.end_offset
            keys = KeyRange(run.key_start, run.key_end)
            found.append(SegmentBounds(run.name, run.start_offset, run.end_offset, keys))
        return StreamBounds(listed.incarnation, tuple(found))

    async def cut_at(self, unix_ms: int) -> Positions:
        """See the port."""
        return (await self._ranges.cut_at(self._stream, unix_ms)).positions

    async def watermark(self) -> int | None:
        """See the port."""
        status = await self._client.streams.watermark_status(str(self._stream))
        return None if status.last is None else status.last.lower_ms

    async def block_at(self, segment: str, offset: int) -> BlockHeader:
        """See the port."""
        boundary = await self._ranges.boundary(segment, offset)
        if boundary == offset:
            data = await self._ranges.read(segment, offset, self._lengths[segment])
            try:
                return parse_header(data)
            except CorruptBlock as error:
                raise CorruptBlock(error.message, segment=segment, offset=offset) from error
        raise InvalidRequest("no block starts at the position", segment=segment, offset=offset)

    def pieces(self, piece: Piece) -> Sequence[Piece]:
        """See the port: a store holds its segment in one piece."""
        return (piece,)

    async def boundaries(self, piece: Piece, near: Sequence[int]) -> Sequence[int]:
        """See the port."""
        return [await self._ranges.boundary(piece.segment, at) for at in near]

    async def read(self, piece: Piece, offset: int) -> bytes:
        """See the port: returns about 4 MiB. Raises PlanOutdated if the segment is shorter."""
        return await self._ranges.read(piece.segment, offset, piece.end)

    async def read_at(self, segment: str, offset: int, size: int) -> bytes:
        """See the port: whole appends."""
        try:
            return await self._ranges.read(segment, offset, offset + size)
        except SegmentNotFound as error:
            raise SegmentTruncated(
                "the segment was truncated as a whole", segment=segment, offset=offset
            ) from error

    async def confirm(self, incarnation: int) -> None:
        """See the port: a stream that was deleted and recreated has other events."""
        listed = await self._ranges.segments(self._stream)
        if listed.incarnation != incarnation:
            raise PlanOutdated(
                "the stream was deleted and created again during the read",
                stream=str(self._stream),
            )


async def described_stream(client: Client, topic: TopicName) -> StreamRef:
    """The stream of the topic. Raises TopicNotFound, TopicNotProvisioned, Unavailable."""
    found = await client.topics.describe(topic)
    if not found.stream:
        raise TopicNotProvisioned("the topic has no stream yet", topic=topic)
    return StreamRef(ScopeName(found.scope), StreamName(found.stream))
