"""The columns of a read whose events are Arrow tables, as the first event's table has them.

A streaming read asks each time that it is started: the first event is that at or after its option
`start`, wherever its checkpoint is.
"""

from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from anabranch.client.reading.large_events import fetch_large
from anabranch.common.errors import EventsTruncated, InvalidRequest, SerializationFailed
from anabranch.common.model.names import parse_segment_name
from anabranch.common.wire.block import Block
from anabranch.spark.options.read import Division, ReadOptions
from anabranch.spark.partitioning import Piece
from anabranch.spark.places.opening import opened
from anabranch.spark.places.ports import StreamPlace
from anabranch.spark.reading.payloads import table_of
from anabranch.spark.reading.planning import plan_read

_REMEDY = 'name the columns: .option("payload_schema", "id INT, name STRING")'


def inferred(options: ReadOptions) -> StructType:
    """The columns of the first event's table. Raises InvalidRequest if the read has no event,
    SerializationFailed, and as `plan_read`."""
    with opened(options.place) as (loop, streams):
        event = loop.run(_first_event(streams, options))
    if event is None:
        raise InvalidRequest(
            "the columns of the payload are unknown, because there is no event from the start on",
            remedy=_REMEDY,
        )
    try:
        return from_arrow_schema(_plain(table_of(event).schema))
    except (pa.ArrowException, OSError) as error:
        raise SerializationFailed(
            "the first event is not an Arrow table",
            remedy="read with payload=bytes, and look at the event", cause=str(error)[:200],
        ) from error  # fmt: skip
    except PySparkException as error:
        raise InvalidRequest(
            "the first event's table has a column that Spark has no type for",
            remedy=_REMEDY, cause=str(error)[:200],
        ) from error  # fmt: skip


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema with the values in place of dictionaries; every column may be null, because
    another table may lack it."""
    return pa.schema(
        [
            pa.field(
                field.name,
                field.type.value_type if pa.types.is_dictionary(field.type) else field.type,
            )
            for field in schema
        ]
    )


async def _first_event(streams: StreamPlace, options: ReadOptions) -> bytes | None:
    """The first event of the read; None without one."""
    plan = await plan_read(streams, _undivided(options), parallelism=1)
    for piece in (piece for partition in plan.partitions for piece in partition):
        event = await _event_of(streams, piece)
        if event is not None:
            return event
    return None


def _undivided(options: ReadOptions) -> ReadOptions:
    return replace(options, division=Division(min_partitions=1))


async def _event_of(streams: StreamPlace, piece: Piece) -> bytes | None:
    """The first event of a piece; None if it has only parts of a large event."""
    source = streams.source(parse_segment_name(piece.segment)[0])

    async def stored(offset: int, size: int) -> bytes:
        return await source.read_at(piece.segment, offset, size)

    at = piece.start
    while at < piece.end:
        size = (await source.block_at(piece.segment, at)).size
        block = Block(await stored(at, size))
        if block.header.is_large:
            with suppress(EventsTruncated):  # The read leaves the event out as well.
                return await fetch_large(stored, block.reference(at))
        elif not block.header.is_part:
            return block[piece.skip if at == piece.start else 0]
        at += size
    return None
