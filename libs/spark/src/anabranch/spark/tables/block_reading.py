"""Plans the reading of all blocks in tier 2, and reads a task's share: damage becomes rows.

A piece is read with its checksums. If these do not match, the task reads the bytes that are there
all the same, and lets the blocks' own checksums tell which of them are damaged.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.common.errors import Corrupt, ObjectNotFound, PlanOutdated
from anabranch.common.model.key_range import KeyRange
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.objects import load_catalog, read_highest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.state import TieredExtent
from anabranch.spark.options.places import TierTwo
from anabranch.spark.options.read import Division
from anabranch.spark.options.streams import Which
from anabranch.spark.partitioning import Partition, Piece, dividing_lines, pack, partition_count
from anabranch.spark.places.opening import Loop, opened
from anabranch.spark.places.tier_two import TierTwoPlace
from anabranch.spark.tables.arrow import batch
from anabranch.spark.tables.blocks import (
    SCHEMA,
    Damage,
    PositionOf,
    Stretch,
    block_rows,
    new_hash,
    scan,
)
from anabranch.spark.tables.stored import Lost, Stored, read_stored


@dataclass(frozen=True, slots=True)
class Checked:
    """A segment's container, and its keys if they are checked."""

    container: int
    keys: KeyRange | None


@dataclass(frozen=True, slots=True)
class BlockTask:
    """The share of one task; Spark pickles it."""

    pieces: Partition
    segments: Mapping[str, Checked]
    lost: tuple[Lost, ...] = ()


def plan(place: TierTwo, which: Which, division: Division) -> tuple[Stored, list[BlockTask]]:
    """Read the descriptions and catalogs, and divide their bytes among tasks."""
    with opened(place) as (loop, streams):
        assert isinstance(streams, TierTwoPlace)
        return loop.run(plan_blocks(streams.storage, which, division))


async def plan_blocks(
    storage: ChunkStorage, which: Which, division: Division
) -> tuple[Stored, list[BlockTask]]:
    """Raises as `read_stored`."""
    stored = await read_stored(storage, which)
    pieces = list(pieces_of(stored))
    checked = {
        segment.name: Checked(segment.container, segment.keys if stream.has_hashed_keys else None)
        for stream in stored.streams
        for segment in stream.segments
    }
    tasks = [
        BlockTask(part, {piece.segment: checked[piece.segment] for piece in part})
        for part in await _divide(ChunkReader(storage), pieces, division)
    ]
    lost = (*stored.lost, *(each for stream in stored.streams for each in stream.lost))
    return stored, [*tasks, BlockTask((), {}, lost)] if lost else tasks


def pieces_of(stored: Stored) -> Iterator[Piece]:
    """The retained bytes of all segments, a piece per extent."""
    for segment in (each for stream in stored.streams for each in stream.segments):
        first, end = segment.bounds
        for extent in segment.extents:
            start = max(first, extent.start)
            stop = min(end, extent.start + extent.ref.length)
            if start < stop:
                yield Piece(segment.name, start, stop, extent=extent)


async def _divide(
    reader: ChunkReader, pieces: Sequence[Piece], division: Division
) -> list[Partition]:
    if not pieces:
        return []
    count = partition_count(
        sum(piece.size for piece in pieces),
        target_bytes=division.target_partition_bytes,
        min_partitions=division.min_partitions,
        parallelism=len(os.sched_getaffinity(0)),
    )
    boundaries = {at: await _boundaries(reader, pieces[at]) for at in dividing_lines(pieces, count)}
    return pack(pieces, boundaries, count)


async def _boundaries(reader: ChunkReader, piece: Piece) -> list[int]:
    """The known append boundaries, as offsets of the segment; none if the footer is damaged."""
    assert piece.extent is not None
    try:
        return [piece.extent.start + at for at in await reader.boundaries(piece.extent.ref)]
    except Corrupt:
        return []


def read(place: TierTwo, task: BlockTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's blocks, in order. Raises PlanOutdated if planned data is gone."""
    with opened(place) as (loop, streams):
        assert isinstance(streams, TierTwoPlace)
        yield from read_task(loop, streams.storage, task)


def read_task(loop: Loop, storage: ChunkStorage, task: BlockTask) -> Iterator[pa.RecordBatch]:
    """As `read`, from an open storage."""
    if task.lost:
        yield batch(SCHEMA, [_lost_row(each) for each in task.lost])
    reading = _Reading(loop, storage)
    for piece in task.pieces:
        yield from reading.rows(piece, task.segments[piece.segment])


def _lost_row(lost: Lost) -> list[str | int | None]:
    name = lost.segment or lost.stream or "/"
    scope, stream = (*name.split("/", 2), "")[:2]
    unknown = [None] * (len(SCHEMA) - 6)
    return [scope, stream, lost.segment, 0, 0, *unknown, lost.text]


class _Reading:
    """Reads pieces. State owned: a cache of chunk footers, and one of hashed keys."""

    def __init__(self, loop: Loop, storage: ChunkStorage) -> None:
        self._loop = loop
        self._storage = storage
        self._reader = ChunkReader(storage)
        self._position_of: PositionOf = new_hash()

    def rows(self, piece: Piece, checked: Checked) -> Iterator[pa.RecordBatch]:
        extent = piece.extent
        assert extent is not None
        stretch, fault = _stretch(piece, extent, checked.keys), ""
        try:
            data = self._loop.run(
                self._reader.read(extent.ref, piece.start - extent.start, piece.size)
            )
        except Corrupt as error:
            data = self._loop.run(read_remains(self._storage, stretch))
            if not data and isinstance(error.__cause__, ObjectNotFound):
                self._loop.run(self._confirm(piece, checked))
                lost = [Damage(stretch.offset, stretch.size, str(error))]
                yield from block_rows(stretch, b"", lost, self._position_of)
                return
            fault = "" if self._is_elsewhere(piece, extent) else str(error)
        found = scan(stretch, data, lambda: self._boundaries_in(piece), fault)
        yield from block_rows(stretch, data, found, self._position_of)

    def _boundaries_in(self, piece: Piece) -> Sequence[int]:
        known = self._loop.run(_boundaries(self._reader, piece))
        return [at - piece.start for at in known if at > piece.start]

    def _is_elsewhere(self, piece: Piece, extent: TieredExtent) -> bool:
        """Whether a damaged block of the extent explains why the checksum of a part of it, which
        covers neighbouring bytes too, does not match."""
        end = extent.start + extent.ref.length
        if (piece.start, piece.end) == (extent.start, end):
            return False
        whole = Piece(piece.segment, extent.start, end, extent=extent)
        stretch = _stretch(whole, extent, None)
        data = self._loop.run(read_remains(self._storage, stretch))
        found = scan(stretch, data, lambda: self._boundaries_in(whole))
        return any(isinstance(each, Damage) for each in found)

    async def _confirm(self, piece: Piece, checked: Checked) -> None:
        """Raise PlanOutdated if the present catalog names another place for the missing bytes."""
        try:
            manifest = await read_highest(self._storage, checked.container)
            assert manifest is not None
            catalog = await load_catalog(self._storage, manifest)
        except Corrupt:
            return
        state = catalog.segments.get(piece.segment)
        if state is None or piece.extent not in catalog.extents[state.number]:
            raise PlanOutdated(
                "a chunk was deleted after the read was planned", segment=piece.segment
            )


def _stretch(piece: Piece, extent: TieredExtent, keys: KeyRange | None) -> Stretch:
    at = extent.ref.offset + piece.start - extent.start
    return Stretch(piece.segment, piece.start, piece.size, extent.ref.name, at, keys)


async def read_remains(storage: ChunkStorage, stretch: Stretch) -> bytes:
    """The bytes of the stretch that its object still has, unverified."""
    try:
        size = await storage.size(stretch.object)
        length = min(stretch.size, size - stretch.object_offset)
        if length <= 0:
            return b""
        return await storage.get_range(stretch.object, stretch.object_offset, length)
    except (ObjectNotFound, Corrupt):
        return b""
