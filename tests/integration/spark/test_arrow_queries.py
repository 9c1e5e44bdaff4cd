"""Streaming queries over events that are Arrow tables: the tables' rows, each once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from anabranch.client import ArrowSerializer, Client
from kit.cluster_thread import ClusterThread

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]
SCOPE = "arrow-queries"
QUERY_SECONDS_MAX = 120


@dataclass
class Query:
    """A query of one stream, as often as it is started, and the rows that it was given."""

    session: SparkSession
    running: ClusterThread
    checkpoint: Path
    stream: str
    rows: list[Row] = field(default_factory=list)

    def load(self, schema: str | None = None, **options: str) -> DataFrame:
        reader = self.session.readStream.format("anabranch").option("payload", "arrow")
        reader = reader.option("nats_url", self.running.nats_url).options(**options)
        return (reader if schema is None else reader.schema(schema)).load(self.stream)

    def run(self, schema: str | None = None, **options: str) -> list[str]:
        """Take the rows that are there → the columns. Raises the query's error."""
        frame = self.load(schema, **options)
        writer = frame.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"
        return frame.columns

    def _take(self, batch: DataFrame, _: int) -> None:
        self.rows += batch.collect()

    def write(self, *tables: Mapping[str, object]) -> None:
        """Write each as an event, under the key `k<its first id>`."""

        async def work(client: Client) -> None:
            async with client.writer(self.stream, serializer=ArrowSerializer()) as writer:
                for columns in tables:
                    table = pa.table(columns)
                    writer.write(table, key=f"k{table['id'][0]}")

        self.running.run(work)

    def write_bytes(self, event: bytes) -> None:
        async def work(client: Client) -> None:
            async with client.writer(self.stream) as writer:
                writer.write(event)

        self.running.run(work)


@pytest.fixture(scope="module")
def _scope(running: ClusterThread) -> None:
    running.run(lambda client: client.scopes.create(SCOPE))


@pytest.fixture
def query(
    session: SparkSession, running: ClusterThread, tmp_path: Path, _scope: None
) -> Iterator[Query]:
    stream = f"{SCOPE}/{tmp_path.name.replace('_', '-')}"
    running.run(lambda client: client.streams.create(stream, segments=2))
    yield Query(session, running, tmp_path / "checkpoint", stream)
    for each in session.streams.active:
        each.stop()


def test_a_restarted_query_has_each_row_of_the_tables_once(query: Query) -> None:
    options = {"payload_schema": "id BIGINT, name STRING", "columns": "routing_key"}
    query.run(**options)
    assert query.rows == [], "a stream without events needs no more than payload_schema"
    query.write({"id": [1, 2], "name": ["a", None]}, {"id": [3], "more": [0.5]})
    query.run(**options)
    found = sorted(tuple(row) for row in query.rows)
    assert found == [(1, "a", "k1"), (2, None, "k1"), (3, None, "k3")]
    query.write({"id": [4], "name": ["d"]}, {"id": pa.array([5], pa.int8()), "name": ["e"]})
    assert query.run(**options) == ["id", "name", "routing_key"]
    assert sorted(tuple(row) for row in query.rows)[3:] == [(4, "d", "k4"), (5, "e", "k5")]


def test_without_a_schema_the_first_table_has_the_columns_or_the_query_says_what_to_give(
    query: Query,
) -> None:
    with pytest.raises(AnalysisException, match=r"no event from the start on.*payload_schema"):
        query.load(max_rows_per_trigger="10")
    query.write({"id": [1], "name": ["a"]})
    assert query.run(max_rows_per_trigger="10") == ["id", "name"]
    query.write({"id": [2], "name": ["b"], "more": [1]})
    assert query.run(columns="stream") == ["id", "name", "stream"]
    assert [tuple(row)[:2] for row in query.rows] == [(1, "a"), (2, "b")]
    with pytest.raises(AnalysisException, match=r"no event from the start on.*payload_schema"):
        query.load(start="tail")
    with pytest.raises(StreamingQueryException, match="there is no option 'end'"):
        query.run(end="tail")


def test_an_event_that_does_not_fit_fails_the_query_until_the_query_reads_bytes(
    query: Query,
) -> None:
    query.write({"id": [1]})
    query.run("id BIGINT")
    query.write_bytes(b"no table")
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=r"not an Arrow table.*payload=bytes"):
            query.run("id BIGINT")
    assert query.run(payload="bytes")[0] == "event"
    assert [row[0] for row in query.rows] == [1, b"no table"]
