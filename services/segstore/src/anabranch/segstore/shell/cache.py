"""The bytes that a store keeps in memory, under one budget for all its containers.

What was appended last stays; when the budget is full the oldest pieces lose their bytes, and
are read from the journal or from tier 2 instead. Reads never put anything in, so catching up
on old data cannot push out the tail. Owned by the event loop's thread.
"""

from collections import deque
from collections.abc import Callable

from anabranch.segstore.ports import LogAddress

_STALE_MIN = 1024


class Piece:
    """One segment's appends of one frame: bytes [start, end), `count` appends from index `first`.

    `payloads` are the appends' bytes, or None when only the journal (at `address`) or tier 2
    has them.
    """

    __slots__ = ("address", "count", "end", "first", "on_dropped", "payloads", "start")

    def __init__(
        self, start: int, first: int, address: LogAddress, on_dropped: Callable[[], None]
    ) -> None:
        self.start = start
        self.end = start
        self.first = first
        self.count = 0
        self.address = address
        self.payloads: list[bytes] | None = []
        self.on_dropped = on_dropped


class Cache:
    """Pieces in the order they were admitted, at most `size_max` bytes of them."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self.used = 0
        self._pieces: deque[Piece] = deque()
        self._stale = 0

    def admit(self, piece: Piece) -> None:
        """Keep the piece's bytes, at the cost of the oldest."""
        self._pieces.append(piece)
        self.used += piece.end - piece.start
        while self.used > self.size_max and self._pieces:
            oldest = self._pieces.popleft()
            if oldest.payloads is None:
                self._stale -= 1
                continue
            self.used -= oldest.end - oldest.start
            oldest.payloads = None
            oldest.on_dropped()

    def release(self, piece: Piece) -> None:
        """The piece is no longer needed by anyone; releasing again is harmless."""
        if piece.payloads is None:
            return
        piece.payloads = None
        self.used -= piece.end - piece.start
        self._stale += 1
        if self._stale > max(_STALE_MIN, len(self._pieces) // 2):
            self._pieces = deque(held for held in self._pieces if held.payloads is not None)
            self._stale = 0
