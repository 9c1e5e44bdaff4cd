"""Which segments of a group are opened when others are finished. Pure."""

from dataclasses import replace

from anabranch.client.frontier import Position
from anabranch.client.groups.state import GroupSegment, ReaderGroupState, share_keys, stream_of
from anabranch.client.groups.updates import GroupSuccessor


def opened(state: ReaderGroupState, finished: GroupSegment) -> ReaderGroupState:
    """Open what may be read now that this one is finished; all of one scale in one step.

    Every finished segment with a successor in common must be replaced together, or none is: else a
    position would be missing, or two would be about the same key.
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
                opening[name] = _successor(state, name)
                pending.extend(_before(state, opening[name]))
    kept = {name: each for name, each in state.segments.items() if name not in replaced}
    beyond = {name: each for name, each in state.beyond.items() if name not in opening}
    return replace(state, segments={**kept, **opening}, beyond=beyond)


def within_end(state: ReaderGroupState, successor: GroupSuccessor) -> bool:
    """Whether any of it is to be read: its stream does not end before it."""
    stream = stream_of(successor.name)
    ends = [end for end in state.ends if stream_of(end.name) == stream]
    return not ends or any(
        end.segment_id >= successor.segment_id and share_keys(end, successor) for end in ends
    )


def _successor(state: ReaderGroupState, name: str) -> GroupSegment:
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


def _before(state: ReaderGroupState, segment: GroupSegment) -> list[GroupSegment]:
    """What must be finished before it is opened."""
    return [
        other
        for other in state.segments.values()
        if other.segment_id < segment.segment_id and share_keys(other, segment)
    ]
