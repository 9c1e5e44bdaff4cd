"""Reading streams in Spark: columns on request, times, filters, Arrow payloads and large events."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from anabranch.client import ArrowSerializer, Client, WriterSettings
from anabranch.common.model.hashing import routing_position
from anabranch.common.runtime.clock import SystemClock
from kit.cluster_thread import ClusterThread

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]
KEYED, OTHER, TABLES, LARGE = "reading/keyed", "reading/other", "reading/tables", "reading/large"
HALF = 200
LARGE_SIZE = 20 * 1024 * 1024
PUSHING = "spark.sql.python.filterPushdown.enabled"
WATERMARK_MS = 1_356_998_400_000
FILL_S_MAX = 120.0
SOURCES = ("nats_url", "tier2")


@dataclass(frozen=True)
class Filled:
    """The places of the streams, and a moment after the first half of KEYED was written."""

    places: dict[str, str]
    between: str


async def write_keyed(client: Client, numbers: range) -> None:
    async with client.writer(KEYED) as writer:
        for number in numbers:
            writer.write(b"%d" % number, key=key_of(number))


def key_of(number: int) -> str | None:
    return None if number % 10 == 0 else f"k{number % 37}"


def table_of(number: int) -> pa.Table:
    """Three rows; later tables have one more column."""
    ids = pa.array([3 * number, 3 * number + 1, 3 * number + 2], pa.int64())
    columns = {"id": ids, "name": pa.array([f"n{number}", None, ""])}
    return pa.table(columns if number < 30 else {**columns, "extra": pa.array([1.5, 2.5, None])})


async def fill(client: Client) -> int:
    """Fill the streams, scale KEYED between its halves, and flush → a Unix ms between them."""
    await client.scopes.create("reading")
    for stream, segments in ((KEYED, 4), (OTHER, 1), (TABLES, 1), (LARGE, 1)):
        await client.streams.create(stream, segments=segments)
    await write_keyed(client, range(HALF))
    await client.cluster.flush_to_tier2()
    between = SystemClock().now_ms() + 1
    await client.streams.split_segment(KEYED, 0)
    await write_keyed(client, range(HALF, 2 * HALF))
    async with client.writer(OTHER) as writer:
        for number in range(10):
            writer.write(b"%d" % (1000 + number))
        await writer.note_time(WATERMARK_MS)
    async with client.writer(TABLES, serializer=ArrowSerializer()) as tables:
        for number in range(50):
            tables.write(table_of(number), key=f"t{number}")
    settings = WriterSettings(large_events=True, event_size_bytes_max=2 * LARGE_SIZE)
    async with client.writer(LARGE, settings) as large:
        large.write(b"small")
        large.write(b"xyz" * (LARGE_SIZE // 3), key="big")
        large.write(b"last")
    await client.cluster.flush_to_tier2()
    return between


@pytest.fixture(scope="module")
def filled(running: ClusterThread) -> Filled:
    between = datetime.fromtimestamp(running.run(fill, FILL_S_MAX) / 1000, UTC)
    return Filled({"nats_url": running.nats_url, "tier2": running.tier2}, between.isoformat())


def load(
    session: SparkSession, filled: Filled, source: str, stream: str, **options: object
) -> DataFrame:
    reader = session.read.format("anabranch").option(source, filled.places[source])
    return reader.options(**{name: str(value) for name, value in options.items()}).load(stream)


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row[0])) for row in frame.select("event").collect())


@contextmanager
def pushing(session: SparkSession) -> Iterator[None]:
    session.conf.set(PUSHING, "true")
    try:
        yield
    finally:
        session.conf.set(PUSHING, "false")


@pytest.mark.parametrize("source", SOURCES)
def test_columns_on_request_tell_where_an_event_comes_from(
    session: SparkSession, filled: Filled, source: str
) -> None:
    names = "event,segment,scope,stream,writer_id,event_number,key_position,watermark,routing_key"
    frame = load(session, filled, source, KEYED, columns=names)
    assert ",".join(frame.columns) == names
    rows = frame.collect()
    assert len(rows) == 2 * HALF
    assert {(row.scope, row.stream, row.watermark) for row in rows} == {("reading", "keyed", None)}
    assert all(len(bytes.fromhex(row.writer_id)) == 16 for row in rows)
    ids = {(row.segment, row.writer_id, row.event_number) for row in rows}
    assert len(ids) == 2 * HALF, "a writer numbers its events in each segment"
    for row in rows:
        key = key_of(int(bytes(row.event)))
        assert row.routing_key == key
        assert row.key_position == (None if key is None else routing_position(key))


@pytest.mark.parametrize("source", SOURCES)
def test_a_time_divides_a_stream_that_was_scaled_after_it(
    session: SparkSession, filled: Filled, source: str
) -> None:
    before = load(session, filled, source, KEYED, end=filled.between)
    after = load(session, filled, source, KEYED, start=filled.between)
    assert numbers(before) == list(range(HALF))
    assert numbers(after) == list(range(HALF, 2 * HALF))


@pytest.mark.parametrize("source", SOURCES)
def test_several_streams_are_one_table(session: SparkSession, filled: Filled, source: str) -> None:
    reader = session.read.format("anabranch").option(source, filled.places[source])
    wanted = [*range(2 * HALF), *range(1000, 1010)]
    listed = reader.option("streams", f"{KEYED},{OTHER}").option("columns", "event,stream").load()
    assert numbers(listed) == wanted
    assert {row.stream for row in listed.select("stream").distinct().collect()} == {
        "keyed", "other",
    }  # fmt: skip
    matching = session.read.format("anabranch").option(source, filled.places[source])
    found = matching.option("pattern", "reading/(keyed|other)").load()
    assert numbers(found) == wanted


CONDITIONS = (
    "routing_key = 'k5'",
    "routing_key IN ('k5', 'k6') AND offset >= 0",
    "key_position >= 0.5",
    "key_position < 0.3 AND offset > 0",
    "offset > 0",
    "offset = 0",
    "offset < 1 OR index = 3",
    "stream = 'keyed' AND event_time > '2020-01-01'",
    "stream = 'none'",
    "NOT segment = 'reading/keyed/1.#epoch.0'",
    "segment IN ('reading/keyed/1.#epoch.0', 'reading/keyed/2.#epoch.0')",
    "segment = 'reading/keyed/1.#epoch.0' AND event IS NOT NULL",
)


@pytest.mark.parametrize("source", SOURCES)
def test_pushed_filters_change_no_result(
    session: SparkSession, filled: Filled, source: str
) -> None:
    names = "event,routing_key,event_time,segment,stream,offset,index,key_position"
    frame = load(session, filled, source, KEYED, columns=names)
    plain = [numbers(frame.where(condition)) for condition in CONDITIONS]
    with pushing(session):
        for condition, expected in zip(CONDITIONS, plain, strict=True):
            # A frame of its own: those of one load share the last plan with pushed filters.
            pushed = load(session, filled, source, KEYED, columns=names, push_filters="true")
            assert numbers(pushed.where(condition)) == expected, condition
        assert numbers(frame.where("offset = 0")) == plain[5], "not asked to push"


def test_a_session_that_pushes_no_filters_says_how_to_change_that(
    session: SparkSession, filled: Filled
) -> None:
    frame = load(session, filled, "tier2", KEYED, push_filters="true")
    with pytest.raises(AnalysisException, match=f"{PUSHING}.*Set it to true"):
        frame.where("offset = 0").count()


@pytest.mark.parametrize("source", SOURCES)
def test_arrow_payloads_are_a_table_of_their_columns(
    session: SparkSession, filled: Filled, source: str
) -> None:
    rows = [row for number in range(50) for row in table_of(number).to_pylist()]
    first = load(session, filled, source, TABLES, payload="arrow")
    assert first.columns == ["id", "name"]
    found = sorted(tuple(row) for row in first.select("id", "name").collect())
    assert [row[0] for row in found] == [row["id"] for row in rows]
    named = load(
        session, filled, source, TABLES, payload="arrow",
        payload_schema="id INT, extra DOUBLE", columns="routing_key,segment",
    )  # fmt: skip
    assert named.columns == ["id", "extra", "routing_key", "segment"]
    assert sorted((row.id, row.extra, row.routing_key) for row in named.collect()) == sorted(
        (row["id"], row.get("extra"), f"t{row['id'] // 3}") for row in rows
    )
    reader = session.read.format("anabranch").option(source, filled.places[source])
    own = reader.option("payload", "arrow").schema("name STRING").load(TABLES)
    assert own.where("name = 'n7'").count() == 1


def test_what_a_payload_cannot_be_is_refused_with_a_remedy(
    session: SparkSession, filled: Filled
) -> None:
    bad = load(session, filled, "tier2", KEYED, payload="arrow", payload_schema="id INT")
    with pytest.raises(PySparkException, match=r"not an Arrow table.*payload=bytes"):
        bad.count()
    bad = load(session, filled, "tier2", TABLES, payload="arrow", payload_schema="name INT")
    with pytest.raises(PySparkException, match="does not fit the type of the read"):
        bad.count()
    with pytest.raises(AnalysisException, match="has no column event"):
        load(session, filled, "tier2", TABLES, payload="arrow", columns="event").count()


@pytest.mark.parametrize("source", SOURCES)
def test_events_over_8_mib_are_read(session: SparkSession, filled: Filled, source: str) -> None:
    frame = load(session, filled, source, LARGE, min_partitions=3)
    found = frame.selectExpr(
        "routing_key", "length(event) AS size", "crc32(event) AS crc", "index"
    ).collect()
    big = b"xyz" * (LARGE_SIZE // 3)
    assert sorted((row.size, row.crc, row.routing_key) for row in found) == sorted(
        (len(event), zlib.crc32(event), "big" if event == big else None)
        for event in (b"small", b"last", big)
    )
