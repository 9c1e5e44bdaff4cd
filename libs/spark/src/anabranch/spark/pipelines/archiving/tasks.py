"""The work of an archive as jobs of Spark: write a batch, compact, read."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from anabranch.common.runtime.ids import SystemIds
from anabranch.spark.options.columns import DEFAULT
from anabranch.spark.pipelines.archiving import tables
from anabranch.spark.pipelines.archiving.files import local_path, open_files
from anabranch.spark.pipelines.archiving.manifest import DATA, UNITS, Contents, File
from anabranch.spark.reading.schema import schema_of

TASKS_MAX = 10_000


def write_events(events: DataFrame, url: str, *, unit: str, writer: str) -> list[File]:
    """Write a table with the columns of a stream into new files of the place."""
    summed = events.withColumn(tables.CRC, F.crc32("event"))
    work = partial(_write_task, url=url, unit=unit, writer=writer)
    rows = summed.mapInArrow(work, tables.FILES_DDL).collect()
    return sorted((File(**row.asDict()) for row in rows), key=lambda file: file.name)


def _write_task(
    batches: Iterator[pa.RecordBatch], *, url: str, unit: str, writer: str
) -> Iterator[pa.RecordBatch]:
    files = open_files(url)
    for file in tables.write_batches(batches, files, SystemIds(), unit=unit, writer=writer):
        yield tables.as_batch([file])


def merge_groups(
    session: SparkSession, groups: Sequence[Sequence[File]], url: str, *, unit: str, writer: str
) -> list[File]:
    """Write a new file for each group."""
    rows = [(place, *astuple(file)) for place, group in enumerate(groups) for file in group]
    listed = session.createDataFrame(rows, f"place long, {tables.FILES_DDL}")
    work = partial(_merge_task, url=url, unit=unit, writer=writer)
    count = min(len(groups), TASKS_MAX)
    found = listed.repartition(count, "place").mapInArrow(work, tables.FILES_DDL).collect()
    return sorted((File(**row.asDict()) for row in found), key=lambda file: file.name)


def _merge_task(
    batches: Iterator[pa.RecordBatch], *, url: str, unit: str, writer: str
) -> Iterator[pa.RecordBatch]:
    files, groups = open_files(url), dict[int, list[File]]()
    for batch in batches:
        for row in batch.to_pylist():
            groups.setdefault(row.pop("place"), []).append(File(**row))
    for _, group in sorted(groups.items()):
        merged = tables.merge_files(
            sorted(group, key=lambda file: file.name), files, SystemIds(), unit=unit, writer=writer
        )
        yield tables.as_batch([merged])


def read_named(
    session: SparkSession, url: str, contents: Contents, names: Sequence[str]
) -> DataFrame:
    """The events of some files of an archive, with the column of its partitions; or of other
    Parquet files of a directory, as they are."""
    root = local_path(url)
    if contents.origin is None:
        assert root is not None
        return session.read.parquet(*(file_path(root / name) for name in names))
    unit = contents.origin.unit
    column = UNITS[unit]
    schema = schema_of(DEFAULT).add(column, "date" if unit == "day" else "string")
    if not names:
        return session.createDataFrame([], schema)
    if root is not None:
        reader = session.read.schema(schema).option("basePath", file_path(root / DATA))
        return reader.parquet(*(file_path(root / name) for name in names))
    listed = session.createDataFrame([(name,) for name in names], "name string")
    spread = listed.repartition(min(len(names), TASKS_MAX))
    return spread.mapInArrow(partial(_read_task, url=url, column=column), schema)


def file_path(path: Path) -> str:
    """A local path as Hadoop reads it, which takes the signs of a URL literally."""
    return f"file:{path}"


def _read_task(
    batches: Iterator[pa.RecordBatch], *, url: str, column: str
) -> Iterator[pa.RecordBatch]:
    files = open_files(url)
    for batch in batches:
        for name in batch.column("name").to_pylist():
            table = tables.read_table(files, name)
            value = name.split("/")[1].partition("=")[2]
            values = pa.array([value] * table.num_rows, pa.string())
            if column == UNITS["day"]:
                values = values.cast(pa.date32())
            yield from table.append_column(column, values).to_batches()
