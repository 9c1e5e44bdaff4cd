"""Rates from load reports: a rate is told only where everything is known."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.controller.domain.load import (
    ContainerPeriod,
    Rate,
    ServedSegment,
    StorePeriod,
    rate_of,
)

NAME = "scope/stream/0.#epoch.0"
SEGMENT = ServedSegment(NAME, container=2, container_epoch=5)
WINDOW_MS = 60_000


def period(
    sequence: int,
    events: int | None = 10,
    *,
    session: str = "s",
    epoch: int = 5,
    others_idle: bool = True,
) -> StorePeriod:
    """With `events` of 100 bytes in the segment; None: the segment is not listed."""
    segments = {} if events is None else {NAME: (events, events * 100)}
    return StorePeriod(
        session=session,
        sequence=sequence,
        length_ms=10_000,
        others_idle=others_idle,
        received_s=sequence * 10.0,
        containers={2: ContainerPeriod(epoch, segments)},
    )


def rate(*periods: StorePeriod, after_s: float = 0.0) -> Rate | None:
    """The rate so long after the newest report came."""
    received_s = periods[-1].received_s if periods else 0.0
    return rate_of(periods, SEGMENT, now_s=received_s + after_s, window_ms=WINDOW_MS)


def test_a_rate_is_the_mean_of_the_known_periods() -> None:
    assert rate(period(1, 999), period(2, 10), period(3, 20)) == Rate(1.5, 150.0, 20_000)


def test_it_goes_back_no_further_than_the_window() -> None:
    found = rate(*[period(number, number) for number in range(1, 13)])
    assert found == Rate(sum(range(7, 13)) / 60, sum(range(7, 13)) * 100 / 60, WINDOW_MS)


def test_a_segment_that_is_not_listed_is_idle_only_if_the_report_says_so() -> None:
    assert rate(period(1), period(2, None)) == Rate(0.0, 0.0, 10_000)
    assert rate(period(1), period(2, None, others_idle=False)) is None
    assert rate(period(1), period(2, 10, others_idle=False)) == Rate(1.0, 100.0, 10_000)


UNKNOWN: dict[str, list[StorePeriod]] = {
    "nothing was heard": [],
    "one report, of a part of a period perhaps": [period(1)],
    "a gap": [period(1), period(3)],
    "another session": [period(7, session="before"), period(8)],
    "opened in between": [period(1, epoch=4), period(2)],
    "an older owner": [period(1, epoch=4), period(2, epoch=4)],
    "a newer owner": [period(1, epoch=6), period(2, epoch=6)],
    "the container came in between": [replace(period(1), containers={}), period(2)],
    "the container went in between": [period(1), replace(period(2), containers={})],
}


@pytest.mark.parametrize("why", UNKNOWN)
def test_a_rate_is_unknown(why: str) -> None:
    assert rate(*UNKNOWN[why]) is None


def test_what_came_before_a_gap_is_not_part_of_it() -> None:
    periods = [period(1, 999), period(2, 999), period(4, 999), period(5, 10)]
    assert rate(*periods) == Rate(1.0, 100.0, 10_000)


def test_a_store_that_fell_silent_has_no_rate() -> None:
    assert rate(period(1), period(2), after_s=30.0) is not None
    assert rate(period(1), period(2), after_s=30.1) is None


@given(
    st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=15),
    st.sets(st.integers(1, 15)),
)
def test_no_loss_of_reports_ever_makes_a_rate_wrong(
    loads: Sequence[tuple[int, bool]], lost: set[int]
) -> None:
    """`loads`: (events, whether the report was cut before them) of periods 1, 2, 3 …"""
    periods = [
        period(number, None if cut else events, others_idle=not cut)
        for number, (events, cut) in enumerate(loads, 1)
    ]
    held = [found for found in periods if found.sequence not in lost]
    found = rate(*held)
    if found is not None:
        newest, count = held[-1].sequence, found.over_ms // 10_000
        covered = loads[newest - count : newest]
        assert len(covered) == count
        assert not any(cut for _, cut in covered)
        events = found.events_per_s * found.over_ms / 1000
        assert events == pytest.approx(sum(events for events, _ in covered))
