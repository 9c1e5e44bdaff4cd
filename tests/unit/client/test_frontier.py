"""The cut that a reader stands on."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.reading.frontier import FUTURE, Frontier, Position
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.stream_queries import Successor
from kit.rng import Random


def segment(number: int, epoch: int = 0) -> str:
    return f"plant/sensors/{number}.#epoch.{epoch}"


def successor(
    number: int, epoch: int, keys: tuple[float, float], *before: tuple[int, int]
) -> Successor:
    return Successor(
        segment_id=epoch << 32 | number,
        name=segment(number, epoch),
        key_start=keys[0],
        key_end=keys[1],
        predecessors=tuple(old_epoch << 32 | old for old_epoch, old in before),
    )


def first(number: int, start: float, end: float) -> SegmentInStream:
    return SegmentInStream(segment_id=number, name=segment(number), key_start=start, key_end=end)


A, B = segment(0), segment(1)


def at_end() -> Frontier:
    return Frontier([(first(0, 0.0, 0.5), Position(10)), (first(1, 0.5, 1.0), Position(20, 3))])


def test_a_split_opens_at_once_and_takes_its_predecessors_place() -> None:
    frontier = at_end()
    split = [successor(2, 1, (0.0, 0.2), (0, 0)), successor(3, 1, (0.2, 0.5), (0, 0))]
    assert frontier.finish(A, split) == [segment(2, 1), segment(3, 1)]
    assert frontier.positions == {
        B: (20, 3), segment(2, 1): (0, 0), segment(3, 1): (0, 0),
    }  # fmt: skip


def test_a_merge_opens_when_the_last_predecessor_was_read() -> None:
    frontier = at_end()
    merged = [successor(2, 1, (0.0, 1.0), (0, 0), (0, 1))]
    assert frontier.finish(B, merged) == []
    assert set(frontier.positions) == {A, B}
    assert frontier.finish(A, merged) == [segment(2, 1)]
    assert frontier.positions == {segment(2, 1): (0, 0)}


def test_a_segment_that_is_gone_leaves_its_keys_to_future_segments() -> None:
    frontier = at_end()
    merged = [successor(2, 1, (0.0, 1.0), (0, 0), (0, 1))]
    assert frontier.pass_over(A, merged) == []
    assert frontier.positions == {B: (20, 3), segment(2, 1): FUTURE}
    assert frontier.begun == [B]
    assert frontier.finish(B, merged) == [segment(2, 1)]
    assert frontier.positions == {segment(2, 1): (0, 0)}


def test_of_the_successors_of_a_segment_that_is_gone_some_can_be_read_at_once() -> None:
    frontier = at_end()
    own = successor(2, 1, (0.0, 0.3), (0, 0))
    shared = successor(3, 1, (0.3, 1.0), (0, 0), (0, 1))
    assert frontier.pass_over(A, [own, shared]) == [segment(2, 1)]
    assert frontier.positions == {B: (20, 3), segment(2, 1): (0, 0), segment(3, 1): FUTURE}
    assert frontier.pass_over(B, [shared]) == [segment(3, 1)]
    assert frontier.positions == {segment(2, 1): (0, 0), segment(3, 1): (0, 0)}


def test_the_last_segment_for_its_keys_stays_where_it_is_also_if_it_is_gone() -> None:
    frontier = at_end()
    assert frontier.pass_over(A, []) == []
    assert frontier.positions == {A: (10, 0), B: (20, 3)}


def test_a_segment_that_shares_a_successor_holds_the_others_back_so_that_the_cut_is_one() -> None:
    frontier = at_end()
    left = successor(2, 1, (0.0, 0.3), (0, 0))
    right = successor(3, 1, (0.3, 1.0), (0, 0), (0, 1))
    assert frontier.finish(A, [left, right]) == []
    assert frontier.finish(B, [right]) == [left.name, right.name]


def test_a_future_segment_is_read_when_what_comes_before_it_was() -> None:
    merged = successor(2, 1, (0.0, 1.0), (0, 0), (0, 1))
    frontier = Frontier([(first(1, 0.5, 1.0), Position(20)), (merged, Position(-1))])
    assert frontier.begun == [B]
    assert frontier.positions[merged.name] == (-1, 0)
    assert frontier.finish(B, [merged]) == [merged.name]
    assert frontier.positions == {merged.name: (0, 0)}


def test_a_future_segment_that_nothing_comes_before_is_read_from_its_start() -> None:
    frontier = Frontier([(first(0, 0.0, 1.0), Position(-1))])
    assert frontier.positions == {A: (0, 0)}


def test_what_nothing_follows_stays_at_its_end() -> None:
    frontier = at_end()
    assert frontier.finish(A, []) == []
    assert frontier.positions[A] == (10, 0)


def test_finishing_again_changes_nothing() -> None:
    frontier = at_end()
    split = [successor(2, 1, (0.0, 0.5), (0, 0))]
    assert frontier.finish(A, split)
    assert frontier.finish(A, split) == []


cuts = st.lists(st.integers(1, 9), max_size=4, unique=True).map(
    lambda inner: [0.0, *(at / 10 for at in sorted(inner)), 1.0]
)


@given(st.lists(cuts, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_every_segment_is_opened_once_and_the_positions_are_always_a_cut(
    bounds: list[list[float]], order: Random
) -> None:
    epochs: list[list[Successor]] = []
    number = 0
    for epoch, inner in enumerate(bounds):
        made = []
        for start, end in itertools.pairwise(inner):
            before = [
                (epoch - 1, old.segment_id & 0xFFFFFFFF)
                for old in (epochs[-1] if epochs else [])
                if old.key_start < end and start < old.key_end
            ]
            made.append(successor(number, epoch, (start, end), *before))
            number += 1
        epochs.append(made)
    known = {new.name: new for made in epochs for new in made}
    frontier = Frontier([(new, Position(0)) for new in epochs[0]])
    reading, opened = {new.name for new in epochs[0]}, {new.name for new in epochs[0]}
    while reading:
        chosen = order.choice(sorted(reading))
        reading.remove(chosen)
        after = [new for new in known.values() if known[chosen].segment_id in new.predecessors]
        found = frontier.finish(chosen, after)
        assert not opened & set(found)
        opened.update(found)
        reading.update(found)
        cut = sorted((known[name].key_start, known[name].key_end) for name in frontier.positions)
        assert (cut[0][0], cut[-1][1]) == (0.0, 1.0)
        assert all(one[1] == two[0] for one, two in itertools.pairwise(cut))
    assert opened == set(known)
