"""Opens the successors of finished segments. Pure."""

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
    """Open the successors of a finished segment, for all segments of one scale in one step.

    All finished segments with a common successor are replaced together or not at all. Otherwise a
    key would have no position, or two. A successor beyond the end of its stream's reading is added
    as future, so that every key has a position, and is never opened.
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
    """Keep those successors future that come after others among them.

    A truncation that deletes segments in between causes this. A segment that was finished before
    it names a deleted successor; one that was finished after it names the successor's successor.
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
    """Whether the group reads any of it, because its stream's reading does not end before it.

    The answer is the same for all of its keys, so one key is tested. Of the segments of the end
    that have a key, the oldest is the end; all others are future.
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
    """The end of the segment's reading, if that is before the segment's end."""
    begun = (end for end in ends if end.name == name and end.offset != FUTURE.offset)
    return next((end.offset for end in begun), None)


def _before(state: ReaderGroupState, segment: GroupSegment) -> list[GroupSegment]:
    """The segments that must be finished before this one is opened."""
    return [
        other
        for other in state.segments.values()
        if other.segment_id < segment.segment_id and share_keys(other, segment)
    ]
