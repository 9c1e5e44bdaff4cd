"""The later and the earlier one of two cuts of a stream, against a model key by key."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.reading.bounds import _agree, _cover
from anabranch.client.reading.frontier import FUTURE, Frontier, Position, Standing
from anabranch.client.reading.joining import earlier_of, later_of
from kit.rng import Random
from kit.watermarks import KEYS, Walker, history_of, place_of_key

bounds = st.lists(
    st.lists(st.integers(1, 19), max_size=4, unique=True).map(
        lambda inner: [0.0, *(at / 20 for at in sorted(inner)), 1.0]
    ),
    min_size=1,
    max_size=4,
)


@given(bounds, st.randoms(use_true_random=False), st.integers(0, 40), st.integers(0, 40))
def test_two_cuts_joined_are_a_cut_with_the_right_place_for_every_key(
    inner: list[list[float]], chance: Random, one_steps: int, other_steps: int
) -> None:
    history = history_of(inner)
    cuts: list[list[Standing]] = []
    for steps in (one_steps, other_steps):
        walker = Walker(history)
        for _ in range(steps):
            walker.step(chance)
        cuts.append(walker.standings)
    for join, choose in ((later_of, max), (earlier_of, min)):
        joined = join(*cuts)
        assert _cover(joined)
        assert _agree(joined)
        for key in KEYS:
            places = [place_of_key(cut, key) for cut in cuts]
            assert place_of_key(joined, key) == choose(places)


def test_a_cut_joined_with_itself_is_the_same() -> None:
    walker = Walker(history_of([[0.0, 0.5, 1.0], [0.0, 1.0]]))
    cut = walker.standings
    assert (
        later_of(cut, cut) == earlier_of(cut, cut) == sorted(cut, key=lambda at: at[0].segment_id)
    )


def test_what_the_earlier_cut_has_only_in_part_of_its_keys_stays_a_future_segment() -> None:
    history = history_of([[0.0, 0.5, 1.0], [0.0, 1.0]])
    (left, right), (merged,) = history.epochs
    half_way: list[Standing] = [(right, Position(5)), (merged, FUTURE)]
    beyond: list[Standing] = [(merged, Position(30))]
    assert earlier_of(half_way, beyond) == half_way
    assert later_of(half_way, beyond) == beyond
    assert Frontier(earlier_of(half_way, beyond)).begun == [right.name]
    further: list[Standing] = [(right, Position(7)), (merged, FUTURE)]
    assert later_of(half_way, further) == further
    assert left.name not in {segment.name for segment, _ in half_way}
