"""The manifest of an archive: its contents, the files that are swept, and those that are merged."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import (
    CorruptManifest,
    FormatTooNew,
    InvalidSetting,
    ObjectExists,
    ObjectNotFound,
)
from anabranch.common.runtime.ids import SeededIds
from anabranch.spark.pipelines.archiving import checkpoint, place, tables
from anabranch.spark.pipelines.archiving.compaction import Sizes, compacted, plan_compaction
from anabranch.spark.pipelines.archiving.files import DirectoryFiles, Files, open_files, url_of
from anabranch.spark.pipelines.archiving.manifest import (
    Batch,
    Contents,
    File,
    Origin,
    contents_of,
    dumped,
    parsed_batch,
    parsed_snapshot,
    sweepable,
)

ORIGIN = Origin("demo/flights", "day")
NOW_MS = int(datetime(2013, 1, 5, 12, tzinfo=UTC).timestamp() * 1000)


class MemoryFiles:
    """A place in memory."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def create(self, name: str, data: bytes) -> None:
        if self.objects.setdefault(name, data) != data:
            raise ObjectExists("the object exists", name=name)

    def get(self, name: str) -> bytes:
        if name not in self.objects:
            raise ObjectNotFound("the object does not exist", name=name)
        return self.objects[name]

    def list(self, directory: str) -> Sequence[str]:
        return sorted(name for name in self.objects if name.startswith(f"{directory}/"))

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)


def in_memory(_: Path) -> Files:
    return MemoryFiles()


def in_directory(path: Path) -> Files:
    return DirectoryFiles(path / "archive", SeededIds(1))


def file_of(batch: int, day: int, *, rows: int = 10, size: int = 100, mark: str = "a") -> File:
    partition = f"2013-01-{day:02d}"
    name = f"data/event_date={partition}/{batch:010d}-{mark:0>16}.parquet"
    return File(name, partition, rows, size, rows * 7, 0, 1)


def batch_of(number: int, *files: File) -> Batch:
    before = f"cut {number - 1}" if number else ""
    return Batch(number, ORIGIN, before, f"cut {number}", files)


THREE = (batch_of(0, file_of(0, 1)), batch_of(1, file_of(1, 1), file_of(1, 2)), batch_of(2))


@pytest.mark.parametrize("places", [in_memory, in_directory])
def test_a_place_creates_lists_and_deletes_whole_objects(
    places: Callable[[Path], Files], tmp_path: Path
) -> None:
    files = places(tmp_path)
    assert files.list("data") == []
    files.create("data/event_date=x/one", b"1")
    files.create("data/event_date=x/one", b"1")
    files.create("data/two", b"2")
    with pytest.raises(ObjectExists):
        files.create("data/two", b"other")
    assert files.list("data") == ["data/event_date=x/one", "data/two"]
    assert (files.list("manifests"), files.get("data/two")) == ([], b"2")
    files.delete("data/two")
    files.delete("data/two")
    with pytest.raises(ObjectNotFound):
        files.get("data/two")


def test_a_path_and_its_url_are_the_same_place(tmp_path: Path) -> None:
    assert url_of(str(tmp_path)) == url_of(tmp_path.as_uri()) == tmp_path.as_uri()
    assert url_of("s3://bucket/prefix") == "s3://bucket/prefix"
    with pytest.raises(InvalidSetting, match="cannot lie in memory"):
        open_files("memory:")


def test_an_archive_is_the_sum_of_its_batches() -> None:
    found = contents_of(None, THREE)
    assert (found.batch, found.after, found.origin) == (2, "cut 2", ORIGIN)
    assert (len(found.files), found.rows, found.crc_sum) == (3, 30, 210)


@pytest.mark.parametrize(
    "batches",
    [
        THREE[1:],
        (THREE[0], THREE[2]),
        (THREE[0], replace(THREE[1], before="elsewhere")),
        (THREE[0], replace(THREE[1], origin=Origin("demo/other", "day"))),
    ],
)
def test_a_batch_that_does_not_continue_the_one_before_is_refused(
    batches: tuple[Batch, ...],
) -> None:
    with pytest.raises(CorruptManifest, match="missing or does not continue"):
        contents_of(None, batches)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert parsed_batch("n", dumped(THREE[1])) == THREE[1]
    snapshot = compacted(contents_of(None, THREE), ORIGIN, (), ())
    assert parsed_snapshot("n", dumped(snapshot)) == snapshot


@pytest.mark.parametrize(
    ("found", "instead", "error"),
    [
        ('"rows": 20', '"rows": 21', CorruptManifest),
        ('"unit"', '"size"', CorruptManifest),
        ("}", "", CorruptManifest),
        ('"format": 1', '"format": 2', FormatTooNew),
    ],
)
def test_a_damaged_or_newer_manifest_is_refused(
    found: str, instead: str, error: type[Exception]
) -> None:
    text = dumped(THREE[1]).decode()
    assert found in text
    with pytest.raises(error):
        parsed_batch("n", text.replace(found, instead).encode())


def test_of_two_runs_that_write_a_batch_one_wins() -> None:
    files = MemoryFiles()
    place.publish(files, THREE[0])
    place.publish(files, THREE[0])  # its own answer was lost
    with pytest.raises(ObjectExists, match="another run writes into the archive"):
        place.publish(files, batch_of(0, file_of(0, 1, mark="other")))


def test_swept_are_unlisted_files_of_taken_numbers_only() -> None:
    contents = replace(contents_of(None, THREE), generation=1)
    day = "data/event_date=2013-01-01"
    own, unfinished = f"{'5f' * 8}.parquet", f"{'5f' * 8}.parquet.{'81' * 6}"
    unlisted = {
        f"{day}/0000000002-{own}",
        f"{day}/.0000000001-{unfinished}",
        f"{day}/g0000000001-{own}",
        f"{day}/.g0000000001-{unfinished}",
    }
    of_a_run_that_lives = {
        f"{day}/0000000003-{own}",
        f"{day}/.0000000003-{unfinished}",
        f"{day}/g0000000002-{own}",
    }
    foreign = {
        f"{day}/README",
        f"{day}/.DS_Store",
        f"{day}/._0000000001-{own}",
        f"{day}/0000000001-report.parquet",
        f"{day}/0000000001-{own}.bak",
        f"data/0000000001-{own}",
        f"data/other=1/0000000001-{own}",
    }
    kept = of_a_run_that_lives | foreign
    assert set(sweepable(contents, {*contents.files, *unlisted, *kept})) == unlisted


def test_stray_files_are_no_part_of_an_archive(tmp_path: Path) -> None:
    files = in_directory(tmp_path)
    for batch in THREE:
        place.publish(files, batch)
    before = place.load(files)
    stray = (
        ".DS_Store", "manifests/.DS_Store", "manifests/._0000000000.json", "manifests/copy.json",
        "manifests/old/0000000009.json", "manifests/0000000003.json.bak", "snapshots/notes.txt",
        "snapshots/_SUCCESS", "data/_SUCCESS", "data/event_date=2013-01-01/foreign.parquet",
    )  # fmt: skip
    for name in stray:
        files.create(name, b"foreign")
    assert place.load(files) == before
    assert place.sweep(files, *before) == place.Swept(files=0, manifests=0)
    assert {*stray} <= {*files.list("")}


def test_only_small_files_of_closed_days_are_merged_each_day_by_itself() -> None:
    files = (
        file_of(0, 1), file_of(1, 1), file_of(2, 1, size=1000),
        file_of(0, 2), file_of(0, 3), file_of(1, 3), file_of(0, 5), file_of(1, 5),
    )  # fmt: skip
    contents = contents_of(None, [batch_of(0, *files)])
    groups = plan_compaction(contents, NOW_MS, Sizes(small_bytes=500, target_bytes=500))
    assert groups == ((files[0], files[1]), (files[4], files[5]))
    assert plan_compaction(Contents(), NOW_MS) == ()


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 400)), max_size=20))
def test_groups_have_two_files_at_least_and_about_the_target_size(
    drawn: list[tuple[int, int]],
) -> None:
    files = [file_of(place_, day, size=size) for place_, (day, size) in enumerate(drawn)]
    contents = contents_of(None, [batch_of(0, *files)])
    groups = plan_compaction(contents, NOW_MS, Sizes(small_bytes=300, target_bytes=600))
    names = [file.name for group in groups for file in group]
    assert len(names) == len(set(names))
    for group in groups:
        assert len(group) > 1
        assert len({file.partition for file in group}) == 1
        assert sum(file.size_bytes for file in group) <= 600


def test_a_snapshot_replaces_manifests_and_a_later_run_deletes_the_old_files() -> None:
    files = MemoryFiles()
    for batch in THREE:
        place.publish(files, batch)
        for file in batch.files:
            files.create(file.name, b"")
    before, _ = place.load(files)
    groups = plan_compaction(before, NOW_MS)
    merged = replace(
        file_of(0, 1, rows=20), name=f"data/event_date=2013-01-01/g0000000000-{'0' * 16}.parquet"
    )
    files.create(merged.name, b"")
    place.publish(files, compacted(before, ORIGIN, groups, [merged]))
    place.publish(files, batch_of(3, file_of(3, 4)))
    files.create(file_of(3, 4).name, b"")
    after, snapshot = place.load(files)
    assert (after.rows, after.crc_sum, after.batch) == (before.rows + 10, before.crc_sum + 70, 3)
    assert len(files.list("data")) == 5
    assert place.sweep(files, after, snapshot) == place.Swept(files=2, manifests=3)
    assert files.list("data") == sorted(after.files)
    assert place.load(files)[0] == after


def test_a_compaction_that_loses_an_event_is_not_published() -> None:
    contents = contents_of(None, THREE)
    with pytest.raises(AssertionError):
        compacted(contents, ORIGIN, plan_compaction(contents, NOW_MS), [file_of(0, 1, rows=19)])


def events(*hours: int) -> pa.Table:
    begin = datetime(2013, 1, 1, tzinfo=UTC)
    payloads = [str(hour).encode() for hour in hours]
    return pa.table(
        {
            "event": payloads,
            "routing_key": pa.array([None] * len(hours), pa.string()),
            "event_time": pa.array(
                [begin + timedelta(hours=hour) for hour in hours], pa.timestamp("us", "UTC")
            ).cast(pa.timestamp("us", "America/New_York")),
            "segment": ["s"] * len(hours),
            "offset": pa.array(range(len(hours)), pa.int64()),
            "index": pa.array([0] * len(hours), pa.int32()),
            tables.CRC: [zlib.crc32(payload) for payload in payloads],
        }
    )


@pytest.mark.parametrize(
    ("unit", "partitions"),
    [
        ("day", {"2013-01-01": 2, "2013-01-02": 1}),
        ("hour", {"2013-01-01-00": 1, "2013-01-01-23": 1, "2013-01-02-00": 1}),
    ],
)
def test_events_come_into_a_file_for_each_day_or_hour_of_utc(
    unit: str, partitions: dict[str, int]
) -> None:
    files = MemoryFiles()
    batches = events(0, 24, 23).to_batches()
    found = list(tables.write_batches(batches, files, SeededIds(1), unit=unit, writer="0000000000"))
    assert {file.partition: file.rows for file in found} == partitions
    assert sum(file.crc_sum for file in found) == sum(zlib.crc32(x) for x in (b"0", b"24", b"23"))
    first = tables.read_table(files, found[0].name)
    assert first.schema == tables.EVENTS
    assert first["event"].to_pylist()[0] == b"0"
    assert sweepable(Contents(batch=0), files.list("data")) == sorted(file.name for file in found)


def test_merged_files_keep_their_events_and_sums() -> None:
    files, ids = MemoryFiles(), SeededIds(1)
    parts = [
        file
        for hours in ((0, 1), (2,))
        for file in tables.write_batches(
            events(*hours).to_batches(), files, ids, unit="day", writer="0000000000"
        )
    ]
    merged = tables.merge_files(parts, files, ids, unit="day", writer="g0000000000")
    assert (merged.rows, merged.crc_sum) == (3, sum(file.crc_sum for file in parts))
    assert sorted(tables.read_table(files, merged.name)["event"].to_pylist()) == [b"0", b"1", b"2"]


def test_a_log_of_spark_begins_at_the_last_cut(tmp_path: Path) -> None:
    checkpoint.begin(tmp_path, "", SeededIds(1))
    assert list(tmp_path.iterdir()) == []
    checkpoint.begin(tmp_path, '{"demo/flights": "1@ 0:77"}', SeededIds(1))
    assert checkpoint.offset_of(tmp_path, 0) == '{"demo/flights": "1@ 0:77"}'
    assert (tmp_path / "commits/0").read_text() == 'v1\n{"nextBatchWatermarkMs":0}'
