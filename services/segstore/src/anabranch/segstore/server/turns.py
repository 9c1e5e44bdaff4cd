"""Turns of the connections, so that one that sends little does not wait behind megabytes of others.

The event loop reads from one socket as long as it gets full buffers, and the store writes and syncs
everything that was read in one turn together. While any connection sends little, one that sends
much therefore stops reading after each share, until the next turn of the loop. Otherwise it reads
on, because fewer and larger writes are cheaper.

Times are seconds of the monotonic clock.
"""

SHARE_SIZE_BYTES = 256 * 1024
FAST_S = 0.02
"""A connection that has just sent a share in less time sends much: 12 MiB/s. A caller that awaits
each of its events stays below that."""
MUCH_S = 0.1
"""For so long after such a share, it sends much."""
HEARD_S = 0.1
"""So long after a connection was heard that sends little, the others take turns."""


class Turns:
    """The common knowledge of a store's connections.

    `heard`: the one that sends little and was heard last, at `heard_at_s`.
    """

    def __init__(self) -> None:
        self.heard: Turn | None = None
        self.heard_at_s = float("-inf")


class Turn:
    """The share of one connection."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._size = 0
        self._began_at_s = float("-inf")
        self._much_until_s = float("-inf")

    def is_over(self, size: int, now_s: float) -> bool:
        """Count `size` received bytes. Returns whether the connection should stop reading until the
        next turn."""
        self._size += size
        if self._size >= SHARE_SIZE_BYTES:
            if now_s - self._began_at_s <= FAST_S:
                self._much_until_s = now_s + MUCH_S
            self._size, self._began_at_s = 0, now_s
            return self.sends_much(now_s) and self._others_are_heard(now_s)
        if not self.sends_much(now_s):
            self._turns.heard, self._turns.heard_at_s = self, now_s
        return False

    def sends_much(self, now_s: float) -> bool:
        return now_s < self._much_until_s

    def _others_are_heard(self, now_s: float) -> bool:
        turns = self._turns
        return turns.heard is not self and now_s - turns.heard_at_s <= HEARD_S
