"""The functions that Spark's workers run: one plans, and the others read a partition each."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch.client.reading.arrow import PlacedBlock
from anabranch.client.reading.large_events import fetch_large
from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.common.wire.block import LargeReference
from anabranch.common.workflow.bounded import for_each
from anabranch.spark.options.places import Place
from anabranch.spark.options.read import ReadOptions
from anabranch.spark.partitioning import Partition, Piece
from anabranch.spark.places.opening import Loop, opened
from anabranch.spark.places.ports import SegmentSource, StreamPlace
from anabranch.spark.reading.blocks import placed_blocks
from anabranch.spark.reading.columns import batches
from anabranch.spark.reading.filters import ALL, Wanted
from anabranch.spark.reading.payloads import decoded, needed_columns
from anabranch.spark.reading.planning import Plan, plan_read

TOGETHER_BYTES_MAX = 8 * 1024 * 1024
"""Adjacent pieces of a partition that have no more bytes are read together."""
CONFIRMED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """The read to which a partition belongs; Spark pickles it for its tasks.

    `watermarks`: of the streams that have one, in Unix ms, for the column of this name. `payload`:
    the schema of all columns if events are Arrow tables; those of `columns` are about the event.
    """

    place: Place
    columns: tuple[str, ...]
    watermarks: Mapping[StreamRef, int] = field(default_factory=dict)
    payload: pa.Schema | None = None


def plan(options: ReadOptions, wanted: Wanted = ALL) -> Plan:
    """The partitions to read, and the incarnations of their streams."""
    with opened(options.place) as (loop, streams):
        return loop.run(plan_read(streams, options, len(os.sched_getaffinity(0)), wanted))


def read(
    how: PartitionRead, incarnations: Mapping[StreamRef, int], partition: Partition
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a partition, in order. Raises PlanOutdated if planned data is gone."""
    with opened(how.place) as (loop, streams):
        blocks = blocks_of(loop, streams, partition)
        if how.payload is None:
            yield from batches(blocks, how.columns, how.watermarks)
        else:
            needed = needed_columns(how.payload, how.columns)
            events = batches(blocks, needed, how.watermarks)
            yield from decoded(events, how.payload, how.columns)
        used = dict.fromkeys(parse_segment_name(piece.segment)[0] for piece in partition)

        async def confirm(stream: StreamRef) -> None:
            await streams.source(stream).confirm(incarnations[stream])

        loop.run(for_each(used, CONFIRMED_AT_ONCE, confirm))


def blocks_of(loop: Loop, streams: StreamPlace, partition: Partition) -> Iterator[PlacedBlock]:
    """The blocks of a partition, in order: small pieces are read together, large ones in steps."""
    for pieces in together(partition, TOGETHER_BYTES_MAX):
        if pieces[0].size <= TOGETHER_BYTES_MAX:
            found = loop.run(streams.read_whole(pieces))
            for piece, data in zip(pieces, found, strict=True):
                source = streams.source(parse_segment_name(piece.segment)[0])
                yield from _blocks(loop, source, piece, piece.start, data)
            continue
        (piece,) = pieces
        source = streams.source(parse_segment_name(piece.segment)[0])
        offset = piece.start
        while offset < piece.end:
            data = loop.run(source.read(piece, offset))
            yield from _blocks(loop, source, piece, offset, data)
            offset += len(data)


def together(pieces: Sequence[Piece], bytes_max: int) -> Iterator[list[Piece]]:
    """The pieces, in order, in runs of at most so many bytes; a larger one is alone."""
    run: list[Piece] = []
    size = 0
    for piece in pieces:
        if run and size + piece.size > bytes_max:
            yield run
            run, size = [], 0
        run.append(piece)
        size += piece.size
    if run:
        yield run


def _blocks(
    loop: Loop, source: SegmentSource, piece: Piece, offset: int, data: bytes
) -> Iterator[PlacedBlock]:
    """The blocks in `data`, bytes of the piece from `offset` on."""

    async def stored(at: int, size: int) -> bytes:
        if offset <= at < offset + len(data):
            return data[at - offset : at - offset + size]
        return await source.read_at(piece.segment, at, size)

    def fetch(reference: LargeReference) -> bytes:
        return loop.run(fetch_large(stored, reference))

    return placed_blocks(
        piece.segment,
        data,
        offset,
        skip=piece.skip if offset == piece.start else 0,
        keep=piece.keep if offset + len(data) == piece.end else 0,
        fetch_large=fetch,
    )
