"""The bytes that a store keeps in memory for reads, under one budget for all its containers.

Two kinds of data share it. The *tail* holds the newest appends: when the budget is full its oldest
pieces lose their bytes, and are read from the journal or tier 2 instead. The *read-ahead*
(`read_ahead.py`) borrows at most a quarter, so that reading old data displaces at most a quarter of
the tail. Owned by the event loop's thread.
"""

from collections import deque
from collections.abc import Callable

from anabranch.segstore.ports import LogAddress

READ_AHEAD_SHARE = 4
"""The read-ahead may borrow one in this many bytes of the budget."""
_STALE_MIN = 1024


class Piece:
    """One segment's appends of one frame: bytes [start, end), `count` appends from index `first`.

    `payloads` are the appends' bytes, or None if only the journal (at `address`) or tier 2 has
    them.
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
    """Pieces in the order of admission; together with lent bytes at most `size_max` bytes.

    `used` counts the bytes of the tail's pieces, `lent` those of the read-ahead.
    """

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self.used = 0
        self.lent = 0
        self._pieces: deque[Piece] = deque()
        self._stale = 0

    def admit(self, piece: Piece) -> None:
        """Keep the piece's bytes, and drop the oldest ones if necessary."""
        self._pieces.append(piece)
        self.used += piece.end - piece.start
        self._make_room()

    @property
    def lent_max(self) -> int:
        """How many bytes the read-ahead may borrow."""
        return self.size_max // READ_AHEAD_SHARE

    def lend(self, size: int) -> bool:
        """Lend `size` bytes to the read-ahead, and drop the tail's oldest pieces if necessary.

        Returns False, and lends nothing, if this exceeds the read-ahead's share.
        """
        if self.lent + size > self.lent_max:
            return False
        self.lent += size
        self._make_room()
        return True

    def give_back(self, size: int) -> None:
        """Take back `size` bytes that the read-ahead borrowed."""
        assert size <= self.lent
        self.lent -= size

    def _make_room(self) -> None:
        while self.used + self.lent > self.size_max and self._pieces:
            oldest = self._pieces.popleft()
            if oldest.payloads is None:
                self._stale -= 1
                continue
            self.used -= oldest.end - oldest.start
            oldest.payloads = None
            oldest.on_dropped()

    def release(self, piece: Piece) -> None:
        """Drop the piece's bytes, which no reader needs; releasing again is harmless."""
        if piece.payloads is None:
            return
        piece.payloads = None
        self.used -= piece.end - piece.start
        self._stale += 1
        if self._stale > max(_STALE_MIN, len(self._pieces) // 2):
            self._pieces = deque(held for held in self._pieces if held.payloads is not None)
            self._stale = 0
