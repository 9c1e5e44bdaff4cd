"""Searches over the places of a segment's bytes: by the time of an append, and by event number.

`Layout` is a view of a `SegmentIndex`, which owns and changes all of it. Appends are the items of
the columns; `first` is the number of the first one, counted from the first append ever indexed.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from anabranch.common.tier2.state import TieredExtent
from anabranch.segstore.shell.memory.cache import Piece


class Gap(NamedTuple):
    """Bytes from `start` up to an extent that only pieces hold, and their events."""

    start: int
    following: TieredExtent
    events: int


class Layout(NamedTuple):
    """A segment's start and length, its pieces and extents with their starts, and the columns of
    the appends in the pieces: where each one ends, its events and its time."""

    start: int
    length: int
    pieces: Sequence[Piece]
    piece_starts: Sequence[int]
    first: int
    ends: "array[int]"
    events: "array[int]"
    times: "array[int]"
    extents: Sequence[TieredExtent]
    extent_starts: Sequence[int]

    def older_than(self, time_ms: int) -> tuple[int, tuple[TieredExtent, ...]]:
        """(the boundary before the first append in the pieces that is not older, the extents before
        it whose appends are in no piece). The boundary is the segment's end if all are older."""
        unknown: list[TieredExtent] = []
        reached = self.start
        for piece in self.pieces:
            unknown += self._extents_over(reached, piece.start)
            first, began = piece.first - self.first, piece.start
            stop = first + piece.count
            if piece.end > self.start and max(self.times[first:stop]) >= time_ms:
                for ended, at_ms in zip(self.ends[first:stop], self.times[first:stop], strict=True):
                    if at_ms >= time_ms and ended > self.start:
                        return max(began, self.start), tuple(unknown)
                    began = ended
            reached = max(reached, piece.end)
        return self.length, (*unknown, *self._extents_over(reached, self.length))

    def _extents_over(self, start: int, end: int) -> Sequence[TieredExtent]:
        """The extents that hold some of the bytes [start, end)."""
        at = max(bisect_right(self.extent_starts, start) - 1, 0)
        stop = bisect_left(self.extent_starts, end)
        found = self.extents[at:stop] if start < end else ()
        return [extent for extent in found if extent.start + extent.ref.length > start]

    def events_before(self, offset: int, event_count: int) -> int:
        """The events before `offset`, a boundary in the pieces of a segment with so many events;
        -1: not known.

        They are counted back from the next extent that knows its number, or from the end. The
        pieces must hold all bytes in between.
        """
        at = bisect_left(self.extent_starts, offset)
        known = self.extents[at] if at < len(self.extents) else None
        if known is not None and known.events_before >= 0:
            counted = self._events_between(offset, known.start)
            if counted >= 0:
                return known.events_before - counted
        counted = self._events_between(offset, self.length)
        return event_count - counted if counted >= 0 else -1

    def _events_between(self, offset: int, end: int) -> int:
        """The events of the appends from one boundary to another; -1 if some are in no piece."""
        reached = offset
        for piece in self.pieces[max(bisect_right(self.piece_starts, offset) - 1, 0) :]:
            if reached >= end or piece.start > reached:
                break
            reached = max(reached, piece.end)
        if reached < end:
            return -1
        first, stop = bisect_right(self.ends, offset), bisect_right(self.ends, end)
        return sum(self.events[first:stop])

    def boundary_of_event(self, offset: int, event_index: int) -> tuple[int, int]:
        """(the last boundary at or after `offset` with at most `event_index` events since `offset`,
        these events). `offset` is a boundary in the pieces, which have that event."""
        at, count = bisect_right(self.ends, offset), 0
        for piece in self.pieces[max(bisect_right(self.piece_starts, offset) - 1, 0) :]:
            stop = max(at, piece.first + piece.count - self.first)
            of_piece = sum(self.events[at:stop])
            if count + of_piece > event_index:
                break
            count, at = count + of_piece, stop
        while count + self.events[at] <= event_index:
            count, at = count + self.events[at], at + 1
        return max(self.ends[at - 1], offset) if at else offset, count

    def gaps(self) -> list[Gap]:
        """The bytes between extents, or between the start and the first one, that no extent
        holds."""
        reached = min([self.start, *self.extent_starts[:1]])
        found: list[Gap] = []
        for extent in self.extents:
            if extent.start > reached:
                count = max(self._events_between(max(reached, self.start), extent.start), 0)
                found.append(Gap(max(reached, self.start), extent, count))
            reached = extent.start + extent.ref.length
        return found

    @property
    def tiered_end(self) -> int:
        """The end of the last extent, or the segment's start."""
        last = self.extents[-1] if self.extents else None
        return self.start if last is None else max(last.start + last.ref.length, self.start)
