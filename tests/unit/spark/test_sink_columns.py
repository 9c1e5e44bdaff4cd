"""Rows on their way into a stream: which columns are taken, and what becomes of nulls and sizes."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from anabranch.common.errors import EventTooLarge, InvalidRequest
from anabranch.spark.writing.columns import SLICE_SIZE_BYTES, Place, event_slices
from anabranch.spark.writing.schema import Written, written_columns

PLACE = Place(partition=3, rows_before=100)
LIMIT = 1000
NOW_MS = 1_700_000_000_000


def slices(batch: pa.RecordBatch, limit: int = LIMIT) -> list[pa.RecordBatch]:
    return list(event_slices(batch, PLACE, limit, NOW_MS))


def events(*values: object) -> pa.RecordBatch:
    return pa.record_batch({"event": pa.array(values, pa.binary())})


def test_rows_pass_unchanged() -> None:
    assert slices(events(b"a", b"", b"ccc")) == [events(b"a", b"", b"ccc")]
    assert slices(events()) == []


def test_a_null_event_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidRequest, match="an event is null, in row 102 of partition 3"):
        slices(events(b"a", b"b", None))


def test_an_event_over_the_limit_is_refused_with_its_place_and_what_to_do() -> None:
    with pytest.raises(EventTooLarge, match="row 101 of partition 3") as caught:
        slices(events(b"a", b"b" * 1001))
    assert "split the event" in str(caught.value.remedy)
    assert (caught.value.fields["size"], caught.value.fields["limit"]) == (1001, 1000)


def test_a_large_batch_is_cut_without_loss() -> None:
    size = SLICE_SIZE_BYTES // 3
    payloads = [bytes([number]) * size for number in range(8)]
    whole = events(b"small", *payloads, b"x" * (2 * SLICE_SIZE_BYTES), b"last")
    found = slices(whole, 3 * SLICE_SIZE_BYTES)
    assert pa.Table.from_batches(found).combine_chunks() == pa.table(whole)
    assert len(found) > 3
    assert all(one.nbytes < SLICE_SIZE_BYTES + 100 or one.num_rows == 1 for one in found)


def test_a_slice_of_arrows_memory_is_cut_like_a_whole_batch() -> None:
    part = events(b"dropped", b"a", b"b").slice(1)
    assert [one.to_pydict() for one in slices(part)] == [{"event": [b"a", b"b"]}]


def test_a_missing_time_is_the_time_of_writing() -> None:
    kind = pa.timestamp("us", tz="UTC")
    then = datetime(2013, 1, 1, tzinfo=UTC)
    batch = events(b"a", b"b").append_column("event_time", pa.array([then, None], kind))
    (found,) = slices(batch)
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert found.column("event_time").to_pylist() == [then, now]


def schema(**types: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])  # type: ignore[arg-type]


def test_only_the_event_is_required() -> None:
    assert written_columns(schema(event=BinaryType())) == Written(False, False)
    full = schema(event_time=TimestampType(), routing_key=StringType(), event=StringType())
    assert written_columns(full) == Written(True, True)


@pytest.mark.parametrize(
    ("given", "text", "remedy"),
    [
        (schema(value=StringType()), "column 'value' cannot be written", "to_json"),
        (schema(routing_key=StringType()), "no column 'event'", "to_json"),
        (schema(event=LongType()), "'event' cannot have the type bigint", "to_json"),
        (schema(event=StringType(), routing_key=LongType()), "'routing_key' cannot have", "cast"),
        (schema(event=StringType(), event_time=TimestampNTZType()), "'event_time' cannot", "cast"),
        (schema(event=StringType(), offset=LongType()), "column 'offset' cannot", "select event"),
    ],
)
def test_other_columns_are_refused_with_what_to_do(
    given: StructType, text: str, remedy: str
) -> None:
    with pytest.raises(InvalidRequest, match=text) as caught:
        written_columns(given)
    assert remedy in str(caught.value.remedy)


def test_a_column_that_exists_twice_is_refused() -> None:
    twice = StructType([StructField("event", StringType()), StructField("event", StringType())])
    with pytest.raises(InvalidRequest, match="exists twice"):
        written_columns(twice)
