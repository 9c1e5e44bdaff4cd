"""What counts as load of a segment, and what does not."""

import pytest

from anabranch.common.model.hashing import routing_position
from anabranch.common.model.names import transaction_segment_name
from anabranch.common.model.transaction import transaction_id
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import NO_DECISION, Stamp
from anabranch.segstore.domain.load import traffic
from anabranch.segstore.domain.load.sketch import planned
from anabranch.segstore.domain.load.traffic import Counted, SegmentTraffic
from kit.container_driver import SEGMENT, ContainerDriver

OTHER = "scope/stream/1.#epoch.0"


@pytest.fixture
def driver() -> ContainerDriver:
    driver = ContainerDriver()
    driver.create()
    driver.create(OTHER)
    driver.commit()
    return driver


def taken(driver: ContainerDriver) -> Counted:
    driver.commit()
    return driver.container.notices.traffic.take()


def test_appends_are_counted_by_events_and_bytes_and_every_period_starts_at_nothing(
    driver: ContainerDriver,
) -> None:
    session, other = driver.setup(), driver.setup(OTHER, session=2)
    size = len(driver.append(session, 1, [b"one", b"two"]))
    size += len(driver.append(session, 3, [b"three"]))
    of_other = len(driver.append(other, 1, [b"else"]))
    assert taken(driver) == Counted(
        (SegmentTraffic(SEGMENT, 3, size), SegmentTraffic(OTHER, 1, of_other)), complete=True
    )
    assert taken(driver) == Counted((), complete=True)


def test_only_what_is_durable_is_counted_and_repeats_are_not(driver: ContainerDriver) -> None:
    session = driver.setup()
    size = len(driver.append(session, 1, [b"once"]))
    assert driver.container.notices.traffic.take().segments == ()
    driver.append(driver.setup(session=2), 1, [b"once"])
    assert taken(driver).segments == (SegmentTraffic(SEGMENT, 1, size),)


def test_what_is_merged_truncated_or_replayed_is_no_traffic(driver: ContainerDriver) -> None:
    size = len(driver.append(driver.setup(OTHER), 1, [b"to be merged"]))
    driver.seal(OTHER)
    assert taken(driver).segments == (SegmentTraffic(OTHER, 1, size),)
    driver.merge(OTHER)
    driver.commit()
    driver.truncate(size)
    assert taken(driver).segments == ()
    driver.crash()
    assert taken(driver).segments == ()


def test_transient_segments_and_those_gone_at_once_are_not_told(driver: ContainerDriver) -> None:
    name = driver.create_transient(1)
    driver.append(driver.setup(name), 1, [b"upload"])
    driver.append(driver.setup(OTHER), 1, [b"short"])
    driver.delete(OTHER)
    driver.seal(name, NO_DECISION)
    assert taken(driver) == Counted((), complete=True)


def test_events_of_a_transaction_are_the_parents_load_once_they_are_merged(
    driver: ContainerDriver,
) -> None:
    """And it is told for how long the transactions were open."""
    began_ms = driver.time.now_ms() - 30_000
    ids = [transaction_id(began_ms + later_ms, bytes(10)) for later_ms in (0, 10_000)]
    names = [transaction_segment_name(SEGMENT, one) for one in ids]
    size = 0
    for name in names:
        driver.create(name)
        size += len(driver.append(driver.setup(name), 1, [b"one", b"two"]))
    assert taken(driver) == Counted((), complete=True)
    driver.merge(*names, stamp=Stamp(1, 4))
    told = SegmentTraffic(SEGMENT, 4, size, 4, size, 30_000)
    assert taken(driver) == Counted((told,), complete=True)
    # a repeat brings nothing
    driver.merge(*names, stamp=Stamp(1, 5))
    assert taken(driver) == Counted((), complete=True)


def test_more_segments_than_are_counted_are_no_longer_all(
    driver: ContainerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "COUNTED_MAX", 1)
    size = len(driver.append(driver.setup(), 1, [b"counted"]))
    driver.append(driver.setup(OTHER), 1, [b"not counted"])
    assert taken(driver) == Counted((SegmentTraffic(SEGMENT, 1, size),), complete=False)
    assert taken(driver).complete


# --- sketches -----------------------------------------------------------------------------------


def period(driver: ContainerDriver, length_s: float = 2.0) -> Counted:
    """The end of a period, as the reporter has it."""
    driver.commit()
    traffic = driver.container.notices.traffic
    flows = traffic.flows(length_s)
    counted = traffic.take()
    traffic.sketch(planned([flows], length_s)[0])
    return counted


def keyed(driver: ContainerDriver, segment: str, session: int, numbers: range) -> None:
    """Appends with one key each."""
    held = driver.setup(segment, session=session)
    for number in numbers:
        block = encode_block(
            [b"event"] * 10, writer_id=held.writer_id, first_event_number=10 * number + 1,
            base_timestamp_ms=0, keys=[b"key"] * 10,
        )  # fmt: skip
        driver.append_raw(held, 10 * number + 1, 10, block, is_block=True)
    driver.commit()


def test_a_busy_segment_is_told_with_its_keys_from_the_second_period_on(
    driver: ContainerDriver,
) -> None:
    keyed(driver, SEGMENT, 1, range(10))
    (first,) = period(driver).segments
    assert first.keys is None
    keyed(driver, SEGMENT, 1, range(10, 20))
    (second,) = period(driver).segments
    assert second.keys is not None
    assert second.keys.positions == (int(routing_position("key") * 2**32),)
    assert second.keys.events == (100,)


def test_the_keys_of_a_transaction_are_sampled_before_its_commit(driver: ContainerDriver) -> None:
    """And told with the commit, although the target itself was never appended to."""
    names = [
        transaction_segment_name(SEGMENT, transaction_id(number, bytes(10))) for number in (1, 2)
    ]
    for number, name in enumerate(names):
        driver.create(name)
        keyed(driver, name, number + 1, range(10))
        assert period(driver).segments == ()
    driver.merge(*names, stamp=Stamp(1, 4))
    driver.commit()
    assert driver.container.notices.traffic.flows(2.0)[SEGMENT].events == 0, (
        "they were sampled before"
    )
    (told,) = period(driver).segments
    assert (told.segment, told.events, told.merged_events) == (SEGMENT, 200, 200)
    assert told.keys is not None
    assert told.keys.events == (100,)


def test_a_sketch_ends_when_its_segment_has_been_quiet_for_long(driver: ContainerDriver) -> None:
    keyed(driver, SEGMENT, 1, range(10))
    period(driver)
    keyed(driver, SEGMENT, 1, range(10, 20))
    period(driver)
    for _ in range(14):
        period(driver)
    assert set(driver.container.notices.traffic._sketches) == {SEGMENT}
    period(driver)
    assert driver.container.notices.traffic._sketches == {}
