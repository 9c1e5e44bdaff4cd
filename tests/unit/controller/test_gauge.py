"""Gauges: rates over several windows, of what is known without a gap."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.model.stream import ScalingType
from anabranch.controller.domain.load import ContainerPeriod, Merged, ServedSegment, StorePeriod
from anabranch.controller.domain.policies.gauge import (
    Gauge,
    Heard,
    Reading,
    folded,
    new_gauge,
    reading,
)

NAME = "s/x/0.#epoch.0"
SEGMENT = ServedSegment(NAME, 0, 5)
WINDOWS_S = (2.0, 10.0, 60.0)


def period(
    sequence: int,
    events: int | None = 20,
    *,
    session: str = "s",
    epoch: int = 5,
    merged: Merged | None = None,
    length_s: float = 2.0,
) -> StorePeriod:
    """With `events` of 1 KiB; None: the segment is not listed."""
    segments = {} if events is None else {NAME: (events, events * 1024)}
    held = ContainerPeriod(epoch, segments, {} if merged is None else {NAME: merged})
    return StorePeriod(
        session, sequence, int(length_s * 1000), True, sequence * length_s, {0: held}
    )


def gauged(*periods: StorePeriod, since_s: float = 0.0, gauge: Gauge | None = None) -> Gauge:
    begun = gauge or new_gauge(WINDOWS_S, since_s)
    return folded(begun, Heard("n", periods, SEGMENT), WINDOWS_S)


def read(
    gauge: Gauge, *periods: StorePeriod, now_s: float | None = None, by_bytes: bool = False
) -> Reading:
    return reading(
        gauge,
        Heard("n", periods, SEGMENT),
        WINDOWS_S,
        measure=ScalingType.BYTE_RATE if by_bytes else ScalingType.EVENT_RATE,
        events_min=0,
        now_s=periods[-1].received_s if now_s is None else now_s,
    )


def rates(found: Reading) -> list[float]:
    return [one.rate for one in found.windows]


def test_a_constant_load_is_measured_exactly_in_every_window_that_is_filled() -> None:
    periods = [period(number) for number in range(1, 8)]
    found = read(gauged(*periods), *periods)
    assert found.known_s == 12.0
    assert rates(found) == pytest.approx([10.0, 10.0])
    assert rates(read(gauged(*periods), *periods, by_bytes=True)) == pytest.approx([10.0, 10.0])


def test_a_shorter_window_follows_faster() -> None:
    periods = [period(number, 0 if number < 40 else 200) for number in range(1, 42)]
    fast, slower, slow = rates(read(gauged(*periods), *periods))
    assert 100 > fast > slower > slow > 0


def test_periods_are_folded_once_however_often_they_are_seen() -> None:
    periods = [period(number, number * 7) for number in range(1, 9)]
    at_once = gauged(*periods)
    gauge = gauged(*periods[:3])
    for count in range(3, 9):
        gauge = gauged(*periods[:count], gauge=gauge)
        gauge = gauged(*periods[:count], gauge=gauge)
    assert gauge == at_once


def test_what_was_before_the_segment_was_watched_does_not_count() -> None:
    periods = [period(1, 900), period(2, 900), period(3), period(4)]
    assert gauged(*periods, since_s=4.0).known_s == 4.0
    assert rates(read(gauged(*periods, since_s=4.0), *periods)) == pytest.approx([10.0])


BROKEN: dict[str, list[StorePeriod]] = {
    "a gap": [period(1), period(2), period(4)],
    "another session": [period(1), period(2), period(3, session="t")],
    "opened anew": [period(1), period(2), period(3, epoch=6)],
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_gap_ends_what_is_known(why: str) -> None:
    found = read(gauged(*BROKEN[why]), *BROKEN[why])
    assert found.windows == ()
    assert found.missing == "the load is known for 0 s, 2 s are needed"


def test_a_gauge_that_missed_periods_which_nobody_holds_any_more_begins_anew() -> None:
    old = gauged(*[period(number) for number in range(1, 20)])
    late = [period(number) for number in range(30, 33)]
    assert gauged(*late, gauge=old).known_s == 4.0


def test_it_says_what_is_missing() -> None:
    gauge, periods = gauged(), [period(1), period(2)]
    unserved = reading(
        gauge, None, WINDOWS_S, measure=ScalingType.EVENT_RATE, events_min=0, now_s=0.0
    )
    assert unserved.missing == "no store serves the segment"
    silent = read(gauged(*periods), *periods, now_s=15.0)
    assert silent.missing == "store n has not reported for 11 s"
    empty = reading(
        gauge, Heard("n", (), SEGMENT), WINDOWS_S,
        measure=ScalingType.EVENT_RATE, events_min=0, now_s=0.0,
    )  # fmt: skip
    assert empty.missing == "store n has not reported its load"


def test_a_commit_counts_over_the_life_of_its_transaction() -> None:
    """Sixty events per second for half a minute, told at the end."""
    told = Merged(1800, 1800 * 1024, 30_000)
    periods = [period(number, 0) for number in range(1, 40)]
    periods.append(period(40, 1800, merged=told))
    fast, slower, slow = rates(read(gauged(*periods), *periods))
    assert fast == pytest.approx(60.0, rel=0.01)
    assert slower == pytest.approx(57.0, rel=0.01)
    assert slow == pytest.approx(32.0, rel=0.05)


def test_a_transaction_older_than_what_is_known_counts_for_what_is_known() -> None:
    told = Merged(3600, 0, 3_600_000)
    periods = [period(1, 0), period(2, 3600, merged=told)]
    assert rates(read(gauged(*periods), *periods)) == pytest.approx([1.0])


@given(st.lists(st.integers(0, 500), min_size=2, max_size=30), st.sets(st.integers(1, 30)))
def test_no_loss_of_reports_makes_a_rate_lower_or_higher_than_it_was(
    loads: Sequence[int], lost: set[int]
) -> None:
    """Every rate lies between the lowest and the highest of the periods since the last gap."""
    periods = [period(number, events) for number, events in enumerate(loads, 1)]
    held = [one for one in periods if one.sequence not in lost]
    if not held:
        return
    found = read(gauged(*held), *held)
    count = int(found.known_s / 2)
    newest = held[-1].sequence
    known = loads[newest - count : newest]
    assert not [number for number in range(newest - count, newest + 1) if number in lost]
    for rate in rates(found):
        assert min(known) / 2 - 1e-6 <= rate <= max(known) / 2 + 1e-6
