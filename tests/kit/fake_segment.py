"""One segment of the fake store: its bytes, append boundaries, writers and attributes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch.common.errors import (
    EventGap,
    InvalidRequest,
    NotAtBoundary,
    OffsetMismatch,
    PartialDuplicate,
    SegmentSealed,
    SegmentTruncated,
    WriterExpired,
)
from anabranch.common.wire.block import count_events, is_part
from anabranch.common.wire.messages import (
    Append,
    AppendOnce,
    AttributeUpdate,
    ConditionalAppend,
    Message,
    Request,
)


@dataclass
class FakeSegment:
    """A segment's bytes, append boundaries and writers."""

    data: bytearray = field(default_factory=bytearray)
    boundaries: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    """When each append was taken, parallel to `boundaries`."""
    now_ms: int = 0
    """The time of the next append."""
    last_numbers: dict[bytes, int] = field(default_factory=dict)
    sealed: bool = False
    event_count: int = 0
    start: int = 0
    """What lies before was truncated."""
    attributes: dict[bytes, int] = field(default_factory=dict)

    def judge(self, writer_id: bytes, first: int, count: int) -> bool:
        """Whether these events are stored already; raises what a container raises."""
        last = self.last_numbers.get(writer_id, 0)
        if first + count - 1 <= last:
            return True
        if self.sealed:
            raise SegmentSealed("the segment is sealed")
        if first <= last:
            raise PartialDuplicate("the block straddles", last=last)
        if first > last + 1:
            kind = EventGap if last else WriterExpired
            raise kind("the block starts too late", last=last)
        return False

    def append(self, writer_id: bytes, append: Append | AppendOnce, payload: bytes) -> int:
        """→ the last event number; raises what a container raises."""
        end = append.first_event_number + append.count - 1
        if self.judge(writer_id, append.first_event_number, append.count):
            return end
        changed = self.attributes
        if isinstance(append, ConditionalAppend):
            if append.expected_length not in (None, len(self.data)):
                raise OffsetMismatch("the segment grew", length=len(self.data))
            changed = self._updated(append.updates)
        events = append.count
        if append.is_block:
            blocks, events = count_events(payload)
            assert (blocks, 1 if is_part(payload) else events) == (1, append.count)
        self.attributes = changed
        self.data += payload
        self.boundaries.append(len(self.data))
        self.times.append(self.now_ms)
        self.last_numbers[writer_id] = end
        self.event_count += events
        return end

    def _updated(self, updates: Iterable[AttributeUpdate]) -> dict[bytes, int]:
        """Only `replace` is known here."""
        changed = dict(self.attributes)
        for update in updates:
            assert update.kind == "replace"
            assert update.value is not None
            changed[update.attribute] = update.value
        return changed

    def answer(self, request: Request, payload: bytes) -> tuple[Message, bytes]:
        """The answer to a request about entries, which only a `FakeTable` has."""
        raise InvalidRequest("the segment is not a table segment")

    def restarted(self) -> None:
        """The store was restarted."""

    def truncate(self, offset: int) -> None:
        """The start never falls. Raises NotAtBoundary, InvalidRequest."""
        if offset > len(self.data):
            raise InvalidRequest("the offset lies beyond the end", length=len(self.data))
        if offset > self.start and offset not in self.boundaries:
            lower = max(end for end in (0, *self.boundaries) if end <= offset)
            raise NotAtBoundary("no append ends there", offset=offset, lower=lower)
        self.start = max(self.start, offset)

    def absorb(self, source: "FakeSegment") -> int:
        """Append all of a sealed segment → where it begins. Raises SegmentSealed."""
        if self.sealed:
            raise SegmentSealed("the segment is sealed")
        offset = len(self.data)
        self.data += source.data
        self.boundaries += [offset + end for end in source.boundaries]
        self.times += source.times
        self.event_count += source.event_count
        return offset

    def read(self, offset: int, size_max: int, *, whole_appends: bool = True) -> bytes:
        """Whole appends from `offset`, at least one. Raises SegmentTruncated, InvalidRequest."""
        if offset < self.start:
            raise SegmentTruncated("the offset lies before the start", start=self.start)
        if offset > len(self.data):
            raise InvalidRequest("the offset lies beyond the end", length=len(self.data))
        if not whole_appends:
            return bytes(self.data[offset : offset + size_max])
        ends = [end for end in self.boundaries if end > offset]
        fitting = [end for end in ends if end - offset <= size_max] or ends[:1]
        return bytes(self.data[offset : fitting[-1]]) if fitting else b""

    def boundary(self, offset: int) -> int:
        """The first at or after `offset`. Raises SegmentTruncated, InvalidRequest."""
        if offset < self.start:
            raise SegmentTruncated("the offset lies before the start", start=self.start)
        found = [at for at in (self.start, *self.boundaries) if at >= offset]
        if not found:
            raise InvalidRequest("the offset lies beyond the end", offset=offset)
        return found[0]

    def boundary_at(self, time_ms: int) -> int:
        """Before the first append that is not older, at or after the start."""
        began = 0
        for end, taken_ms in zip(self.boundaries, self.times, strict=True):
            if end > self.start and taken_ms >= time_ms:
                break
            began = end
        return max(self.start, began)
