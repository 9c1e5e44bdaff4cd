"""How large a writer's blocks are, and how much of a writer is under way. Pure.

A block is closed when it is half as large as what waits for acknowledgement on average: small
while the store keeps up, so that the next block need not wait for the last one's acknowledgement,
and growing with what piles up, because large blocks cost less per event.

`InFlight` is shared by all segments of a writer. Who was refused room is asked again, in the
order of asking, when some was given back.
"""

from collections import deque
from collections.abc import Callable

BLOCK_SIZE_BYTES_MIN = 64 * 1024
_WEIGHT = 1 / 8
"""Of the newest observation in the moving average."""


class BlockSizing:
    """Of one segment; `size` is where blocks are closed. Starts with the largest blocks."""

    __slots__ = ("_average", "_largest", "_least", "size")

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._least = min(largest, BLOCK_SIZE_BYTES_MIN)
        self._average = 2.0 * largest
        self.size = largest

    def acknowledged(self, outstanding: int) -> None:
        """`outstanding` bytes waited for acknowledgement when some of them were acknowledged."""
        self._average += (outstanding - self._average) * _WEIGHT
        self.size = max(self._least, min(self._largest, int(self._average / 2)))


class InFlight:
    """At most `limit` bytes, or one larger block by itself."""

    __slots__ = ("_limit", "_refused", "used")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._refused: deque[Callable[[], None]] = deque()
        self.used = 0

    def take(self, size: int) -> bool:
        """Whether there was room for `size` bytes, which are under way from now on."""
        if self.used and self.used + size > self._limit:
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """So many bytes are no longer under way. `wake` when it is safe to send."""
        self.used -= size
        assert self.used >= 0

    def when_room(self, ask_again: Callable[[], None]) -> None:
        """Call it when room was given back, once; already known: nothing happens."""
        if ask_again not in self._refused:
            self._refused.append(ask_again)

    def wake(self) -> None:
        """Ask those again that were refused, if there is room at all."""
        if not self._refused or self.used >= self._limit:
            return
        refused, self._refused = self._refused, deque()
        for ask_again in refused:
            ask_again()
