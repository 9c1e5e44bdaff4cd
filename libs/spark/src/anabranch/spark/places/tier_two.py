"""Reads a stream from tier 2 alone: no store, controller or NATS server needs to run.

    the controllers' description of the stream ──► its segments ──► container of each ──► its
    highest manifest ──► catalog ──► extents ──► pieces of chunks, verified when they are read

A segment that is in no manifest yet has no bytes in tier 2. Events after the last flush are only in
the journals of the stores, and a read does not include them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import assert_never

from anabranch.common.errors import (
    Corrupt,
    CorruptBlock,
    CorruptChunk,
    InvalidRequest,
    ObjectNotFound,
    PlanOutdated,
    SegmentTruncated,
    TopicNotFound,
)
from anabranch.common.model.hashing import container_of
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, StreamRef, parse_segment_name, segment_name
from anabranch.common.model.stream import StreamState
from anabranch.common.model.topics import TOPIC_SCOPE, TopicName, is_backing, topic_of
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.objects import load_catalog, read_highest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.streams import audit_streams, list_streams, read_stream
from anabranch.common.tier2.state import Catalog, SegmentState, TieredExtent
from anabranch.common.tier2.streams import ExportedStream
from anabranch.common.wire.block import HEADER_SIZE_BYTES, BlockHeader, parse_header
from anabranch.common.workflow.bounded import answers, for_each
from anabranch.spark.options.bounds import Positions
from anabranch.spark.options.streams import Matching, Named, OfTopic, Tagged, Which
from anabranch.spark.partitioning import Piece
from anabranch.spark.places.ports import SegmentBounds, StreamBounds
from anabranch.spark.places.tier_two_times import older_than

REQUESTS_AT_ONCE = 8


class Catalogs:
    """The catalogs of containers, each read once. State owned: what was read."""

    def __init__(self, storage: ChunkStorage) -> None:
        self._storage = storage
        self._known: dict[int, Catalog] = {}

    async def of(self, containers: Iterable[int]) -> Mapping[int, Catalog]:
        """The catalogs of these containers. Raises CorruptManifest, FormatTooNew."""
        wanted = sorted(set(containers))
        missing = [each for each in wanted if each not in self._known]
        read = await answers(missing, REQUESTS_AT_ONCE, self._read)
        self._known |= dict(zip(missing, read, strict=True))
        return {each: self._known[each] for each in wanted}

    async def _read(self, container: int) -> Catalog:
        manifest = await read_highest(self._storage, container)
        return Catalog() if manifest is None else await load_catalog(self._storage, manifest)


class TierTwoPlace:
    """Implements `ports.StreamPlace`."""

    def __init__(self, storage: ChunkStorage) -> None:
        self.storage = storage
        self._reader = ChunkReader(storage)
        self._catalogs = Catalogs(storage)
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
        if stream not in self._sources:
            self._sources[stream] = TierTwoSource(
                self.storage, stream, reader=self._reader, catalogs=self._catalogs
            )
        return self._sources[stream]

    async def read_whole(self, pieces: Sequence[Piece]) -> Sequence[bytes]:
        """See the port: neighbours in a chunk share a request."""
        by_chunk: dict[str, list[int]] = {}
        parts: list[int] = []
        for at, piece in enumerate(pieces):
            assert piece.extent is not None
            if piece.size == piece.extent.ref.length:
                by_chunk.setdefault(piece.extent.ref.name, []).append(at)
            else:
                parts.append(at)
        found: dict[int, bytes] = {}

        async def read(places: Sequence[int]) -> None:
            refs = [_extent(pieces[at]).ref for at in places]
            with _planned(pieces[places[0]].segment):
                found.update(zip(places, await self._reader.read_all(refs), strict=True))

        await for_each(by_chunk.values(), REQUESTS_AT_ONCE, read)
        for at in parts:  # One by one, because neighbours share a footer.
            source = self.source(parse_segment_name(pieces[at].segment)[0])
            found[at] = await source.read(pieces[at], pieces[at].start)
        return [found[at] for at in range(len(pieces))]

    async def close(self) -> None:
        """See the port: nothing is open."""


class TierTwoSource:
    """Implements `ports.SegmentSource`. State owned: the extents of segments, as of `bounds`."""

    def __init__(
        self,
        storage: ChunkStorage,
        stream: StreamRef,
        *,
        reader: ChunkReader | None = None,
        catalogs: Catalogs | None = None,
    ) -> None:
        self._storage = storage
        self._stream = stream
        self._reader = reader or ChunkReader(storage)
        self._catalogs = catalogs or Catalogs(storage)
        self._extents: dict[str, tuple[TieredExtent, ...]] = {}

    async def bounds(self) -> StreamBounds:
        """See the port. Raises CorruptManifest, FormatTooNew."""
        told = await read_stream(self._storage, self._stream)
        keys = _key_ranges(told)
        names = {each: segment_name(self._stream, each) for each in told.segment_ids()}
        containers = {each: container_of(names[each], told.container_count) for each in names}
        catalogs = await self._catalogs.of(containers.values())
        found: list[SegmentBounds] = []
        for each, name in names.items():
            catalog = catalogs[containers[each]]
            state = catalog.segments.get(name)
            if state is None or not self._is_of(state, told.incarnation):
                continue
            self._extents[name] = catalog.extents[state.number]
            found.append(SegmentBounds(name, state.start, state.length, keys[each]))
        return StreamBounds(told.incarnation, tuple(found))

    def _is_of(self, state: SegmentState, incarnation: int) -> bool:
        """Whether a segment belongs to this incarnation. Raises PlanOutdated if to a later."""
        if state.stamp.incarnation > incarnation:
            raise PlanOutdated(
                "tier 2 does not describe the stream's new incarnation yet",
                stream=str(self._stream),
            )
        return state.stamp.incarnation == incarnation

    async def cut_at(self, unix_ms: int) -> Positions:
        """See the port: by the times of blocks, which the footers of chunks list per 64 KiB.

        Tier 2 does not tell watermarks. Names every segment that has bytes in tier 2.
        """
        bounds = await self.bounds()
        reached: dict[str, tuple[int, int]] = {}
        unfinished: list[KeyRange] = []
        for segment in bounds.segments:  # predecessors first
            keys = segment.keys
            assert keys is not None
            offset = segment.start
            if not any(each.start < keys.end and keys.start < each.end for each in unfinished):
                with _planned(segment.name):
                    found = await older_than(self._reader, self._extents[segment.name], unix_ms)
                offset = segment.length if found is None else max(found, segment.start)
            reached[segment.name] = (offset, 0)
            if offset < segment.length:
                unfinished.append(keys)
        return reached

    async def watermark(self) -> int | None:
        """See the port: tier 2 tells none."""
        return None

    async def block_at(self, segment: str, offset: int) -> BlockHeader:
        """See the port."""
        extent = _extent_at(self._extents[segment], offset)
        assert extent is not None
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
        extent = _extent(piece)
        start = extent.start
        with _planned(piece.segment):
            named = await self._reader.boundaries(extent.ref)
        places = sorted({bisect_left(named, at - start) for at in near})
        return [start + named[place] for place in places if place < len(named)]

    async def read(self, piece: Piece, offset: int) -> bytes:
        """See the port: returns the rest of the piece, usually at most a chunk of 64 MiB.

        Raises CorruptChunk; PlanOutdated if the chunk was deleted since planning.
        """
        extent = _extent(piece)
        with _planned(piece.segment):
            return await self._reader.read(extent.ref, offset - extent.start, piece.end - offset)

    async def read_at(self, segment: str, offset: int, size: int) -> bytes:
        """See the port. Reads the catalogs if no call of `bounds` did."""
        if segment not in self._extents:
            await self.bounds()
        extent = _extent_at(self._extents.get(segment, ()), offset)
        if extent is None:
            raise SegmentTruncated(
                "tier 2 no longer has these bytes", segment=segment, offset=offset
            )
        at = offset - extent.start
        with _planned(segment):
            return await self._reader.read(extent.ref, at, min(size, extent.ref.length - at))

    async def confirm(self, incarnation: int) -> None:
        """See the port: nothing can have changed, because chunk names are never reused."""


def _key_ranges(told: ExportedStream) -> dict[SegmentId, KeyRange]:
    present = {part.segment_id: part.keys for epoch in told.epochs for part in epoch.segments}
    return present | {part.segment_id: part.keys for part in told.earlier}


def _extent(piece: Piece) -> TieredExtent:
    assert piece.extent is not None, "pieces of tier 2 have their extents"
    return piece.extent


def _extent_at(extents: Sequence[TieredExtent], offset: int) -> TieredExtent | None:
    """The extent that holds the byte; None: no longer, or not yet."""
    place = bisect_right(extents, offset, key=lambda each: each.start) - 1
    if place < 0 or offset >= extents[place].start + extents[place].ref.length:
        return None
    return extents[place]


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
