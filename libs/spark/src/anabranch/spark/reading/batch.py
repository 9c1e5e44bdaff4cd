"""The functions that Spark's workers run: one plans, and the others read a partition each."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.spark.options.places import Place
from anabranch.spark.options.read import ReadOptions
from anabranch.spark.partitioning import Partition, Piece
from anabranch.spark.places.opening import Loop, opened
from anabranch.spark.places.ports import SegmentSource
from anabranch.spark.reading.columns import record_batches
from anabranch.spark.reading.planning import Plan, plan_read


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """What a task needs to read a partition; Spark pickles it."""

    place: Place
    columns: tuple[str, ...]


def plan(options: ReadOptions) -> Plan:
    """The partitions to read, and the incarnations of their streams."""
    with opened(options.place) as (loop, streams):
        return loop.run(plan_read(streams, options, len(os.sched_getaffinity(0))))


def read(
    how: PartitionRead, incarnations: Mapping[StreamRef, int], partition: Partition
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a partition, in order. Raises PlanOutdated if planned data is gone."""
    with opened(how.place) as (loop, streams):
        used: dict[StreamRef, SegmentSource] = {}
        for piece in partition:
            stream, _ = parse_segment_name(piece.segment)
            source = used.setdefault(stream, streams.source(stream))
            yield from _read_piece(loop, source, piece, how.columns)
        for stream, source in used.items():
            loop.run(source.confirm(incarnations[stream]))


def _read_piece(
    loop: Loop, source: SegmentSource, piece: Piece, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    offset = piece.start
    while offset < piece.end:
        data = loop.run(source.read(piece, offset))
        for batch in record_batches(
            piece.segment,
            data,
            offset,
            skip=piece.skip if offset == piece.start else 0,
            keep=piece.keep if offset + len(data) == piece.end else 0,
        ):
            yield batch.select(list(columns))
        offset += len(data)
