"""Back-pressure of one store: bytes waiting for the journal, and bytes waiting for tier 2.

    pending soft limit    connections stop being read until half of it is drained
    pending hard limit    appends are refused: Overloaded
    un-tiered limit       connections stop being read while tier 2 makes progress; when it
                          fails, or at a quarter above the limit, appends are refused

Nothing is ever dropped that was accepted. Owned by the event loop's thread.
"""

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.common.errors import Overloaded

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ThrottleLimits:
    """All in bytes."""

    pending_soft: int = 64 * _MIB
    pending_hard: int = 128 * _MIB
    untiered: int = 1024 * _MIB


class Throttle:
    """Counts, and wakes who was told to wait."""

    def __init__(self, limits: ThrottleLimits) -> None:
        self._limits = limits
        self.pending = 0
        self.untiered = 0
        self._failing: set[int] = set()
        self._waiting: list[Callable[[], None]] = []

    def admit(self, size: int) -> None:
        """Count `size` more pending bytes. Raises Overloaded; then nothing is counted."""
        limits = self._limits
        if self.pending + size > limits.pending_hard:
            raise Overloaded("too many bytes wait for the journal", pending=self.pending, size=size)
        untiered_max = limits.untiered if self._failing else limits.untiered * 5 // 4
        if self.untiered + size > untiered_max:
            raise Overloaded(
                "too many bytes wait for tier 2",
                remedy="check that tier 2 is reachable and writable; then try again",
                untiered=self.untiered,
                limit=untiered_max,
            )
        self.pending += size

    def count(self, size: int) -> None:
        """Count `size` more pending bytes over any limit: of deletions that nobody could repeat,
        and that are fewer than what they delete."""
        self.pending += size

    def forget_pending(self, size: int) -> None:
        """`size` pending bytes became durable or were given up."""
        self.pending -= size
        self._wake()

    def add_untiered(self, size: int) -> None:
        """`size` bytes became durable in the journal only; negative: they are tiered or gone."""
        self.untiered += size
        if size < 0:
            self._wake()

    def tier_two_failing(self, container: int, *, failing: bool) -> None:
        """Whether the container's last flush failed."""
        if failing:
            self._failing.add(container)
        else:
            self._failing.discard(container)
        self._wake()

    @property
    def paused(self) -> bool:
        """Whether connections shall stop being read."""
        return self.pending > self._limits.pending_soft or (
            self.untiered > self._limits.untiered and not self._failing
        )

    @property
    def flush_wanted(self) -> bool:
        """Un-tiered bytes come near their limit: flush what there is."""
        return self.untiered > self._limits.untiered * 3 // 4

    def when_open(self, callback: Callable[[], None]) -> None:
        """Call back once when reading may go on (soon after half is drained)."""
        self._waiting.append(callback)

    def _wake(self) -> None:
        if not self._waiting or self.paused or self.pending > self._limits.pending_soft // 2:
            return
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
