"""The demo's data and its check."""

import importlib.util
import json
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path

import pytest

from anabranch.cli.__main__ import run
from anabranch.cli.demo.check import Days, RowSum, Tally, Written
from anabranch.cli.demo.days import batches, days
from anabranch.cli.demo.flights import Flight, flights, flights_by_time, table_path
from anabranch.cli.demo.group_records import GroupOutcome, Kill
from anabranch.cli.demo.http_reading import read_back
from anabranch.cli.demo.replay import Outcome, crash_rows
from anabranch.cli.demo.scaling import scale_rows
from anabranch.cli.demo.spark_reading import PipelineOutcome, outcome_of, run_pipeline
from anabranch.cli.records import Record
from anabranch.common.errors import Unavailable
from kit.client_bench import STREAM
from kit.http_sessions import both_sessions


@pytest.fixture(scope="module")
def first_flights() -> list[Flight]:
    return list(islice(flights(table_path()), 2000))


def tally_of(written_events: list[bytes]) -> Tally:
    written = Written()
    for event in written_events:
        written.add(event)
    return Tally(written)


def event(row: int) -> bytes:
    return b'{"row":%d}' % row


def test_a_flight_carries_its_row_its_key_and_its_scheduled_departure(
    first_flights: list[Flight],
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


def test_a_flight_without_tail_number_has_no_key(first_flights: list[Flight]) -> None:
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
    assert scale_rows(500) == [100, 200, 300, 400]


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


def outcome(http: RowSum, spark: RowSum, group: GroupOutcome | None = None) -> Outcome:
    tally = tally_of([event(0), event(1)])
    tally.add([event(0), event(1)], [None, None])
    return Outcome(
        tally=tally, days=whole(2), group=group or GROUP, http=http,
        spark=PipelineOutcome(spark, 1, ("a.png", "b.png")), lag_plot="lag.png",
        write_seconds=1, group_seconds=1, read_seconds=1, http_seconds=1, spark_seconds=1,
        segments=1, scales=4, scales_wanted=4, crashes=0, crashes_wanted=0,
    )  # fmt: skip


def summed(*rows: int) -> RowSum:
    found = RowSum()
    found.add(map(event, rows))
    return found


def test_all_readers_must_agree_with_what_was_written() -> None:
    right = summed(1, 0)
    assert outcome(right, right).is_right
    assert not outcome(summed(0), right).is_right
    assert not outcome(right, summed(0, 0)).is_right
    assert not outcome(right, right, replace(GROUP, missing=1)).is_right
    assert not outcome(right, right, replace(GROUP, repeated_of_others=1)).is_right


def test_a_day_is_torn_if_some_of_its_rows_were_read_and_some_were_not() -> None:
    tally = tally_of([event(row) for row in range(6)])
    tally.add([event(0), event(1), event(4)], [None] * 3)
    assert tally.torn(whole(2, 2, 2)) == 1
    assert tally.torn(whole(2, 1, 1, 1, 1)) == 0
    assert tally.torn(whole(6)) == 1


def test_the_days_are_as_the_table_has_them(first_flights: list[Flight]) -> None:
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
    assert outcome_of(told.encode()) == PipelineOutcome(RowSum(3, 9), 2, ("a.png",))


async def test_a_pipeline_that_fails_says_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.cli.demo.spark_reading.PROGRAM", "anabranch.spark.none")
    with pytest.raises(Unavailable, match="pipeline failed") as failed:
        await run_pipeline("demo/flights", "file:///none", tmp_path)
    assert "pipeline.log" in failed.value.remedy
    assert "anabranch.spark.none" in str(failed.value.fields["last"])


def test_without_spark_the_demo_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "pyspark" else found(name)
    )
    assert run(["demo", "--out", str(tmp_path / "out")]) == 1
    assert "pip install 'anabranch-cli[demo]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
