"""Events that are Arrow tables, as the rows of a read."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from anabranch.client import ArrowSerializer
from anabranch.common.errors import SerializationFailed
from anabranch.common.wire.block_encoding import encode_block
from anabranch.spark.reading.columns import FIELDS, record_batches
from anabranch.spark.reading.payloads import decoded, needed_columns

SEGMENT = "demo/tables/0.#epoch.0"
ID, NAME = pa.field("id", pa.int64()), pa.field("name", pa.string())


def rows_of(
    tables: Sequence[pa.Table | bytes], schema: pa.Schema, columns: Sequence[str] = ()
) -> list[tuple[object, ...]]:
    write = ArrowSerializer().serialize
    events = [each if isinstance(each, bytes) else write(each) for each in tables]
    data = encode_block(events, writer_id=bytes(16), first_event_number=1, base_timestamp_ms=5)
    batches = record_batches(SEGMENT, data, 0, columns=needed_columns(schema, columns))
    found: list[tuple[object, ...]] = []
    for batch in decoded(batches, schema, columns):
        assert batch.schema.equals(schema)
        batch.validate(full=True)
        found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found


def table(**columns: Sequence[object]) -> pa.Table:
    return pa.table({name: list(values) for name, values in columns.items()})


def test_rows_keep_their_order_and_know_their_event() -> None:
    schema = pa.schema([ID, FIELDS["index"], NAME])
    tables = [table(id=[1, 2], name=["a", None]), table(id=[], name=[]), table(id=[3], name=["c"])]
    tables[1] = tables[1].cast(tables[0].schema)
    found = rows_of(tables, schema, ("index",))
    assert found == [(1, 0, "a"), (2, 0, None), (3, 2, "c")]


def test_a_column_that_a_table_lacks_is_null_and_one_too_many_is_dropped() -> None:
    found = rows_of([table(id=[1]), table(more=[0.5], name=["b"])], pa.schema([ID, NAME]))
    assert found == [(1, None), (None, "b")]


def test_values_become_the_types_of_the_read() -> None:
    coded = pa.table({"name": pa.array(["a", "a"]).dictionary_encode()})
    assert rows_of([coded], pa.schema([NAME])) == [("a",), ("a",)]
    small = pa.table({"id": pa.array([7], pa.int8())})
    assert rows_of([small], pa.schema([ID])) == [(7,)]


@pytest.mark.parametrize(
    ("event", "field", "text"),
    [
        (b"no table", ID, "not an Arrow table"),
        (table(id=["x"]), ID, "does not fit the type"),
        (table(id=[2**40]), pa.field("id", pa.int32()), "does not fit the type"),
        (table(name=["x"]), pa.field("id", pa.int64(), nullable=False), "lacks a column"),
        (table(id=[None, 1]), pa.field("id", pa.int64(), nullable=False), "has nulls"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    event: pa.Table | bytes, field: pa.Field, text: str
) -> None:
    with pytest.raises(SerializationFailed, match=text) as refused:
        rows_of([event], pa.schema([field]))
    assert (refused.value.fields["segment"], refused.value.fields["offset"]) == (SEGMENT, 0)
