"""How large a writer's blocks are, and how much of a writer is under way. Pure.

While little waits for acknowledgement, blocks are what was written during a round trip: small, and
sent at once when nothing is under way. A full block is one of the least size at first. It grows
with the average of what waits, up to four times that, because large blocks cost less per event.
Closing blocks earlier than at the least size was measured, too: it only made more of them.

`InFlight` is shared by all segments of a writer. Who was refused room is asked again, in the
order of asking, when some was given back.
"""

from collections import deque
from collections.abc import Callable

BLOCK_GROWTH_MAX = 4
_SHARE = 1 / 8
"""Of what waits, that a block may hold: so that several are always under way."""
_WEIGHT = 1 / 8
"""Of the newest observation in the moving average."""


class BlockSizing:
    """Of one segment; `size` is where blocks are closed, between `least` and four times that."""

    __slots__ = ("_average", "_largest", "_least", "size")

    def __init__(self, least: int, largest: int) -> None:
        self._least = least
        self._largest = max(least, min(BLOCK_GROWTH_MAX * least, largest))
        self._average = 0.0
        self.size = least

    def acknowledged(self, outstanding: int) -> None:
        """`outstanding` bytes waited for acknowledgement when some of them were acknowledged."""
        self._average += (outstanding - self._average) * _WEIGHT
        self.size = max(self._least, min(self._largest, int(self._average * _SHARE)))


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
