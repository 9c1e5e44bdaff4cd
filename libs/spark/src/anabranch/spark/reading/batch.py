"""The functions that Spark's workers run: one plans, and the others read a partition each."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
from anabranch.spark.reading.losses import GONE, NO_STREAM, OnLoss, behind, lose_parts
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
    `on_loss`: the treatment of events that were truncated after the plan.
    """

    place: Place
    columns: tuple[str, ...]
    watermarks: Mapping[StreamRef, int] = field(default_factory=dict)
    payload: pa.Schema | None = None
    on_loss: OnLoss = OnLoss.PLAN_AGAIN


def plan(options: ReadOptions, wanted: Wanted = ALL) -> Plan:
    """The partitions to read, and the incarnations of their streams."""
    with opened(options.place) as (loop, streams):
        return loop.run(plan_read(streams, options, len(os.sched_getaffinity(0)), wanted))


def read(
    how: PartitionRead, incarnations: Mapping[StreamRef, int], partition: Partition
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a partition, in order.

    Raises PlanOutdated if planned data is gone, or as `losses`.
    """
    with opened(how.place) as (loop, streams):
        blocks = blocks_of(loop, streams, partition, how.on_loss)
        if how.payload is None:
            yield from batches(blocks, how.columns, how.watermarks)
        else:
            needed = needed_columns(how.payload, how.columns)
            events = batches(blocks, needed, how.watermarks)
            yield from decoded(events, how.payload, how.columns)
        used = dict.fromkeys(parse_segment_name(piece.segment)[0] for piece in partition)

        async def confirm(stream: StreamRef) -> None:
            with suppress(*NO_STREAM if how.on_loss is OnLoss.PASS else ()):
                await streams.source(stream).confirm(incarnations[stream])

        loop.run(for_each(used, CONFIRMED_AT_ONCE, confirm))


def blocks_of(
    loop: Loop, streams: StreamPlace, partition: Partition, on_loss: OnLoss
) -> Iterator[PlacedBlock]:
    """The blocks of a partition, in order: small pieces are read together, large ones in steps."""
    for pieces in together(partition, TOGETHER_BYTES_MAX):
        found: Sequence[bytes] = ()
        if pieces[0].size <= TOGETHER_BYTES_MAX:
            with suppress(*GONE):  # The steps find out what is gone.
                found = loop.run(streams.read_whole(pieces))
        for number, piece in enumerate(pieces):
            part = _Part(loop, streams.source(parse_segment_name(piece.segment)[0]), piece, on_loss)
            yield from part.blocks(piece.start, found[number]) if found else part.in_steps()


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


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece that a task reads, and where it reads it."""

    loop: Loop
    source: SegmentSource
    piece: Piece
    on_loss: OnLoss

    def in_steps(self) -> Iterator[PlacedBlock]:
        """The blocks of the piece, by one read after the other."""
        offset = self.piece.start
        while offset < self.piece.end:
            try:
                data = self.loop.run(self.source.read(self.piece, offset))
            except GONE as error:
                offset = behind(self.on_loss, self.piece, offset, error)
                continue
            yield from self.blocks(offset, data)
            offset += len(data)

    def blocks(self, offset: int, data: bytes) -> Iterator[PlacedBlock]:
        """The blocks in `data`, bytes of the piece from `offset` on."""
        piece = self.piece

        async def stored(at: int, size: int) -> bytes:
            if offset <= at < offset + len(data):
                return data[at - offset : at - offset + size]
            return await self.source.read_at(piece.segment, at, size)

        def fetch(reference: LargeReference) -> bytes | None:
            try:
                return self.loop.run(fetch_large(stored, reference))
            except GONE as error:
                lose_parts(self.on_loss, piece, reference, error)
                return None

        return placed_blocks(
            piece.segment,
            data,
            offset,
            skip=piece.skip if offset == piece.start else 0,
            keep=piece.keep if offset + len(data) == piece.end else 0,
            fetch_large=fetch,
        )
