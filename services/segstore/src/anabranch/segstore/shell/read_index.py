"""Where the bytes of a container's segments are, for everything that is durable.

A segment is covered by *tiered extents* [start, tiered_length) and by *pieces* that hold the
appends of one frame each and reach to its end; the two may overlap, because pieces that are
still in memory when their bytes are tiered stay as long as the cache keeps them. Append
boundaries of the pieces are arrays, not objects. A piece without bytes is read back from the
journal while it is not tiered, and vanishes once it is.

Owned by the container; all calls come from the event loop's thread.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anabranch.common.errors import CorruptJournal, InvalidRequest
from anabranch.common.tier2.state import TieredExtent
from anabranch.segstore.domain.container.operations import AppendOperation
from anabranch.segstore.domain.container.state import AppendMark
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.cache import Cache, Piece

ReadFrame = Callable[[LogAddress], bytes]


@dataclass(frozen=True, slots=True)
class InTierTwo:
    """The bytes asked for are in this extent of the segment with this number."""

    number: int
    extent: TieredExtent


class SegmentIndex:
    """One segment's extents, pieces and append boundaries."""

    __slots__ = (
        "_cache", "_ends", "_events", "_extent_starts", "_extents", "_first", "_frame_offsets",
        "_piece_starts", "_pieces", "_times", "length", "number", "tiered_length",
    )  # fmt: skip

    def __init__(self, number: int, cache: Cache, extents: Iterable[TieredExtent] = ()) -> None:
        self.number = number
        self._cache = cache
        self._extents: list[TieredExtent] = []
        self._extent_starts: list[int] = []
        self.tiered_length = 0
        self.length = 0
        self._pieces: list[Piece] = []
        self._piece_starts: list[int] = []
        self._first = 0
        """The index, counted from the first append ever indexed, of the arrays' first item."""
        self._ends = array("Q")
        self._events = array("Q")
        self._times = array("q")
        self._frame_offsets = array("I")
        self._add_extents(extents)
        self.length = self.tiered_length

    # --- growing ------------------------------------------------------------------------------

    def new_piece(self, address: LogAddress) -> Piece:
        """A piece at the segment's end, empty; `add` fills it."""
        piece = Piece(self.length, self._first + len(self._ends), address, self.trim)
        self._pieces.append(piece)
        self._piece_starts.append(piece.start)
        return piece

    def add(
        self, piece: Piece, operation: AppendOperation, event_count: int, frame_offset: int
    ) -> None:
        """An append that became durable: its payload is at `frame_offset` of the piece's frame.

        `event_count` is the segment's, after it.
        """
        assert operation.offset == self.length
        payload = operation.payload
        assert piece.payloads is not None
        piece.payloads.append(payload if isinstance(payload, bytes) else bytes(payload))
        piece.count += 1
        self.length = piece.end = self.length + len(payload)
        self._ends.append(self.length)
        self._events.append(event_count)
        self._times.append(operation.time_ms)
        self._frame_offsets.append(frame_offset)

    def add_tiered(self, extents: Iterable[TieredExtent]) -> None:
        """Tier 2 now holds these extents too, adjacent to those it had."""
        self._add_extents(extents)
        self.trim()

    def _add_extents(self, extents: Iterable[TieredExtent]) -> None:
        for extent in extents:
            assert extent.start == self.tiered_length or not self._extents
            self._extents.append(extent)
            self._extent_starts.append(extent.start)
            self.tiered_length = extent.start + extent.ref.length

    def trim(self) -> None:
        """Forget leading pieces whose bytes are in tier 2 and no longer in memory."""
        gone = 0
        while gone < len(self._pieces):
            piece = self._pieces[gone]
            if piece.payloads is not None or piece.end > self.tiered_length:
                break
            gone += 1
        if gone:
            last = self._pieces[gone - 1]
            count = last.first + last.count - self._first
            self._first += count
            for column in (self._ends, self._events, self._times, self._frame_offsets):
                del column[:count]
            del self._pieces[:gone]
            del self._piece_starts[:gone]

    def drop(self) -> None:
        """Give the memory back; the index must not be used any more."""
        for piece in self._pieces:
            self._cache.release(piece)
        self._pieces.clear()
        self._piece_starts.clear()

    # --- asking -------------------------------------------------------------------------------

    @property
    def front(self) -> int:
        """The offset from which on the pieces hold the bytes."""
        return self._piece_starts[0] if self._pieces else self.length

    def extent_at(self, offset: int) -> InTierTwo:
        """The extent that holds `offset`, which lies before `front`."""
        found = bisect_right(self._extent_starts, offset) - 1
        extent = self._extents[found]
        assert extent.start <= offset < extent.start + extent.ref.length
        return InTierTwo(self.number, extent)

    def range_end(self, offset: int, size_max: int, *, whole_appends: bool) -> int:
        """Where a read of about `size_max` bytes from `offset` ≥ `front` shall end.

        Raises InvalidRequest if whole appends are asked for from within an append.
        """
        end = min(self.length, offset + size_max)
        if not whole_appends:
            return end
        at = bisect_right(self._ends, offset)
        if offset != (self._ends[at - 1] if at else self.front):
            raise InvalidRequest("the offset is within an append", offset=offset)
        last = max(at, bisect_right(self._ends, end) - 1)
        return self._ends[last]

    def boundary(self, offset: int) -> int:
        """The first append boundary at or after `offset` ≥ `front`."""
        return offset if offset == self.front else self._ends[bisect_left(self._ends, offset)]

    def marks(self) -> tuple[AppendMark, ...]:
        """The append boundaries after `tiered_length`, ascending."""
        at = bisect_right(self._ends, self.tiered_length)
        columns = (self._ends[at:], self._events[at:], self._times[at:])
        return tuple(map(AppendMark, *columns))

    def fetch(self, offset: int, end: int, read_frame: ReadFrame) -> bytes:
        """The bytes [offset, end), which lie in the pieces."""
        parts: list[bytes | memoryview] = []
        at = bisect_right(self._piece_starts, offset) - 1
        while offset < end:
            piece = self._pieces[at]
            payloads = piece.payloads
            if payloads is None:
                payloads = self._payloads_from_frame(piece, read_frame(piece.address))
            offset = self._collect(parts, piece, payloads, offset, end)
            at += 1
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _collect(
        self,
        parts: list[bytes | memoryview],
        piece: Piece,
        payloads: list[bytes],
        offset: int,
        end: int,
    ) -> int:
        first = piece.first - self._first
        start = bisect_right(self._ends, offset, first, first + piece.count)
        for index in range(start, first + piece.count):
            payload = payloads[index - first]
            began = self._ends[index] - len(payload)
            if began >= end:
                return end
            if offset > began or self._ends[index] > end:
                parts.append(memoryview(payload)[offset - began : end - began])
            else:
                parts.append(payload)
            offset = min(end, self._ends[index])
        return offset

    def _payloads_from_frame(self, piece: Piece, frame: bytes) -> list[bytes]:
        first = piece.first - self._first
        payloads: list[bytes] = []
        began = piece.start
        for index in range(first, first + piece.count):
            size = self._ends[index] - began
            at = self._frame_offsets[index]
            if at + size > len(frame):
                raise CorruptJournal("a frame is shorter than its index says", segment=self.number)
            payloads.append(frame[at : at + size])
            began = self._ends[index]
        return payloads


class ReadIndex:
    """The indexes of all segments of a container, by number."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._segments: dict[int, SegmentIndex] = {}
        self._retired: dict[int, SegmentIndex] = {}
        self._frame: dict[int, Piece] = {}

    def open_segment(self, number: int, extents: Iterable[TieredExtent] = ()) -> None:
        """A segment exists, with what tier 2 holds of it."""
        self._segments[number] = SegmentIndex(number, self._cache, extents)

    def add_append(
        self,
        operation: AppendOperation,
        event_count: int,
        address: LogAddress,
        frame_offset: int,
    ) -> None:
        """An append of the frame at `address`; `end_frame` follows the frame's last one."""
        index = self._segments[operation.number]
        piece = self._frame.get(operation.number)
        if piece is None:
            piece = self._frame[operation.number] = index.new_piece(address)
        index.add(piece, operation, event_count, frame_offset)

    def end_frame(self) -> None:
        """All operations of a frame are indexed: the cache may take their bytes over."""
        for piece in self._frame.values():
            self._cache.admit(piece)
        self._frame.clear()

    def remove(self, number: int, *, keep_for_flush: bool) -> int:
        """A segment is gone. Returns how many of its bytes were not tiered yet.

        A flush under way may still have to fetch them: then they stay until `end_flush`.
        """
        index = self._segments.pop(number)
        piece = self._frame.pop(number, None)
        if piece is not None:
            self._cache.admit(piece)
        if keep_for_flush:
            self._retired[number] = index
        else:
            index.drop()
        return index.length - index.tiered_length

    def end_flush(self) -> None:
        """No flush is under way any more."""
        for index in self._retired.values():
            index.drop()
        self._retired.clear()

    def get(self, number: int) -> SegmentIndex | None:
        """The segment's index, unless it was removed."""
        return self._segments.get(number)

    def for_flush(self, number: int) -> SegmentIndex:
        """The segment's index, also of one removed since the flush began."""
        return self._segments.get(number) or self._retired[number]

    def clear(self) -> None:
        """The container ends: all memory goes back."""
        for index in self._segments.values():
            index.drop()
        self._segments.clear()
        self.end_flush()
