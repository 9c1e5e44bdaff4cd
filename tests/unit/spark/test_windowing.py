"""What windows are, the directory that fixes it, and the points of their plot."""

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from anabranch.common.errors import CorruptManifest, InvalidRequest
from anabranch.spark.pipelines.windowing.aggregates import KEYS, VALUES, path_of
from anabranch.spark.pipelines.windowing.directory import Directory
from anabranch.spark.pipelines.windowing.plot import (
    POINTS_MAX,
    filled,
    length_text,
    windows_per_point,
)
from anabranch.spark.pipelines.windows import Arguments, Report, summary

ASKED = Arguments(stream="demo/flights", out=Path("out"))
HOUR_S = 3600


def test_windows_are_grouped_by_routing_key_by_a_field_or_not_at_all() -> None:
    whole, by_key, by_field = (
        dataclasses.replace(ASKED, **changes).windowing().by
        for changes in ({"whole": True}, {}, {"by": "origin"})
    )
    assert (whole, by_key, by_field) == (None, "", "origin")
    assert path_of("a.b") == "$['a']['b']"


def test_only_a_value_adds_its_columns() -> None:
    assert ASKED.windowing().columns == (*KEYS, "events", "bytes")
    valued = dataclasses.replace(ASKED, value="dep_delay").windowing()
    assert valued.columns[-len(VALUES) :] == VALUES


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"window": "0"}, "no length"),
        ({"window": "soon"}, "soon"),
        ({"close": True, "follow": True}, "contradict"),
    ],
)
def test_what_is_no_window_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        dataclasses.replace(ASKED, **changes).windowing()


def test_a_directory_without_manifests_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "windowing.json").write_text("{}")
    with pytest.raises(InvalidRequest, match="no manifests"):
        Directory(tmp_path).begin(ASKED.windowing())
    assert [path.name for path in tmp_path.iterdir()] == ["windowing.json"]


def test_a_directory_keeps_the_windows_of_its_first_run(tmp_path: Path) -> None:
    directory, windowing = Directory(tmp_path / "out"), ASKED.windowing()
    directory.begin(windowing)
    directory.begin(windowing)
    with pytest.raises(InvalidRequest, match="other windows") as raised:
        directory.begin(dataclasses.replace(windowing, window_s=60))
    assert raised.value.fields == {"window_s": HOUR_S}


def test_a_marker_closes_a_directory(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory.begin(ASKED.windowing())
    for stray in ("foreign.json", "._marker.json", ".DS_Store"):
        (directory.closing / stray).write_text("{}")
    assert not directory.is_closed
    directory.close()
    assert directory.is_closed


def test_a_table_has_the_files_that_its_manifests_list(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory.begin(ASKED.windowing())
    assert directory.files() == []
    for number in (0, 11):
        part = directory.table / f"batch={number:010d}"
        part.mkdir()
        (part / "part-0.parquet").write_bytes(b"")
        (part / "_SUCCESS").write_bytes(b"")
        (part / ".part-0.parquet.crc").write_bytes(b"")
        directory.record(number)
    own = [directory.table / f"batch={number:010d}" / "part-0.parquet" for number in (0, 11)]
    assert directory.files() == own
    for stray in ("table/foreign.parquet", "table/batch=0000000000/part-9.parquet",
                  "table/batch=0000000005/part-0.parquet", "manifests/.DS_Store",
                  "manifests/._0000000000.json", "manifests/0000000001.json.bak"):  # fmt: skip
        (tmp_path / stray).parent.mkdir(exist_ok=True)
        (tmp_path / stray).write_bytes(b"foreign")
    assert directory.files() == own
    directory.forget(0)
    directory.forget(0)
    assert directory.files() == own[1:]
    (directory.manifests / "0000000011.json").write_text("{}")
    with pytest.raises(CorruptManifest, match="cannot be read"):
        directory.files()


def test_the_url_of_a_part_keeps_its_sign_of_equality(tmp_path: Path) -> None:
    assert Directory(tmp_path).batch(7).endswith("/table/batch=0000000007")


def test_a_line_has_a_bounded_number_of_points() -> None:
    assert windows_per_point(0, 0, HOUR_S) == 1
    assert windows_per_point(0, (POINTS_MAX - 1) * HOUR_S, HOUR_S) == 1
    assert windows_per_point(0, POINTS_MAX * HOUR_S, HOUR_S) == 2


def test_a_length_has_the_largest_unit() -> None:
    assert [length_text(each) for each in (172_800, 5400, 7200, 61)] == [
        "2 d", "90 min", "2 h", "61 s",
    ]  # fmt: skip


def test_points_without_events_count_as_none_and_have_no_mean() -> None:
    found = pd.DataFrame(
        {"point": [0, 2], "group": ["JFK", "JFK"], "events": [4, 6], "mean": [1.0, 2.0]}
    )
    points = filled(found, 100, 2 * HOUR_S, together=2)
    assert points["events"].tolist() == [2, 0, 3]
    assert points["mean"].isna().tolist() == [False, True, False]
    assert points["at"].iloc[1] == pd.Timestamp(100 + 2 * HOUR_S, unit="s", tz="UTC")


def test_a_report_tells_of_late_events_only_if_there_are_any() -> None:
    report = Report("table", "demo/to", 3, 40, 0, 3, 40, "2013", ())
    assert not any("late" in line for line in summary(report))
    assert any("late" in line for line in summary(dataclasses.replace(report, late_groups=1)))


def test_a_run_that_dies_while_it_notes_its_windows_leaves_a_directory_that_another_can_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    directory = Directory(tmp_path)
    with monkeypatch.context() as dying:
        dying.setattr(Path, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            directory.begin(ASKED.windowing())
        with pytest.raises(KeyboardInterrupt):
            directory.close()
    assert not directory.is_closed
    directory.begin(dataclasses.replace(ASKED, window="2h").windowing())
    with pytest.raises(InvalidRequest, match="other windows"):
        directory.begin(ASKED.windowing())
    directory.close()
    assert directory.is_closed
