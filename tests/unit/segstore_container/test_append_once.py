"""Appends without a session: judged by the writer's event numbers, beside sessions or alone."""

import pytest
from msgspec.structs import replace

from anabranch.common.wire.messages import Appended, Failed, Message
from kit.container_driver import SEGMENT, ContainerDriver


def code_of(message: Message) -> str:
    assert isinstance(message, Failed), message
    return message.code


@pytest.fixture
def driver() -> ContainerDriver:
    driver = ContainerDriver()
    driver.create()
    driver.commit()
    driver.take_replies()
    return driver


def test_it_is_answered_only_once_it_is_durable(driver: ContainerDriver) -> None:
    block = driver.append_once(1, [b"a", b"b"])
    assert driver.take_replies() == []
    driver.commit()
    assert driver.take_replies() == [
        Appended(session=0, last_event_number=2, length=len(block), event_count=2)
    ]
    assert driver.content() == block


def test_a_repeat_is_acknowledged_and_stored_once_even_after_a_crash(
    driver: ContainerDriver,
) -> None:
    block = driver.append_once(1, [b"a"])
    driver.append_once(1, [b"a"])
    driver.commit()
    first, second = driver.take_replies()
    driver.crash()
    driver.append_once(1, [b"a"])
    driver.commit()
    repeated = Appended(session=0, last_event_number=1, length=len(block))
    assert first == replace(repeated, event_count=1)
    assert [second, *driver.take_replies()] == [repeated] * 2
    assert driver.content() == block


def test_a_duplicate_waits_for_what_it_repeats(driver: ContainerDriver) -> None:
    driver.append_once(1, [b"a"])
    driver.append_once(1, [b"a"])
    assert driver.take_replies() == []


@pytest.mark.parametrize(
    ("first", "count", "code"),
    [(2, 2, "partial-duplicate"), (4, 1, "event-gap")],
)
def test_its_refusals_are_those_of_every_append_and_end_no_session(
    driver: ContainerDriver, first: int, count: int, code: str
) -> None:
    session = driver.setup()
    driver.append(session, 1, [b"a", b"b"])
    driver.append_once(first, [b"x"] * count)
    driver.append(session, 3, [b"c"])
    driver.commit()
    _, _, refusal, acknowledged = driver.take_replies()
    assert code_of(refusal) == code
    assert isinstance(acknowledged, Appended)
    assert (acknowledged.session, acknowledged.last_event_number) == (1, 3)


def test_an_unknown_writer_must_begin_with_its_first_event(driver: ContainerDriver) -> None:
    driver.append_once(2, [b"b"])
    driver.commit()
    assert [code_of(reply) for reply in driver.take_replies()] == ["writer-expired"]


def test_a_session_goes_on_from_what_was_stored_beside_it(driver: ContainerDriver) -> None:
    session = driver.setup()
    first = driver.append_once(1, [b"a"])
    repeated = driver.append(session, 1, [b"a"])
    second = driver.append(session, 2, [b"b"])
    driver.append_once(2, [b"b"])
    driver.commit()
    last = driver.take_replies()[-1]
    assert last == Appended(session=0, last_event_number=2, length=len(first + second))
    assert repeated == first
    assert driver.content() == first + second


def test_a_session_that_stored_events_would_fall_between_is_over(
    driver: ContainerDriver,
) -> None:
    session = driver.setup()
    driver.append_once(1, [b"a"])
    driver.append(session, 1, [b"a", b"b"])
    driver.append(session, 2, [b"b"])
    driver.commit()
    assert [code_of(reply) for reply in driver.take_replies()[2:]] == [
        "partial-duplicate",
        "session-ended",
    ]


def test_a_sealed_segment_knows_repeats_and_refuses_news(driver: ContainerDriver) -> None:
    driver.append_once(1, [b"a"])
    driver.seal()
    driver.append_once(1, [b"a"])
    driver.append_once(2, [b"b"])
    driver.commit()
    _, _, repeated, refused = driver.take_replies()
    assert isinstance(repeated, Appended)
    assert code_of(refused) == "segment-sealed"


def test_a_deleted_segment_leaves_the_outcome_open_and_an_unknown_one_does_not(
    driver: ContainerDriver,
) -> None:
    driver.delete()
    driver.append_once(1, [b"a"])
    driver.append_once(1, [b"a"], segment=SEGMENT.replace("/0.", "/1."))
    driver.append_once(1, [b"a"], writer_id=b"short".ljust(16))
    driver.commit()
    codes = [code_of(reply) for reply in driver.take_replies()[1:]]
    assert codes == ["outcome-unknown", "segment-not-found", "outcome-unknown"]
