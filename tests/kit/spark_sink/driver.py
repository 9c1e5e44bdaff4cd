"""A driver of Spark on request: `calls` is at the other end.

    python -m kit.spark_sink.driver MASTER

A line in is a request as JSON, a line out its answer. The process ends with its input.
"""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from anabranch.spark.session import local_session
from kit.spark_sink.faults import FAULT_DIR, FaultyDataSource

TASKS = 4
SETTINGS = {
    "spark.executor.memory": "600m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}


class Driver:
    """One session, and the streaming queries that requests started."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._queries: dict[str, StreamingQuery] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, object]:
        """The answer: `error` holds the text of Spark's error, or of the query's."""
        try:
            found: dict[str, object] = getattr(self, f"_{request['do']}")(request)
        except PySparkException as error:
            return {"error": str(error)}
        except Exception:  # noqa: BLE001  # of Py4J, for which there are no types
            return {"error": traceback.format_exc()}
        return {"error": "", **found}

    def _batch(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Write rows `first` … `first + count`, as {tag}-{row} with the key row % 7."""
        rows = self._session.range(
            request["first"], request["first"] + request["count"], numPartitions=TASKS
        ).selectExpr(f"'{request['tag']}' AS tag", "id")
        told = _driver_known(request)
        chosen = rows.selectExpr(*request.get("columns", _columns("tag", "id")))
        writer = chosen.write.format(request["format"]).mode(request.get("mode", "append"))
        writer.options(**told).save(request["stream"])
        return {}

    def _query(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Run a query over the files that are there, to its end."""
        query = self._begun(request)
        query.awaitTermination(request.get("timeout_s", 120))
        if query.isActive:
            query.stop()
            return {"error": "the query did not end"}
        batches = [progress["batchId"] for progress in query.recentProgress]
        return {"batches": batches, "id": str(query.id)}

    def _start(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Begin a query, and answer at once."""
        query = self._begun(request)
        self._queries[request["name"]] = query
        return {"id": str(query.id)}

    def _stop(self, request: Mapping[str, Any]) -> dict[str, object]:
        self._queries.pop(request["name"]).stop()
        return {}

    def _wait(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Wait for the end of a query that was begun."""
        query = self._queries.pop(request["name"])
        query.awaitTermination(120)
        return {"active": query.isActive}

    def _begun(self, request: Mapping[str, Any]) -> StreamingQuery:
        lines = (
            self._session.readStream.format("text")
            .option("maxFilesPerTrigger", 1)
            .option("latestFirst", False)
            .load(request["input"])
        )
        tasks = request.get("tasks", TASKS)
        rows = _parted(lines.selectExpr("'f' AS tag", "value AS id"), tasks)
        return (
            rows.writeStream.format(request["format"])
            .options(**_driver_known(request))
            .option("checkpointLocation", request["checkpoint"])
            .trigger(availableNow=True)
            .start(request["stream"])
        )


def _parted(rows: DataFrame, tasks: int) -> DataFrame:
    return rows.repartition(tasks).selectExpr(*_columns("tag", "id"))


def _columns(tag: str, row: str) -> list[str]:
    return [
        f"concat({tag}, '-', {row}) AS event",
        f"cast({row} % 7 AS string) AS routing_key",
    ]


def _driver_known(request: Mapping[str, Any]) -> dict[str, str]:
    """The options; the faults of a commit know whom to kill."""
    options: dict[str, str] = request["options"]
    if FAULT_DIR in options:
        Path(options[FAULT_DIR], "driver").write_text(str(os.getpid()))
    return options


def serve(master: str) -> None:
    with local_session(
        "sink", quick=True, settings={**SETTINGS, "spark.master": master}
    ) as session:
        session.dataSource.register(FaultyDataSource)
        driver = Driver(session)
        _tell({"ready": True})
        for line in sys.stdin:
            _tell(driver.answer(json.loads(line)))


def _tell(answer: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
