"""A streaming query of `bench.spark_child`: counts what it is given, and when."""

import tempfile
from pathlib import Path
from threading import Condition

from pyspark.sql import DataFrame, SparkSession

from bench.clock import Stopwatch

WAIT_SECONDS_MAX = 120.0


class FollowedStream:
    """A running query. State: its batches, as (end, events), where an end is a time of `clock`."""

    def __init__(
        self, spark: SparkSession, source: str, options: dict[str, str], clock: Stopwatch
    ) -> None:
        self._clock = clock
        self._changed = Condition()
        self._batches: list[tuple[float, int]] = []
        self._directory = tempfile.TemporaryDirectory(prefix="anabranch-bench-")
        events = spark.readStream.format(source).options(**options).load()
        self._query = (
            events.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(Path(self._directory.name, "checkpoint")))
            .trigger(processingTime="0 seconds")
            .start()
        )

    def _take(self, batch: DataFrame, _: int) -> None:
        found = batch.selectExpr("count(*) AS events", "sum(length(event)) AS bytes").first()
        assert found is not None
        with self._changed:
            self._batches.append((self._clock.now(), found["events"]))
            self._changed.notify_all()

    def wait(self, events: int) -> dict[str, object]:
        """The batches so far, as soon as they hold so many events, or after two minutes."""

        def is_there() -> bool:
            return sum(count for _, count in self._batches) >= events

        with self._changed:
            self._changed.wait_for(is_there, WAIT_SECONDS_MAX)
            return {"batches": list(self._batches)}

    def stop(self) -> None:
        self._query.stop()
        self._directory.cleanup()
