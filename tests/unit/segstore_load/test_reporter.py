"""A store that tells its load: one report per period, whatever became of the last one."""

import asyncio
from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest

from anabranch.common.contracts.load import LoadReport
from anabranch.common.errors import Unavailable
from anabranch.segstore.shell.memory.catch_up import new_catch_up
from anabranch.segstore.shell.node import load
from anabranch.segstore.shell.node.load import LoadReporter
from anabranch.segstore.shell.node.store import OpenContainer
from kit.container_driver import SEGMENT
from kit.store_parts import a_store
from kit.tiered_driver import TieredDriver

PERIOD_S, BUSY_S = 10.0, 2.0


class Reported:
    """A store with one container, whose reports end after some."""

    def __init__(self, driver: TieredDriver) -> None:
        self.driver = driver
        self.store = a_store(1, new_catch_up(driver.cache, driver.time, driver.time.call_later))
        self.opened = driver.opened()
        self.store.opened(self.opened)
        self.reports: list[LoadReport] = []
        self.fails: set[int] = set()
        self.after: Callable[[int], None] = lambda _: None
        """Called when a report was made, with its sequence number."""

    def run(self, count: int) -> None:
        """Let `count` periods pass."""

        async def publish(data: bytes) -> None:
            report = LoadReport.model_validate_json(data)
            if report.sequence > count:
                raise asyncio.CancelledError
            self.after(report.sequence)
            if report.sequence in self.fails:
                raise Unavailable("no server")
            self.reports.append(report)

        reporter = LoadReporter(
            self.store,
            publish,
            node_id="a-node",
            session="a-session",
            period_s=PERIOD_S,
            busy_s=BUSY_S,
            clock=self.driver.time,
            metrics=self.store.metrics,
        )
        with pytest.raises(asyncio.CancelledError):
            self.driver.wait(reporter.run())

    def append(self, number: int) -> None:
        self.driver.append_once(number, [b"event"])
        self.driver.commit()


@pytest.fixture
def reported() -> Iterator[Reported]:
    driver = TieredDriver()
    driver.create()
    driver.commit()
    yield Reported(driver)
    driver.finish()


def test_every_period_is_told_once_and_follows_the_one_before(reported: Reported) -> None:
    reported.after = reported.append
    reported.run(3)
    assert [report.sequence for report in reported.reports] == [1, 2, 3]
    starts = [report.start_ms for report in reported.reports]
    assert [start - starts[0] for start in starts] == [0, 10_000, 12_000]
    assert [report.length_ms for report in reported.reports] == [10_000, 2_000, 2_000]
    assert {report.due_ms for report in reported.reports} == {10_000}
    named = {(report.node_id, report.session) for report in reported.reports}
    assert named == {("a-node", "a-session")}
    told = [
        [(one.segment, one.events) for found in report.containers for one in found.segments]
        for report in reported.reports
    ]
    assert told == [[], [(SEGMENT, 1)], [(SEGMENT, 1)]]


def test_a_report_that_cannot_be_sent_is_counted_and_its_number_is_not_used_again(
    reported: Reported,
) -> None:
    reported.fails = {2, 3}
    reported.run(4)
    assert [report.sequence for report in reported.reports] == [1, 4]
    metrics = reported.store.metrics
    assert (metrics.load_reports, metrics.load_report_failures) == (2, 2)


def test_only_containers_that_serve_are_told(reported: Reported) -> None:
    reported.after = lambda _: reported.store.closed(reported.opened)
    reported.run(2)
    assert [len(report.containers) for report in reported.reports] == [1, 0]
    assert reported.reports[0].containers[0].container_epoch == 1


def test_a_period_ends_soon_after_something_was_written_in_it(reported: Reported) -> None:
    """Also when that was late in a long period."""
    driver, looks = reported.driver, 0

    def look() -> tuple[OpenContainer, ...]:
        nonlocal looks
        looks += 1
        if looks == 3:
            reported.append(1)
        return (reported.opened,)

    with patch.object(reported.store, "open_containers", look):
        reported.run(1)
    (report,) = reported.reports
    assert report.length_ms == 6_000
    assert driver.time.seconds >= 6.0


def test_very_many_segments_are_told_in_long_periods_only(reported: Reported) -> None:
    reported.after = reported.append
    with patch.object(load, "BUSY_SEGMENTS_MAX", 0):
        reported.run(3)
    assert [report.length_ms for report in reported.reports] == [10_000] * 3


def test_the_busiest_segments_are_chosen_at_the_end_of_each_period(reported: Reported) -> None:
    """The first period shows which they are, the next one has their keys."""

    def append(sequence: int) -> None:
        reported.driver.append_once(100 * sequence - 99, [b"event"] * 100)
        reported.driver.commit()

    reported.after = append
    reported.run(3)
    keyless = [
        one.keys and one.keys.keyless_events
        for report in reported.reports
        for found in report.containers
        for one in found.segments
    ]
    assert keyless == [None, 100]
