"""The functions that Spark's workers run: one plans, and the others read a partition each.

Spark calls plain functions. Each call here has an event loop of its own, which runs only while the
call waits. Nothing outlives a call.
"""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from anabranch.common.model.names import StreamRef
from anabranch.common.model.topics import TopicName
from anabranch.spark.columns import record_batches
from anabranch.spark.options import ReadOptions
from anabranch.spark.partitioning import Partition, Piece
from anabranch.spark.planning import plan_read
from anabranch.spark.ports import SegmentSource

TIER_TWO_LIMIT_S = 60.0

T = TypeVar("T")


class _Loop:
    """An event loop that runs only during `run`.

    Results are passed in a list, not as the task's result: in the main thread a Runner formats the
    finished task when it restores the handler of Ctrl-C, and a result may have many megabytes.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        results: list[T] = []

        async def perform() -> None:
            results.append(await work)

        self._runner.run(perform())
        return results[0]


def found(options: ReadOptions) -> ReadOptions:
    """The options with the stream of the topic that they name, if they name one.

    Raises TopicNotFound, TopicNotProvisioned, and the errors of the source.
    """
    if options.topic is None:
        return options
    with asyncio.Runner() as runner:
        stream = _Loop(runner).run(_stream_of(options, options.topic))
    return replace(options, stream=stream, topic=None)


async def _stream_of(options: ReadOptions, topic: TopicName) -> StreamRef:
    place = options.place
    if isinstance(place, str):
        from anabranch.common.adapters.chunk_url import open_chunk_storage_read_only
        from anabranch.spark.tier2_source import topic_stream

        storage = await open_chunk_storage_read_only(place, limit_s=TIER_TWO_LIMIT_S)
        return await topic_stream(storage, topic)
    from anabranch.client import connect
    from anabranch.spark.store_source import described_stream

    client = await connect(place, name="anabranch-spark")
    try:
        return await described_stream(client, topic)
    finally:
        await client.close()


def plan(options: ReadOptions) -> tuple[int, list[Partition]]:
    """Return the stream's incarnation and the partitions to read."""
    with _opened(options) as (loop, source):
        bounds = loop.run(source.bounds())
        parallelism = len(os.sched_getaffinity(0))
        return bounds.incarnation, loop.run(plan_read(source, bounds, options, parallelism))


def read(options: ReadOptions, incarnation: int, partition: Partition) -> Iterator[pa.RecordBatch]:
    """Yield the events of a partition, in order. Raises PlanOutdated if planned data is gone."""
    with _opened(options) as (loop, source):
        for piece in partition:
            yield from _read_piece(loop, source, piece)
        loop.run(source.confirm(incarnation))


def _read_piece(loop: _Loop, source: SegmentSource, piece: Piece) -> Iterator[pa.RecordBatch]:
    offset = piece.start
    while offset < piece.end:
        data = loop.run(source.read(piece, offset))
        yield from record_batches(
            piece.segment,
            data,
            offset,
            skip=piece.skip if offset == piece.start else 0,
            keep=piece.keep if offset + len(data) == piece.end else 0,
        )
        offset += len(data)


@contextmanager
def _opened(options: ReadOptions) -> Iterator[tuple[_Loop, SegmentSource]]:
    with asyncio.Runner() as runner:
        loop = _Loop(runner)
        source = loop.run(_open(options))
        try:
            yield loop, source
        finally:
            loop.run(source.close())


async def _open(options: ReadOptions) -> SegmentSource:
    # Every task is a process of its own and imports only the modules that it needs.
    place = options.place
    if isinstance(place, str):
        from anabranch.common.adapters.chunk_url import open_chunk_storage_read_only
        from anabranch.spark.tier2_source import TierTwoSource

        storage = await open_chunk_storage_read_only(place, limit_s=TIER_TWO_LIMIT_S)
        return TierTwoSource(storage, options.stream)
    from anabranch.client import connect
    from anabranch.spark.store_source import StoreSource

    client = await connect(place, name="anabranch-spark")
    return StoreSource(client, options.stream)
