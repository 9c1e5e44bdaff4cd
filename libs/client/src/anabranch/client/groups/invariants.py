"""The invariants of every entry of a group's log, checked on (before, after). Pure.

The numbers are those of docs/invariants.md. Tests and simulations call this; readers do not.
"""

from collections.abc import Iterable, Mapping

from anabranch.client.groups.state import Checkpoint, ReaderGroupState, stream_of
from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.common.model.reader_group import READERS_MAX

Place = tuple[float, float, Position]
"""A segment of a cut: its keys [start, end), and its position."""


def check(before: ReaderGroupState, after: ReaderGroupState) -> None:
    """Assert the invariants of one entry; after a reset, call it with (state, state)."""
    check_cut(after)
    _check_moves(before, after)
    _check_owners(before, after)
    _check_checkpoints(before, after)
    assert len(after.readers) <= READERS_MAX, "GRP-6: not too many readers are online"


def check_cut(state: ReaderGroupState) -> None:
    """Assert that the positions cover every key of every stream once."""
    for stream in (each.stream for each in state.config.streams):
        segments = [each for each in state.segments.values() if stream_of(each.name) == stream]
        assert is_cut((each.key_start, each.key_end, each.position) for each in segments), (
            "GRP-1: the positions in a stream are a cut"
        )
        for future in (each for each in segments if each.position == FUTURE):
            assert any(
                other.segment_id < future.segment_id
                and other.key_start < future.key_end
                and future.key_start < other.key_end
                for other in segments
            ), "GRP-1: something comes before a future segment"


def is_cut(places: Iterable[Place]) -> bool:
    """Whether every key has exactly one position; future segments share keys with others."""
    known = sorted(places)
    begun = [each for each in known if each[2] != FUTURE]
    covered = begun_to = 0.0
    for start, end, _ in begun:
        if start < begun_to:
            return False
        begun_to = end
    for start, end, _ in known:
        if start > covered:
            return False
        covered = max(covered, end)
    return covered == 1.0


def _check_moves(before: ReaderGroupState, after: ReaderGroupState) -> None:
    for name, segment in after.segments.items():
        was = before.segments.get(name)
        if was is None:
            assert segment.position in {Position(0), FUTURE}, "GRP-2: it is read from its start"
        else:
            assert segment.position >= was.position, "GRP-2: a position never goes back"
            assert segment.is_finished >= was.is_finished, "GRP-2: what is finished stays so"
            if not was.owner:
                opened = was.position == FUTURE and segment.position == (0, 0)
                assert segment.position == was.position or opened, "GRP-2: only its owner moves it"
        assert not (segment.is_finished and segment.owner), "GRP-2: nobody has what is finished"
        assert not (segment.position == FUTURE and segment.owner), "GRP-2: nor what is future"
    gone = [each for name, each in before.segments.items() if name not in after.segments]
    assert all(each.is_finished or each.owner for each in gone), "GRP-2: only what is read goes"


def _check_owners(before: ReaderGroupState, after: ReaderGroupState) -> None:
    owned = [each for each in after.segments.values() if each.owner]
    numbers = {each.ownership for each in owned}
    assert len(numbers) == len(owned), "GRP-3: ownerships differ"
    assert after.newest_ownership >= max(numbers, default=0), "GRP-3: the newest one is known"
    assert after.newest_ownership >= before.newest_ownership, "GRP-3: they only grow"
    for each in after.segments.values():
        assert bool(each.owner) == bool(each.ownership), "GRP-3: an owner has an ownership"
        was = before.segments.get(each.name)
        is_same = was is not None and (was.owner, was.ownership) == (each.owner, each.ownership)
        if each.owner and not is_same:
            assert each.ownership > before.newest_ownership, "GRP-3: a new owner has a new one"
            assert was is None or not was.owner, "GRP-3: only what nobody has is acquired"
        assert not each.owner or each.owner in after.readers, "GRP-4: an owner is online"


def _check_checkpoints(before: ReaderGroupState, after: ReaderGroupState) -> None:
    names = [each.name for each in after.checkpoints]
    assert len(set(names)) == len(names), "GRP-5: a name means one checkpoint"
    numbers = [each.number for each in after.checkpoints]
    assert sorted(numbers) == numbers, "GRP-5: they are in the order of their beginnings"
    known: Mapping[int, Checkpoint] = {each.number: each for each in before.checkpoints}
    for each in after.checkpoints:
        was = known.get(each.number)
        if was is None:
            assert each.number > before.checkpoints_begun, "GRP-5: a new one has a new number"
        else:
            assert not was.is_complete or was == each, "GRP-5: what is complete never changes"
            assert was.positions.items() <= each.positions.items(), "GRP-5: what it has stays"
        for reader_id, nonce in each.waiting.items():
            assert after.is_online(reader_id, nonce), "GRP-6: only who is online is waited for"
        _check_covers(after, each)
    under_way = [each for each in after.checkpoints if not each.is_complete]
    of_user = sum(each.kind == "user" for each in under_way)
    assert of_user <= after.config.checkpoints_max, "GRP-6: not too many are under way"


def _check_covers(state: ReaderGroupState, checkpoint: Checkpoint) -> None:
    """A checkpoint has no position of a segment whose reader it waits for."""
    for segment in state.segments.values():
        if segment.owner in checkpoint.waiting:
            assert segment.name not in checkpoint.positions, (
                "GRP-7: a segment stands in a checkpoint, or is had by a reader that it waits for"
            )
