"""The pipeline `windows` on a cluster: equal to a direct computation, and nothing twice."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.cli.demo.flights import flights, table_path
from anabranch.cli.demo.source import Row
from anabranch.client import Client
from anabranch.common.errors import InvalidRequest
from anabranch.spark.pipelines import windows
from anabranch.spark.pipelines.progress import Progress
from anabranch.spark.pipelines.windowing.directory import Directory
from kit.cluster_thread import ClusterThread
from kit.pipeline_programs import die_at

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]
SCOPE = "windowed"
STREAM, TO = f"{SCOPE}/flights", f"{SCOPE}/departures"
HOUR_MS = 3_600_000
SILENT = Progress(None)
KILLS = (
    "in-the-state",
    "before-the-table",
    "before-the-stream",
    "in-the-stream",
    "after-the-stream",
)
Windows = dict[tuple[int, str], tuple[int, int, float]]
"""By start in ms and airport: events, bytes and the sum of delays."""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """In order of time, so that no event is late."""
    return sorted(islice(flights(table_path()), 3000), key=lambda row: row.timestamp_ms)


@pytest.fixture(scope="module")
def cluster(running: ClusterThread) -> ClusterThread:
    async def create(client: Client) -> None:
        await client.scopes.create(SCOPE)
        await client.streams.create(STREAM, segments=3)

    running.run(create)
    return running


def add(cluster: ClusterThread, rows: Iterable[Row], stream: str = STREAM) -> None:
    async def write(client: Client) -> None:
        async with client.writer(stream) as writer:
            for row in rows:
                writer.write(row.event, row.key, row.timestamp_ms)

    cluster.run(write)


def expected(rows: Iterable[Row]) -> Windows:
    found: Windows = defaultdict(lambda: (0, 0, 0.0))
    for row in rows:
        flight = json.loads(row.event)
        key = (row.timestamp_ms // HOUR_MS * HOUR_MS, flight["origin"])
        events, size, total = found[key]
        found[key] = (events + 1, size + len(row.event), total + (flight["dep_delay"] or 0))
    return dict(found)


def of_stream(cluster: ClusterThread, to: str = TO) -> Windows:
    """The windows that the target tells, each of them once."""

    async def read(client: Client) -> list[tuple[int, str | None, bytes]]:
        async with client.reader(to, until_tail=True) as reader:
            return [(e.timestamp_ms, e.key, bytes(e.payload)) async for e in reader]

    found: Windows = {}
    for at_ms, key, payload in cluster.run(read):
        told = json.loads(payload)
        assert key is not None
        assert key == told["key"]
        assert (at_ms, key) not in found
        found[at_ms, key] = (told["events"], told["bytes"], told["value_sum"] or 0)
    return found


def of_table(session: SparkSession, arguments: windows.Arguments) -> Windows:
    table = windows.read(session, Directory(arguments.out), arguments.windowing())
    if table is None:
        return {}
    rows = table.selectExpr("unix_millis(window_start)", "key", "events", "bytes", "value_sum")
    found = {(row[0], row[1]): (row[2], row[3], row[4] or 0) for row in rows.collect()}
    assert len(found) == table.count()
    return found


def test_windows_equal_a_direct_computation_and_a_restart_adds_nothing_twice(
    session: SparkSession, cluster: ClusterThread, rows: list[Row], tmp_path: Path
) -> None:
    arguments = windows.Arguments(
        stream=STREAM, nats=cluster.nats_url, out=tmp_path / "windows", to=TO, segments=2,
        by="origin", value="dep_delay", delay="1h",
    )  # fmt: skip
    add(cluster, rows[:2000])
    first = windows.run(session, arguments, SILENT)
    latest_ms = max(row.timestamp_ms for row in rows[:2000])
    complete = {
        key: window for key, window in expected(rows).items() if key[0] + 2 * HOUR_MS <= latest_ms
    }
    assert of_stream(cluster) == of_table(session, arguments) == complete
    assert first.windows == len(complete)
    assert Path(first.plots[0]).stat().st_size > 0

    again = windows.run(session, arguments, SILENT)
    assert (again.windows, again.table_windows) == (0, len(complete))

    forget_last_commit(arguments.out)  # as if the driver had died behind the windows
    windows.run(session, arguments, SILENT)
    assert of_stream(cluster) == of_table(session, arguments) == complete

    leave_stray_files(arguments.out)
    add(cluster, rows[2000:])
    closed = windows.run(session, dataclasses.replace(arguments, close=True), SILENT)
    assert of_stream(cluster) == of_table(session, arguments) == expected(rows)
    assert (closed.table_events, closed.late_groups) == (len(rows), 0)

    add(cluster, rows[:10])
    late = windows.run(session, arguments, SILENT)
    assert late.late_groups > 0
    assert of_stream(cluster) == expected(rows)


def leave_stray_files(out: Path) -> None:
    """Files of others, in every place from which the pipeline reads."""
    first = min((out / "table").glob("batch=*"))
    foreign = min(first.glob("part-*.parquet")).read_bytes()
    for name in ("table/foreign.parquet", f"table/{first.name}/copy.parquet"):
        (out / name).write_bytes(foreign)
    for name in ("table/_SUCCESS", "manifests/notes.txt", "closing/._marker.json", ".DS_Store",
                 "checkpoint/offsets/.DS_Store", "checkpoint/commits/notes.txt"):  # fmt: skip
        (out / name).write_bytes(b"foreign")
    later = {"event_time": "2999-01-01T00:00:00Z"}  # would close all windows
    (out / "closing" / "foreign.json").write_text(json.dumps(later) + "\n")


def test_windows_equal_a_direct_computation_after_kills_at_each_moment(
    session: SparkSession, cluster: ClusterThread, rows: list[Row], tmp_path: Path
) -> None:
    stream, to = f"{SCOPE}/killed", f"{SCOPE}/killed-windows"

    async def create(client: Client) -> None:
        await client.streams.create(stream, segments=3)
        await client.streams.create(to, segments=2)

    cluster.run(create)
    arguments = windows.Arguments(
        stream=stream, nats=cluster.nats_url, out=tmp_path / "windows", to=to,
        by="origin", value="dep_delay", delay="1h",
    )  # fmt: skip
    words = ["--stream", stream, "--nats", cluster.nats_url, "--out", str(arguments.out)]
    words += ["--to", to, "--by", "origin", "--value", "dep_delay", "--delay", "1h"]
    written = 0
    for number, point in enumerate(KILLS):
        add(cluster, rows[500 * number : 500 * (number + 1)], stream)
        die_at(point, "windows", words)
        before, written = written, len(of_stream(cluster, to))
        if point != KILLS[0]:
            assert (written > before) is (point == KILLS[-1]), point
    add(cluster, rows[500 * len(KILLS) :], stream)
    report = windows.run(session, dataclasses.replace(arguments, close=True), SILENT)
    assert of_stream(cluster, to) == of_table(session, arguments) == expected(rows)
    assert (report.table_events, report.late_groups) == (len(rows), 0)


def forget_last_commit(out: Path) -> None:
    commits = out / "checkpoint" / "commits"
    last = max(
        (path for path in commits.iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def test_a_directory_refuses_other_windows(
    session: SparkSession, cluster: ClusterThread, tmp_path: Path
) -> None:
    arguments = windows.Arguments(
        stream=STREAM, nats=cluster.nats_url, out=tmp_path / "windows", whole=True
    )
    Directory(arguments.out).begin(arguments.windowing())
    with pytest.raises(InvalidRequest, match="holds other windows"):
        windows.run(session, dataclasses.replace(arguments, window="1d"), SILENT)
