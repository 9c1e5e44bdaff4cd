"""One Spark session that reads on request: `bench.workloads.w13_spark` is at the other end.

    python -m bench.spark_child

A line in is a request: the format, its options, and whether to take the time or to check. A line
out is the answer. The process ends with its input.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from anabranch.spark.options.columns import DEFAULT
from anabranch.spark.reading.schema import schema_of
from anabranch.spark.session import local_session
from bench.clock import SystemStopwatch

READY_FORMAT = "ready_batches"
READY_SUFFIX = ".arrows"


class ReadyBatches(DataSource):
    """The roofline: files that hold the very Arrow batches that a read of a stream gives Spark."""

    @classmethod
    def name(cls) -> str:
        return READY_FORMAT

    def schema(self) -> StructType:
        return schema_of(DEFAULT)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return _ReadyReader(self.options["path"])


class _ReadyReader(DataSourceReader):
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def partitions(self) -> list[InputPartition]:
        files = sorted(Path(self._directory).glob(f"*{READY_SUFFIX}"))
        return [InputPartition(str(file)) for file in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(partition.value) as file, pa.ipc.open_stream(file) as batches:
            yield from batches


def answer(spark: SparkSession, request: Mapping[str, object]) -> dict[str, object]:
    """Read everything once → seconds, events and bytes, or the sum of checksums.

    With `write`: write so many events of `event_bytes` → seconds, or the sum of their checksums.
    """
    options = request["options"]
    assert isinstance(options, dict)
    if "write" in request:
        return _written(spark, request, options)
    clock = SystemStopwatch()
    begun = clock.now()
    events = spark.read.format(str(request["format"])).options(**options).load()
    if request["check"]:
        found = events.selectExpr("count(*) AS events", "sum(crc32(event)) AS sum").first()
        assert found is not None
        return {"events": found["events"], "sum": found["sum"]}
    found = events.selectExpr("count(*) AS events", "sum(length(event)) AS bytes").first()
    assert found is not None
    return {"seconds": clock.now() - begun, "events": found["events"], "bytes": found["bytes"]}


def _written(
    spark: SparkSession, request: Mapping[str, object], options: dict[str, str]
) -> dict[str, object]:
    size = int(str(request["event_bytes"]))
    event = (
        f"encode(rpad(concat('event ', id, ' '), {size}, 'abcdefghijklmnopqrstuvwxyz'), 'utf-8')"
    )
    rows = spark.range(int(str(request["write"]))).selectExpr(f"{event} AS event")
    if request["check"]:
        found = rows.selectExpr("sum(crc32(event)) AS sum").first()
        assert found is not None
        return {"sum": found["sum"]}
    clock = SystemStopwatch()
    begun = clock.now()
    rows.write.format(str(request["format"])).mode("append").options(**options).save()
    return {"seconds": clock.now() - begun}


def serve(requests: TextIO, answers: TextIO) -> None:
    with local_session("bench") as spark:
        spark.dataSource.register(ReadyBatches)
        answers.write("ready\n")
        answers.flush()
        for line in requests:
            answers.write(json.dumps(answer(spark, json.loads(line))) + "\n")
            answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
