"""Reads a stream from the stores and from tier 2, and the tables, on the session's cluster.

Arguments: endpoints file, URL of tier 2, stream. Prints counts, and where tasks found the project.
"""

import json
import sys
from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, crc32
from pyspark.sql.functions import sum as total

TASKS = 8
FROM_STORES = ("streams", "segments", "epochs", "transactions", "reader_groups")


def places(_: Iterable[int]) -> Iterator[tuple[str, str, str]]:
    """Where a task finds the project and PySpark, and its directory."""
    from pathlib import Path

    import pyspark

    import anabranch.spark.source

    yield anabranch.spark.source.__file__, pyspark.__file__, str(Path.cwd())


def sums(events: DataFrame) -> list[int]:
    row = events.agg(count("*"), total(crc32(col("event")))).first()
    assert row is not None
    return [int(row[0]), int(row[1])]


def main(nats_url: str, tier2: str, stream: str) -> None:
    spark = SparkSession.builder.appName("read-all").getOrCreate()
    read = spark.read.format("anabranch")
    found = {
        "places": spark.sparkContext.parallelize(range(TASKS), TASKS)
        .mapPartitions(places)
        .distinct()
        .collect(),
        "stores": sums(read.option("nats_url", nats_url).load(stream)),
        "tier2": sums(spark.read.format("anabranch").option("tier2", tier2).load(stream)),
    }
    tables = {}
    for table in FROM_STORES:
        rows = spark.read.format("anabranch").option("nats_url", nats_url).option("table", table)
        tables[table] = rows.load().count()
    blocks = spark.read.format("anabranch").option("tier2", tier2).option("table", "blocks")
    tables["blocks"] = blocks.option("streams", stream).load().count()
    sys.stdout.write(json.dumps({**found, "tables": tables}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
