"""How far clocks are apart, learned from one's own stored beats."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.eventsourcing.store_clock import (
    BOUNDS_MAX,
    WIDTH_MS_MAX,
    Bound,
    StoreClock,
    bound_of,
)

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
WAYS = st.tuples(st.integers(0, WIDTH_MS_MAX // 2), st.integers(0, WIDTH_MS_MAX // 2))


def learn(known: StoreClock, at_ms: int, apart_ms: int, way_ms: tuple[int, int]) -> None:
    """A beat sent at that moment of the store's clock; this machine's is ahead by `apart_ms`."""
    there, back = way_ms
    known.learn(at_ms + apart_ms, at_ms + there, at_ms + there + back + apart_ms)


@given(st.integers(-MINUTE_MS, MINUTE_MS), st.lists(WAYS, min_size=1))
def test_the_doubt_is_half_of_the_fastest_beat_of_the_last(
    apart_ms: int, ways: list[tuple[int, int]]
) -> None:
    known = StoreClock()
    for number, way_ms in enumerate(ways):
        learn(known, NOW_MS + 1200 * number, apart_ms, way_ms)
    here_ms = known.here_ms(NOW_MS)
    assert here_ms is not None
    doubt_ms = min(sum(way_ms) for way_ms in ways[-BOUNDS_MAX:]) / 2
    assert abs(here_ms - (NOW_MS + apart_ms)) <= doubt_ms + 1


@given(st.integers(-MINUTE_MS, MINUTE_MS), st.integers(-MINUTE_MS, MINUTE_MS), WAYS)
def test_when_a_clock_is_set_the_newest_beat_counts(
    before_ms: int, after_ms: int, way_ms: tuple[int, int]
) -> None:
    known = StoreClock()
    for number in range(BOUNDS_MAX):
        learn(known, NOW_MS + 1200 * number, before_ms, (1, 1))
    learn(known, NOW_MS + MINUTE_MS, after_ms, way_ms)
    here_ms = known.here_ms(NOW_MS)
    assert here_ms is not None
    assert abs(here_ms - (NOW_MS + after_ms)) <= sum(way_ms) + 2


def test_nothing_is_said_before_a_beat_was_read() -> None:
    known = StoreClock()
    assert known.here_ms(NOW_MS) is None
    known.learn(NOW_MS, 0, NOW_MS + 1)
    known.learn(NOW_MS, NOW_MS, NOW_MS + WIDTH_MS_MAX + 1)
    known.learn(NOW_MS, NOW_MS, NOW_MS - 1)
    assert known.here_ms(NOW_MS) is None
    known.learn(NOW_MS, NOW_MS, NOW_MS)
    assert known.here_ms(NOW_MS) == NOW_MS
    assert known.here_ms(0) is None, "a moment that is not known"


def test_a_beat_bounds_the_offset_from_both_sides() -> None:
    assert bound_of(1000, 5003, 1010) == Bound(3993, 4003)


@given(st.integers(-MINUTE_MS, MINUTE_MS), WAYS)
def test_a_moment_here_and_there_is_the_same_both_ways(
    apart_ms: int, way_ms: tuple[int, int]
) -> None:
    known = StoreClock()
    assert known.store_ms(NOW_MS) is None

    learn(known, NOW_MS, apart_ms, way_ms)

    there_ms = known.store_ms(NOW_MS + apart_ms)
    assert there_ms is not None
    assert known.here_ms(there_ms) == NOW_MS + apart_ms
    assert abs(there_ms - NOW_MS) <= sum(way_ms) // 2 + 1
