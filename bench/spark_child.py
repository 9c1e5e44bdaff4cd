"""One Spark session that works on request: `bench.spark_session` is at the other end.

    python -m bench.spark_child

A line in is a request: the format, its options, and whether to take the time, to check or to plan;
to start, await or stop a streaming query; or to audit a stream. A line out is the answer. The
process ends with its input.
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
from anabranch.spark.pipelines import audit
from anabranch.spark.pipelines.progress import Progress
from anabranch.spark.reading.schema import schema_of
from anabranch.spark.session import local_session
from bench.clock import SystemStopwatch
from bench.spark_follow import FollowedStream

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
    """Read everything once → seconds, events and bytes, or the sum of checksums; or only plan it
    → seconds and partitions.

    With `write`: write so many events of `event_bytes` → seconds, or the sum of their checksums.
    With `audit`: audit the stream of these options → seconds, events, and whether it is healthy.
    """
    if "audit" in request:
        return _audited(spark, request["audit"])
    options = request["options"]
    assert isinstance(options, dict)
    if "write" in request:
        return _written(spark, request, options)
    clock = SystemStopwatch()
    begun = clock.now()
    events = spark.read.format(str(request["format"])).options(**options).load()
    if request.get("plan"):
        partitions = events.rdd.getNumPartitions()
        return {"seconds": clock.now() - begun, "partitions": partitions}
    if request["check"]:
        found = events.selectExpr("count(*) AS events", "sum(crc32(event)) AS sum").first()
        assert found is not None
        return {"events": found["events"], "sum": found["sum"]}
    found = events.selectExpr("count(*) AS events", "sum(length(event)) AS bytes").first()
    assert found is not None
    return {"seconds": clock.now() - begun, "events": found["events"], "bytes": found["bytes"]}


class Session:
    """Answers requests. State: the query that follows a stream, if there is one."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._followed: FollowedStream | None = None

    def answer(self, request: Mapping[str, object]) -> dict[str, object]:
        """The answer to a read, or to a request about a streaming query."""
        match request.get("follow"):
            case None:
                return answer(self._spark, request)
            case "start":
                options = request["options"]
                assert isinstance(options, dict)
                clock = SystemStopwatch()
                self._followed = FollowedStream(self._spark, str(request["format"]), options, clock)
                return {}
        assert self._followed is not None, "no query is running"
        if request["follow"] == "wait":
            events = request["events"]
            assert isinstance(events, int)
            return self._followed.wait(events)
        self._followed.stop()
        self._followed = None
        return {}


def _audited(spark: SparkSession, options: object) -> dict[str, object]:
    assert isinstance(options, dict)
    arguments = audit.Arguments(tier2=options["tier2"], streams=(options["stream"],))
    report = audit.run(spark, arguments, Progress(None))
    return {"seconds": report.seconds, "events": report.events, "healthy": report.healthy}


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
        session = Session(spark)
        answers.write("ready\n")
        answers.flush()
        for line in requests:
            answers.write(json.dumps(session.answer(json.loads(line))) + "\n")
            answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
