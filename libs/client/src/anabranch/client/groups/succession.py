"""Which segments of a group are opened when others are finished. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from anabranch.client.groups.state import (
    GroupEnd,
    GroupSegment,
    ReaderGroupState,
    share_keys,
    stream_of,
)
from anabranch.client.groups.updates import GroupSuccessor
from anabranch.client.reading.frontier import FUTURE, Position


def opened(state: ReaderGroupState, finished: GroupSegment) -> ReaderGroupState:
    """Open what may be read now that this one is finished; all of one scale in one step.

    Every finished segment with a successor in common must be replaced together, or none is: else a
    position would be missing, or two would be about the same key. What lies beyond the end of its
    stream's reading is named as future, so that no key's position is missing, and never opened.
    """
    replaced: dict[str, GroupSegment] = {}
    opening: dict[str, GroupSegment] = {}
    pending = [finished]
    while pending:
        old = pending.pop()
        if not old.is_finished or not old.successors:
            return state
        if old.name in replaced:
            continue
        replaced[old.name] = old
        for name in old.successors:
            if name not in opening:
                opening[name] = new = _successor(state, name)
                if new.position != FUTURE:
                    pending.extend(_before(state, new))
    kept = {name: each for name, each in state.segments.items() if name not in replaced}
    beyond = {name: each for name, each in state.beyond.items() if name not in opening}
    return replace(state, segments={**kept, **_in_turn(opening)}, beyond=beyond)


def _in_turn(opening: dict[str, GroupSegment]) -> dict[str, GroupSegment]:
    """What comes after another one of them is future still.

    A truncation deletes segments between: who finished before it names a deleted one, who finished
    after it names what takes that one's place.
    """
    return {
        name: replace(each, position=FUTURE)
        if any(
            other.segment_id < each.segment_id and share_keys(other, each)
            for other in opening.values()
        )
        else each
        for name, each in opening.items()
    }


def within_end(state: ReaderGroupState, successor: GroupSegment | GroupSuccessor) -> bool:
    """Whether any of it is to be read: its stream does not end before it.

    That is the same for all of its keys, so one is looked at. Of the segments of the end that have
    a key, the oldest is where it ends; all others are future.
    """
    stream, key = stream_of(successor.name), successor.key_start
    ends = [end for end in state.ends if stream_of(end.name) == stream]
    there = [end for end in ends if end.key_start <= key < end.key_end]
    last = min(there, key=lambda end: end.segment_id, default=None)
    if last is None:
        return not ends
    is_in_last = last.segment_id == successor.segment_id and last.offset != FUTURE.offset
    return is_in_last or last.segment_id > successor.segment_id


def _successor(state: ReaderGroupState, name: str) -> GroupSegment:
    new = state.segments.get(name) or state.beyond[name]
    position = Position(0) if within_end(state, new) else FUTURE
    if isinstance(new, GroupSegment):
        return replace(new, position=position)
    return GroupSegment(
        name=new.name,
        segment_id=new.segment_id,
        key_start=new.key_start,
        key_end=new.key_end,
        position=position,
        end_offset=end_offset(state.ends, name),
    )


def end_offset(ends: Iterable[GroupEnd], name: str) -> int | None:
    """Where the segment's reading ends before it does."""
    begun = (end for end in ends if end.name == name and end.offset != FUTURE.offset)
    return next((end.offset for end in begun), None)


def _before(state: ReaderGroupState, segment: GroupSegment) -> list[GroupSegment]:
    """What must be finished before it is opened."""
    return [
        other
        for other in state.segments.values()
        if other.segment_id < segment.segment_id and share_keys(other, segment)
    ]
