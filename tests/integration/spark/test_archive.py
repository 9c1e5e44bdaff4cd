"""The pipelines `archive` and `replay` on a cluster: each event once, also after kills."""

import contextlib
import dataclasses
import io
import json
import zlib
from datetime import datetime
from pathlib import Path
from zipfile import ZipFile

import pytest
from pyspark.sql import DataFrame, SparkSession

from anabranch.client import Client
from anabranch.common.errors import InvalidRequest, InvalidSetting, ScopeExists
from anabranch.spark.pipelines import archive, replay
from anabranch.spark.pipelines.archiving import place, tables
from anabranch.spark.pipelines.archiving.files import open_files, url_of
from anabranch.spark.pipelines.progress import Progress
from kit.cluster_thread import ClusterThread
from kit.pipeline_programs import die_at, run_program
from kit.s3_server import S3Server

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]
SCOPE = "archived"
DAY_MS = 86_400_000
BEGIN_MS = 1_356_998_400_000
DAYS = 12
SILENT = Progress(None)
Sums = tuple[int, int]
"""The number of events, and the sum of their CRC32."""


class Source:
    """A stream of its own, to which a test adds events of twelve days."""

    def __init__(self, running: ClusterThread, stream: str) -> None:
        self.running = running
        self.stream = stream
        self.sums: Sums = (0, 0)
        running.run(self._create)

    async def _create(self, client: Client) -> None:
        with contextlib.suppress(ScopeExists):
            await client.scopes.create(SCOPE)
        await client.streams.create(self.stream, segments=3)

    def add(self, count: int) -> None:
        """Write so many more events."""
        first = self.sums[0]
        payloads = [f"{self.stream} {number}".encode() for number in range(first, first + count)]

        async def write(client: Client) -> None:
            async with client.writer(self.stream) as writer:
                for number, payload in enumerate(payloads, first):
                    time_ms = BEGIN_MS + (number % DAYS) * DAY_MS + number
                    writer.write(payload, f"key {number % 7}", time_ms)

        self.running.run(write)
        self.sums = (first + count, self.sums[1] + sum(map(zlib.crc32, payloads)))

    def arguments(self, out: Path) -> archive.Arguments:
        return archive.Arguments(stream=self.stream, nats=self.running.nats_url, out=str(out))

    def words(self, out: Path) -> list[str]:
        return ["--stream", self.stream, "--nats", self.running.nats_url, "--out", str(out)]


def sums_of(events: DataFrame) -> Sums:
    found = events.selectExpr("count(*)", "coalesce(sum(crc32(event)), 0)").first()
    assert found is not None
    return found[0], found[1]


def plan_of(frame: DataFrame) -> str:
    """The plan as Spark describes it."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain()
    return shown.getvalue()


def listed_sums(out: Path) -> Sums:
    contents, _ = place.load(open_files(url_of(str(out))))
    return contents.rows, contents.crc_sum


def unlisted(out: Path) -> set[str]:
    files = open_files(url_of(str(out)))
    return {*files.list("data")} - {*place.load(files)[0].files}


def test_an_archive_equals_its_stream_after_the_driver_is_killed_at_each_point(
    session: SparkSession, running: ClusterThread, tmp_path: Path
) -> None:
    out = tmp_path / "archive"
    source = Source(running, f"{SCOPE}/killed")
    source.add(1500)
    die_at("in-the-files", "archive", source.words(out))
    assert (listed_sums(out), bool(unlisted(out))) == ((0, 0), True)
    die_at("before-the-manifest", "archive", source.words(out))
    assert listed_sums(out) == (0, 0)
    source.add(500)
    die_at("after-the-manifest", "archive", source.words(out))
    assert listed_sums(out) == source.sums
    running.run(lambda client: client.streams.split_segment(source.stream, 0))
    source.add(700)
    report = archive.run(session, source.arguments(out), SILENT)
    assert (report.batches, report.events) == (1, 700)
    assert report.swept_files > 0
    assert unlisted(out) == set()
    assert sums_of(archive.read(session, str(out))) == source.sums
    again = archive.run(session, source.arguments(out), SILENT)
    assert (again.batches, again.archive_events) == (0, source.sums[0])


def test_stray_files_in_the_place_are_neither_read_nor_deleted(
    session: SparkSession, running: ClusterThread, tmp_path: Path
) -> None:
    out = tmp_path / "archive"
    source = Source(running, f"{SCOPE}/beside-others")
    source.add(24)
    archive.run(session, source.arguments(out), SILENT)
    foreign = leave_stray_files(out)
    source.add(12)
    report = archive.run(session, source.arguments(out), SILENT)
    assert (report.events, report.swept_files, report.archive_events) == (12, 0, 36)
    assert sums_of(archive.read(session, str(out))) == source.sums
    assert [path for path in foreign if not path.exists()] == []


def leave_stray_files(out: Path) -> list[Path]:
    """Files of others, one of them with the events of the archive."""
    day = min((out / "data").iterdir())
    copied = min(day.glob("*.parquet")).read_bytes()
    names = [day / "0000000000-copy.parquet", out / "data" / "foreign.parquet"]
    for path in names:
        path.write_bytes(copied)
    others = [day / "_SUCCESS", out / "manifests" / ".DS_Store", out / "snapshots" / "notes.txt"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"foreign")
    return [*names, *others]


def test_compaction_rewrites_small_files_and_readers_see_the_same_events(
    session: SparkSession, running: ClusterThread, tmp_path: Path
) -> None:
    out = tmp_path / "archive"
    source = Source(running, f"{SCOPE}/compacted")
    compacting = dataclasses.replace(source.arguments(out), compact=True)
    source.add(300)
    archive.run(session, source.arguments(out), SILENT)
    source.add(300)
    before, first = archive.read(session, str(out)), report_sums(source, 300)
    report = archive.run(session, compacting, SILENT)
    assert (report.archive_files, report.archive_events) == (DAYS, 600)
    found = archive.read(session, str(out))
    assert sums_of(found) == source.sums
    assert sums_of(before) == first  # a reader finishes with the list that it has
    one_day = found.where("event_date = '2013-01-03'")
    assert "PartitionFilters: [isnotnull(event_date" in plan_of(one_day)
    assert one_day.count() == 600 / DAYS
    source.add(10)
    later = archive.run(session, compacting, SILENT)
    assert later.swept_files == report.compacted_files
    assert sums_of(archive.read(session, str(out))) == source.sums


def test_what_an_archive_refuses_says_what_to_do(
    session: SparkSession, running: ClusterThread, tmp_path: Path
) -> None:
    source = Source(running, f"{SCOPE}/refused")
    source.add(10)
    arguments = source.arguments(tmp_path / "archive")
    with pytest.raises(InvalidRequest, match="holds no archive"):
        archive.read(session, arguments.out)
    archive.run(session, arguments, SILENT)
    with pytest.raises(InvalidRequest, match="archive of another kind"):
        archive.run(session, dataclasses.replace(arguments, unit="hour"), SILENT)
    for kind, title in (("delta", "Delta Lake"), ("iceberg", "Iceberg")):
        with pytest.raises(InvalidSetting, match=f"has no {title}") as raised:
            archive.run(session, dataclasses.replace(arguments, format=kind), SILENT)
        assert "--packages" in raised.value.remedy


def test_jars_of_a_lake_that_do_not_work_are_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    jar = tmp_path / "delta.jar"
    with ZipFile(jar, "w") as archived:
        archived.writestr("io/delta/sql/DeltaSparkSessionExtension.class", b"of another Spark")
    words = ["--stream", "demo/any", "--nats", "nats://127.0.0.1:1", "--out", str(tmp_path / "out")]
    done = run_program(
        "anabranch.spark.pipelines.archive", [*words, "--format", "delta"],
        environment={"PYSPARK_SUBMIT_ARGS": f"--jars {jar} pyspark-shell"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "a trial of Delta Lake failed in this session of Spark" in done.stderr
    assert "docs/pipelines.md lists those that we have tried" in done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path != jar]


def test_the_command_archives_into_a_bucket(
    running: ClusterThread, tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = s3_server.location()
    url = f"s3://{location.bucket}/{location.prefix}"
    source = Source(running, f"{SCOPE}/bucket")
    source.add(200)
    words = ("pipeline", "run", "archive", *source.words(tmp_path), "--json")
    done = run_program(
        "anabranch.cli", [url if word == str(tmp_path) else word for word in words],
        environment=s3_server.environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["archive_events"], report["archive_crc_sum"]) == source.sums
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    files = open_files(url)
    events = [
        event
        for name in place.load(files)[0].files
        for event in tables.read_table(files, name)["event"].to_pylist()
    ]
    assert (len(events), sum(map(zlib.crc32, events))) == source.sums


def replaying(source: Source, place_: Path, target: str) -> replay.Arguments:
    return replay.Arguments(
        source=str(place_), stream=target, nats=source.running.nats_url, segments=2, chunk_bytes=1
    )


def stream_of(session: SparkSession, running: ClusterThread, stream: str) -> DataFrame:
    return session.read.format("anabranch").option("nats_url", running.nats_url).load(stream)


def test_a_replay_writes_each_event_once_in_order_after_kills_between_and_within_chunks(
    session: SparkSession, running: ClusterThread, tmp_path: Path
) -> None:
    out, target = tmp_path / "archive", f"{SCOPE}/again"
    source = Source(running, f"{SCOPE}/replayed")
    source.add(600)
    archive.run(session, source.arguments(out), SILENT)
    arguments = replaying(source, out, target)
    words = ["--source", str(out), "--stream", target, "--nats", running.nats_url]
    words += ["--segments", "2", "--chunk-bytes", "1"]
    die_at("before-chunk-2", "replay", words)
    assert stream_of(session, running, target).count() == 2 * 600 / DAYS
    die_at("in-chunk-3", "replay", words)
    assert stream_of(session, running, target).count() == 3 * 600 / DAYS
    source.add(10)
    archive.run(session, source.arguments(out), SILENT)  # does not change the plan
    report = replay.run(session, arguments, SILENT)
    assert (report.chunks_before, report.chunks, report.events) == (3, DAYS - 3, 9 * 600 / DAYS)
    found = stream_of(session, running, target)
    assert sums_of(found) == report_sums(source, 600)
    assert replay.run(session, arguments, SILENT).events == 0
    rows = found.select("segment", "offset", "index", "routing_key", "event_time").collect()
    times: dict[str, list[datetime]] = {}
    for row in sorted(rows):
        times.setdefault(row.routing_key, []).append(row.event_time)
    assert len(times) == 7
    assert all(told == sorted(told) for told in times.values())


def report_sums(source: Source, count: int) -> Sums:
    """The sums of the first events of a source."""
    payloads = (f"{source.stream} {number}".encode() for number in range(count))
    return count, sum(map(zlib.crc32, payloads))


def test_any_parquet_files_with_events_can_be_replayed(
    session: SparkSession, running: ClusterThread, tmp_path: Path
) -> None:
    target = f"{SCOPE}/files"
    source = Source(running, f"{SCOPE}/unused")
    rows = [(f"event {number}",) for number in range(20)]
    session.createDataFrame(rows, "event string").write.parquet((tmp_path / "files").as_uri())
    report = replay.run(session, replaying(source, tmp_path / "files", target), SILENT)
    assert report.events == 20
    found = stream_of(session, running, target).selectExpr("cast(event as string)").collect()
    assert sorted(row[0] for row in found) == sorted(row[0] for row in rows)
