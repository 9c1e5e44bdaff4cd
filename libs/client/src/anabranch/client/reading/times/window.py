"""Compares a position of a stream with the stream's watermarks. Pure.

        passed           in flight                ahead
    ──────W1──────╳───────W2───────────────────────W3──────►  offsets of segment 0
    ──W1──────────────────W2────────╳──────W3──────────────►  offsets of segment 1
          lower                                    upper      of the position ╳ in both segments

A position and a cut of another epoch are compared over the segments that share keys: of two such
segments the one with the higher id comes after the other. A position at the very end of a segment
counts as before the successors, even if these are empty, so that a bound may be too cautious but
never too bold.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from anabranch.common.model.watermark import Watermark

AHEAD_WANTED = 16
"""Watermarks ahead of the position that are fetched before it gets there."""
ROWS_MAX = 65_536
"""Rows of all watermarks in memory (24 bytes each) beyond which every second one is dropped."""


class TimeWindow(NamedTuple):
    """The bounds of event time at a position, in Unix ms by the clocks of the writers.

    `lower_ms`: every event from the position on is of this time or later, if its writer kept the
    promise of `note_time`. None: the position is before the first watermark that is still stored.
    `upper_ms`: no writer had noted a later time when all writers were beyond the position. None:
    the position is so near the tail that no watermark is ahead of it yet.

    ::

        window = await reader.time_window()
        print(window.lower_ms, window.upper_ms)
    """

    lower_ms: int | None = None
    upper_ms: int | None = None


UNKNOWN = TimeWindow()


class Place(NamedTuple):
    """A place in a segment: keys [key_start, key_end), the event `event_index` of the block at byte
    `offset`. A negative offset marks a segment of which nothing was read."""

    segment_id: int
    key_start: float
    key_end: float
    offset: int
    event_index: int = 0


class Side(Enum):
    """The relation of a watermark to a position."""

    PASSED = "passed"
    """The position is at the watermark or beyond it for every key."""
    IN_FLIGHT = "in flight"
    """The position is before it for some keys and beyond it for others."""
    AHEAD = "ahead"
    """The position is beyond it for no key, and before it for some."""


class MarkedCut:
    """A watermark in a form that is small and quick to compare: columns, ascending by key."""

    __slots__ = ("_offsets", "_segments", "_starts", "lower_ms", "upper_ms")

    def __init__(self, watermark: Watermark) -> None:
        # The ranges cover the key space exactly, so each ends where the next one starts.
        rows = sorted(watermark.cut, key=lambda row: row.key_range.start)
        self.lower_ms = watermark.lower_ms
        self.upper_ms = watermark.upper_ms
        self._starts = array("d", (row.key_range.start for row in rows))
        self._segments = array("q", (row.segment_id for row in rows))
        self._offsets = array("q", (row.offset for row in rows))

    def __len__(self) -> int:
        return len(self._starts)

    def side(self, places: Sequence[Place]) -> Side:
        """Where the watermark lies, seen from the position."""
        is_before = is_beyond = False
        for place in places:
            at = max(0, bisect_right(self._starts, place.key_start) - 1)
            while at < len(self._starts) and self._starts[at] < place.key_end:
                order = _order(place, self._segments[at], self._offsets[at])
                is_before, is_beyond = is_before or order < 0, is_beyond or order > 0
                if is_before and is_beyond:
                    return Side.IN_FLIGHT
                at += 1
        return Side.AHEAD if is_before else Side.PASSED


def _order(place: Place, segment_id: int, offset: int) -> int:
    """Negative: the place is before the offset in that segment; positive: it is beyond it."""
    if place.segment_id != segment_id:
        return place.segment_id - segment_id
    return (place.offset - offset) or place.event_index


class KnownMarks:
    """The watermarks around one position, which only moves forward.

    It holds the bound of the last passed watermark and those that are not passed yet, in order. If
    they become too many, it drops every second one: then bounds are looser, but still true.
    """

    def __init__(self) -> None:
        self._lower_ms: int | None = None
        self._marks: deque[MarkedCut] = deque()
        self._rows = 0

    def add(self, mark: MarkedCut) -> None:
        """Add the watermark that follows all known ones."""
        self._marks.append(mark)
        self._rows += len(mark)
        if self._rows > ROWS_MAX:
            self._thin()

    def wants_more(self, places: Sequence[Place]) -> bool:
        """Whether the next watermarks should be fetched, because the position gets near."""
        self._pass(places)
        wanted = AHEAD_WANTED if self._rows < ROWS_MAX // 2 else 1
        if len(self._marks) < wanted:
            return True
        return self._marks[-wanted].side(places) is not Side.AHEAD

    def window(self, places: Sequence[Place]) -> TimeWindow:
        """The window at the position."""
        self._pass(places)
        return TimeWindow(self._lower_ms, self.upper_ms(places))

    def upper_ms(self, places: Sequence[Place]) -> int | None:
        """The upper bound alone, which may be of a later position than `window` was asked for."""
        marks = self._marks
        at = bisect_left(marks, True, key=lambda mark: mark.side(places) is Side.AHEAD)
        return marks[at].upper_ms if at < len(marks) else None

    def begin_again(self) -> None:
        """Forget the watermarks that are not passed, because they will be added again."""
        self._marks.clear()
        self._rows = 0

    def _pass(self, places: Sequence[Place]) -> None:
        while self._marks and self._marks[0].side(places) is Side.PASSED:
            mark = self._marks.popleft()
            self._rows -= len(mark)
            if self._lower_ms is None or mark.lower_ms > self._lower_ms:
                self._lower_ms = mark.lower_ms

    def _thin(self) -> None:
        newest = len(self._marks) - 1
        self._marks = deque(
            mark for at, mark in enumerate(self._marks) if at % 2 == 1 or at == newest
        )
        self._rows = sum(map(len, self._marks))
