"""Maps a container's segments to the places of all their durable bytes.

It finds the `SegmentIndex` of each segment, fills it frame by frame, and keeps the bytes that a
running flush may still need: those of segments that were deleted, truncated or merged since it
began. Owned by the container; all calls come from the event loop's thread.
"""

from collections.abc import Iterable, Iterator

from anabranch.common.tier2.state import SegmentState, TieredExtent
from anabranch.segstore.domain.container.operations import AppendOperation
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.memory.cache import Cache, Piece
from anabranch.segstore.shell.memory.segment_contents import FlushUnderWay
from anabranch.segstore.shell.memory.segment_index import MergedAt, ReadFrame, SegmentIndex


class ReadIndex:
    """The indexes of all segments of a container, by number."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._segments: dict[int, SegmentIndex] = {}
        self._empty: set[int] = set()
        """New segments that have no index yet, because an index costs memory also without bytes."""
        self._frame: dict[int, Piece] = {}
        self._flush = FlushUnderWay()
        self._truncated: set[int] = set()
        self._retired: dict[int, SegmentIndex] = {}
        """Removed since the running flush began, which may still fetch their bytes."""
        self._moved: dict[int, tuple[int, MergedAt]] = {}
        """Merged since then: number → (target's number, place there)."""

    def open_segment(self, number: int) -> None:
        """Add a new, empty segment. Its first use makes its index."""
        self._empty.add(number)

    def load(self, state: SegmentState, extents: Iterable[TieredExtent]) -> None:
        """Add a segment as tier 2 holds it."""
        index = SegmentIndex(
            state.number,
            self._cache,
            self._flush,
            extents,
            start=state.start,
            length=state.length,
        )
        index.sealed_in_tier_two = state.sealed
        self._segments[state.number] = index

    def evict(self, number: int) -> None:
        """Give the segment's memory back. Tier 2 has all of it, so it can be loaded again."""
        if number in self._empty:
            self._empty.remove(number)
            return
        index = self._segments.pop(number)
        assert index.tiered
        index.drop()

    def add_append(
        self, operation: AppendOperation, address: LogAddress, frame_offset: int
    ) -> None:
        """Add an append of the frame at `address`; `end_frame` must follow the frame's last one."""
        index = self._of(operation.number)
        piece = self._frame.get(operation.number)
        if piece is None:
            piece = self._frame[operation.number] = index.new_piece(address)
        index.add(piece, operation, frame_offset)

    def end_frame(self) -> None:
        """Hand the frame's bytes to the cache, because all its operations are indexed."""
        for piece in self._frame.values():
            self._cache.admit(piece)
        self._frame.clear()

    def _end_piece(self, number: int) -> None:
        """End the segment's piece: later operations of the frame begin a new one."""
        piece = self._frame.pop(number, None)
        if piece is not None:
            self._cache.admit(piece)

    def truncate(self, number: int, start: int) -> None:
        """Move the segment's start to `start`."""
        self._end_piece(number)
        self._of(number).truncate(start)
        if self._flush.under_way:
            self._truncated.add(number)

    def merge(self, number: int, source: int, events_before: int) -> None:
        """Append the source's bytes to the segment `number`, which has so many events before them,
        and remove the source."""
        self._end_piece(number)
        self._end_piece(source)
        target, merged = self._of(number), self._of(source)
        del self._segments[source]
        if self._flush.under_way:
            self._moved[source] = (number, MergedAt(target.length, events_before))
        target.absorb(merged.hand_over(), events_before)

    def remove(self, number: int) -> None:
        """Remove a deleted segment."""
        self._end_piece(number)
        index = self._of(number)
        del self._segments[number]
        if self._flush.under_way:
            self._retired[number] = index
        else:
            index.drop()

    # --- flushing -----------------------------------------------------------------------------

    def begin_flush(self) -> None:
        """Keep all current bytes fetchable until `end_flush`, even if their segments change or
        go."""
        self._flush.under_way = True

    def end_flush(self) -> None:
        """Release the bytes that were kept for the flush."""
        self._flush.under_way = False
        for index in self._retired.values():
            index.drop()
        self._retired.clear()
        self._moved.clear()
        for number in self._truncated & self._segments.keys():
            self._segments[number].trim()
        self._truncated.clear()

    def add_tiered(self, number: int, extents: Iterable[TieredExtent]) -> int:
        """Add the extents that a flush wrote, by the segment's `number` when the flush began.

        If the segment was merged meanwhile, the target adopts them: the journal will delete the
        bytes, so the target must know their new place. Returns how many bytes are no longer
        un-tiered.
        """
        owner, base = self._owner(number)
        index = self._segments.get(owner)
        if index is None:
            return 0
        untiered = index.untiered
        if owner == number:
            index.add_tiered(extents)
        else:
            index.adopt(extents, base)
        return untiered - index.untiered

    def replace(self, number: int, extents: Iterable[TieredExtent]) -> None:
        """Let extents of a segment, by its `number` when the flush began, refer to other objects.

        If the segment was merged meanwhile, they are the target's by now.
        """
        owner, base = self._owner(number)
        index = self._segments.get(owner)
        if index is not None:
            index.replace(base.of(found) for found in extents)

    def _owner(self, number: int) -> tuple[int, MergedAt]:
        """(the segment that now holds the bytes of `number`, their place there)."""
        offset = events = 0
        while number in self._moved:
            number, base = self._moved[number]
            offset, events = offset + base.offset, events + base.events
        return number, MergedAt(offset, events)

    def absent(self, number: int, offset: int, end: int) -> Iterator[tuple[int, LogAddress]]:
        """(start, address) of the frames that `fetch` would read from the journal; the first may
        start before `offset`."""
        index, base = self._as_flushed(number)
        for start, address in index.absent(base + offset, base + end):
            yield start - base, address

    def fetch(self, number: int, offset: int, end: int, read_frame: ReadFrame) -> bytes:
        """Bytes of a segment as it was when the flush began."""
        index, base = self._as_flushed(number)
        return index.fetch(base + offset, base + end, read_frame)

    def _as_flushed(self, number: int) -> tuple[SegmentIndex, int]:
        """(the index that now has the bytes that the segment had then, their offset there)."""
        owner, base = self._owner(number)
        return self.get(owner) or self._retired[owner], base.offset

    def get(self, number: int) -> SegmentIndex | None:
        """The segment's index, unless it is gone. It makes that of a new segment: see `find`."""
        found = self._segments.get(number)
        if found is None and number in self._empty:
            return self._begun(number)
        return found

    def find(self, number: int) -> SegmentIndex | None:
        """The segment's index; None if the segment is gone, or is new and has had no bytes."""
        return self._segments.get(number)

    def _of(self, number: int) -> SegmentIndex:
        return self._segments.get(number) or self._begun(number)

    def _begun(self, number: int) -> SegmentIndex:
        """Make the index of a new segment."""
        self._empty.remove(number)
        index = self._segments[number] = SegmentIndex(number, self._cache, self._flush)
        return index

    def clear(self) -> None:
        """Give all memory back, because the container ends."""
        for index in self._segments.values():
            index.drop()
        self._segments.clear()
        self._empty.clear()
        self.end_flush()
