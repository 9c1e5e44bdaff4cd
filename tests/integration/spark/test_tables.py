"""Tables of metadata: from a running cluster, and from tier 2 the same where it knows them."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.client import Client, TransactionSettings
from anabranch.common.model.reader_group import GroupStream, ReaderGroupConfig
from anabranch.common.model.stream import ScalingPolicy, StreamConfig
from kit.cluster_thread import ClusterThread

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]
STREAM = "tables/one"


async def fill(client: Client) -> None:
    """A stream that was scaled, with a transaction of each kind, and a group."""
    await client.scopes.create("tables")
    config = StreamConfig(ScalingPolicy(min_segments=2), tags=("raw",))
    await client.streams.create(STREAM, config)
    async with client.writer(STREAM) as writer:
        for number in range(100):
            writer.write(b"event", key=f"key-{number}")
        await writer.flush()
        await client.streams.split_segment(STREAM, 0)
        async with writer.transaction(TransactionSettings(short=False)) as transaction:
            transaction.write(b"committed", key="a")
    await client.streams.create("tables/two", segments=1)
    await client.reader_groups.create("tables/readers", ReaderGroupConfig((GroupStream(STREAM),)))
    await client.cluster.flush_to_tier2()


@pytest.fixture(scope="module")
def cluster(running: ClusterThread) -> ClusterThread:
    running.run(fill)
    return running


def read(
    session: SparkSession, cluster: ClusterThread, table: str, *, source: str = "nats_url"
) -> list[dict[str, Any]]:
    where = cluster.nats_url if source == "nats_url" else cluster.tier2
    frame = session.read.format("anabranch").option(source, where).option("table", table)
    return [row.asDict() for row in frame.option("scope", "tables").load().collect()]


def shared(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("streams", ["stream", "state", "incarnation", "epoch", "segment_count", "created_time"]),
        (
            "segments",
            ["segment", "state", "created_epoch", "sealed_epoch", "key_start", "key_end",
             "start_offset", "end_offset", "stored_bytes", "event_count", "container"],
        ),
    ],
)  # fmt: skip
def test_a_cluster_and_tier_two_agree_on_what_both_know(
    session: SparkSession, cluster: ClusterThread, table: str, columns: list[str]
) -> None:
    told = shared(read(session, cluster, table), *columns)
    assert told
    assert sorted(told) == sorted(shared(read(session, cluster, table, source="tier2"), *columns))


def test_epochs_tell_their_causes_and_segments(
    session: SparkSession, cluster: ClusterThread
) -> None:
    told = sorted(
        (row for row in read(session, cluster, "epochs") if row["stream"] == "one"),
        key=lambda row: row["epoch"],
    )
    assert shared(told, "epoch", "segment_count", "cause", "split_count") == [
        (0, 2, "create", 0), (1, 3, "manual", 1),
    ]  # fmt: skip
    from_tier2 = read(session, cluster, "epochs", source="tier2")
    assert [row["segments"] for row in from_tier2 if row["stream"] == "one"] == [
        row["segments"] for row in told
    ]


def test_streams_tell_their_configuration(session: SparkSession, cluster: ClusterThread) -> None:
    told = {row["stream"]: row for row in read(session, cluster, "streams")}
    assert told["one"]["tags"] == ["raw"]
    assert (told["one"]["scaling"], told["one"]["segment_count_min"]) == ("fixed", 2)


def test_transactions_and_reader_groups_are_tables(
    session: SparkSession, cluster: ClusterThread
) -> None:
    (ended,) = read(session, cluster, "transactions")
    assert (ended["stream"], ended["state"], ended["epoch"]) == ("one", "committed", 1)
    (group,) = read(session, cluster, "reader_groups")
    assert (group["reader_group"], group["streams"]) == ("readers", [STREAM])
    assert (group["reader_count"], group["unread_event_count"]) == (0, 101)


def test_blocks_of_tier_two_hold_all_events(session: SparkSession, cluster: ClusterThread) -> None:
    told = read(session, cluster, "blocks", source="tier2")
    assert sum(row["event_count"] for row in told) == 101
    assert {row["damage"] for row in told} == {None}
    assert {row["misplaced_event_count"] for row in told} == {0}
