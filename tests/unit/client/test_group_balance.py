"""Who shall have which segment."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.groups.apply import apply
from anabranch.client.groups.balance import LAG_UNIT_BYTES, planned, weight
from anabranch.client.groups.state import Checkpoint, GroupSegment, OnlineReader, ReaderGroupState
from anabranch.client.groups.updates import CheckpointBegun
from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.common.model.reader_group import GroupStream, ReaderGroupConfig

GIB = 1024**3


def segment(number: int, owner: str = "", unread_bytes: int = 0) -> GroupSegment:
    return GroupSegment(
        f"s/x/{number}.#epoch.0", number, number / 100, (number + 1) / 100, Position(0),
        owner=owner, ownership=number + 1 if owner else 0, unread_bytes=unread_bytes,
    )  # fmt: skip


def group(readers: int, *segments: GroupSegment, at_checkpoints: bool = False) -> ReaderGroupState:
    config = ReaderGroupConfig((GroupStream("s/x"),), release_after_checkpoint=at_checkpoints)
    online = {f"r{n}": OnlineReader(n + 1) for n in range(readers)}
    return ReaderGroupState(1, 0, config, {each.name: each for each in segments}, readers=online)


def after(state: ReaderGroupState, plan: dict[str, str]) -> ReaderGroupState:
    """The state when everybody has what the plan says."""
    segments = {
        name: replace(each, owner=plan.get(name, ""), ownership=number)
        for number, (name, each) in enumerate(state.segments.items(), 1)
    }
    return replace(state, segments=segments)


def due(state: ReaderGroupState, *readers: str) -> ReaderGroupState:
    waiting = {reader_id: state.readers[reader_id].nonce for reader_id in readers}
    return replace(state, checkpoints=(Checkpoint("c", "user", 1, waiting, {}),))


def moved(state: ReaderGroupState) -> dict[str, str]:
    """What shall be another one's than it is."""
    return {n: to for n, to in planned(state).items() if state.segments[n].owner not in ("", to)}


def test_what_nobody_has_goes_to_who_has_least() -> None:
    state = group(2, segment(0, "r0"), segment(1, "r0"), segment(2))
    assert planned(state)[segment(2).name] == "r1"


def test_sixty_four_segments_of_one_reader_become_eight_of_each_of_eight() -> None:
    state = group(8, *(segment(n, "r0") for n in range(64)))
    plan = planned(state)
    assert set(Counter(plan.values()).values()) == {8}
    assert len(moved(state)) == 56, "what r0 keeps, it keeps"


def test_readers_that_come_one_by_one_take_no_more_than_their_shares() -> None:
    state = after(group(1, *(segment(n) for n in range(64))), {})
    state = after(state, dict(planned(state)))
    for readers in range(2, 9):
        state = replace(state, readers={f"r{n}": OnlineReader(n + 1) for n in range(readers)})
        assert len(moved(state)) == 64 // readers
        assert set(moved(state).values()) == {f"r{readers - 1}"}
        state = after(state, dict(planned(state)))


def test_one_too_many_is_no_reason_to_move() -> None:
    state = group(2, segment(0, "r0"), segment(1, "r0"), segment(2, "r1"))
    assert moved(state) == {}


def test_what_is_finished_or_future_is_nobodys() -> None:
    done = replace(segment(0), is_finished=True)
    future = replace(segment(1), position=FUTURE)
    assert planned(group(1, done, future, segment(2))) == {segment(2).name: "r0"}


def test_without_readers_nobody_shall_have_anything() -> None:
    assert planned(group(0, segment(0))) == {}


def test_segments_that_are_far_behind_are_spread() -> None:
    state = group(2, segment(0, "r0", GIB), segment(1, "r0", GIB), segment(2, "r1"))
    assert list(moved(state).values()) == ["r1"]
    assert planned(state)[segment(0).name] != planned(state)[segment(1).name]


def test_the_one_that_is_far_behind_weighs_as_much_as_some_that_are_not() -> None:
    state = group(2, segment(0, "r0", GIB), *(segment(n) for n in range(1, 7)))
    assert Counter(planned(state).values()) == {"r0": 1, "r1": 6}


def test_a_newcomer_gets_its_share_though_the_heaviest_reader_has_nothing_to_give() -> None:
    state = group(3, segment(0, "r0", GIB), *(segment(n, "r1") for n in range(1, 7)))
    assert Counter(planned(state).values()) == {"r0": 1, "r1": 3, "r2": 3}


def test_lag_weighs_by_its_order_of_magnitude() -> None:
    weights = [weight(segment(0, "", lag * LAG_UNIT_BYTES)) for lag in (0, 1, 2, 3, 64, 127)]
    assert weights == [1, 2, 3, 3, 8, 8]
    assert weight(segment(0, "", LAG_UNIT_BYTES - 1)) == 1


def test_a_reader_that_a_checkpoint_waits_for_gets_nothing_new() -> None:
    state = due(group(2, *(segment(n, "r0") for n in range(4)), segment(4)), "r1")
    assert set(planned(state).values()) == {"r0"}


def test_a_reader_that_a_checkpoint_waits_for_gives_all_the_same() -> None:
    state = due(group(2, *(segment(n, "r0") for n in range(4))), "r0")
    assert Counter(planned(state).values()) == {"r0": 2, "r1": 2}


def test_while_a_checkpoint_waits_for_all_what_nobody_has_stays_so() -> None:
    state = group(2, *(segment(n, "r0") for n in range(4)), segment(4))
    assert planned(due(state, "r0", "r1")) == {segment(n).name: "r0" for n in range(4)}


def test_where_segments_go_only_after_checkpoints_they_wait_for_who_shall_have_them() -> None:
    state = group(2, *(segment(n, "r0") for n in range(4)), at_checkpoints=True)
    begun = apply(state, CheckpointBegun(name="c"))
    assert begun.due_checkpoint("r1", 2) is not None
    assert Counter(planned(begun).values()) == {"r0": 2, "r1": 2}


lags = st.sampled_from([0, 0, 0, LAG_UNIT_BYTES, 5 * LAG_UNIT_BYTES, GIB, 100 * GIB])
groups = st.builds(
    lambda readers, had, waits: due(
        group(
            readers,
            *(segment(n, f"r{owner % readers}" if owner >= 0 else "", lag)
              for n, (owner, lag) in enumerate(had)),
        ),
        *(f"r{n}" for n in range(readers) if n in waits),
    ),
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(-1, 5), lags), max_size=30),
    st.sets(st.integers(0, 5), max_size=3),
)  # fmt: skip


@given(groups)
def test_a_plan_that_was_carried_out_moves_nothing(state: ReaderGroupState) -> None:
    assert moved(after(state, dict(planned(state)))) == {}


@given(groups)
def test_whoever_gets_something_new_is_ready_and_what_somebody_has_stays_somebodys(
    state: ReaderGroupState,
) -> None:
    plan = planned(state)
    for name, each in state.segments.items():
        to = plan.get(name)
        assert to is not None or not each.owner
        if to not in (None, each.owner):
            assert state.due_checkpoint(to, state.readers[to].nonce) is None


@given(groups)
def test_where_nothing_is_behind_shares_differ_by_one(state: ReaderGroupState) -> None:
    segments = {n: replace(each, unread_bytes=0) for n, each in state.segments.items()}
    plan = planned(replace(state, segments=segments, checkpoints=()))
    counts = [list(plan.values()).count(reader_id) for reader_id in state.readers]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == len(segments)
