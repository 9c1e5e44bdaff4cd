"""Which streams and groups a refresh asks for, and how fast they grow between two."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.top.flow import OVER_S_MAX, Flow, Growth
from anabranch.cli.top.rotation import Rotation

NAMES = st.sets(st.text("abcdef", min_size=1, max_size=3), max_size=40)


@given(NAMES, st.integers(1, 10))
def test_a_refresh_asks_for_a_bounded_number_and_no_name_twice(names: set[str], count: int) -> None:
    chosen = Rotation().chosen(names, count)

    assert len(chosen) == len(set(chosen)) == min(count, len(names))
    assert set(chosen) <= names


@given(NAMES, st.integers(2, 10))
def test_each_name_is_asked_after_some_refreshes(names: set[str], count: int) -> None:
    rotation, asked = Rotation(), set[str]()
    for _ in range(len(names) + 1):
        for name in rotation.chosen(names, count):
            rotation.answered(name, 0.0)
            asked.add(name)

    assert asked == names


def test_the_busiest_are_asked_each_time() -> None:
    rotation, names = Rotation(), [f"s{number:02}" for number in range(20)]
    for name in names:
        rotation.chosen(names, 4)
        rotation.answered(name, 9.0 if name in ("s03", "s17") else 0.0)

    for _ in range(5):
        assert {"s03", "s17"} <= set(rotation.chosen(names, 4))


def test_a_name_that_did_not_answer_comes_again_first() -> None:
    rotation, names = Rotation(), ["a", "b", "c", "d"]
    first = rotation.chosen(names, 2)
    for name in first[:1]:
        rotation.answered(name, 0.0)

    assert first[1] in rotation.chosen(names, 2)


def test_a_name_that_is_gone_is_forgotten() -> None:
    rotation = Rotation()
    rotation.chosen(["a", "b", "c"], 2)
    rotation.answered("a", 5.0)
    rotation.chosen(["b", "c"], 2)

    assert set(rotation.chosen(["a", "b", "c", "d"], 4)) == {"a", "b", "c", "d"}
    assert rotation.chosen(["a", "b", "c", "d"], 2) != ["a", "a"]


def test_growth_is_the_bytes_that_were_added_in_the_time_between() -> None:
    flow = Flow()

    assert flow.growth("s", 10.0, {0: 100, 1: 0}) is None
    assert flow.growth("s", 12.0, {0: 150, 1: 50}) == Growth(50.0, 2.0)
    assert flow.growth("s", 14.0, {0: 150, 1: 50}) == Growth(0.0, 2.0)


def test_a_new_segment_counts_whole_and_a_sealed_one_no_more() -> None:
    flow = Flow()
    flow.growth("s", 0.0, {0: 1000})

    assert flow.growth("s", 1.0, {2: 30, 3: 10}) == Growth(40.0, 1.0)


def test_a_stream_with_a_new_life_never_shrinks() -> None:
    flow = Flow()
    flow.growth("s", 0.0, {0: 1000})

    assert flow.growth("s", 1.0, {0: 5}) == Growth(0.0, 1.0)


def test_an_old_look_says_nothing_about_the_present() -> None:
    flow = Flow()
    flow.growth("s", 0.0, {0: 0})

    assert flow.growth("s", OVER_S_MAX + 1, {0: 10_000}) is None
    assert flow.growth("s", OVER_S_MAX + 2, {0: 10_500}) == Growth(500.0, 1.0)


def test_the_looks_at_streams_that_are_gone_are_forgotten() -> None:
    flow = Flow()
    flow.growth("s", 0.0, {0: 0})
    flow.keep(["other"])

    assert flow.growth("s", 1.0, {0: 100}) is None
