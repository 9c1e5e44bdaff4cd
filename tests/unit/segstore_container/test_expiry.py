"""Writers that say nothing for long are forgotten, and so are tombstones; nobody else is."""

from collections.abc import Iterator

import pytest

from anabranch.common.errors import WriterExpired
from anabranch.common.tier2.state import (
    Catalog,
    ChunkRef,
    SegmentState,
    TieredExtent,
    Tombstone,
    WriterMark,
)
from anabranch.common.wire.messages import Appended, Failed, Message, Stamp
from anabranch.segstore.domain.container.expiry import expired, marks_to_keep, tombstone_expired
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.tiering.eviction import sweep
from kit.container_driver import CLIENT, SEGMENT, WRITER, ContainerDriver
from kit.tiered_driver import TieredDriver

OTHER = "scope/stream/1.#epoch.0"
DAY_S = 86400.0
LIMITS = ResidencyLimits(segments_max=1, writer_expiry_s=7 * DAY_S, tombstone_s=DAY_S)


@pytest.fixture
def driver() -> Iterator[TieredDriver]:
    driver = TieredDriver(residency=LIMITS)
    yield driver
    driver.finish()


def write(driver: ContainerDriver, first: int, writer_id: bytes = WRITER) -> Message:
    driver.take_replies()
    driver.append_once(first, [b"an event"], writer_id=writer_id)
    driver.commit()
    return driver.take_replies()[-1]


def touch_another(driver: TieredDriver) -> None:
    """A flush in which only another segment changed."""
    driver.create(OTHER, Stamp(1, 1 + driver.time.now_ms()))
    driver.delete(OTHER, Stamp(1, 2 + driver.time.now_ms()))
    driver.commit()
    driver.flush()


def marks(driver: TieredDriver) -> dict[bytes, int]:
    with driver.container.residency.pinned(SEGMENT):
        known = driver.known(SEGMENT)
        assert isinstance(known, SegmentState)
        applied = driver.container.applied.state.writers.get(known.number, {})
        pending = driver.container.pending.writers.get(known.number, {})
        assert applied == pending
        return {writer_id: mark.last for writer_id, mark in applied.items()}


def test_a_mark_expires_after_its_limit_and_never_without_a_time() -> None:
    assert not expired(WriterMark(3, 1000), now_ms=1500, limit_ms=500)
    assert expired(WriterMark(3, 1000), now_ms=1501, limit_ms=500)
    assert not expired(WriterMark(3, 0), now_ms=10**15, limit_ms=500)
    assert not expired(WriterMark(3, 5000), now_ms=1000, limit_ms=500)


def test_a_mark_from_before_times_were_recorded_dates_from_the_segment() -> None:
    old = {WRITER: WriterMark(3)}
    assert marks_to_keep(old, 1000, 1500, 500) == {WRITER: WriterMark(3, 1000)}
    assert marks_to_keep(old, 1000, 1501, 500) == {}
    assert marks_to_keep(old, 0, 10**15, 500) == old


def test_a_tombstone_expires_after_its_limit() -> None:
    tombstone = Tombstone("s", Stamp(1, 1), 1, 1000)
    assert not tombstone_expired(tombstone, 1500, 500)
    assert tombstone_expired(tombstone, 1501, 500)


def test_a_silent_writer_is_forgotten_in_memory_and_at_the_next_load(driver: TieredDriver) -> None:
    driver.create()
    write(driver, 1)
    driver.flush()
    driver.time.advance(3 * DAY_S)
    write(driver, 1, writer_id=CLIENT)
    driver.flush()
    driver.time.advance(5 * DAY_S)
    touch_another(driver)
    assert marks(driver) == {CLIENT: 1}
    driver.crash()
    assert marks(driver) == {CLIENT: 1}


def test_a_writer_that_was_forgotten_and_goes_on_is_told(driver: TieredDriver) -> None:
    driver.create()
    write(driver, 1)
    driver.flush()
    driver.time.advance(8 * DAY_S)
    touch_another(driver)
    refused = write(driver, 2)
    assert isinstance(refused, Failed)
    assert refused.code == WriterExpired.code
    assert isinstance(write(driver, 1, writer_id=CLIENT), Appended)


def test_every_append_counts_as_hearing_from_the_writer(driver: TieredDriver) -> None:
    driver.create()
    for first in range(1, 5):
        write(driver, first)
        driver.flush()
        driver.time.advance(6 * DAY_S)
        touch_another(driver)
    driver.crash()
    assert marks(driver) == {WRITER: 4}
    assert isinstance(write(driver, 5), Appended)


def test_a_writer_with_a_live_session_is_not_forgotten(driver: TieredDriver) -> None:
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"one"])
    driver.commit()
    driver.flush()
    driver.time.advance(30 * DAY_S)
    touch_another(driver)
    driver.take_replies()
    driver.append(session, 2, [b"two"])
    driver.commit()
    assert [type(reply) for reply in driver.take_replies()] == [Appended]


def test_what_no_manifest_has_yet_is_not_forgotten(driver: TieredDriver) -> None:
    driver.create()
    write(driver, 1)
    driver.time.advance(30 * DAY_S)
    sweep(driver.container, driver.time.now_ms())
    assert marks(driver) == {WRITER: 1}
    driver.flush()
    assert marks(driver) == {}


def test_marks_of_an_older_format_date_from_the_last_change_of_their_segment() -> None:
    driver = ContainerDriver(residency=LIMITS)
    now_ms = driver.time.now_ms()
    state = SegmentState(SEGMENT, 1, Stamp(1, 1), length=9, event_count=1, modified_ms=now_ms)
    extents = {1: (TieredExtent(0, ChunkRef("c0/a-chunk", 0, 9, 0)),)}
    catalog = Catalog(5, {SEGMENT: state}, writers={(1, WRITER): WriterMark(4)}, extents=extents)
    for days, left in ((6, 4), (2, 0)):
        driver.time.advance(days * DAY_S)
        driver.crash(catalog)
        driver.info()
        assert driver.container.pending.last_event_number(1, WRITER) == left


def test_an_old_tombstone_leaves_the_memory_whatever_the_bound_is() -> None:
    driver = TieredDriver(residency=ResidencyLimits(segments_max=100, tombstone_s=DAY_S))
    driver.create()
    driver.delete()
    driver.commit()
    driver.flush()
    driver.time.advance(DAY_S / 2)
    touch_another(driver)
    assert set(driver.container.pending.segments) == {SEGMENT, OTHER}
    driver.time.advance(DAY_S + 1)
    driver.create("scope/stream/2.#epoch.0")
    driver.commit()
    driver.flush()
    assert set(driver.container.pending.segments) == {"scope/stream/2.#epoch.0"}
    assert driver.container.residency.count == 1
    driver.finish()
