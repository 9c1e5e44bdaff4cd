"""Commit batches that carry blocks: a segment takes the whole batch, in order and once."""

from collections.abc import Sequence

import pytest

from anabranch.common.model.names import transaction_segment_name
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    BatchMerged,
    CreateSegment,
    Done,
    Failed,
    MergeBatch,
    Message,
    Stamp,
)
from anabranch.common.wire.requests import GROUP_SIZE_BYTES_MAX
from kit.container_driver import WRITER, ContainerDriver
from kit.tiered_driver import TieredDriver
from kit.together import ask, asked

TARGET = "scope/stream/0.#epoch.0"
BATCH, LATER = Stamp(1, 7), Stamp(1, 9)
CREATED = Stamp(1, 1)
"""Under which the driver creates segments."""


def block(*events: bytes, first: int = 1) -> bytes:
    return encode_block(
        list(events), writer_id=bytes(16), first_event_number=first, base_timestamp_ms=0
    )


def source(number: int) -> str:
    return transaction_segment_name(TARGET, f"{number:032x}")


def made(
    parts: Sequence[bytes | str], stamp: Stamp = BATCH, target: str = TARGET
) -> tuple[MergeBatch, bytes]:
    """The request for parts, of which bytes are blocks, and its payload."""
    request = MergeBatch(
        segment=target,
        stamp=stamp,
        parts=tuple(part if isinstance(part, str) else len(part) for part in parts),
    )
    return request, b"".join(part for part in parts if isinstance(part, bytes))


def code_of(message: Message) -> str:
    assert isinstance(message, Failed), message
    return message.code


def long_one(driver: ContainerDriver, number: int, *events: bytes) -> str:
    """A transaction segment that holds these events."""
    name = source(number)
    asked(driver, CreateSegment(segment=name, stamp=CREATED))
    driver.append_once(1, list(events), segment=name)
    driver.commit()
    driver.take_replies()
    return name


@pytest.fixture
def driver() -> ContainerDriver:
    driver = ContainerDriver()
    driver.create(TARGET)
    driver.commit()
    driver.take_replies()
    return driver


def test_its_blocks_and_its_stamp_are_durable_in_one_frame(driver: ContainerDriver) -> None:
    frames = len(driver.frames.payloads)
    one, other = block(b"a", b"b"), block(b"c")
    ask(driver, *made([one, other]))
    assert driver.content(TARGET) == b""
    driver.commit()
    assert driver.take_replies() == [BatchMerged(end=len(one + other))]
    assert driver.content(TARGET) == one + other
    assert len(driver.frames.payloads) == frames + 1
    known = driver.known(TARGET)
    assert known is not None
    assert known.stamp == BATCH


def test_blocks_and_transaction_segments_keep_the_order_of_the_batch(
    driver: ContainerDriver,
) -> None:
    names = [long_one(driver, number, b"long") for number in (1, 2, 3)]
    first, second, third = (driver.content(name) for name in names)
    own, later = block(b"own"), block(b"later")
    answer = asked(driver, *made([names[0], names[1], own, names[2], later]))
    whole = first + second + own + third + later
    assert answer == BatchMerged(end=len(whole))
    assert driver.content(TARGET) == whole


def test_a_batch_may_end_with_a_transaction_segment(driver: ContainerDriver) -> None:
    name = long_one(driver, 1, b"long")
    content, own = driver.content(name), block(b"own")
    asked(driver, *made([own, name]))
    assert driver.content(TARGET) == own + content


def test_a_repeat_changes_nothing_also_behind_later_appends(driver: ContainerDriver) -> None:
    name = long_one(driver, 1, b"long")
    request = made([name, block(b"own")])
    first = asked(driver, *request)
    assert isinstance(first, BatchMerged)
    driver.append_once(1, [b"plain"], segment=TARGET)
    driver.commit()
    content = driver.content(TARGET)
    assert asked(driver, *request) == BatchMerged(end=len(content))
    assert driver.content(TARGET) == content


def test_a_repeat_that_comes_before_the_sync_changes_nothing(driver: ContainerDriver) -> None:
    own = block(b"own")
    ask(driver, *made([own]))
    ask(driver, *made([own]))
    driver.commit()
    assert driver.take_replies() == [BatchMerged(end=len(own))] * 2
    assert driver.content(TARGET) == own


def test_a_repeat_is_recognised_after_a_crash_and_a_seal(driver: ContainerDriver) -> None:
    own = block(b"own")
    asked(driver, *made([own]))
    driver.seal(TARGET, BATCH)
    driver.commit()
    driver.crash()
    driver.take_replies()
    assert asked(driver, *made([own])) == BatchMerged(end=len(own))
    assert driver.content(TARGET) == own


def test_a_crash_before_the_sync_leaves_nothing_of_it(driver: ContainerDriver) -> None:
    own = block(b"own")
    ask(driver, *made([own]))
    driver.crash()
    driver.take_replies()
    assert driver.content(TARGET) == b""
    assert asked(driver, *made([own])) == BatchMerged(end=len(own))


def test_a_repeat_is_recognised_from_tier_two() -> None:
    driver = TieredDriver()
    driver.create(TARGET)
    driver.commit()
    driver.take_replies()
    own = block(b"own")
    asked(driver, *made([own]))
    driver.flush()
    driver.crash()
    driver.take_replies()
    assert asked(driver, *made([own])) == BatchMerged(end=len(own))
    assert driver.read_all(TARGET) == own
    driver.runner.close()


def test_a_segment_that_was_created_for_the_batch_takes_it_once(driver: ContainerDriver) -> None:
    """Also if somebody else appends to it meanwhile."""
    rolled = "scope/stream/0.#epoch.1"
    assert asked(driver, CreateSegment(segment=rolled, stamp=Stamp(1, 6))) == Done()
    stray = driver.append_once(1, [b"stray"], segment=rolled)
    driver.commit()
    own = block(b"own")
    for _ in range(2):
        assert asked(driver, *made([own], target=rolled)) == BatchMerged(end=len(stray + own))
    assert driver.content(rolled) == stray + own


def test_a_request_of_an_earlier_batch_is_refused(driver: ContainerDriver) -> None:
    early = made([block(b"early")])
    asked(driver, *early)
    later = made([block(b"later")], LATER)
    asked(driver, *later)
    content = driver.content(TARGET)
    assert code_of(asked(driver, *early)) == "stale-request"
    assert driver.content(TARGET) == content


def test_a_sealed_segment_takes_no_batch(driver: ContainerDriver) -> None:
    driver.seal(TARGET, Stamp(1, 5))
    assert code_of(asked(driver, *made([block(b"late")]))) == "segment-sealed"


def test_one_bad_block_or_source_refuses_all(driver: ContainerDriver) -> None:
    good, bad = block(b"good"), bytearray(block(b"bad"))
    bad[-1] ^= 1
    unnumbered = block(b"zero", first=0)
    assert code_of(asked(driver, *made([good, bytes(bad)]))) == "corrupt-block"
    assert code_of(asked(driver, *made([good, unnumbered]))) == "invalid-request"
    assert code_of(asked(driver, *made([good, source(9)]))) == "segment-not-found"
    assert driver.content(TARGET) == b""
    assert driver.pending(TARGET) == driver.known(TARGET)


@pytest.mark.parametrize(
    "request_",
    [
        MergeBatch(segment=TARGET, stamp=BATCH, parts=()),
        MergeBatch(segment=TARGET, stamp=BATCH, parts=(source(1),)),
        MergeBatch(segment=TARGET, stamp=BATCH, parts=(3, 3)),
        MergeBatch(segment=TARGET, stamp=BATCH, parts=(5, 0)),
        MergeBatch(segment=TARGET, stamp=BATCH, parts=(6, -1)),
        MergeBatch(segment=source(1), stamp=BATCH, parts=(5,)),
    ],
)
def test_a_request_that_does_not_add_up_is_refused(
    driver: ContainerDriver, request_: MergeBatch
) -> None:
    assert code_of(asked(driver, request_, b"12345")) == "invalid-request"


def test_a_batch_that_no_log_takes_in_one_frame_is_refused(driver: ContainerDriver) -> None:
    large = block(bytes(GROUP_SIZE_BYTES_MAX))
    assert code_of(asked(driver, *made([large]))) == "invalid-request"


def test_the_numbers_of_a_writer_beside_the_batch_stay(driver: ContainerDriver) -> None:
    driver.append_once(1, [b"plain"], segment=TARGET)
    driver.commit()
    asked(driver, *made([block(b"own", b"own")]))
    target = driver.known(TARGET)
    assert isinstance(target, SegmentState)
    state = driver.container.applied.state
    assert state.last_event_number(target.number, WRITER) == 1
