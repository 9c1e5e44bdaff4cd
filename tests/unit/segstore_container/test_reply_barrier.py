"""No answer leaves before everything that it depended on is durable."""

from typing import Any
from unittest.mock import patch

import pytest

from anabranch.common.errors import Defect, Deposed, DiskFailed
from anabranch.common.wire.messages import (
    Appended,
    AppendSetup,
    Done,
    Failed,
    Message,
    Sealed,
    SegmentInfo,
    Stamp,
)
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    Operation,
    SealOperation,
)
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.sessions import AppendSession
from anabranch.segstore.shell.container.throttle import ThrottleLimits
from anabranch.segstore.shell.memory.applied import Applied
from kit.container_driver import SEGMENT, ContainerDriver
from kit.planted_container import HastyContainer


def duplicate_before_the_sync(
    container_type: type[Container],
) -> tuple[list[Message], list[Message]]:
    """(answers before the sync, answers after it) to an append and its duplicate."""
    driver = ContainerDriver(container_type=container_type)
    driver.create()
    session = driver.setup()
    driver.commit()
    driver.take_replies()
    driver.append(session, 1, [b"a", b"b"])
    driver.append(session, 1, [b"a", b"b"])
    before = driver.take_replies()
    driver.commit()
    return before, driver.take_replies()


def test_a_duplicate_is_not_acknowledged_before_the_append_it_repeats_is_durable() -> None:
    before, after = duplicate_before_the_sync(Container)
    assert before == []
    assert [type(reply) for reply in after] == [Appended]


def test_the_planted_hasty_container_is_caught() -> None:
    before, _ = duplicate_before_the_sync(HastyContainer)
    assert before != []


def test_every_kind_of_answer_waits_for_what_was_pending_when_it_was_decided() -> None:
    # given a segment that is not durable yet
    driver = ContainerDriver()
    driver.create()
    # when everything that can be asked of it is asked
    driver.create()
    driver.create(stamp=Stamp(0, 9))
    driver.info()
    session = driver.setup()
    driver.append(session, 1, [b"a"])
    driver.append(session, 5, [b"gap"])
    driver.seal()
    driver.seal()
    driver.delete()
    driver.info()
    # then nothing is answered before the sync, and all in order after it
    assert driver.take_replies() == []
    driver.commit()
    kinds = [type(reply) for reply in driver.take_replies()]
    assert kinds == [
        Done, Done, Failed, SegmentInfo, AppendSetup, Appended,
        Failed, Sealed, Sealed, Done, Failed,
    ]  # fmt: skip


def test_an_answer_that_depends_on_nothing_pending_comes_at_once() -> None:
    driver = ContainerDriver()
    driver.info()
    (reply,) = driver.take_replies()
    assert isinstance(reply, Failed)
    assert reply.code == "segment-not-found"


def test_a_refusal_by_the_throttle_does_not_wait_for_what_is_pending() -> None:
    driver = ContainerDriver()
    driver.create()
    driver.throttle.pending = ThrottleLimits().pending_hard
    driver.seal()
    (reply,) = driver.take_replies()
    assert isinstance(reply, Failed)
    assert reply.code == "overloaded"
    driver.commit()
    assert driver.take_replies() == [Done()]


def test_acknowledgements_are_cumulative_per_session_and_commit() -> None:
    driver = ContainerDriver()
    driver.create()
    one = driver.setup(session=1)
    two = driver.setup(session=2, writer_id=b"2" * 16)
    driver.commit()
    driver.take_replies()
    length = 0
    for number in range(1, 6):
        length += len(driver.append(one, number, [b"x"]))
        length += len(driver.append(two, number, [b"y"]))
    driver.commit()
    replies = driver.take_replies()
    assert [(type(r), getattr(r, "session", 0)) for r in replies] == [(Appended, 1), (Appended, 2)]
    assert all(isinstance(r, Appended) and r.last_event_number == 5 for r in replies)
    assert isinstance(replies[1], Appended)
    assert replies[1].length == length


def test_a_frame_releases_only_the_answers_that_it_makes_true() -> None:
    driver = ContainerDriver()
    driver.create()
    driver.create(SEGMENT.replace("/0.", "/1."))
    first, second = driver.container.take_frame(1), driver.container.take_frame(1)
    assert first is not None
    assert second is not None
    driver.container.frame_durable(first, LogAddress(0, 1, first.size))
    assert driver.take_replies() == [Done()]
    driver.container.frame_durable(second, LogAddress(0, 2, second.size))
    assert driver.take_replies() == [Done()]


def test_a_refusal_comes_after_the_acknowledgements_of_earlier_appends() -> None:
    driver = ContainerDriver()
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"a"])
    driver.append(session, 3, [b"c"])
    driver.append(session, 2, [b"b"])
    driver.commit()
    replies = driver.take_replies()
    assert isinstance(replies[2], Appended)
    assert [r.code for r in replies[3:] if isinstance(r, Failed)] == ["event-gap", "session-ended"]
    assert [r.session for r in replies[3:] if isinstance(r, Failed)] == [1, 1]


def test_when_the_log_fails_nobody_is_acknowledged_and_everybody_is_told() -> None:
    driver = ContainerDriver()
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"a"])
    contents = driver.container.take_frame(1 << 20)
    assert contents is not None
    driver.container.log_failed(DiskFailed("the sync failed"))
    replies = driver.take_replies()
    assert [r.code for r in replies if isinstance(r, Failed)] == ["unavailable"] * 3
    assert driver.throttle.pending == 0
    # and a late word from the log changes nothing
    driver.commit()
    assert driver.take_replies() == []
    assert driver.container.applied.state.known(SEGMENT) is None
    with pytest.raises(Exception, match="is not serving"):
        driver.create()


def test_when_the_log_fails_every_answer_of_a_session_still_names_it() -> None:
    driver = ContainerDriver()
    driver.create()
    session = driver.setup(session=7)
    driver.append(session, 1, [b"a"])
    driver.append(session, 5, [b"leaves a gap: refused"])
    driver.container.log_failed(DiskFailed("the sync failed"))
    replies = [reply for reply in driver.take_replies() if isinstance(reply, Failed)]
    assert [reply.session for reply in replies] == [0, 7, 7, 7], "create, setup, append, refusal"


def test_a_container_that_ended_acknowledges_nothing_that_becomes_durable_later() -> None:
    # given an append that the log has taken and one that waits
    driver = ContainerDriver()
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"durable"])
    driver.commit()
    driver.append(session, 2, [b"taken"])
    contents = driver.container.take_frame(1 << 20)
    assert contents is not None
    driver.append(session, 3, [b"waits"])
    driver.take_replies()
    # when the container ends for a reason of its own
    driver.container.fail(Deposed("a newer owner"))
    told = driver.take_replies()
    driver.container.frame_durable(contents, LogAddress(0, 9, contents.size))
    driver.commit()
    # then both were refused once, nothing follows, and all counts are given back
    assert [r.code for r in told if isinstance(r, Failed)] == ["unavailable"] * 2
    assert driver.take_replies() == []
    assert not session.alive
    assert (driver.throttle.pending, driver.throttle.untiered, driver.cache.used) == (0, 0, 0)
    assert driver.container.take_frame(1 << 20) is None


def test_pending_bytes_are_given_back_when_they_are_durable() -> None:
    driver = ContainerDriver()
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"a" * 1000])
    assert driver.throttle.pending > 1000
    driver.commit()
    assert driver.throttle.pending == 0
    assert driver.throttle.untiered > 1000


def open_session() -> tuple[ContainerDriver, AppendSession]:
    driver = ContainerDriver()
    driver.create()
    session = driver.setup()
    driver.commit()
    driver.take_replies()
    return driver, session


def test_acknowledgements_leave_before_their_frame_is_applied_and_other_answers_behind_it() -> None:
    driver, session = open_session()
    driver.append(session, 1, [b"a"])
    driver.seal()
    order: list[type] = []
    real = Applied.apply

    def apply(applied: Applied, sequence: int, operation: Operation, *place: Any) -> int:
        order.extend(type(reply) for reply in driver.take_replies())
        order.append(type(operation))
        return real(applied, sequence, operation, *place)

    with patch.object(Applied, "apply", apply):
        driver.commit()
    order.extend(type(reply) for reply in driver.take_replies())

    assert order == [Appended, AppendOperation, SealOperation, Sealed]


def test_an_event_that_was_acknowledged_before_a_defect_in_its_application_is_in_the_log() -> None:
    driver, session = open_session()
    payload = driver.append(session, 1, [b"a"]) + driver.append(session, 2, [b"b"])
    real = Applied.apply

    def fail_at_the_second(applied: Applied, sequence: int, *more: Any) -> int:
        if sequence == 3:
            raise KeyError("nobody expected this")
        return real(applied, sequence, *more)

    with patch.object(Applied, "apply", fail_at_the_second), pytest.raises(KeyError):
        driver.commit()

    assert [type(reply) for reply in driver.take_replies()] == [Appended]
    driver.container.fail(Defect("a defect", cause="KeyError"))
    assert (driver.throttle.pending, driver.throttle.untiered) == (0, 0)
    driver.crash()
    assert driver.content() == payload
