"""What the readers of a group agree on, and how entries of their log change it. Pure.

A segment of the group is in one of these states; together their positions are a cut of every
stream, at any moment:

    ┌────────────┬──────────────────────────────────────────┬──────────────────────┐
    │ from       │ entry                                    │ to                   │
    ├────────────┼──────────────────────────────────────────┼──────────────────────┤
    │ (unknown)  │ all that comes before it was completed   │ unassigned, at 0     │
    │ future     │ the same; it was named by the start cut  │ unassigned, at 0     │
    │ unassigned │ Acquired                                 │ assigned, new owner- │
    │            │                                          │ ship                 │
    │ assigned   │ Beat, CheckpointReached                  │ assigned, further on │
    │ assigned   │ Released, Left, Lost, PutOffline         │ unassigned           │
    │ assigned   │ Completed                                │ finished             │
    │ finished   │ all of its followers were opened         │ (gone)               │
    └────────────┴──────────────────────────────────────────┴──────────────────────┘

A follower opens with the completion of the last segment that shares keys with it and is older. So
what is open never shares keys, and one reader at a time reads a key.

Entries that come too late are refused by what they quote: a reader's nonce, a segment's ownership,
the beat after which a reader was taken for lost. Refused means that nothing changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from anabranch.client.frontier import FUTURE, Position
from anabranch.client.groups import updates as u
from anabranch.client.groups.updates import CheckpointKind, Follower, Saved
from anabranch.common.model.reader_group import READERS_MAX, ReaderGroupConfig

DONE_CHECKPOINTS_KEPT = 16
"""Complete checkpoints that can still be asked for, besides the newest of the application."""


@dataclass(frozen=True, slots=True)
class GroupSegment:
    """A segment of the group; keys [key_start, key_end).

    `position`: everything before is processed. `end_offset`: where its reading ends before it
    does. `owner` "" and `ownership` 0: nobody has it. `followers`: of a finished one.
    """

    name: str
    segment_id: int
    key_start: float
    key_end: float
    position: Position
    end_offset: int | None = None
    owner: str = ""
    ownership: int = 0
    unread_bytes: int = 0
    is_finished: bool = False
    followers: tuple[str, ...] = ()

    @property
    def is_unassigned(self) -> bool:
        return not self.owner and not self.is_finished and self.position != FUTURE


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """A segment of a cut at which the reading of its stream ends; keys [key_start, key_end)."""

    name: str
    segment_id: int
    key_start: float
    key_end: float
    offset: int


@dataclass(frozen=True, slots=True)
class OnlineReader:
    """A reader that is online; `beat`: the number of its last sign of life."""

    nonce: int
    beat: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`waiting`: who has not said where it stands; `positions`: of all others, and of what nobody
    had. Complete when nobody is waited for; then the positions are a cut of every stream.
    `last`: who made it complete."""

    name: str
    kind: CheckpointKind
    number: int
    waiting: Mapping[str, int]
    positions: Mapping[str, Position]
    last: str = ""

    @property
    def is_complete(self) -> bool:
        return not self.waiting


@dataclass(frozen=True, slots=True)
class ReaderGroupState:
    """See the module. `checkpoints`: by the order of their beginnings, complete ones included.

    `ends`: where bounded streams end. `beyond`: what follows finished segments and cannot be
    opened yet.
    """

    incarnation: int
    generation: int
    config: ReaderGroupConfig
    segments: Mapping[str, GroupSegment]
    ends: tuple[GroupEnd, ...] = ()
    readers: Mapping[str, OnlineReader] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    checkpoints_begun: int = 0
    newest_ownership: int = 0
    beyond: Mapping[str, Follower] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Nothing is left to be read, for ever."""
        return all(segment.is_finished for segment in self.segments.values())

    def after(self, ownership: int) -> "ReaderGroupState":
        """The same, where ownerships grow beyond those of the state that it takes the place of."""
        return replace(self, newest_ownership=ownership)

    def owned_by(self, reader_id: str) -> list[GroupSegment]:
        """What the reader has."""
        return [each for each in self.segments.values() if each.owner == reader_id]

    def positions(self) -> dict[str, Position]:
        """The cut of all streams before which everything is processed, as far as it is saved."""
        return {name: segment.position for name, segment in self.segments.items()}

    def is_online(self, reader_id: str, nonce: int) -> bool:
        reader = self.readers.get(reader_id)
        return reader is not None and reader.nonce == nonce

    def checkpoint(self, name: str) -> Checkpoint | None:
        return next((each for each in self.checkpoints if each.name == name), None)

    def due_checkpoint(self, reader_id: str, nonce: int) -> Checkpoint | None:
        """The oldest one that waits for this reader."""
        for each in self.checkpoints:
            if each.waiting.get(reader_id) == nonce:
                return each
        return None


def apply(state: ReaderGroupState, update: u.AnyUpdate) -> ReaderGroupState:
    """The state after the entry, which may be the same."""
    match update:
        case u.Joined():
            return _joined(state, update)
        case u.PutOffline():
            return _put_offline(state, update)
        case u.Lost():
            reader = state.readers.get(update.reader_id)
            if reader is None or (reader.nonce, reader.beat) != (update.nonce, update.beat):
                return state
            return _gone(state, update.reader_id)
        case u.CheckpointBegun():
            return _checkpoint_begun(state, update)
        case u.CheckpointsCancelled():
            kept = tuple(each for each in state.checkpoints if each.is_complete)
            return replace(state, checkpoints=kept)
        case _:
            return _said_by_reader(state, update)


def _said_by_reader(
    state: ReaderGroupState,
    update: u.Beat | u.Acquired | u.Released | u.Completed | u.Left | u.CheckpointReached,
) -> ReaderGroupState:
    reader_id = update.reader_id
    if not state.is_online(reader_id, update.nonce):
        return state
    match update:
        case u.Beat():
            reader = state.readers[reader_id]
            beat = max(reader.beat, update.number)
            readers = {**state.readers, reader_id: replace(reader, beat=beat)}
            return _saved(replace(state, readers=readers), reader_id, update.saved)
        case u.Acquired():
            return _acquired(state, update)
        case u.Released():
            state = _saved(state, reader_id, update.saved)
            names = [at.segment for at in update.saved if _holds(state, reader_id, at)]
            return _unassigned(state, reader_id, names)
        case u.Completed():
            return _completed(state, update)
        case u.Left():
            return _gone(_saved(state, reader_id, update.saved), reader_id)
        case u.CheckpointReached():
            state = _saved(state, reader_id, update.saved)
            return _reached(state, update.name, reader_id)
        case _:
            assert_never(update)


# --- readers ----------------------------------------------------------------------------------


def _joined(state: ReaderGroupState, update: u.Joined) -> ReaderGroupState:
    if update.reader_id in state.readers or len(state.readers) >= READERS_MAX:
        return state
    joined = {**state.readers, update.reader_id: OnlineReader(update.nonce)}
    return replace(state, readers=joined)


def _put_offline(state: ReaderGroupState, update: u.PutOffline) -> ReaderGroupState:
    saved = [
        Saved(each.name, each.ownership, update.positions[each.name])
        for each in state.owned_by(update.reader_id)
        if each.name in update.positions
    ]
    return _gone(_saved(state, update.reader_id, saved), update.reader_id)


def _gone(state: ReaderGroupState, reader_id: str) -> ReaderGroupState:
    """Its segments stay where they are saved, for others; no checkpoint waits for it."""
    if reader_id not in state.readers:
        return state
    state = _unassigned(state, reader_id, [each.name for each in state.owned_by(reader_id)])
    for checkpoint in state.checkpoints:
        if reader_id in checkpoint.waiting:
            state = _reached(state, checkpoint.name, reader_id)
    readers = {name: each for name, each in state.readers.items() if name != reader_id}
    return replace(state, readers=readers)


# --- segments ---------------------------------------------------------------------------------


def _holds(state: ReaderGroupState, reader_id: str, at: Saved) -> bool:
    segment = state.segments.get(at.segment)
    return segment is not None and segment.owner == reader_id and segment.ownership == at.ownership


def _saved(state: ReaderGroupState, reader_id: str, saved: Iterable[Saved]) -> ReaderGroupState:
    """Positions of what the reader has move forward."""
    moved: dict[str, GroupSegment] = {}
    for at in saved:
        if _holds(state, reader_id, at):
            segment = state.segments[at.segment]
            unread = segment.unread_bytes if at.unread_bytes is None else at.unread_bytes
            position = max(segment.position, at.position)
            moved[at.segment] = replace(segment, position=position, unread_bytes=unread)
    return replace(state, segments={**state.segments, **moved}) if moved else state


def _acquired(state: ReaderGroupState, update: u.Acquired) -> ReaderGroupState:
    """Refused while a checkpoint waits for the reader: its positions are about what it had."""
    if state.due_checkpoint(update.reader_id, update.nonce) is not None:
        return state
    taken: dict[str, GroupSegment] = {}
    newest = state.newest_ownership
    for name in update.segments:
        segment = state.segments.get(name)
        if segment is not None and segment.is_unassigned and name not in taken:
            newest += 1
            taken[name] = replace(segment, owner=update.reader_id, ownership=newest)
    return replace(state, segments={**state.segments, **taken}, newest_ownership=newest)


def _unassigned(state: ReaderGroupState, reader_id: str, names: Iterable[str]) -> ReaderGroupState:
    """These of the reader's segments are nobody's. Checkpoints that wait for it get them as they
    are now, because somebody else will have moved them when it says where it stands."""
    freed = {name: replace(state.segments[name], owner="", ownership=0) for name in names}
    if not freed:
        return state
    state = replace(state, segments={**state.segments, **freed})
    return _noted(state, reader_id, freed.values())


def _completed(state: ReaderGroupState, update: u.Completed) -> ReaderGroupState:
    if not _holds(state, update.reader_id, update.at):
        return state
    state = _saved(state, update.reader_id, (update.at,))
    name = update.at.segment
    followers = {each.name: each for each in update.followers if _within_end(state, each)}
    finished = replace(
        state.segments[name],
        owner="",
        ownership=0,
        unread_bytes=0,
        is_finished=True,
        followers=tuple(followers),
    )
    state = replace(
        state,
        segments={**state.segments, name: finished},
        beyond={**state.beyond, **{n: f for n, f in followers.items() if n not in state.segments}},
    )
    return _opened(_noted(state, update.reader_id, [finished]), finished)


def _opened(state: ReaderGroupState, finished: GroupSegment) -> ReaderGroupState:
    """Open what may be read now that this one is finished; all of one scale in one step.

    Every finished segment with a follower in common must be replaced together, or none is: else a
    position would be missing, or two would be about the same key.
    """
    replaced: dict[str, GroupSegment] = {}
    opened: dict[str, GroupSegment] = {}
    pending = [finished]
    while pending:
        old = pending.pop()
        if not old.is_finished or not old.followers:
            return state
        if old.name in replaced:
            continue
        replaced[old.name] = old
        for name in old.followers:
            if name not in opened:
                opened[name] = _follower(state, name)
                pending.extend(_before(state, opened[name]))
    kept = {name: each for name, each in state.segments.items() if name not in replaced}
    beyond = {name: each for name, each in state.beyond.items() if name not in opened}
    return replace(state, segments={**kept, **opened}, beyond=beyond)


def _follower(state: ReaderGroupState, name: str) -> GroupSegment:
    known = state.segments.get(name)
    if known is not None:
        return replace(known, position=Position(0))
    new = state.beyond[name]
    return GroupSegment(
        name=new.name,
        segment_id=new.segment_id,
        key_start=new.key_start,
        key_end=new.key_end,
        position=Position(0),
        end_offset=next((end.offset for end in state.ends if end.name == name), None),
    )


def _within_end(state: ReaderGroupState, follower: Follower) -> bool:
    """Whether any of it is to be read: its stream does not end before it."""
    stream = stream_of(follower.name)
    ends = [end for end in state.ends if stream_of(end.name) == stream]
    return not ends or any(
        end.segment_id >= follower.segment_id and _share_keys(end, follower) for end in ends
    )


def _before(state: ReaderGroupState, segment: GroupSegment) -> list[GroupSegment]:
    """What must be finished before it is opened."""
    return [
        other
        for other in state.segments.values()
        if other.segment_id < segment.segment_id and _share_keys(other, segment)
    ]


def _share_keys(one: GroupSegment | GroupEnd | Follower, other: GroupSegment | Follower) -> bool:
    return (
        one.key_start < other.key_end
        and other.key_start < one.key_end
        and stream_of(one.name) == stream_of(other.name)
    )


def stream_of(segment: str) -> str:
    """The stream, ``scope/stream``, of a segment's full name."""
    return segment.rpartition("/")[0]


# --- checkpoints ------------------------------------------------------------------------------


def _checkpoint_begun(state: ReaderGroupState, update: u.CheckpointBegun) -> ReaderGroupState:
    under_way = [each for each in state.checkpoints if not each.is_complete]
    of_user = sum(each.kind == "user" for each in under_way)
    if any(each.name == update.name for each in under_way):
        return state
    if update.checkpoint == "user" and of_user >= state.config.checkpoints_max:
        return state
    waiting = {name: reader.nonce for name, reader in state.readers.items()}
    begun = Checkpoint(
        name=update.name,
        kind=update.checkpoint,
        number=state.checkpoints_begun + 1,
        waiting=waiting,
        positions={n: s.position for n, s in state.segments.items() if s.owner not in waiting},
    )
    others = tuple(each for each in state.checkpoints if each.name != update.name)
    state = replace(state, checkpoints_begun=begun.number, checkpoints=(*others, begun))
    return _forgotten(state)


def _reached(state: ReaderGroupState, name: str, reader_id: str) -> ReaderGroupState:
    """The reader stands where its segments are saved now."""
    checkpoint = state.checkpoint(name)
    if checkpoint is None or reader_id not in checkpoint.waiting:
        return state
    owned = {each.name: each.position for each in state.owned_by(reader_id)}
    waiting = {n: nonce for n, nonce in checkpoint.waiting.items() if n != reader_id}
    reached = replace(
        checkpoint,
        waiting=waiting,
        positions={**owned, **checkpoint.positions},
        last=reader_id,
    )
    return _forgotten(_with_checkpoint(state, reached))


def _noted(
    state: ReaderGroupState, reader_id: str, segments: Iterable[GroupSegment]
) -> ReaderGroupState:
    """Checkpoints that wait for the reader, who has these no more, take their positions."""
    for checkpoint in state.checkpoints:
        if reader_id in checkpoint.waiting:
            positions = dict(checkpoint.positions)
            for each in segments:
                positions.setdefault(each.name, each.position)
            state = _with_checkpoint(state, replace(checkpoint, positions=positions))
    return state


def _with_checkpoint(state: ReaderGroupState, changed: Checkpoint) -> ReaderGroupState:
    return replace(
        state,
        checkpoints=tuple(
            changed if each.name == changed.name else each for each in state.checkpoints
        ),
    )


def _forgotten(state: ReaderGroupState) -> ReaderGroupState:
    """Without complete checkpoints that are older than those to be kept."""
    complete = [each for each in state.checkpoints if each.is_complete]
    by_user = [each for each in complete if each.kind == "user"]
    kept = {each.number for each in (*complete[-DONE_CHECKPOINTS_KEPT:], *by_user[-1:])}
    if len(kept) == len(complete):
        return state
    remaining = (each for each in state.checkpoints if not each.is_complete or each.number in kept)
    return replace(state, checkpoints=tuple(remaining))
