"""Answers that clients do not take: how many bytes of them the store holds, for all connections.

A connection whose client is slower than its answers is *held up*: it counts with what its write
buffer held then, until that has drained. Above the limit no read is answered on any connection;
the connections that want to are told, in turn, when there is room. So memory is bounded by the
limit, one answer, and what a connection may hold before it counts as held up. Owned by the event
loop's thread.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable

SIZE_BYTES_MAX = 64 * 1024 * 1024


class Outgoing:
    """The count of one store."""

    def __init__(self, size_max: int = SIZE_BYTES_MAX) -> None:
        self._size_max = size_max
        self._held_up: dict[Hashable, int] = {}
        self._waiting: OrderedDict[Hashable, Callable[[], None]] = OrderedDict()
        self.used = 0

    @property
    def full(self) -> bool:
        """Whether no read shall be answered now. Then somebody is held up."""
        return self.used >= self._size_max

    def hold_up(self, who: Hashable, size: int) -> None:
        """The client does not take its answers; `size` bytes of them are held."""
        self.used += size - self._held_up.pop(who, 0)
        self._held_up[who] = size

    def drained(self, who: Hashable) -> None:
        """The client took its answers, or is gone; repeated is success."""
        self.used -= self._held_up.pop(who, 0)
        while self._waiting and not self.full:
            _, callback = self._waiting.popitem(last=False)
            callback()

    def when_room(self, who: Hashable, callback: Callable[[], None]) -> None:
        """Call back once when reads may be answered again."""
        self._waiting[who] = callback

    def forget(self, who: Hashable) -> None:
        """The connection is gone: it is not called back, and holds nothing."""
        self._waiting.pop(who, None)
        self.drained(who)
