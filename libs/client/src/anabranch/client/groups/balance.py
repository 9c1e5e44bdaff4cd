"""Who shall have which segment: computed by every reader for itself, from the same state. Pure.

A segment weighs 1, and more the further its reading is behind: so readers are even by what is
left to read, and by number where all of it is read. Segments stay where they are unless moving one
makes the heaviest reader lighter; what lag weighs grows with its logarithm, so that growing lags
move little.
"""

from collections.abc import Iterable, Mapping, Sequence

from anabranch.client.groups.state import GroupSegment, ReaderGroupState

LAG_UNIT_BYTES = 16 * 1024 * 1024


def weight(segment: GroupSegment) -> int:
    """How much of a reader's time the segment takes, as far as that can be told."""
    return 1 + (segment.unread_bytes // LAG_UNIT_BYTES).bit_length()


def planned(state: ReaderGroupState) -> Mapping[str, str]:
    """Segment → the reader that shall have it, of all that can be read now.

    While no reader is online, nobody shall have anything. A reader for which a checkpoint waits
    gets nothing new, unless that is true of all: then what nobody has stays so. Where segments are
    released only after checkpoints it does, and what is released waits until it has reached it.
    """
    if not state.readers:
        return {}
    held: dict[str, list[GroupSegment]] = {reader_id: [] for reader_id in sorted(state.readers)}
    free: list[GroupSegment] = []
    for segment in state.segments.values():
        if segment.owner:
            held[segment.owner].append(segment)
        elif segment.is_unassigned:
            free.append(segment)
    ready = [
        name
        for name, reader in state.readers.items()
        if state.config.release_after_checkpoint or state.due_checkpoint(name, reader.nonce) is None
    ]
    if ready:
        _give(free, held, sorted(ready))
        _level(held, sorted(ready))
    return {each.name: reader_id for reader_id, has in held.items() for each in has}


def _give(
    free: Iterable[GroupSegment], held: Mapping[str, list[GroupSegment]], ready: Sequence[str]
) -> None:
    """The heaviest first, each to whoever has least."""
    loads = {reader_id: _load(held[reader_id]) for reader_id in ready}
    for segment in sorted(free, key=lambda each: (-weight(each), each.name)):
        lightest = min(ready, key=lambda reader_id: (loads[reader_id], reader_id))
        held[lightest].append(segment)
        loads[lightest] += weight(segment)


def _level(held: Mapping[str, list[GroupSegment]], ready: Sequence[str]) -> None:
    """Move from the heaviest that can give to the lightest while that makes the heavier of both
    lighter.

    Each move lessens the sum of the squares of the loads, so there is an end.
    """
    loads = {reader_id: _load(has) for reader_id, has in held.items()}
    while True:
        lightest = min(ready, key=lambda reader_id: (loads[reader_id], reader_id))
        found = _movable(held, loads, loads[lightest])
        if found is None:
            return
        giver, moved = found
        held[giver].remove(moved)
        held[lightest].append(moved)
        loads[giver] -= weight(moved)
        loads[lightest] += weight(moved)


def _movable(
    held: Mapping[str, list[GroupSegment]], loads: Mapping[str, int], least: int
) -> tuple[str, GroupSegment] | None:
    """Who gives what to the one whose load is the least."""
    for giver in sorted(loads, key=lambda reader_id: (-loads[reader_id], reader_id)):
        room = loads[giver] - least
        if movable := [each for each in held[giver] if weight(each) < room]:
            by_fit = max(
                movable, key=lambda each: (weight(each) * 2 <= room, weight(each), each.name)
            )
            return giver, by_fit
    return None


def _load(segments: Iterable[GroupSegment]) -> int:
    return sum(map(weight, segments))
