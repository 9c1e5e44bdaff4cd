"""The generated rows of the quick demo."""

import json
from collections import Counter
from datetime import datetime
from itertools import groupby

from anabranch.cli.demo.sensors import ROW_COUNT, SENSOR_COUNT, Sensors

FIRST = (
    b'{"row":0,"sensor":"sensor-00","reading":0,"at":"2025-01-01T00:00:00+00:00","celsius":15.0}'
)


def test_every_run_writes_the_same_rows() -> None:
    rows = list(Sensors(1_000).rows())
    assert rows == list(Sensors(1_000).rows())
    assert rows[0] == (FIRST, "sensor-00", 1_735_689_600_000, "2025-01-01")


def test_each_event_has_its_number_and_each_sensor_its_own_count() -> None:
    events = [json.loads(row.event) for row in Sensors(1_050).rows()]
    assert [event["row"] for event in events] == list(range(1_050))
    of_one = [event["reading"] for event in events if event["sensor"] == "sensor-07"]
    assert of_one == list(range(11))
    assert all(15 <= event["celsius"] <= 25 for event in events)
    assert len({event["celsius"] for event in events}) > 500


def test_keys_and_times_are_those_of_the_event_and_the_rows_of_a_day_follow_one_another() -> None:
    rows = list(Sensors().rows())
    assert len(rows) == ROW_COUNT
    assert set(Counter(row.key for row in rows).values()) == {ROW_COUNT // SENSOR_COUNT}
    times = [row.timestamp_ms for row in rows]
    assert times == sorted(times)
    dates = [date for date, _ in groupby(rows, key=lambda row: row.date)]
    assert (len(dates), len(set(dates))) == (42, 42)
    for row in rows[::997]:
        event = json.loads(row.event)
        assert event["sensor"] == row.key
        at = datetime.fromisoformat(event["at"])
        assert (at.timestamp(), at.date().isoformat()) == (row.timestamp_ms // 1000, row.date)
