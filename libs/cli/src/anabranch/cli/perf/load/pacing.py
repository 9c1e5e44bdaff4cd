"""An open loop: event *i* is due *i* / rate after the start, however slow the system is.

Latencies that count from that moment include the wait of events that could not be sent in time.
Times are seconds of the caller's clock. Pure.
"""

TICK_S = 0.001
"""How often a load looks for events that are due."""


class Pace:
    """A rate and its start."""

    def __init__(self, rate_per_s: float, start: float) -> None:
        self.rate_per_s = rate_per_s
        self._start = start

    def due(self, now: float) -> int:
        """The number of events that are due by now; the first one is due at the start."""
        return int((now - self._start) * self.rate_per_s) + 1

    def at(self, index: int) -> float:
        """The time at which an event is due."""
        return self._start + index / self.rate_per_s

    def late(self, index: int, now: float) -> float:
        """The seconds since an event was due."""
        return now - self._start - index / self.rate_per_s
