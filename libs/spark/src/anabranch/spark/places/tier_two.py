"""Reads a stream from tier 2 alone: no store, controller or NATS server needs to run.

    the controllers' description of the stream ──► its segments ──► container of each ──► its
    highest manifest ──► catalog ──► extents ──► pieces of chunks, verified when they are read

A segment that is in no manifest yet has no bytes in tier 2. Events after the last flush are only in
the journals of the stores, and a read does not include them.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

from anabranch.common.errors import (
    Corrupt,
    CorruptBlock,
    CorruptChunk,
    InvalidRequest,
    ObjectNotFound,
    PlanOutdated,
    TopicNotFound,
)
from anabranch.common.model.hashing import container_of
from anabranch.common.model.names import StreamRef, segment_name
from anabranch.common.model.stream import StreamState
from anabranch.common.model.topics import TOPIC_SCOPE, TopicName, is_backing, topic_of
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.objects import load_catalog, read_highest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.streams import audit_streams, list_streams, read_stream
from anabranch.common.tier2.state import Catalog, SegmentState, TieredExtent
from anabranch.common.tier2.streams import ExportedStream
from anabranch.common.wire.block import HEADER_SIZE_BYTES, BlockHeader, parse_header
from anabranch.spark.options.bounds import Positions
from anabranch.spark.options.streams import Matching, Named, OfTopic, Tagged, Which
from anabranch.spark.partitioning import Piece
from anabranch.spark.places.ports import SegmentBounds, StreamBounds


class TierTwoPlace:
    """Implements `ports.StreamPlace`."""

    def __init__(self, storage: ChunkStorage) -> None:
        self.storage = storage
        self._sources: dict[StreamRef, TierTwoSource] = {}

    async def find(self, which: Which) -> tuple[StreamRef, ...]:
        """See the port. Raises InvalidRequest for a tag, which tier 2 does not know."""
        match which:
            case Named(streams):
                return streams
            case OfTopic(topic):
                return (await topic_stream(self.storage, topic),)
            case Tagged():
                raise InvalidRequest(
                    "tier 2 does not know the tags of streams",
                    remedy="give the option nats_url, or pattern in place of tag",
                )
            case Matching():
                told = [each.ref async for each in list_streams(self.storage) if _is_live(each)]
                return tuple(sorted((ref for ref in told if which.matches(ref)), key=str))
            case other:
                assert_never(other)

    def source(self, stream: StreamRef) -> "TierTwoSource":
        """See the port."""
        return self._sources.setdefault(stream, TierTwoSource(self.storage, stream))

    async def close(self) -> None:
        """See the port: nothing is open."""


class TierTwoSource:
    """Implements `ports.SegmentSource`. State owned: the extents of segments, as of `bounds`."""

    def __init__(self, storage: ChunkStorage, stream: StreamRef) -> None:
        self._storage = storage
        self._stream = stream
        self._reader = ChunkReader(storage)
        self._extents: dict[str, tuple[TieredExtent, ...]] = {}

    async def bounds(self) -> StreamBounds:
        """See the port. Raises CorruptManifest, FormatTooNew."""
        told = await read_stream(self._storage, self._stream)
        ids = told.segment_ids()
        catalogs: dict[int, Catalog] = {}
        found: list[SegmentBounds] = []
        for name in (segment_name(self._stream, each) for each in ids):
            container = container_of(name, told.container_count)
            if container not in catalogs:
                catalogs[container] = await self._catalog(container)
            state = catalogs[container].segments.get(name)
            if state is None or not self._is_of(state, told.incarnation):
                continue
            self._extents[name] = catalogs[container].extents[state.number]
            found.append(SegmentBounds(name, state.start, state.length))
        return StreamBounds(told.incarnation, tuple(found))

    async def _catalog(self, container: int) -> Catalog:
        manifest = await read_highest(self._storage, container)
        return Catalog() if manifest is None else await load_catalog(self._storage, manifest)

    def _is_of(self, state: SegmentState, incarnation: int) -> bool:
        """Whether a segment belongs to this incarnation. Raises PlanOutdated if to a later."""
        if state.stamp.incarnation > incarnation:
            raise PlanOutdated(
                "tier 2 does not describe the stream's new incarnation yet",
                stream=str(self._stream),
            )
        return state.stamp.incarnation == incarnation

    async def cut_at(self, unix_ms: int) -> Positions:
        """See the port."""
        raise InvalidRequest(
            "a read from tier 2 cannot begin or end at a time yet",
            remedy="give the option nats_url, or filter by event_time",
            unix_ms=unix_ms,
        )

    async def block_at(self, segment: str, offset: int) -> BlockHeader:
        """See the port."""
        extent = next(
            each for each in self._extents[segment] if offset < each.start + each.ref.length
        )
        at = offset - extent.start
        size = min(HEADER_SIZE_BYTES, extent.ref.length - at)
        with _planned(segment):
            data = await self._reader.read(extent.ref, at, size)
        try:
            return parse_header(data)
        except CorruptBlock as error:
            raise InvalidRequest(
                "no block starts at the position", segment=segment, offset=offset
            ) from error

    def pieces(self, piece: Piece) -> Sequence[Piece]:
        """See the port: one piece per extent, without bytes outside the piece."""
        parts: list[Piece] = []
        for extent in self._extents[piece.segment]:
            start = max(piece.start, extent.start)
            end = min(piece.end, extent.start + extent.ref.length)
            if start < end:
                skip = piece.skip if start == piece.start else 0
                keep = piece.keep if end == piece.end else 0
                parts.append(Piece(piece.segment, start, end, skip, keep, extent))
        return parts

    async def boundaries(self, piece: Piece, near: Sequence[int]) -> Sequence[int]:
        """See the port: boundaries from the chunk's footer, which has about one per 64 KiB."""
        assert piece.extent is not None
        start = piece.extent.start
        with _planned(piece.segment):
            named = await self._reader.boundaries(piece.extent.ref)
        places = sorted({bisect_left(named, at - start) for at in near})
        return [start + named[place] for place in places if place < len(named)]

    async def read(self, piece: Piece, offset: int) -> bytes:
        """See the port: returns the rest of the piece, usually at most a chunk of 64 MiB.

        Raises CorruptChunk; PlanOutdated if the chunk was deleted since planning.
        """
        assert piece.extent is not None
        extent = piece.extent
        with _planned(piece.segment):
            return await self._reader.read(extent.ref, offset - extent.start, piece.end - offset)

    async def confirm(self, incarnation: int) -> None:
        """See the port: nothing can have changed, because chunk names are never reused."""


def _is_live(stream: ExportedStream) -> bool:
    return stream.state is not StreamState.DELETED


async def topic_stream(storage: ChunkStorage, topic: TopicName) -> StreamRef:
    """The stream of the topic: that of its newest incarnation which is not deleted.

    Reads the descriptions of all streams, because a topic's name alone does not lead to its stream.
    Raises TopicNotFound, CorruptManifest, FormatTooNew, TierTwoRewound.
    """
    named: list[ExportedStream] = []
    damage: Corrupt | None = None
    async for _, told in audit_streams(storage):
        if isinstance(told, Corrupt):
            damage = told
        elif told.state is not StreamState.DELETED and _is_of_topic(told.ref, topic):
            named.append(told)
    if named:
        return max(named, key=lambda told: told.created_ms).ref
    if damage is not None:
        raise damage
    raise TopicNotFound("tier 2 does not know the topic", topic=topic)


def _is_of_topic(stream: StreamRef, topic: TopicName) -> bool:
    return (
        stream.scope == TOPIC_SCOPE
        and is_backing(stream.stream)
        and topic_of(stream.stream)[0] == topic
    )


@contextmanager
def _planned(segment: str) -> Iterator[None]:
    """Turn the loss of a planned chunk into PlanOutdated: a newer chunk replaced it."""
    try:
        yield
    except CorruptChunk as error:
        if not isinstance(error.__cause__, ObjectNotFound):
            raise
        raise PlanOutdated(
            "a chunk was deleted after the read was planned",
            segment=segment, name=error.fields.get("name"),
        ) from error  # fmt: skip
