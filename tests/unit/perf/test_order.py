"""That nothing which happens to an event of a key goes unnoticed."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.perf.order import Order, key_name

KEYS = 3
EVENTS = 12
READ = [*range(0, EVENTS, 3), *range(1, EVENTS, 3), *range(2, EVENTS, 3)]
"""Each key in order, but not the stream."""


def order_of(indices: list[int]) -> Order:
    order = Order(KEYS)
    for index in indices:
        order.take(key_name(index % KEYS), index)
    return order


def test_each_key_in_its_order_is_right_whatever_the_order_of_keys() -> None:
    order = order_of(READ)

    assert order.is_right(EVENTS)
    assert order.verdict(EVENTS) == "checked: 12 events, none lost or repeated, each key in order"


@given(st.integers(0, EVENTS - 1))
def test_a_lost_event_is_noticed(at: int) -> None:
    order = order_of([*READ[:at], *READ[at + 1 :]])

    assert not order.is_right(EVENTS)
    assert "THE CHECK FAILED" in order.verdict(EVENTS)


def test_a_gap_inside_a_key_is_counted_where_the_key_goes_on() -> None:
    order = order_of([0, 6, 9, 1, 4])

    assert (order.events, order.misplaced) == (5, 1)


@given(st.integers(0, EVENTS - 1), st.integers(0, EVENTS))
def test_a_repeated_event_is_noticed(index: int, at: int) -> None:
    assert not order_of([*READ[:at], index, *READ[at:]]).is_right(EVENTS)


@given(st.integers(0, KEYS - 1), st.integers(0, 2))
def test_two_events_of_a_key_that_changed_places_are_noticed(key: int, at: int) -> None:
    read = READ.copy()
    first = key * 4 + at
    read[first], read[first + 1] = read[first + 1], read[first]

    assert not order_of(read).is_right(EVENTS)


def test_an_event_under_another_key_is_noticed() -> None:
    order = Order(KEYS)
    order.take(key_name(1), 0)

    assert not order.is_right(1)
