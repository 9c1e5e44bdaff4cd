"""The time of a round by the event store's clock, if it can be believed.

Controllers whose clocks differ agree on the age of data by the event store's clock. A round reads
that time once and counts on from there by the monotonic clock. If more or less time has passed than
by the monotonic clock since the last round, somebody has set a clock, and the round must do
nothing.

Owns: when the round began.
"""

from collections.abc import Callable

from anabranch.common.runtime.clock import Clock

CLOCK_SET_MS = 5_000
"""Clocks that differ by more since the last round were set meanwhile."""

Now = Callable[[], int | None]
"""The time by the event store's clock in Unix ms; None while that is not known."""


class RoundClock:
    """The time of the rounds of one job."""

    def __init__(self, store_ms: Now, clock: Clock) -> None:
        self._store_ms = store_ms
        self._clock = clock
        self._anchor: tuple[int, float] | None = None
        """When the round began: the event store's time, and the monotonic clock's."""

    def begin(self) -> bool:
        """Note when the round begins; returns whether that time can be believed."""
        now_ms, now_s = self._store_ms(), self._clock.monotonic()
        before, self._anchor = self._anchor, None if now_ms is None else (now_ms, now_s)
        if now_ms is None or before is None:
            return now_ms is not None
        passed_ms = (now_s - before[1]) * 1000
        return abs(now_ms - before[0] - passed_ms) <= CLOCK_SET_MS

    def now_ms(self) -> int:
        """The time within a round that has begun."""
        assert self._anchor is not None, "a look is part of a round"
        began_ms, began_s = self._anchor
        return began_ms + int((self._clock.monotonic() - began_s) * 1000)
