"""The size of a writer's blocks, and the share of a writer that is in flight. Pure.

While little waits for acknowledgement, a block holds the writes of a round trip: it is small, and
sent at once if nothing is in flight. A full block has the least size at first. It grows with the
average of the waiting bytes, up to four times that, because large blocks cost less per event.
Closing blocks earlier than at the least size was measured, too: it only made more of them.

All segments of a writer share one `InFlight`. When room is given back, it asks the refused segments
again in the order of their requests. A claim, which is larger than most blocks, goes before all of
them: otherwise small blocks would take every returned byte for ever.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

BLOCK_GROWTH_MAX = 4
_SHARE = 1 / 8
"""The share of the waiting bytes that a block may hold, so that several are always in flight."""
_WEIGHT = 1 / 8
"""The weight of the newest observation in the moving average."""


class BlockSizing:
    """The block size of one segment: `size` varies between `least` and four times that."""

    __slots__ = ("_average", "_largest", "_least", "size")

    def __init__(self, least: int, largest: int) -> None:
        self._least = least
        self._largest = max(least, min(BLOCK_GROWTH_MAX * least, largest))
        self._average = 0.0
        self.size = least

    def acknowledged(self, outstanding: int) -> None:
        """Note that `outstanding` bytes were unacknowledged when some of them were acknowledged."""
        self._average += (outstanding - self._average) * _WEIGHT
        self.size = max(self._least, min(self._largest, int(self._average * _SHARE)))


@dataclass(eq=False, slots=True)
class Claim:
    """A request for room that goes before others; `granted` is called once."""

    size: int
    granted: Callable[[], None]
    has_room: bool = False


class InFlight:
    """At most `limit` bytes, or one larger block by itself."""

    __slots__ = ("_claims", "_limit", "_refused", "used")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._refused: deque[Callable[[], None]] = deque()
        self._claims: deque[Claim] = deque()
        self.used = 0

    def take(self, size: int) -> bool:
        """Take room for `size` bytes; returns whether there was any."""
        if self._claims or not self._fits(size):
            return False
        self.used += size
        return True

    def _fits(self, size: int) -> bool:
        return not self.used or self.used + size <= self._limit

    def claim(self, size: int, granted: Callable[[], None]) -> Claim:
        """Wait for room of `size` bytes, before all later requests; `withdraw` it in the end."""
        claim = Claim(size, granted)
        self._claims.append(claim)
        self._grant()
        return claim

    def withdraw(self, claim: Claim) -> None:
        """Give back the room, if the claim got any, or stop waiting for it. `wake` as always."""
        if claim.has_room:
            claim.has_room = False
            self.give_back(claim.size)
        elif claim in self._claims:
            self._claims.remove(claim)

    def _grant(self) -> None:
        while self._claims and self._fits(self._claims[0].size):
            claim = self._claims.popleft()
            claim.has_room = True
            self.used += claim.size
            claim.granted()

    def give_back(self, size: int) -> None:
        """Return `size` bytes of room. Call `wake` when it is safe to send."""
        self.used -= size
        assert self.used >= 0

    def when_room(self, ask_again: Callable[[], None]) -> None:
        """Call `ask_again` once after room was returned; registering twice changes nothing."""
        if ask_again not in self._refused:
            self._refused.append(ask_again)

    def wake(self) -> None:
        """Grant claims; if room is left, call the refused requests again."""
        self._grant()
        if self._claims or not self._refused or self.used >= self._limit:
            return
        refused, self._refused = self._refused, deque()
        for ask_again in refused:
            ask_again()
