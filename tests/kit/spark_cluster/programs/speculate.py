"""Copies a stream in one micro-batch of which one task is so slow that Spark runs it twice.

Arguments: endpoints file, source, target, checkpoint, a directory, and the winner: `second` (the
first attempt waits until Spark ends it), `first` (the second one does), or `race` (the first one
waits only until there is a second one). The directory is where the attempts see each other.

Prints the attempts of speculated tasks, as Spark's REST interface tells them.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
from pyspark.sql import SparkSession

COLUMNS = "event binary, routing_key string, event_time timestamp"
WAIT_S_MAX = 120.0
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
}


class Slow:
    """Passes batches on; attempts of the task of partition 0 wait behind their first batch."""

    def __init__(self, directory: str, winner: str) -> None:
        self._directory = directory
        self._winner = winner

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        is_first = context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            yield batch
            if context.partitionId() == 0 and number == 0:
                self._wait(is_first)

    def _wait(self, is_first: bool) -> None:
        import time

        second, never = Path(self._directory, "second"), Path(self._directory, "never")
        if not is_first:
            second.touch()
        loser = {"second": True, "first": False}.get(self._winner)
        awaited = never if is_first == loser else second
        deadline = time.monotonic() + WAIT_S_MAX  # noqa: TID251 - a real process
        while not awaited.exists() and time.monotonic() < deadline:  # noqa: TID251
            time.sleep(0.02)  # noqa: TID251 - a real process


def attempts(spark: SparkSession) -> list[dict[str, Any]]:
    """All attempts of the tasks that Spark speculated on."""
    context = spark.sparkContext
    base = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"

    def told(url: str) -> Any:
        with urlopen(url, timeout=30) as answer:
            return json.load(answer)

    found: list[dict[str, Any]] = []
    for stage in told(base):
        listed = told(f"{base}/{stage['stageId']}/{stage['attemptId']}/taskList?length=1000")
        twice = {task["index"] for task in listed if task["speculative"]}
        kept = ("index", "attempt", "speculative", "status", "host")
        found += [{name: task[name] for name in kept} for task in listed if task["index"] in twice]
    return found


def main(arguments: list[str]) -> None:
    nats_url, source, target, checkpoint, directory, winner = arguments
    builder = SparkSession.builder.appName("speculate")
    for name, text in SETTINGS.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
    events = (
        spark.readStream.format("anabranch")
        .option("nats_url", nats_url)
        .option("min_partitions", "8")
        .load(source)
        .select("event", "routing_key", "event_time")
        .mapInArrow(Slow(directory, winner), COLUMNS)
    )
    query = (
        events.writeStream.format("anabranch")
        .option("nats_url", nats_url)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()
    sys.stdout.write(json.dumps({"attempts": attempts(spark)}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
