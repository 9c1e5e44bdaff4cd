"""Follows a stream to its end and writes it to another one; the tasks of one batch may be held.

Arguments: endpoints file, source, target, checkpoint, and a directory. In the directory, a task
writes its process id into `held` and waits for the file `go`, once, in the middle of its rows.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

WAIT_S_MAX = 120.0
COLUMNS = "event binary, routing_key string, event_time timestamp"


class Held:
    """Passes batches on; the first task that arrives waits behind its first batch."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            self._hold()

    def _hold(self) -> None:
        import os
        import time

        held, go = Path(self._directory, "held"), Path(self._directory, "go")
        own = held.with_name(f"held-{os.getpid()}")
        own.write_text(f"{os.getpid()}\n")
        try:
            held.hardlink_to(own)  # with its content, and only once
        except FileExistsError:
            return
        deadline = time.monotonic() + WAIT_S_MAX  # noqa: TID251 - a real process
        while not go.exists() and time.monotonic() < deadline:  # noqa: TID251 - a real process
            time.sleep(0.05)  # noqa: TID251 - a real process


def main(nats_url: str, source: str, target: str, checkpoint: str, directory: str) -> None:
    spark = SparkSession.builder.appName("copy").getOrCreate()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    events = (
        spark.readStream.format("anabranch")
        .option("nats_url", nats_url)
        .option("min_partitions", "8")
        .option("max_rows_per_trigger", "8000")
        .load(source)
        .select("event", "routing_key", "event_time")
        .mapInArrow(Held(directory), COLUMNS)
    )
    query = (
        events.writeStream.format("anabranch")
        .option("nats_url", nats_url)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()
    batches = len(query.recentProgress)
    sys.stdout.write(json.dumps({"batches": batches}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
