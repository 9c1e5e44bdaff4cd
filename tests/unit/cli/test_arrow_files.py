"""Streams of Arrow and files of Parquet hold the events that a reader yields."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.cli import arrow_files
from anabranch.cli.arrow_files import EVENT_ROWS, SCHEMA, ArrowStream, ParquetFile
from anabranch.cli.byte_target import ByteTarget
from anabranch.client.reading.arrow import SCHEMA as CLIENT_SCHEMA

PLACE = {"segment": "a/b/0.#epoch.0", "offset": 9, "index": 3}
ROWS = [
    {"event": b"\xff\0", "key": None, "timestamp_ms": 7, **PLACE},
    {"event": b"", "key": "ä", "timestamp_ms": -1, **PLACE, "index": 4},
]


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), CLIENT_SCHEMA)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    assert table.schema.equals(SCHEMA)
    at = SCHEMA.get_field_index("timestamp_ms")
    plain = table.set_column(at, "timestamp_ms", table.column(at).cast(pa.int64()))
    return [{"event": row.pop("payload"), **row} for row in plain.to_pylist()]


def test_a_stream_has_a_batch_for_each_one_read() -> None:
    target = io.BytesIO()
    stream = ArrowStream(ByteTarget(target, ""), EVENT_ROWS)
    stream.write(batch(*ROWS))
    seen = len(target.getvalue())
    stream.write(batch(ROWS[0]))
    assert len(target.getvalue()) > seen > 0
    stream.close()
    with pa.ipc.open_stream(target.getvalue()) as found:
        batches = list(found)
    assert [rows_of(pa.Table.from_batches([each])) for each in batches] == [ROWS, ROWS[:1]]


def test_a_file_has_row_groups_of_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "ROW_GROUP_ROWS", 3)
    target = io.BytesIO()
    file = ParquetFile(ByteTarget(target, ""), EVENT_ROWS)
    for _ in range(2):
        file.write(batch(*ROWS))
    file.write(batch(ROWS[0]))
    file.close()
    found = pq.ParquetFile(target)
    assert found.metadata.num_row_groups == 2
    assert rows_of(found.read()) == [*ROWS, *ROWS, ROWS[0]]


@pytest.mark.parametrize("kind", [ArrowStream, ParquetFile])
def test_without_events_there_is_a_schema(
    kind: type[ArrowStream[Any]] | type[ParquetFile[Any]],
) -> None:
    target = io.BytesIO()
    kind(ByteTarget(target, ""), EVENT_ROWS).close()
    data = target.getvalue()
    table = pa.ipc.open_stream(data).read_all() if kind is ArrowStream else pq.read_table(target)
    assert rows_of(table) == []
