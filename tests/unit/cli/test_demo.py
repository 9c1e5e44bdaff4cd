"""The demo's data and its check."""

import json
from datetime import UTC, datetime
from itertools import islice

import pytest

from anabranch.cli.demo.check import Tally, Written
from anabranch.cli.demo.flights import Flight, flights, table_path
from anabranch.cli.demo.replay import crash_rows


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
