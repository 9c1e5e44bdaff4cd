"""One live append session per writer and segment."""

from anabranch.common.wire.messages import Appended, AppendSetup, Failed
from kit.container_driver import WRITER, ContainerDriver


def test_a_newer_setup_ends_the_older_session_and_tells_what_is_stored() -> None:
    driver = ContainerDriver()
    driver.create()
    older = driver.setup(session=1)
    driver.append(older, 1, [b"a", b"b"])
    newer = driver.setup(session=7)
    driver.append(older, 3, [b"c"])
    driver.append(newer, 3, [b"c"])
    driver.commit()
    replies = driver.take_replies()[2:]
    assert isinstance(replies[0], Appended)
    assert replies[1] == AppendSetup(session=7, last_event_number=2)
    assert isinstance(replies[2], Failed)
    assert (replies[2].code, replies[2].session) == ("session-ended", 1)
    assert isinstance(replies[3], Appended)
    assert replies[3].session == 7


def test_after_a_refusal_the_next_setup_tells_where_to_go_on() -> None:
    driver = ContainerDriver()
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"a"])
    driver.append(session, 5, [b"e"])
    driver.append(session, 2, [b"b"])
    assert driver.setup().alive
    driver.commit()
    assert driver.take_replies()[-1] == AppendSetup(session=1, last_event_number=1)


def test_a_setup_on_a_sealed_segment_tells_what_to_resend_elsewhere() -> None:
    driver = ContainerDriver()
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"a"])
    driver.seal()
    driver.setup()
    driver.commit()
    assert driver.take_replies()[-1] == AppendSetup(session=1, last_event_number=1, sealed=True)


def test_writers_are_known_per_segment_and_forgotten_with_it() -> None:
    driver = ContainerDriver()
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"a"])
    driver.delete()
    driver.append(session, 2, [b"b"])
    driver.commit()
    (*_, refusal) = driver.take_replies()
    assert isinstance(refusal, Failed)
    assert refusal.code == "segment-not-found"
    assert driver.container.applied.state.writers == {}
    assert session.writer_id == WRITER
