"""Where a position lies between watermarks, against a model that looks at every key by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.reading.times import window as windows
from anabranch.client.reading.times.window import (
    AHEAD_WANTED,
    KnownMarks,
    MarkedCut,
    Place,
    Side,
    TimeWindow,
)
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, segment_id
from anabranch.common.model.watermark import MarkedSegment, Watermark
from kit.rng import Random
from kit.watermarks import KEYS, History, Walker, history_of, place_of_key

bounds = st.lists(
    st.lists(st.integers(1, 19), max_size=4, unique=True).map(
        lambda inner: [0.0, *(at / 20 for at in sorted(inner)), 1.0]
    ),
    min_size=1,
    max_size=4,
)
chances = st.randoms(use_true_random=False)


class Course:
    """Watermarks along a random walk of the writers through a history, with each key's places."""

    def __init__(self, history: History, chance: Random) -> None:
        writers = Walker(history)
        self.marks: list[Watermark] = []
        self.places: list[list[tuple[int, tuple[int, int]]]] = []
        lower_ms = 0
        for _ in range(chance.randint(0, 40)):
            for _ in range(chance.randint(0, 3)):
                writers.step(chance)
            lower_ms += chance.randint(1, 5)
            for name, at in writers.frontier.positions.items():
                writers.frontier.positions[name] = at._replace(event_index=0)
            self.marks.append(writers.mark(lower_ms, lower_ms + chance.randint(0, 9)))
            self.places.append([place_of_key(writers.standings, key) for key in KEYS])

    def expected(self, reader: Walker) -> TimeWindow:
        """The window by the model: key by key."""
        here = [place_of_key(reader.standings, key) for key in KEYS]
        lower, upper = None, None
        for mark, there in zip(self.marks, self.places, strict=True):
            pairs = list(zip(here, there, strict=True))
            if all(mine >= theirs for mine, theirs in pairs):
                lower = mark.lower_ms
            elif upper is None and all(mine <= theirs for mine, theirs in pairs):
                upper = mark.upper_ms
        return TimeWindow(lower, upper)


def fetch(known: KnownMarks, pending: list[Watermark], places: list[Place]) -> None:
    """As a follower does it, one watermark after another."""
    while pending and known.wants_more(places):
        known.add(MarkedCut(pending.pop(0)))


@given(bounds, chances)
def test_a_window_is_that_of_the_keys_and_its_lower_bound_never_falls(
    inner: list[list[float]], chance: Random
) -> None:
    history = history_of(inner)
    course, reader, known = Course(history, chance), Walker(history), KnownMarks()
    pending, before = list(course.marks), -1
    for _ in range(30):
        fetch(known, pending, reader.places)
        found = known.window(reader.places)
        assert found == course.expected(reader)
        assert (found.lower_ms or 0) >= before
        before = found.lower_ms or 0
        if not reader.step(chance):
            break


@given(bounds, chances, st.integers(1, 12))
def test_with_fewer_watermarks_in_memory_the_bounds_are_looser_and_still_true(
    inner: list[list[float]], chance: Random, rows_max: int
) -> None:
    history = history_of(inner)
    course, reader, known = Course(history, chance), Walker(history), KnownMarks()
    pending = list(course.marks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "ROWS_MAX", rows_max)
        for _ in range(30):
            fetch(known, pending, reader.places)
            found, exact = known.window(reader.places), course.expected(reader)
            assert (found.lower_ms or 0) <= (exact.lower_ms or 0)
            if found.upper_ms is not None:
                ahead = [
                    mark.upper_ms
                    for mark in course.marks
                    if MarkedCut(mark).side(reader.places) is Side.AHEAD
                ]
                assert found.upper_ms in ahead
            held = list(known._marks)
            assert len(held) <= 2 or sum(map(len, held[:-1])) <= rows_max
            if not reader.step(chance):
                break


WHOLE = KeyRange(0.0, 1.0)


FIRST = segment_id(0, 0)


def mark(lower_ms: int, offset: int, segment: SegmentId = FIRST) -> MarkedCut:
    cut = (MarkedSegment(segment, WHOLE, offset),)
    return MarkedCut(Watermark(1, lower_ms, lower_ms + 5, cut))


def at(offset: int, index: int = 0, segment: int = 0) -> list[Place]:
    return [Place(segment, 0.0, 1.0, offset, index)]


def known_of(*marks: MarkedCut) -> KnownMarks:
    known = KnownMarks()
    for each in marks:
        known.add(each)
    return known


def test_a_position_exactly_at_a_watermark_has_passed_it() -> None:
    assert known_of(mark(10, 50)).window(at(50)) == TimeWindow(10, None)
    assert known_of(mark(10, 50), mark(20, 60)).window(at(50)) == TimeWindow(10, 25)


def test_within_a_block_behind_the_watermark_it_is_passed_too() -> None:
    assert known_of(mark(10, 50)).window(at(50, 3)) == TimeWindow(10, None)
    assert known_of(mark(10, 50)).window(at(49, 3)) == TimeWindow(None, 15)


def test_without_watermarks_nothing_is_known() -> None:
    assert KnownMarks().window(at(50)) == TimeWindow(None, None)


def test_the_end_of_a_segment_is_before_the_start_of_its_successor() -> None:
    successor = segment_id(1, 1)
    known = known_of(mark(10, 0, successor))
    assert known.window(at(1000)) == TimeWindow(None, 15)
    assert known.window(at(0, 0, successor)) == TimeWindow(10, None)


def test_a_future_segment_counts_as_unread() -> None:
    merged = segment_id(1, 2)
    known = known_of(mark(10, 40, merged))
    places = [Place(1, 0.5, 1.0, 7), Place(merged, 0.0, 1.0, -1)]
    assert known.window(places) == TimeWindow(None, 15)


def test_enough_watermarks_ahead_are_fetched_and_no_more() -> None:
    known = KnownMarks()
    for number in range(1, AHEAD_WANTED + 1):
        assert known.wants_more(at(5))
        known.add(mark(number, 10 * number))
    assert not known.wants_more(at(5))
    assert known.wants_more(at(10))
