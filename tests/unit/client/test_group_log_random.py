"""Random logs of a group: whatever comes, the state stays one that readers can read by."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.client.groups import updates as u
from anabranch.client.groups.apply import apply
from anabranch.client.groups.codec import ReaderGroupCodec
from anabranch.client.groups.invariants import check, is_cut
from anabranch.client.groups.state import Checkpoint, ReaderGroupState, stream_of
from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.common.model.reader_group import READERS_MAX
from kit.group_model import ModelGroup, RandomLog, model_group
from kit.rng import seeded
from kit.thorough import one_in

CODEC = ReaderGroupCodec()
ENTRIES = 120

seeds = st.integers(0, 2**32)


class Watched:
    """Folds a log, and looks at every state that comes of it."""

    def __init__(self, group: ModelGroup) -> None:
        self._group = group
        self.state = group.state
        self.begun = {n for n, each in self.state.segments.items() if each.position != FUTURE}
        self._gone: set[str] = set()
        self._ownerships: dict[int, tuple[str, str, int]] = {}
        self.complete: dict[int, Checkpoint] = {}
        check(self.state, self.state)

    def fold(self, update: u.AnyUpdate) -> None:
        before = self.state
        assert CODEC.decode_update(CODEC.encode_update(update)) == update
        after = apply(before, update)
        check(before, after)
        self._see_segments(before, after)
        self._see_checkpoints(after)
        self.state = after

    def _see_segments(self, before: ReaderGroupState, after: ReaderGroupState) -> None:
        self._gone |= before.segments.keys() - after.segments.keys()
        assert self._gone.isdisjoint(after.segments), "what is gone never comes back"
        for name, each in after.segments.items():
            if each.position != FUTURE:
                self.begun.add(name)
            if each.owner:
                had = (name, each.owner, after.readers[each.owner].nonce)
                assert self._ownerships.setdefault(each.ownership, had) == had, "GRP-3"
        assert self.begun <= self._group.wanted, "GRP-8: nothing beyond the end is opened"

    def _see_checkpoints(self, state: ReaderGroupState) -> None:
        for each in state.checkpoints:
            if not each.is_complete:
                continue
            assert self.complete.setdefault(each.number, each) == each, "GRP-5"
            for stream in (of.stream for of in state.config.streams):
                places = [
                    (self._group.streams[name].start, self._group.streams[name].end, at)
                    for name, at in each.positions.items()
                    if stream_of(name) == stream
                ]
                assert is_cut(places), f"GRP-5: {each} is a cut of {stream}"


@given(seeds, st.integers(1, 5), st.integers(1, 2), st.booleans())
@example(seed=0, epochs=5, streams=2, bounded=True)
@settings(max_examples=60 // one_in(4))
def test_whatever_is_written_the_positions_are_a_cut_and_each_segment_has_one_reader(
    seed: int, epochs: int, streams: int, bounded: bool
) -> None:
    random = seeded(seed)
    group = model_group(random, epochs=epochs, streams=streams, bounded=bounded)
    log, watched, written = RandomLog(group, random, readers=4), Watched(group), []
    for _ in range(ENTRIES):
        written.append(log.next(watched.state))
        watched.fold(written[-1])
    assert CODEC.decode_state(CODEC.encode_state(watched.state)) == watched.state
    again = CODEC.decode_state(CODEC.encode_state(group.state))
    for update in written:
        again = CODEC.apply(again, CODEC.decode_update(CODEC.encode_update(update)), revision=1)
    assert again == watched.state, "folding is the same for everybody"


@given(seeds, st.integers(1, 5), st.booleans())
@example(seed=1, epochs=5, bounded=True)
@settings(max_examples=60 // one_in(4))
def test_a_group_reads_all_between_start_and_end_whenever_it_was_interrupted(
    seed: int, epochs: int, bounded: bool
) -> None:
    random = seeded(seed)
    group = model_group(random, epochs=epochs, streams=1, bounded=bounded)
    log, watched = RandomLog(group, random, readers=2), Watched(group)
    for _ in range(random.randrange(40)):
        watched.fold(log.next(watched.state))
    for reader_id in sorted(watched.state.readers):
        watched.fold(u.PutOffline(reader_id=reader_id))
    watched.fold(u.Joined(reader_id="last", nonce=10**6))
    for _ in range(2 * len(group.streams)):
        if watched.state.is_complete:
            break
        free = tuple(n for n, each in watched.state.segments.items() if each.is_unassigned)
        watched.fold(u.Acquired(reader_id="last", nonce=10**6, segments=free))
        for each in watched.state.owned_by("last"):
            watched.fold(log.completed(each, 10**6))
    assert watched.state.is_complete
    assert watched.begun == group.wanted, "everything is read, and nothing else"


@given(seeds)
@settings(max_examples=20)
def test_what_is_said_once_more_changes_nothing_the_second_time(seed: int) -> None:
    random = seeded(seed)
    group = model_group(random, epochs=3, streams=1, bounded=False)
    log, watched = RandomLog(group, random, readers=3), Watched(group)
    repeatable = u.Beat | u.Released | u.Completed | u.Left | u.Lost | u.CheckpointReached
    for _ in range(ENTRIES):
        update = log.next(watched.state)
        watched.fold(update)
        if isinstance(update, repeatable):
            assert apply(watched.state, update) == watched.state


def test_a_position_is_stored_with_its_index() -> None:
    saved = u.Saved("s/x/0.#epoch.0", 3, Position(5, 7))
    beat = u.Beat(reader_id="r", nonce=1, number=2, saved=(saved,))
    found = CODEC.decode_update(CODEC.encode_update(beat))
    assert isinstance(found, u.Beat)
    assert isinstance(found.saved[0].position, Position)
    assert found.saved[0].position == Position(5, 7)


def test_a_group_takes_no_more_readers_than_can_be() -> None:
    state = model_group(seeded(1), epochs=1, streams=1, bounded=False).state
    for number in range(READERS_MAX):
        state = apply(state, u.Joined(reader_id=f"r{number}", nonce=number))
    assert len(state.readers) == READERS_MAX
    assert apply(state, u.Joined(reader_id="late", nonce=1)) == state
    state = apply(state, u.Left(reader_id="r0", nonce=0))
    assert "late" in apply(state, u.Joined(reader_id="late", nonce=1)).readers
