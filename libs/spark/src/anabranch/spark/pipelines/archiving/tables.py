"""Arrow tables of events → Parquet files of an archive, and back. Runs in the tasks of Spark.

A task draws a name for each file, so that a task that runs twice makes other files; only those
files that Spark reports to the driver come into the manifest.
"""

import io
import zlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.common.runtime.ids import IdSource
from anabranch.spark.pipelines.archiving.files import Files
from anabranch.spark.pipelines.archiving.manifest import DATA, UNITS, File

FLUSH_BYTES = 128 * 1024 * 1024
"""Arrow bytes that a task collects before it writes them."""
CRC = "_crc"
_FORMS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
_UTC = pa.timestamp("us", "UTC")
EVENTS = pa.schema(
    [
        pa.field("event", pa.binary(), nullable=False),
        pa.field("routing_key", pa.string()),
        pa.field("event_time", _UTC, nullable=False),
        pa.field("segment", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
    ]
)
"""The columns of a file of an archive: those of a stream."""
FILES_DDL = (
    "name string, partition string, rows long, size_bytes long, crc_sum long, "
    "event_time_min_us long, event_time_max_us long"
)
_FILES = pa.schema(
    [
        ("name", pa.string()),
        ("partition", pa.string()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("crc_sum", pa.int64()),
        ("event_time_min_us", pa.int64()),
        ("event_time_max_us", pa.int64()),
    ]
)


def write_batches(
    batches: Iterable[pa.RecordBatch], files: Files, ids: IdSource, *, unit: str, writer: str
) -> Iterator[File]:
    """Write the events into files by partition; memory is bounded by `FLUSH_BYTES`.

    The batches have the columns of a stream and `CRC`. `writer` is the beginning of the names: the
    number of the batch, or `g` and the generation of the compaction.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= FLUSH_BYTES:
            yield from _write(held, files, ids, unit=unit, writer=writer)
            held, size = [], 0
    if held:
        yield from _write(held, files, ids, unit=unit, writer=writer)


def _write(
    batches: Sequence[pa.RecordBatch], files: Files, ids: IdSource, *, unit: str, writer: str
) -> Iterator[File]:
    whole = pa.Table.from_batches(batches)
    for partition, part in by_partition(whole, unit):
        yield write_table(part, files, ids, unit=unit, partition=partition, writer=writer)


def by_partition(table: pa.Table, unit: str) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each day or hour (UTC), in the order of time."""
    times = table["event_time"].cast(_UTC)
    begins = pc.floor_temporal(times, unit=unit)
    for begin in sorted(pc.unique(begins).to_pylist()):
        yield begin.strftime(_FORMS[unit]), table.filter(pc.equal(begins, pa.scalar(begin, _UTC)))


def write_table(
    table: pa.Table, files: Files, ids: IdSource, *, unit: str, partition: str, writer: str
) -> File:
    """Write one file; its rows lie in one partition."""
    data = io.BytesIO()
    pq.write_table(table.select(EVENTS.names).cast(EVENTS), data, compression="zstd")
    content = data.getvalue()
    name = f"{DATA}/{UNITS[unit]}={partition}/{writer}-{ids.new_id()[:16]}.parquet"
    files.create(name, content)
    bounds = pc.min_max(table["event_time"].cast(_UTC).cast(pa.int64())).as_py()
    return File(
        name=name,
        partition=partition,
        rows=table.num_rows,
        size_bytes=len(content),
        crc_sum=pc.sum(table[CRC]).as_py(),
        event_time_min_us=bounds["min"],
        event_time_max_us=bounds["max"],
    )


def read_table(files: Files, name: str) -> pa.Table:
    """The events of a file. Raises ObjectNotFound."""
    return pq.read_table(io.BytesIO(files.get(name))).cast(EVENTS)


def merge_files(
    group: Sequence[File], files: Files, ids: IdSource, *, unit: str, writer: str
) -> File:
    """Write the events of the files of one partition into a single file, in their order."""
    whole = pa.concat_tables([read_table(files, file.name) for file in group])
    sums = pa.array([zlib.crc32(event) for event in whole["event"].to_pylist()], pa.int64())
    whole = whole.append_column(CRC, sums)
    return write_table(whole, files, ids, unit=unit, partition=group[0].partition, writer=writer)


def as_batch(found: Sequence[File]) -> pa.RecordBatch:
    """Files as rows for Spark, in the order of `FILES_DDL`."""
    columns = {name: [getattr(file, name) for file in found] for name in _FILES.names}
    return pa.RecordBatch.from_pydict(columns, schema=_FILES)
