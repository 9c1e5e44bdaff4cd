"""Writes batches as an Arrow IPC stream or as a Parquet file. The columns of events:

    payload       binary
    key           string, null where the event has none
    timestamp_ms  timestamp("ms", UTC): as its writer said, else when its block was written
    segment       string: the full name
    offset, index int64, int32: the event's position

The names are those of `read --output json`. Memory holds one batch of the reader, for Parquet one
row group. Imported when it is first needed, because pyarrow is no dependency of the command.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.cli.byte_target import ByteTarget
from anabranch.client.reading.arrow import SCHEMA as CLIENT_SCHEMA

SCHEMA = pa.schema(
    [
        CLIENT_SCHEMA.field("event").with_name("payload"),
        CLIENT_SCHEMA.field("key"),
        CLIENT_SCHEMA.field("timestamp_ms"),
        pa.field("segment", pa.string(), nullable=False),
        CLIENT_SCHEMA.field("offset"),
        CLIENT_SCHEMA.field("index"),
    ]
)
B = TypeVar("B")

ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_SIZE_BYTES = 64 * 1024 * 1024


class Rows(NamedTuple, Generic[B]):
    """The rows of batches: their schema, and the rows of one batch."""

    schema: pa.Schema
    of: Callable[[B], pa.RecordBatch]


def printable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The client's batch with the columns that this module writes."""
    columns = [batch.column(name) for name in CLIENT_SCHEMA.names]
    at = CLIENT_SCHEMA.get_field_index("segment")
    columns[at] = columns[at].cast(pa.string())
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


EVENT_ROWS = Rows(SCHEMA, printable)


class ArrowStream(Generic[B]):
    """An Arrow IPC stream: each batch is written as it comes."""

    def __init__(self, target: ByteTarget, rows: Rows[B]) -> None:
        self._target = target
        self._rows = rows
        self._writer = pa.ipc.new_stream(target, rows.schema)

    def write(self, batch: B) -> None:
        self._writer.write_batch(self._rows.of(batch))
        self._target.flush()

    def close(self) -> None:
        self._writer.close()
        self._target.flush()


class ParquetFile(Generic[B]):
    """A Parquet file: a row group is written when it is full, and closing makes the file valid."""

    def __init__(self, target: ByteTarget, rows: Rows[B]) -> None:
        self._target = target
        self._rows = rows
        self._writer = pq.ParquetWriter(target, rows.schema, compression="zstd")
        self._group: list[pa.RecordBatch] = []
        self._count = self._size_bytes = 0

    def write(self, batch: B) -> None:
        rows = self._rows.of(batch)
        self._group.append(rows)
        self._count += rows.num_rows
        self._size_bytes += rows.nbytes
        if self._count >= ROW_GROUP_ROWS or self._size_bytes >= ROW_GROUP_SIZE_BYTES:
            self._write_group()

    def close(self) -> None:
        if self._group:
            self._write_group()
        self._writer.close()
        self._target.flush()

    def _write_group(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._group, self._rows.schema))
        self._group = []
        self._count = self._size_bytes = 0
