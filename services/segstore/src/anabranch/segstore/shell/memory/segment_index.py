"""Maps one segment's durable bytes to their places.

A segment is covered by *tiered extents* and by *pieces*, which hold the appends of one frame each.
The two may overlap: a piece that is in memory when its bytes are tiered stays until the cache drops
it. Before any merge, extents cover the beginning of the segment and pieces its end; a merged
segment brings both, so they may alternate. The pieces' append boundaries are arrays, not objects.

A piece without bytes is read from the journal while it is not tiered, and from tier 2 afterwards. A
tiered piece without bytes is removed as soon as no other piece precedes it.

Owned by the container; all calls come from the event loop's thread.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from anabranch.common.errors import CorruptJournal, InvalidRequest
from anabranch.common.tier2.state import TieredExtent
from anabranch.segstore.domain.container.circumstances import InTierTwo
from anabranch.segstore.domain.container.operations import AppendOperation
from anabranch.segstore.domain.container.state import AppendMark, UntieredRun
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.memory.cache import Cache, Piece
from anabranch.segstore.shell.memory.granule import Bytes
from anabranch.segstore.shell.memory.layout import Layout
from anabranch.segstore.shell.memory.segment_contents import Contents, FlushUnderWay

ReadFrame = Callable[[LogAddress], bytes]


class MergedAt(NamedTuple):
    """The place of a merged segment in its target: the bytes and the events before it."""

    offset: int = 0
    events: int = 0

    def of(self, extent: TieredExtent) -> TieredExtent:
        """The target's extent that holds the bytes of the merged segment's."""
        before = extent.events_before
        return TieredExtent(
            extent.start + self.offset, extent.ref, before if before < 0 else before + self.events
        )


class SegmentIndex:
    """One segment's extents, pieces and append boundaries."""

    __slots__ = (
        "_adopted", "_cache", "_ends", "_events", "_extent_starts", "_extents", "_first", "_flush",
        "_frame_offsets", "_piece_starts", "_pieces", "_tiered_size", "_times", "length", "number",
        "sealed_in_tier_two", "start", "tiered_length",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        cache: Cache,
        flush: FlushUnderWay,
        extents: Iterable[TieredExtent] = (),
        *,
        start: int = 0,
        length: int = 0,
    ) -> None:
        self.number = number
        self.start = start
        self.length = length
        self.tiered_length = start
        """The end of the extents that cover the segment from its start without a gap."""
        self.sealed_in_tier_two = False
        self._cache = cache
        self._flush = flush
        self._extents: list[TieredExtent] = []
        self._extent_starts: list[int] = []
        self._tiered_size = 0
        self._adopted: list[TieredExtent] = []
        """Extents that came with a merge and that no manifest records as this segment's yet."""
        self._pieces: list[Piece] = []
        self._piece_starts: list[int] = []
        self._first = 0
        """The index, counted from the first append ever indexed, of the arrays' first item."""
        self._ends = array("Q")
        self._events = array("Q")
        self._times = array("q")
        self._frame_offsets = array("I")
        self.add_tiered(extents)

    # --- growing ------------------------------------------------------------------------------

    def new_piece(self, address: LogAddress) -> Piece:
        """An empty piece at the segment's end, for `add` to fill."""
        piece = Piece(self.length, self._first + len(self._ends), address, self.trim)
        self._pieces.append(piece)
        self._piece_starts.append(piece.start)
        return piece

    def add(self, piece: Piece, operation: AppendOperation, frame_offset: int) -> None:
        """Add a durable append whose payload is at `frame_offset` of the piece's frame."""
        assert operation.offset == self.length
        payload = operation.payload
        assert piece.payloads is not None
        piece.payloads.append(payload if isinstance(payload, bytes) else bytes(payload))
        piece.count += 1
        self.length = piece.end = self.length + len(payload)
        self._ends.append(self.length)
        self._events.append(operation.event_count)
        self._times.append(operation.time_ms)
        self._frame_offsets.append(frame_offset)

    def hand_over(self) -> Contents:
        """Give up all contents for another segment to absorb."""
        columns = (self._ends, self._events, self._times, self._frame_offsets)
        pieces, self._pieces, self._piece_starts = self._pieces, [], []
        return Contents(pieces, self._first, columns, tuple(self._extents), self.length)

    def absorb(self, contents: Contents, events_before: int) -> None:
        """Append another segment's bytes to this one's, wherever they are. `events_before`: how
        many events this one has before them.

        Pieces move with their bytes and journal addresses, extents as references: nothing is copied
        or read.
        """
        base, shift = self.length, self._first + len(self._ends) - contents.first
        for piece in contents.pieces:
            piece.start += base
            piece.end += base
            piece.first += shift
            piece.on_dropped = self.trim
            self._pieces.append(piece)
            self._piece_starts.append(piece.start)
        ends, events, times, frame_offsets = contents.columns
        self._ends.extend(end + base for end in ends)
        self._events.extend(events)
        self._times.extend(times)
        self._frame_offsets.extend(frame_offsets)
        self.length += contents.length
        self.adopt(contents.extents, MergedAt(base, events_before))

    def adopt(self, extents: Iterable[TieredExtent], base: MergedAt) -> None:
        """Add these extents of a merged segment, which began at `base` of this one."""
        adopted = [base.of(extent) for extent in extents]
        self._adopted += adopted
        self.add_tiered(adopted)

    def recorded(self, extents: Collection[TieredExtent]) -> None:
        """Note that a manifest records these adopted extents as this segment's."""
        known = set(extents)
        self._adopted = [extent for extent in self._adopted if extent not in known]

    def add_tiered(self, extents: Iterable[TieredExtent]) -> None:
        """Add extents that tier 2 now holds. They replace the adopted extents within them, which
        were gathered, and overlap no others."""
        for extent in extents:
            at = bisect_left(self._extent_starts, extent.start)
            stop = bisect_left(self._extent_starts, extent.start + extent.ref.length)
            if stop > at:
                self._forget_gathered(at, stop)
            self._extents.insert(at, extent)
            self._extent_starts.insert(at, extent.start)
            self._tiered_size += extent.ref.length
        self._advance()
        self.trim()

    def replace(self, extents: Iterable[TieredExtent]) -> None:
        """Let extents refer to other objects with the same bytes. Truncated ones are left out."""
        for extent in extents:
            at = bisect_left(self._extent_starts, extent.start)
            if at == len(self._extents) or self._extent_starts[at] != extent.start:
                continue
            before, self._extents[at] = self._extents[at], extent
            assert before.ref.length == extent.ref.length
            self._adopted = [extent if held == before else held for held in self._adopted]

    def _forget_gathered(self, at: int, stop: int) -> None:
        """Remove these extents, because a new one holds their bytes too."""
        gone = set(self._extents[at:stop])
        adopted = [extent for extent in self._adopted if extent not in gone]
        assert len(adopted) + len(gone) == len(self._adopted)
        self._adopted = adopted
        self._tiered_size -= sum(extent.ref.length for extent in gone)
        del self._extents[at:stop]
        del self._extent_starts[at:stop]

    def _advance(self) -> None:
        """Advance `tiered_length` over the extents that follow it without a gap."""
        self.tiered_length = max(self.tiered_length, self.start)
        at = max(bisect_right(self._extent_starts, self.tiered_length) - 1, 0)
        for extent in self._extents[at:]:
            if extent.start > self.tiered_length:
                break
            self.tiered_length = max(self.tiered_length, extent.start + extent.ref.length)

    # --- shrinking ----------------------------------------------------------------------------

    def truncate(self, start: int) -> None:
        """Drop the bytes before `start`."""
        assert self.start <= start <= self.length
        self.start = start
        self._advance()
        self.trim()

    def trim(self) -> None:
        """Forget truncated contents, and leading pieces whose bytes are in tier 2 and no longer
        in memory."""
        gone = 0
        while gone < len(self._pieces):
            piece = self._pieces[gone]
            if piece.end <= self.start:
                if self._flush.under_way:
                    break  # The flush may fetch it, even if its bytes have left the memory.
                self._cache.release(piece)
            elif piece.payloads is not None or not self._tiered(piece):
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
        self._trim_extents()

    def _trim_extents(self) -> None:
        gone = 0
        for extent in self._extents:
            if extent.start + extent.ref.length > self.start:
                break
            self._tiered_size -= extent.ref.length
            gone += 1
        if gone:
            dropped = set(self._extents[:gone])
            self._adopted = [extent for extent in self._adopted if extent not in dropped]
            del self._extents[:gone]
            del self._extent_starts[:gone]

    def drop(self) -> None:
        """Give the memory back; the index must not be used afterwards."""
        for piece in self._pieces:
            self._cache.release(piece)
        self._pieces.clear()
        self._piece_starts.clear()

    # --- queries ------------------------------------------------------------------------------

    @property
    def untiered(self) -> int:
        """How many bytes from the start on only the journal holds."""
        before = max(0, self.start - self._extent_starts[0]) if self._extents else 0
        return self.length - self.start - (self._tiered_size - before)

    @property
    def tiered(self) -> bool:
        """Whether tier 2 has all bytes, and manifests record all of them as this segment's."""
        return self.tiered_length == self.length and not self._adopted

    @property
    def front(self) -> int:
        """The offset at which the first piece begins."""
        return self._piece_starts[0] if self._pieces else self.length

    def _tiered(self, piece: Piece) -> bool:
        """Whether an extent holds the piece's bytes. It holds all or none, because a cut divides
        no frame."""
        if piece.end <= self.tiered_length:
            return True
        at = bisect_right(self._extent_starts, piece.start) - 1
        if at < 0:
            return False
        extent = self._extents[at]
        return piece.start < extent.start + extent.ref.length

    def _piece_at(self, offset: int) -> int:
        """The index of the piece to read `offset` from, or -1 to read it from tier 2.

        Bytes that are tiered and not in memory are never read from the journal, which may have
        deleted them.
        """
        at = bisect_right(self._piece_starts, offset) - 1
        if at >= 0 and offset < self._pieces[at].end:
            piece = self._pieces[at]
            if piece.payloads is not None or not self._tiered(piece):
                return at
        return -1

    def extent_at(self, offset: int) -> InTierTwo | None:
        """The extent to read `offset` < length from; None if a piece has it."""
        if self._piece_at(offset) >= 0:
            return None
        extent = self._extents[bisect_right(self._extent_starts, offset) - 1]
        assert extent.start <= offset < extent.start + extent.ref.length
        return InTierTwo(self.number, extent, offset)

    def range_end(self, offset: int, size_max: int, *, whole_appends: bool) -> int:
        """The end of a read of about `size_max` bytes from `offset`, which is in the pieces.

        Raises InvalidRequest if whole appends are requested from within an append.
        """
        at = self._piece_at(offset)
        piece = self._pieces[at]
        if whole_appends and self.boundary_before(offset) != offset:
            raise InvalidRequest("the offset is within an append", offset=offset)
        wanted = min(self.length, offset + size_max)
        low, reached = piece.first - self._first, piece.start
        stop = low
        while at < len(self._pieces) and self._pieces[at].start == reached < wanted:
            piece = self._pieces[at]
            if piece.payloads is None and self._tiered(piece):
                break
            reached, stop, at = piece.end, piece.first + piece.count - self._first, at + 1
        end = min(reached, wanted)
        if not whole_appends:
            return end
        least = bisect_right(self._ends, offset, low, stop)
        return self._ends[max(least, bisect_right(self._ends, end, low, stop) - 1)]

    def boundary(self, offset: int) -> int:
        """The first append boundary at or after `offset`, which is in the pieces."""
        piece = self._pieces[self._piece_at(offset)]
        if offset == piece.start:
            return offset
        first = piece.first - self._first
        return self._ends[bisect_left(self._ends, offset, first, first + piece.count)]

    def boundary_before(self, offset: int) -> int:
        """The last append boundary at or before `offset`, which is in the pieces."""
        piece = self._pieces[self._piece_at(offset)]
        first = piece.first - self._first
        at = bisect_right(self._ends, offset, first, first + piece.count)
        return self._ends[at - 1] if at > first else piece.start

    @property
    def layout(self) -> Layout:
        """The places of all bytes and the appends in the pieces, for searches."""
        return Layout(
            self.start, self.length, self._pieces, self._piece_starts, self._first,
            self._ends, self._events, self._times, self._extents, self._extent_starts,
        )  # fmt: skip

    @property
    def adopted(self) -> tuple[TieredExtent, ...]:
        """Extents that no manifest records as this segment's yet, ascending."""
        return tuple(sorted(self._adopted, key=lambda extent: extent.start))

    def runs(self) -> tuple[UntieredRun, ...]:
        """The runs of bytes that only the journal holds, from the start on, ascending."""
        found: list[UntieredRun] = []
        start = end = first = stop = 0
        at = max(bisect_right(self._piece_starts, self.tiered_length) - 1, 0)
        for piece in self._pieces[at:]:
            if piece.end <= self.start or self._tiered(piece):
                continue
            if piece.start != end or stop == first:
                if stop > first:
                    found.append(self._run(start, first, stop))
                start, first = max(piece.start, self.start), piece.first - self._first
            end, stop = piece.end, piece.first + piece.count - self._first
        if stop > first:
            found.append(self._run(start, first, stop))
        return tuple(found)

    def _run(self, start: int, first: int, stop: int) -> UntieredRun:
        first = bisect_right(self._ends, start, first, stop)
        columns = (self._ends[first:stop], self._events[first:stop], self._times[first:stop])
        return UntieredRun(start, tuple(map(AppendMark, *columns)))

    def absent(self, offset: int, end: int) -> Iterator[tuple[int, LogAddress]]:
        """(start, address) of the pieces of [offset, end) whose bytes are not in memory."""
        at = bisect_right(self._piece_starts, offset) - 1
        while at < len(self._pieces) and self._pieces[at].start < end:
            piece = self._pieces[at]
            if piece.payloads is None:
                yield piece.start, piece.address
            at += 1

    def ahead(self, offset: int, end: int) -> Iterator[InTierTwo | LogAddress]:
        """The places of those bytes of [offset, end) that left the memory, ascending.

        An extent may begin before `offset`, and may hold bytes that are in memory too.
        """
        end = min(end, self.length)
        while offset < end:
            place = self.extent_at(offset)
            if place is not None:
                yield place
                offset = place.extent.start + place.extent.ref.length
                continue
            at = self._piece_at(offset)
            while at < len(self._pieces) and self._pieces[at].start <= offset < end:
                piece = self._pieces[at]
                if piece.payloads is None:
                    if self._tiered(piece):
                        break
                    yield piece.address
                offset, at = piece.end, at + 1

    def fetch(self, offset: int, end: int, read_frame: ReadFrame) -> bytes:
        """The bytes [offset, end), which lie in the pieces, with at most one copy."""
        parts: list[Bytes] = []
        at = bisect_right(self._piece_starts, offset) - 1
        while offset < end:
            piece = self._pieces[at]
            frame = read_frame(piece.address) if piece.payloads is None else None
            offset = self._collect(parts, piece, frame, offset, end)
            at += 1
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _collect(
        self, parts: list[Bytes], piece: Piece, frame: bytes | None, offset: int, end: int
    ) -> int:
        """Append the piece's bytes from `offset` up to `end`; returns where they end."""
        first = piece.first - self._first
        view = None if frame is None else memoryview(frame)
        start = bisect_right(self._ends, offset, first, first + piece.count)
        began = self._ends[start - 1] if start > first else piece.start
        for index in range(start, first + piece.count):
            ended = self._ends[index]
            if began >= end:
                return end
            payload: Bytes
            if view is not None:
                at = self._frame_offsets[index]
                payload = view[at : at + ended - began]
                if len(payload) != ended - began:
                    raise CorruptJournal(
                        "a frame is shorter than its index says", segment=self.number
                    )
            else:
                assert piece.payloads is not None
                payload = piece.payloads[index - first]
            if offset > began or ended > end:
                payload = memoryview(payload)[max(offset - began, 0) : end - began]
            parts.append(payload)
            began = ended
        return min(end, began)
