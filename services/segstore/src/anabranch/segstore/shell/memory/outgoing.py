"""Bounds the bytes of answers that clients have not taken, over all connections of the store.

A connection whose client is slower than its answers is *held up*: its write buffer's bytes count
until they have drained. Above the limit no read is answered on any connection; when there is room
again, the waiting connections are called back in turn. Memory is thus bounded by the limit, one
answer, and the bytes that a connection may hold before it counts as held up. Owned by the event
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
        """Whether no read may be answered now. At least one connection is then held up."""
        return self.used >= self._size_max

    def hold_up(self, who: Hashable, size: int) -> None:
        """Count `size` untaken bytes for a connection that is held up."""
        self.used += size - self._held_up.pop(who, 0)
        self._held_up[who] = size

    def drained(self, who: Hashable) -> None:
        """Stop counting a connection that took its answers or is gone; repeating this is
        harmless."""
        self.used -= self._held_up.pop(who, 0)
        while self._waiting and not self.full:
            _, callback = self._waiting.popitem(last=False)
            callback()

    def when_room(self, who: Hashable, callback: Callable[[], None]) -> None:
        """Call back once when reads may be answered again."""
        self._waiting[who] = callback

    def forget(self, who: Hashable) -> None:
        """Forget a connection that is gone, and do not call it back."""
        self._waiting.pop(who, None)
        self.drained(who)
