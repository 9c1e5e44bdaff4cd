"""The live numbers of partitions: what a store reports of them, and when."""

from collections.abc import Iterator

import pytest

from anabranch.common.contracts.live import (
    FULL_S,
    LIVE_REPORT_SIZE_BYTES_MAX,
    REPORT_S,
    LivePartition,
    LiveReport,
)
from anabranch.common.errors import OutOfStorage, Unavailable
from anabranch.common.model.topics import TOPIC_CONTAINER_MIN, TOPIC_NAME_LENGTH_MAX
from anabranch.common.wire.messages import Appended, Failed, Stamp, TruncateSegment
from anabranch.segstore.domain.load.live_report import (
    PARTITIONS_MAX,
    StorageState,
    live_reports,
)
from anabranch.segstore.domain.load.partitions import HeldPartition
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.pauses import drawn_from
from anabranch.segstore.shell.container.topic_storage import TopicStorage
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.node.live import LiveReporter, complete_partitions
from kit.container_driver import SEGMENT
from kit.rng import seeded
from kit.tiered_driver import TieredDriver
from kit.topic_parts import TopicContainer, partition


class Reported:
    """A store with one container of topics, and the reports that it has published."""

    def __init__(self, container_type: type[Container] = TopicContainer, evicts: bool = False):
        self.driver = TieredDriver(
            cache_size=0,
            container_type=container_type,
            residency=ResidencyLimits(segments_max=1) if evicts else None,
        )
        self.published: list[LiveReport] = []
        self.fails = False
        self.storage = TopicStorage()
        self.reporter = self.new_reporter()

    def new_reporter(self) -> LiveReporter:
        return LiveReporter(
            self.driver.new_store(),
            self._publish,
            self.storage,
            node_id="a-node",
            session=lambda: "a-session",
            clock=self.driver.time,
        )

    async def _publish(self, data: bytes) -> None:
        if self.fails:
            raise Unavailable("no server")
        self.published.append(LiveReport.model_validate_json(data))

    def complete(self) -> None:
        driver = self.driver
        container, back_off_s = driver.container, drawn_from(seeded(0))
        driver.wait(complete_partitions(container, driver.tier_two, driver.time, back_off_s))

    def report(self, after_s: float = REPORT_S) -> list[LiveReport]:
        """The reports that one look publishes."""
        self.driver.time.advance(after_s)
        self.published.clear()
        self.driver.wait(self.reporter.report())
        return list(self.published)

    def create(self, *ordinals: int) -> None:
        for ordinal in ordinals:
            self.driver.create(partition(ordinal))
        self.driver.commit()

    def append(self, ordinal: int, first: int, events: list[bytes]) -> int:
        block = self.driver.append_once(first, events, segment=partition(ordinal))
        self.driver.commit()
        return len(block)


@pytest.fixture
def reported() -> Iterator[Reported]:
    reported = Reported()
    reported.complete()
    yield reported
    reported.driver.finish()


def numbers(reports: list[LiveReport]) -> dict[str, tuple[int, int, int]]:
    return {
        one.segment: (one.base, one.leo, one.size_bytes)
        for report in reports
        for found in report.containers
        for one in found.partitions
    }


def test_a_new_partition_is_reported_and_then_only_its_changes(reported: Reported) -> None:
    reported.create(0, 1)
    assert numbers(reported.report()) == {partition(0): (0, 0, 0), partition(1): (0, 0, 0)}
    assert reported.report() == []
    size = reported.append(1, 1, [b"a", b"b"])
    (report,) = reported.report()
    assert numbers([report]) == {partition(1): (0, 2, size)}
    assert (report.node_id, report.session, report.full) == ("a-node", "a-session", False)
    assert report.used_bytes == size
    (found,) = report.containers
    assert (found.container, found.container_epoch) == (TOPIC_CONTAINER_MIN, 1)
    assert reported.report() == []


def test_every_full_period_everything_is_reported(reported: Reported) -> None:
    reported.create(0, 1)
    reported.report()
    (report,) = reported.report(FULL_S)
    assert report.full
    assert len(numbers([report])) == 2


def test_after_a_report_that_was_lost_everything_is_reported(reported: Reported) -> None:
    reported.create(0, 1)
    reported.report()
    reported.append(0, 1, [b"a"])
    reported.fails = True
    assert reported.report() == []
    reported.fails = False
    (report,) = reported.report()
    assert report.full
    assert numbers([report])[partition(0)][:2] == (0, 1)
    assert [found.sequence for found in (report, *reported.report(FULL_S))] == [
        report.sequence,
        report.sequence + 1,
    ]


def test_a_truncation_moves_the_base_and_a_deleted_partition_is_left_out(
    reported: Reported,
) -> None:
    reported.create(0, 1)
    size = reported.append(0, 1, [b"a", b"b"])
    rest = reported.append(0, 3, [b"c"])
    reported.append(1, 1, [b"d"])
    reported.report()
    reported.driver.truncate_anywhere(
        TruncateSegment(segment=partition(0), stamp=Stamp(1, 5), offset=size)
    )
    reported.driver.delete(partition(1))
    reported.driver.commit()
    (report,) = reported.report()
    assert numbers([report]) == {partition(0): (2, 3, rest)}
    assert report.used_bytes == rest
    assert numbers(reported.report(FULL_S)) == {partition(0): (2, 3, rest)}


def test_containers_of_streams_are_not_reported() -> None:
    reported = Reported(Container)
    reported.complete()
    reported.driver.create(SEGMENT)
    reported.driver.append_once(1, [b"a"])
    reported.driver.commit()
    assert reported.report(FULL_S) == []
    reported.driver.finish()


def test_partitions_that_are_not_in_memory_keep_their_place_in_full_reports() -> None:
    reported = Reported(evicts=True)
    reported.complete()
    sizes = {}
    for ordinal in range(3):
        reported.create(ordinal)
        sizes[partition(ordinal)] = reported.append(ordinal, 1, [b"x"] * (ordinal + 1))
    reported.driver.flush()
    assert len(reported.driver.container.applied.state.segments) == 1
    expected = {
        partition(ordinal): (0, ordinal + 1, sizes[partition(ordinal)]) for ordinal in range(3)
    }
    assert numbers(reported.report(FULL_S)) == expected
    reported.driver.crash()
    reported.reporter = reported.new_reporter()
    reported.create(7)
    assert numbers(reported.report()) == {}, "a container that is not complete is left out"
    reported.complete()
    assert numbers(reported.report()) == expected | {partition(7): (0, 0, 0)}
    reported.driver.finish()


def test_a_partition_that_was_deleted_during_the_search_of_tier_two_does_not_return() -> None:
    reported = Reported(evicts=True)
    for ordinal in range(2):
        reported.create(ordinal)
    reported.driver.flush()
    reported.driver.crash()
    reported.reporter = reported.new_reporter()
    driver, entries = reported.driver, reported.driver.tier_two.entries

    async def slow() -> object:
        found = [entry async for entry in entries()]
        for entry in found:
            yield entry

    driver.interrupted.entries = slow  # type: ignore[attr-defined]
    driver.delete(partition(0))
    driver.load()
    driver.commit()
    reported.complete()
    assert numbers(reported.report(FULL_S)) == {partition(1): (0, 0, 0)}
    driver.finish()


# --- size -----------------------------------------------------------------------------------------

LONGEST = f"topics/_TOPIC{'t' * TOPIC_NAME_LENGTH_MAX}.0123456789ab/{2**31 - 1}.#epoch.{2**31 - 1}"


@pytest.mark.parametrize("counts", [[], [0], [1], [PARTITIONS_MAX], [PARTITIONS_MAX - 1, 2, 4000]])
def test_every_report_fits_into_a_message_and_nothing_is_missing(counts: list[int]) -> None:
    big = 2**62
    containers = [
        (1024 + at, 3, [HeldPartition(LONGEST, big, big + of, big) for of in range(count)])
        for at, count in enumerate(counts)
    ]
    reports = list(
        live_reports(
            "n" * 36, "s" * 36, 5, StorageState(big, out_of_storage=True), containers, full=True
        )
    )
    assert [report.sequence for report in reports] == list(range(5, 5 + len(reports)))
    assert all(len(report.model_dump_json()) <= LIVE_REPORT_SIZE_BYTES_MAX for report in reports)
    told: dict[int, list[LivePartition]] = {number: [] for number, _, _ in containers}
    for report in reports:
        for found in report.containers:
            told[found.container] += found.partitions
    assert {number: [one.leo - big for one in found] for number, found in told.items()} == {
        number: list(range(len(held))) for number, _, held in containers
    }


# --- the storage size -----------------------------------------------------------------------------


def test_over_the_storage_size_topics_are_refused_until_a_truncation_has_freed_enough() -> None:
    reported = Reported()
    reported.complete()
    driver = reported.driver
    storage = reported.storage = driver.around.topic_storage
    storage.limit_bytes = 1000
    reported.reporter = reported.new_reporter()
    reported.create(0)
    ends = [0]
    for number in range(1, 11):
        ends.append(ends[-1] + reported.append(0, number, [b"x" * 50]))
    (report,) = reported.report()
    assert report.out_of_storage
    driver.take_replies()
    reported.append(0, 11, [b"refused"])
    reported.append(0, 10, [b"x" * 50])
    refused, repeated = driver.take_replies()
    assert isinstance(refused, Failed)
    assert refused.code == OutOfStorage.code
    assert (refused.fields["used"], refused.fields["limit"]) == (ends[-1], 1000)
    assert isinstance(repeated, Appended), "events that are stored are acknowledged"
    session = driver.setup(partition(0))
    driver.append(session, 11, [b"refused"])
    driver.commit()
    assert [reply.code for reply in driver.take_replies() if isinstance(reply, Failed)] == [
        OutOfStorage.code
    ]
    wanted = next(end for end in ends if ends[-1] - end <= 950)
    for offset in (wanted, ends[-1]):
        driver.truncate_anywhere(
            TruncateSegment(segment=partition(0), stamp=Stamp(1, 5 + offset), offset=offset)
        )
        driver.commit()
        (report,) = reported.report()
        assert not report.out_of_storage
        driver.take_replies()
    reported.append(0, 11, [b"taken"])
    assert isinstance(driver.take_replies()[0], Appended)
    driver.finish()


def test_a_full_store_takes_records_again_only_when_five_percent_are_free() -> None:
    storage = TopicStorage(1000)
    course = [(1000, False), (1001, True), (1000, True), (951, True), (950, False), (1000, False)]
    for used, full in course:
        storage.measured(used)
        assert storage.full is full
    unlimited = TopicStorage()
    unlimited.measured(2**62)
    assert not unlimited.full


def test_a_full_store_takes_events_for_streams() -> None:
    driver = TieredDriver()
    driver.around.topic_storage.full = True
    driver.create()
    driver.append_once(1, [b"a"])
    driver.commit()
    assert isinstance(driver.take_replies()[-1], Appended)
    driver.finish()
