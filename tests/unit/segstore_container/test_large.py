"""Large events: their reference and their parts are stored together, once, and stay together."""

from collections.abc import Callable, Iterator

import pytest

from anabranch.common.model.names import transaction_segment_name
from anabranch.common.wire.block import (
    FLAG_LARGE,
    FLAG_PARTS_BEFORE,
    Block,
    LargeReference,
    count_events,
)
from anabranch.common.wire.block_encoding import encode_block, encode_part
from anabranch.common.wire.messages import (
    NO_DECISION,
    Appended,
    AppendOnce,
    AppendTogether,
    BlockPlace,
    SegmentsMerged,
    Stamp,
)
from anabranch.segstore.domain.container.circumstances import Given
from anabranch.segstore.domain.container.invariants import check_state
from kit.container_driver import SEGMENT, WRITER
from kit.tiered_driver import TieredDriver

OTHER = "scope/stream/1.#epoch.0"
TRANSACTION = transaction_segment_name(SEGMENT, f"{7:032x}")
DECIDED = Stamp(1, 4)


@pytest.fixture(params=["memory", "journal"])
def driver(request: pytest.FixtureRequest) -> Iterator[TieredDriver]:
    driver = TieredDriver(cache_size=1 << 20 if request.param == "memory" else 0)
    for name in (SEGMENT, OTHER, TRANSACTION):
        driver.create(name)
    driver.commit()
    driver.take_replies()
    yield driver
    driver.finish()


def uploaded(driver: TieredDriver, unique: int, parent: str = SEGMENT) -> tuple[str, bytes]:
    """A sealed transient segment with two parts: its name, and its bytes."""
    name = driver.create_transient(unique, parent)
    driver.commit()
    parts = [
        encode_part(b"piece %d" % number, writer_id=WRITER, number=number, base_timestamp_ms=0)
        for number in (1, 2)
    ]
    session = driver.setup(name, session=100 + unique)
    for number, part in enumerate(parts, 1):
        driver.append_raw(session, number, 1, part, is_block=True)
    driver.seal(name, NO_DECISION)
    driver.commit()
    driver.take_replies()
    return name, b"".join(parts)


def codes(driver: TieredDriver) -> list[str]:
    driver.commit()
    return [getattr(reply, "code", "") for reply in driver.take_replies()]


def test_a_reference_lies_directly_behind_its_parts(driver: TieredDriver) -> None:
    before = driver.append(driver.setup(), 1, [b"a", b"b"])
    name, parts = uploaded(driver, 1)
    reference = driver.append_large(driver.setup(), 3, name, len(parts))
    behind = driver.append(driver.setup(), 4, [b"c"])
    driver.commit()
    assert driver.content() == before + parts + reference + behind
    at = len(before) + len(parts)
    assert Block(reference).reference(at).offset == len(before)
    (*_, told, last) = [each for each in driver.take_replies() if isinstance(each, Appended)]
    assert (told.length, told.event_count) == (at + len(reference), 3)
    assert (last.length, last.event_count) == (at + len(reference) + len(behind), 4)
    assert driver.metrics.append_events == 4
    check_state(driver.container.applied.state)
    driver.crash()
    assert driver.read_all(SEGMENT) == before + parts + reference + behind
    assert driver.setup() is not None


def test_a_frame_has_both_or_none(driver: TieredDriver) -> None:
    name, parts = uploaded(driver, 1)
    driver.append_large(driver.setup(), 1, name, len(parts))
    frame = driver.container.take_frame(1)
    assert frame is not None
    assert frame.count == 2, "a frame without room for both holds both"


def test_a_crash_before_the_sync_leaves_neither(driver: TieredDriver) -> None:
    name, parts = uploaded(driver, 1)
    driver.append_large(driver.setup(), 1, name, len(parts))
    driver.crash()
    driver.end_leftovers()
    driver.commit()
    assert driver.read_all(SEGMENT) == b""
    assert driver.container.pending.last_event_number(1, WRITER) == 0
    again, parts = uploaded(driver, 2)
    reference = driver.append_large(driver.setup(), 1, again, len(parts))
    driver.commit()
    assert driver.content() == parts + reference


def test_a_repeat_is_acknowledged_without_parts(driver: TieredDriver) -> None:
    name, parts = uploaded(driver, 1)
    reference = driver.append_large(driver.setup(), 1, name, len(parts))
    driver.append_large(driver.setup(), 1, name, len(parts))
    driver.commit()
    driver.crash()
    driver.append_large(driver.setup(), 1, "gone", len(parts))
    assert codes(driver)[-1] == ""
    assert driver.content() == parts + reference
    other, _ = uploaded(driver, 2)
    driver.append_large(driver.setup(), 1, other, len(parts))
    assert codes(driver)[-1] == ""
    assert driver.content() == parts + reference
    assert driver.container.has_transient(other), "its parts are not taken"


def test_parts_that_are_gone_end_the_session_and_not_the_writer(driver: TieredDriver) -> None:
    name, parts = uploaded(driver, 1)
    driver.container.end_transients([name])
    driver.append_large(driver.setup(), 1, name, len(parts))
    assert codes(driver)[-1] == "session-ended"
    driver.append_large(driver.setup(), 1, OTHER, len(parts))
    assert codes(driver)[-1] == "session-ended"
    driver.append(driver.setup(), 1, [b"small"])
    assert codes(driver)[-1] == ""


def test_parts_must_be_sealed_of_the_same_parent_and_of_the_length_that_is_told(
    driver: TieredDriver,
) -> None:
    name, parts = uploaded(driver, 1)
    driver.append_large(driver.setup(OTHER), 1, name, len(parts))
    assert codes(driver)[-1] == "invalid-request"
    for length in (len(parts) - 1, len(parts) + 1):
        driver.append_large(driver.setup(), 1, name, length)
        assert codes(driver)[-1] == "invalid-request"
    open_name = driver.create_transient(2)
    driver.commit()
    driver.append_large(driver.setup(), 1, open_name, len(parts))
    assert codes(driver)[-1] == "segment-not-sealed"
    assert driver.content() == b""


def test_a_reference_without_its_parts_is_refused_at_every_door(driver: TieredDriver) -> None:
    block = encode_block(
        [LargeReference(0, 10, 1, 0).encode()], writer_id=WRITER, first_event_number=1,
        base_timestamp_ms=0, flags=FLAG_LARGE | FLAG_PARTS_BEFORE,
    )  # fmt: skip
    driver.append_raw(driver.setup(), 1, 1, block, is_block=True)
    assert codes(driver)[-1] == "invalid-request"
    once = AppendOnce(segment=SEGMENT, writer_id=WRITER, first_event_number=1, count=1)
    place = BlockPlace(segment=SEGMENT, first_event_number=1, count=1, size=len(block))
    together = AppendTogether(segment=SEGMENT, writer_id=WRITER, places=(place,))
    driver.container.ask(once, driver._deliver(), Given(block))
    driver.container.ask(together, driver._deliver(), Given(block))
    assert codes(driver) == ["invalid-request"] * 2
    assert driver.content() == b""


def test_parts_come_with_a_reference_and_nothing_else(driver: TieredDriver) -> None:
    name, _ = uploaded(driver, 1)
    session = driver.setup()
    block = encode_block([b"e"], writer_id=WRITER, first_event_number=1, base_timestamp_ms=0)
    driver.append_with_parts(session, 1, name, block)
    assert codes(driver)[-1] == "invalid-request"
    driver.append_with_parts(driver.setup(), 1, name, b"any bytes", is_block=False)
    assert codes(driver)[-1] == "invalid-request"
    assert driver.content() == b""
    assert driver.container.has_transient(name)


@pytest.mark.parametrize("between", [lambda _: None, TieredDriver.flush, TieredDriver.crash])
@pytest.mark.parametrize("after", [lambda _: None, TieredDriver.flush, TieredDriver.crash])
def test_a_transaction_takes_large_events_to_its_parent(
    driver: TieredDriver,
    between: Callable[[TieredDriver], None],
    after: Callable[[TieredDriver], None],
) -> None:
    # given a transaction with a large event between two others
    before = driver.append(driver.setup(), 1, [b"before the transaction"])
    session = driver.setup(TRANSACTION)
    first = driver.append(session, 1, [b"first"])
    name, parts = uploaded(driver, 1, TRANSACTION)
    reference = driver.append_large(driver.setup(TRANSACTION), 2, name, len(parts))
    last = driver.append(driver.setup(TRANSACTION), 3, [b"last"])
    driver.commit()
    check_state(driver.container.applied.state)
    between(driver)
    # when it is committed, and merged once more
    for _ in range(2):
        driver.merge(TRANSACTION, stamp=DECIDED)
    driver.commit()
    after(driver)
    # then everything is in its parent, and the reference leads to its parts
    assert driver.read_all(SEGMENT) == before + first + parts + reference + last
    at = len(before + first + parts)
    assert Block(reference).reference(at).offset == len(before + first)
    assert count_events(driver.read_all(SEGMENT)) == (6, 4)
    check_state(driver.container.applied.state)


def test_only_transient_segments_merge_into_a_transaction(driver: TieredDriver) -> None:
    name, parts = uploaded(driver, 1, TRANSACTION)
    driver.seal(OTHER)
    driver.commit()
    driver.take_replies()
    driver.merge(OTHER, target=TRANSACTION, stamp=NO_DECISION)
    driver.merge(name, stamp=NO_DECISION)
    driver.merge(name, OTHER, target=TRANSACTION, stamp=NO_DECISION)
    assert codes(driver) == ["invalid-request"] * 3
    driver.merge(name, target=TRANSACTION, stamp=NO_DECISION)
    driver.commit()
    (reply,) = driver.take_replies()
    assert isinstance(reply, SegmentsMerged)
    assert driver.content(TRANSACTION) == parts


def test_a_transaction_that_ends_takes_the_parts_that_nobody_refers_to_along(
    driver: TieredDriver,
) -> None:
    name, parts = uploaded(driver, 1, TRANSACTION)
    session = driver.setup(TRANSACTION)
    driver.delete(TRANSACTION, Stamp(1, 3))
    driver.append_large(session, 1, name, len(parts))
    assert codes(driver)[-1] == "segment-not-found"
    driver.container.end_transients([name])
    driver.commit()
    assert driver.container.applied.state.transients == set()
    check_state(driver.container.applied.state)
