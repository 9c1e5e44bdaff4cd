"""What a client was given and has not acknowledged; tokens."""

import pytest

from anabranch.common.errors import InvalidRequest
from anabranch.gateway.events.delivery import EVENT_COST_BYTES, Delivery, parse_token
from kit.fake_group import FakeBatch

SESSION = "0123456789abcdef" * 2


def block(segment: str, offset: int, count: int, first: int = 0, size: int = 1) -> FakeBatch:
    return FakeBatch(segment, offset, [b"x" * size] * count, first)


def delivery(*batches: FakeBatch, events_max: int = 100, size_bytes_max: int = 1 << 20) -> Delivery:
    made = Delivery(SESSION, events_max, size_bytes_max)
    for batch in batches:
        made.take(batch)
    return made


def test_events_are_numbered_and_the_place_behind_the_last_of_a_block_is_the_next_block() -> None:
    events = delivery(block("a", 0, 3, first=2)).sendable(0)
    assert [event.number for event in events] == [1, 2, 3]
    assert [event.event.position for event in events] == [(0, 2), (0, 3), (0, 4)]
    assert [event.behind for event in events] == [(0, 3), (0, 4), (100, 0)]


def test_an_acknowledgement_tells_how_far_each_segment_is_processed() -> None:
    held = delivery(block("a", 0, 2), block("b", 0, 2), block("a", 100, 2))
    assert held.acknowledge(3) == {"a": (100, 0), "b": (0, 1)}
    assert held.acknowledge(3) == {}
    assert held.acknowledge(1) == {}
    assert held.acknowledge(6) == {"b": (100, 0), "a": (200, 0)}
    assert held.newest == 6


def test_what_was_never_given_cannot_be_acknowledged() -> None:
    with pytest.raises(InvalidRequest):
        delivery(block("a", 0, 2)).acknowledge(3)


def test_a_new_connection_gets_all_that_is_unacknowledged_again() -> None:
    held = delivery(block("a", 0, 4))
    held.acknowledge(1)
    assert [event.number for event in held.sendable(held.acknowledged)] == [2, 3, 4]
    assert [event.number for event in held.sendable(3)] == [4]


def test_no_more_events_are_sent_than_may_be_unacknowledged() -> None:
    held = delivery(block("a", 0, 10), events_max=4)
    assert [event.number for event in held.sendable(0)] == [1, 2, 3, 4]
    assert held.sendable(4) == []
    held.acknowledge(2)
    assert [event.number for event in held.sendable(4)] == [5, 6]


def test_no_more_bytes_are_sent_than_may_be_unacknowledged_but_one_event_always_is() -> None:
    held = delivery(block("a", 0, 3, size=1000), size_bytes_max=2 * (1000 + EVENT_COST_BYTES))
    assert [event.number for event in held.sendable(0)] == [1, 2]
    small = delivery(block("a", 0, 2, size=1000), size_bytes_max=10)
    assert [event.number for event in small.sendable(0)] == [1]
    small.acknowledge(1)
    assert [event.number for event in small.sendable(1)] == [2]


def test_tokens_are_read_as_they_were_written_and_nothing_else_is() -> None:
    token = parse_token(delivery().token(12))
    assert (token.session, token.number) == (SESSION, 12)
    for text in ("", "x", f"{SESSION}-", f"{SESSION}-01", f"{SESSION}--1", f"{SESSION}-1\n"):
        with pytest.raises(InvalidRequest):
            parse_token(text)
