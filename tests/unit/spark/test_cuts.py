"""Cuts of scaled streams, completed to a place in every segment."""

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import segment_id, segment_name, stream_ref
from anabranch.spark.places.ports import SegmentBounds
from anabranch.spark.reading.cuts import completed, within

REF = stream_ref("demo/scaled")


def bounds(epoch: int, number: int, keys: tuple[float, float], start: int = 0) -> SegmentBounds:
    return SegmentBounds(segment_name(REF, segment_id(epoch, number)), start, 100, KeyRange(*keys))


LEFT, RIGHT = bounds(0, 0, (0.0, 0.5)), bounds(0, 1, (0.5, 1.0))
LOW, MIDDLE = bounds(1, 2, (0.0, 0.25), 10), bounds(1, 3, (0.25, 0.5))
ALL_KEYS = bounds(2, 4, (0.0, 1.0))
SEGMENTS = (LEFT, RIGHT, LOW, MIDDLE, ALL_KEYS)


def test_a_cut_before_the_scales_leaves_all_new_segments_behind_it() -> None:
    cut = {LEFT.name: (7, 1), RIGHT.name: (9, 0)}
    assert completed(SEGMENTS, cut) == {
        **cut, LOW.name: (10, 0), MIDDLE.name: (0, 0), ALL_KEYS.name: (0, 0),
    }  # fmt: skip


def test_a_cut_between_scales_has_passed_the_replaced_segments() -> None:
    cut = {LOW.name: (20, 0), MIDDLE.name: (30, 0), RIGHT.name: (9, 0)}
    assert completed(SEGMENTS, cut) == {LEFT.name: (100, 0), **cut, ALL_KEYS.name: (0, 0)}


def test_a_future_segment_says_that_its_unnamed_predecessors_are_finished() -> None:
    cut = {RIGHT.name: (9, 0), ALL_KEYS.name: (-1, 0)}
    assert completed(SEGMENTS, cut) == {
        RIGHT.name: (9, 0), ALL_KEYS.name: (0, 0), LEFT.name: (100, 0), LOW.name: (100, 0),
        MIDDLE.name: (100, 0),
    }  # fmt: skip


def test_a_cut_says_nothing_of_keys_that_it_does_not_name() -> None:
    assert completed((LEFT, RIGHT), {RIGHT.name: (9, 0)}) == {RIGHT.name: (9, 0)}
    bare = [SegmentBounds(each.name, each.start, each.length) for each in (LEFT, LOW)]
    assert completed(bare, {LEFT.name: (1, 0)}) == {LEFT.name: (1, 0)}, "keys are unknown"


def test_a_cut_that_is_older_or_younger_than_the_bounds_ends_at_them() -> None:
    cut = {LOW.name: (3, 0), MIDDLE.name: (500, 0), "demo/scaled/9.#epoch.7": (1, 0)}
    assert within(SEGMENTS, cut) == {LOW.name: (10, 0), MIDDLE.name: (100, 0)}
