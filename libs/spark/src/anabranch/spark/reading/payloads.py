"""Events that are Arrow tables → batches of the tables' rows, without a Python call per row.

    batches of events, each a table ──► tables of one schema, joined ──► cast to the read's columns
    columns about the events        ──► repeated for each row of the event's table

A column that a table lacks is null in its rows; a column that the read does not have is dropped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.common.errors import SerializationFailed
from anabranch.spark.reading.blocks import BATCH_ROWS_MAX

EVENT, SEGMENT, OFFSET = "event", "segment", "offset"
_REMEDY = (
    "name the columns with the option payload_schema as the tables have them; or read with "
    "payload=bytes and look at the event"
)


def needed_columns(schema: pa.Schema, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that `decoded` needs of each event: those of the read, the event, its place."""
    asked = [name for name in schema.names if name in columns]
    return tuple(dict.fromkeys((EVENT, SEGMENT, OFFSET, *asked)))


def decoded(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the tables in the events, in order, as `schema`.

    `columns`: those of the schema that are about the event. Raises SerializationFailed for an event
    that is no Arrow table, or whose table does not fit the schema.
    """
    for batch in batches:
        for run in _runs(batch):
            for joined in _as_rows(run, schema, columns).to_batches(BATCH_ROWS_MAX):
                yield pa.RecordBatch.from_arrays(joined.columns, schema=schema)


@dataclass(frozen=True)
class _Run:
    """Consecutive events of one batch, from row `first` on, whose tables have one schema."""

    batch: pa.RecordBatch
    first: int
    tables: Sequence[pa.Table]


def table_of(payload: pa.Buffer | bytes) -> pa.Table:
    """The table in an event. Raises ArrowException, OSError."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_all()


def _runs(batch: pa.RecordBatch) -> Iterator[_Run]:
    events = batch.column(EVENT)
    first = 0
    tables: list[pa.Table] = []
    for row in range(len(events)):
        try:
            table = table_of(events[row].as_buffer())
        except (pa.ArrowException, OSError) as error:
            raise _failed("an event is not an Arrow table", batch, row, error) from error
        if tables and table.schema != tables[0].schema:
            yield _Run(batch, first, tables)
            first, tables = row, []
        tables.append(table)
    if tables:
        yield _Run(batch, first, tables)


def _as_rows(run: _Run, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    table = pa.concat_tables(run.tables)
    counts = [each.num_rows for each in run.tables]
    rows = np.repeat(np.arange(run.first, run.first + len(counts), dtype=np.int64), counts)
    places = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
    arrays: list[pa.Array | pa.ChunkedArray] = []
    for field in schema:
        if field.name in columns:
            arrays.append(run.batch.column(field.name).take(places))
        else:
            arrays.append(_fitted(run, table, field))
    return pa.Table.from_arrays(arrays, schema=schema).combine_chunks()


def _fitted(run: _Run, table: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """The column of the tables as the field's type. Raises SerializationFailed."""
    found = table.schema.get_all_field_indices(field.name)
    if len(found) > 1:
        raise _failed("a table has a column twice", run.batch, run.first, column=field.name)
    if not found:
        if not field.nullable:
            raise _failed("a table lacks a column", run.batch, run.first, column=field.name)
        return pa.nulls(table.num_rows, field.type)
    column = table.column(found[0])
    # Spark's times have microseconds: finer ones are cut.
    is_time = pa.types.is_timestamp(column.type) and pa.types.is_timestamp(field.type)
    try:
        fitted = column if column.type == field.type else column.cast(field.type, safe=not is_time)
    except pa.ArrowException as error:
        raise _failed(
            "a table's column does not fit the type of the read", run.batch, run.first, error,
            column=field.name, type=str(column.type), wanted=str(field.type),
        ) from error  # fmt: skip
    if fitted.null_count and not field.nullable:
        raise _failed("a column has nulls", run.batch, run.first, column=field.name)
    return fitted


def _failed(
    what: str, batch: pa.RecordBatch, row: int, cause: Exception | None = None, **fields: str
) -> SerializationFailed:
    """`row`: that of the event, or of the first of several in the batch."""
    told = {} if cause is None else {"cause": str(cause)[:200]}
    return SerializationFailed(
        what, remedy=_REMEDY, segment=batch.column(SEGMENT)[row].as_py(),
        offset=batch.column(OFFSET)[row].as_py(), **fields, **told,
    )  # fmt: skip
