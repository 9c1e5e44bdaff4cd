"""Where a reader stands: a stream cut that moves forward through the scales. Pure.

    reading ──the end of its segment──► finished, kept at its end ──all that replaces it may
                                                                    be read──► gone

What one scale made may be read when every segment that it replaces has been read to its end, as
far as new segments have predecessors in common: those take the place of these in one step.
Therefore the positions cover every key exactly once at any moment, and whoever starts from them
goes on exactly where they were taken.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from anabranch.common.contracts.stream_queries import Successor
from anabranch.common.model.names import parse_segment_name


class Position(NamedTuple):
    """A place in a segment: event number `event_index` (from 0) of the block at byte `offset`."""

    offset: int
    event_index: int = 0


class Frontier:
    """See the module. `positions` is by full segment name, and moved by the reader."""

    def __init__(self, positions: Mapping[str, Position]) -> None:
        self.positions = dict(positions)
        self._names: dict[int, str] = {parse_segment_name(name)[1]: name for name in positions}
        self._finished: dict[int, Sequence[Successor]] = {}

    def finish(self, segment: str, successors: Sequence[Successor]) -> list[str]:
        """The segment was read to its end → the segments to be read from now on, sorted by key.

        Without successors it stays at its end, for ever. Finishing again changes nothing.
        """
        number = parse_segment_name(segment)[1]
        if not successors or number not in self._names:
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
                    pending.extend(new.predecessors)
        return self._step(replaced, sorted(opened.values(), key=lambda new: new.key_start))

    def _step(self, replaced: set[int], opened: Sequence[Successor]) -> list[str]:
        for old in replaced:
            del self._finished[old]
            del self.positions[self._names.pop(old)]
        for new in opened:
            self._names[new.segment_id] = new.name
            self.positions[new.name] = Position(0)
        return [new.name for new in opened]
