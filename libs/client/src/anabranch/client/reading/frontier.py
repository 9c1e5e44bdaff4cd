"""A reader's place in a stream: a stream cut that moves forward through the scales. Pure.

    future ──nothing older has its keys──► reading ──end of the segment──► finished ──► gone
                                                                        (kept at its end until all
                                                                         that replaces it is opened)

The new segments of a scale may be read when every segment that they replace has been read to its
end, as far as new segments have predecessors in common: they replace these in one step. The
segments that were begun therefore never share keys, the positions are a stream cut at any moment,
and a reader that starts from them continues exactly where they were taken.

Only a start can name a future segment: nothing of it was read, while some of its predecessors, but
not all, were.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from anabranch.client.reading.times.window import Place
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.contracts.stream_queries import Successor
from anabranch.common.model.names import parse_segment_name
from anabranch.common.model.stream import FUTURE_OFFSET


class Position(NamedTuple):
    """A place in a segment: event number `event_index` (from 0) of the block at byte `offset`.

    An offset of -1 marks a segment that follows another segment with a position.
    """

    offset: int
    event_index: int = 0


FUTURE = Position(FUTURE_OFFSET)
Standing = tuple[SegmentInStream, Position]
"""A segment, and the place in it."""


def share_keys(one: SegmentInStream, other: SegmentInStream) -> bool:
    """Whether they share a key; of two such segments of a stream, one comes after the other."""
    return one.key_start < other.key_end and other.key_start < one.key_end


def ends_of(begun: Iterable[Standing], end: Iterable[Standing]) -> dict[str, Position]:
    """Where to stop reading from `begun`, so that the reading ends at the cut `end`: segment → its
    end. A segment that is not named is read to its own end.

    Of a segment that begins behind the cut, nothing is read.
    """
    reached = [(segment, at) for segment, at in end if at != FUTURE]
    behind = (
        new.name
        for new, _ in begun
        if any(old.segment_id < new.segment_id and share_keys(old, new) for old, _ in reached)
    )
    return dict.fromkeys(behind, Position(0)) | {segment.name: at for segment, at in reached}


class Frontier:
    """The positions of a reader, by full segment name; the reader moves them. See the module."""

    def __init__(self, standings: Iterable[Standing]) -> None:
        self.positions: dict[str, Position] = {}
        self._segments: dict[int, SegmentInStream] = {}
        self._finished: dict[int, Sequence[Successor]] = {}
        for segment, position in standings:
            self._segments[segment.segment_id] = segment
            self.positions[segment.name] = position
        for segment in self._segments.values():
            if self.positions[segment.name] == FUTURE and not self._before(segment):
                self.positions[segment.name] = Position(0)

    @property
    def begun(self) -> list[str]:
        """The segments to read from their positions: all except future ones."""
        return [name for name, position in self.positions.items() if position != FUTURE]

    @property
    def standings(self) -> list[Standing]:
        """The segments with their positions."""
        return [(each, self.positions[each.name]) for each in self._segments.values()]

    def places(self, positions: Mapping[str, Position]) -> list[Place]:
        """These positions of the frontier's segments, with the keys of each."""
        return [
            Place(each.segment_id, each.key_start, each.key_end, *positions[each.name])
            for each in self._segments.values()
            if each.name in positions
        ]

    def finish(self, segment: str, successors: Sequence[Successor]) -> list[str]:
        """Note that the segment was read to its end; returns the segments to read from now on, by
        key.

        Without successors it stays at its end, for ever. Finishing again changes nothing.
        """
        number = parse_segment_name(segment)[1]
        if not successors or number not in self._segments:
            return []
        self._finished[number] = successors
        replaced: set[int] = set()
        opened: dict[int, Successor] = {}
        pending: list[int] = [number]
        while pending:
            old = pending.pop()
            if old not in self._finished:
                return []
            if old in replaced:
                continue
            replaced.add(old)
            for new in self._finished[old]:
                if new.segment_id not in opened:
                    opened[new.segment_id] = new
                    pending.extend(self._before(new))
        return self._step(replaced, sorted(opened.values(), key=lambda new: new.key_start))

    def pass_over(self, segment: str, successors: Sequence[Successor]) -> list[str]:
        """Do as `finish` for a segment that is gone, but do not keep it until all that it is
        replaced with can be read: its successors take its place, as future segments if need be."""
        if opened := self.finish(segment, successors):
            return opened
        number = parse_segment_name(segment)[1]
        if not successors or number not in self._segments:
            return []
        del self._finished[number]
        del self.positions[self._segments.pop(number).name]
        for new in successors:
            self._segments[new.segment_id] = new
            at = FUTURE if self._before(new) else Position(0)
            self.positions.setdefault(new.name, at)
        return [new.name for new in successors if self.positions[new.name] == Position(0)]

    def _before(self, segment: SegmentInStream) -> list[int]:
        """The segments to read before it."""
        return [
            number
            for number, other in self._segments.items()
            if number < segment.segment_id and share_keys(other, segment)
        ]

    def _step(self, replaced: set[int], opened: Sequence[Successor]) -> list[str]:
        for old in replaced:
            del self._finished[old]
            del self.positions[self._segments.pop(old).name]
        for new in opened:
            self._segments[new.segment_id] = new
            self.positions[new.name] = Position(0)
        return [new.name for new in opened]
