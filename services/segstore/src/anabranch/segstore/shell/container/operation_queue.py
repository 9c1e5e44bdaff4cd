"""The operations of a container between decision and sync, in order.

    add ──► waiting ──take_frame──► taken by the journal ──frame_durable──► gone

Owned by the container; all calls come from the event loop's thread. The store's throttle bounds it:
the container counts an operation there before `add`. A frame is durable, or lost, as a whole, so
a group of operations that must not be torn is never divided over two.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct

from anabranch.common.storage.ports import Buffer
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    MergeOperation,
    Operation,
    encode_operation,
)
from anabranch.segstore.ports import FrameContents


class PendingOperation:
    """A decided operation, encoded for the log; `size` in bytes.

    `unit_size`: the bytes of this operation and of those behind it that its frame must hold too.
    """

    __slots__ = ("buffers", "operation", "sequence", "size", "unit_size")

    def __init__(self, sequence: int, operation: Operation) -> None:
        self.sequence = sequence
        self.operation = operation
        self.buffers = encode_operation(sequence, operation)
        self.size = self.unit_size = sum(map(len, self.buffers))


class TakenFrame(Struct, frozen=True):
    """Operations that the journal writes as one frame; the first was queued at `queued_at_s`."""

    queued_at_s: float
    operations: list[PendingOperation]


class OperationQueue:
    """Operations that wait for the journal, and those that the journal has taken."""

    def __init__(self) -> None:
        self._waiting: deque[PendingOperation] = deque()
        self._queued_at_s = 0.0
        self._taken: deque[TakenFrame] = deque()

    @property
    def empty(self) -> bool:
        """Whether every decided operation is durable."""
        return not self._waiting and not self._taken

    def operations(self) -> Iterator[Operation]:
        """All operations that are not durable yet, in order."""
        taken = (frame.operations for frame in self._taken)
        return (item.operation for item in chain(*taken, self._waiting))

    def segments(self, names: Mapping[int, str]) -> frozenset[str]:
        """The names of the segments that the operations change. `names` maps the pending state's
        numbers to names."""
        found: set[str] = set()
        for operation in self.operations():
            if isinstance(operation, AppendOperation):
                found.add(names.get(operation.number, ""))
                continue
            found.add(operation.segment)
            if isinstance(operation, MergeOperation):
                found.update(source.segment for source in operation.sources)
        return frozenset(found)

    def add(self, pending: PendingOperation, now_s: Callable[[], float]) -> None:
        """Queue the next operation. The clock is read only when a new frame begins."""
        if not self._waiting:
            self._queued_at_s = now_s()
        self._waiting.append(pending)

    def add_group(self, group: Sequence[PendingOperation], now_s: Callable[[], float]) -> None:
        """Queue operations that one frame must hold."""
        unit_size = sum(pending.size for pending in group)
        for pending in group:
            pending.unit_size = unit_size
            unit_size -= pending.size
            self.add(pending, now_s)

    def take_frame(self, size_max: int) -> FrameContents | None:
        """The operations and whole groups that fit into `size_max` bytes, but at least the first
        one; None if none waits."""
        waiting = self._waiting
        if not waiting:
            return None
        items: list[PendingOperation] = []
        payload: list[Buffer] = []
        size = 0
        size_max = max(size_max, waiting[0].unit_size)
        while waiting and size + waiting[0].unit_size <= size_max:
            item = waiting.popleft()
            items.append(item)
            payload += item.buffers
            size += item.size
        self._taken.append(TakenFrame(self._queued_at_s, items))
        return FrameContents(items[0].sequence, len(items), payload, size, bool(waiting))

    def frame_durable(self) -> TakenFrame:
        """Remove the oldest taken frame, because it is durable."""
        return self._taken.popleft()

    def clear(self) -> int:
        """Drop all operations; returns their size in bytes."""
        frames = (frame.operations for frame in self._taken)
        size = sum(item.size for item in chain(*frames, self._waiting))
        self._waiting.clear()
        self._taken.clear()
        return size
