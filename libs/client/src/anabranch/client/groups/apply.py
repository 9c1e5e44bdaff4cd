"""Folds an entry of a group's log into the state that its readers share. Pure.

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
    │ finished   │ all of its successors were opened        │ (gone)               │
    └────────────┴──────────────────────────────────────────┴──────────────────────┘

A successor opens when the last older segment that shares keys with it is completed. Open segments
therefore never share keys, and one reader at a time reads a key.

A late entry changes nothing: it quotes a reader's nonce, a segment's ownership, or the beat after
which a reader was declared lost, and the state has newer ones by then.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from anabranch.client.groups import checkpoints
from anabranch.client.groups import updates as u
from anabranch.client.groups.state import GroupSegment, OnlineReader, ReaderGroupState
from anabranch.client.groups.succession import opened, within_end
from anabranch.client.groups.updates import Saved
from anabranch.common.model.reader_group import READERS_MAX


def apply(state: ReaderGroupState, update: u.AnyUpdate) -> ReaderGroupState:
    """The state after the entry; the same state if it refuses the entry."""
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
            return checkpoints.begun(state, update)
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
            return checkpoints.reached(state, update.name, reader_id, update.number)
        case _:
            assert_never(update)


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
    """Free the reader's segments at their saved positions; no checkpoint waits for it then."""
    if reader_id not in state.readers:
        return state
    state = _unassigned(state, reader_id, [each.name for each in state.owned_by(reader_id)])
    for checkpoint in state.checkpoints:
        if reader_id in checkpoint.waiting:
            state = checkpoints.reached(state, checkpoint.name, reader_id)
    readers = {name: each for name, each in state.readers.items() if name != reader_id}
    return replace(state, readers=readers)


def _holds(state: ReaderGroupState, reader_id: str, at: Saved) -> bool:
    segment = state.segments.get(at.segment)
    return segment is not None and segment.owner == reader_id and segment.ownership == at.ownership


def _saved(state: ReaderGroupState, reader_id: str, saved: Iterable[Saved]) -> ReaderGroupState:
    """Advance the saved positions of the reader's segments."""
    moved: dict[str, GroupSegment] = {}
    for at in saved:
        if _holds(state, reader_id, at):
            segment = state.segments[at.segment]
            unread = segment.unread_bytes if at.unread_bytes is None else at.unread_bytes
            position = max(segment.position, at.position)
            moved[at.segment] = replace(segment, position=position, unread_bytes=unread)
    return replace(state, segments={**state.segments, **moved}) if moved else state


def _acquired(state: ReaderGroupState, update: u.Acquired) -> ReaderGroupState:
    """Refused while a checkpoint waits for the reader: its report covers earlier segments only."""
    if state.due_checkpoint(update.reader_id, update.nonce) is not None:
        return state
    taken: dict[str, GroupSegment] = {}
    newest = state.newest_ownership
    for name in update.segments:
        segment = state.segments.get(name)
        if segment is not None and segment.is_unassigned and name not in taken:
            newest += 1
            taken[name] = replace(segment, owner=update.reader_id, ownership=newest)
    if not taken:
        return state
    return replace(state, segments={**state.segments, **taken}, newest_ownership=newest)


def _unassigned(state: ReaderGroupState, reader_id: str, names: Iterable[str]) -> ReaderGroupState:
    """Free these segments of the reader.

    Checkpoints that wait for the reader take the segments' present positions, because another
    reader may have advanced them before this one reaches the checkpoint.
    """
    freed = {name: replace(state.segments[name], owner="", ownership=0) for name in names}
    if not freed:
        return state
    state = replace(state, segments={**state.segments, **freed})
    return checkpoints.noted(state, reader_id, freed.values())


def _completed(state: ReaderGroupState, update: u.Completed) -> ReaderGroupState:
    if not _holds(state, update.reader_id, update.at):
        return state
    state = _saved(state, update.reader_id, (update.at,))
    name = update.at.segment
    successors = {each.name: each for each in update.successors}
    if not any(within_end(state, each) for each in successors.values()):
        successors = {}
    finished = replace(
        state.segments[name],
        owner="",
        ownership=0,
        unread_bytes=0,
        is_finished=True,
        successors=tuple(successors),
    )
    state = replace(
        state,
        segments={**state.segments, name: finished},
        beyond={**state.beyond, **{n: f for n, f in successors.items() if n not in state.segments}},
    )
    return opened(checkpoints.noted(state, update.reader_id, [finished]), finished)
