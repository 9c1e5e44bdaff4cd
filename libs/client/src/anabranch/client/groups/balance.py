"""The assignment of segments to readers; every reader computes it from the same state. Pure.

A segment weighs 1, and more the larger its lag is. Readers are therefore balanced by unread bytes,
and by the number of segments if there is no lag. A segment moves only if the move makes the
heaviest reader lighter. The weight grows with the logarithm of the lag, so that growing lags move
few segments.
"""

from collections.abc import Iterable, Mapping, Sequence

from anabranch.client.groups.state import GroupSegment, ReaderGroupState

LAG_UNIT_BYTES = 16 * 1024 * 1024


def weight(segment: GroupSegment) -> int:
    """The estimated share of a reader's time that the segment takes."""
    return 1 + (segment.unread_bytes // LAG_UNIT_BYTES).bit_length()


def planned(state: ReaderGroupState) -> Mapping[str, str]:
    """Segment → assigned reader, of all segments that can be read now.

    While no reader is online, no segment is assigned. A reader for which a checkpoint waits gets no
    new segment; if that holds for all readers, free segments stay free. In a group that releases
    only after checkpoints, such a reader is assigned segments, and acquires them once it has
    reached the checkpoint.
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
    """Assign the heaviest segments first, each to the reader with the least load."""
    loads = {reader_id: _load(held[reader_id]) for reader_id in ready}
    for segment in sorted(free, key=lambda each: (-weight(each), each.name)):
        lightest = min(ready, key=lambda reader_id: (loads[reader_id], reader_id))
        held[lightest].append(segment)
        loads[lightest] += weight(segment)


def _level(held: Mapping[str, list[GroupSegment]], ready: Sequence[str]) -> None:
    """Move segments from the heaviest reader that can give to the lightest.

    A move must make the heavier of both readers lighter. Each move lessens the sum of the squares
    of the loads, so the procedure ends.
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
    """A reader and one of its segments, which moves to the reader with the least load."""
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
