"""How fast a step of a demo advances, and how long it still takes. Pure: times are arguments.

The rate is the one of the last seconds, so that it follows a step that becomes slower or faster.
"""

from collections import deque

WINDOW_S = 5.0
"""The rate is that of so many seconds."""
SPACING_S = 0.25
"""The least time between two counts that are kept, which bounds their number."""
MEASURED_S_MIN = 0.5
"""A rate over less time says little."""
MINUTE_S = 60


class Pace:
    """Owns the counts of the last seconds. `total` None: it is not known how much is to do."""

    def __init__(self, begun_s: float, total: int | None = None) -> None:
        self.begun_s = begun_s
        self.total = total
        self.done = 0
        self._counts = deque([(begun_s, 0)])
        self._now_s = begun_s

    def advance(self, now_s: float, done: int) -> None:
        """`done` of the total are done at `now_s`, which never decreases."""
        self.done, self._now_s = done, now_s
        if now_s - self._counts[-1][0] >= SPACING_S:
            self._counts.append((now_s, done))
        while len(self._counts) > 1 and now_s - self._counts[1][0] >= WINDOW_S:
            self._counts.popleft()

    def elapsed_s(self, now_s: float) -> float:
        return now_s - self.begun_s

    @property
    def rate(self) -> float | None:
        """Per second, at the last advance; None if too little time has passed."""
        since_s, before = self._counts[0]
        passed_s = self._now_s - since_s
        return (self.done - before) / passed_s if passed_s >= MEASURED_S_MIN else None

    @property
    def left_s(self) -> float | None:
        """The remaining seconds at this rate; None if total or rate is not known."""
        rate = self.rate
        if self.total is None or not rate or rate < 0:
            return None
        return max(0, self.total - self.done) / rate

    def mean_rate(self, now_s: float) -> float | None:
        """Per second since the step began; None if too little time has passed."""
        passed_s = self.elapsed_s(now_s)
        return self.done / passed_s if passed_s >= MEASURED_S_MIN else None


def seconds_text(seconds: float) -> str:
    """``7 s``, ``2 min 5 s``: whole seconds."""
    whole = round(seconds)
    minutes, rest = divmod(whole, MINUTE_S)
    return f"{minutes} min {rest} s" if minutes else f"{whole} s"


def clock_text(seconds: float) -> str:
    """``0:07``, ``2:05``: minutes and seconds."""
    minutes, rest = divmod(round(seconds), MINUTE_S)
    return f"{minutes}:{rest:02}"


def amount_text(done: int, total: int | None) -> str:
    """``3/8``, or ``3`` of an unknown total; empty before the first one."""
    if total is None:
        return f"{done:,}" if done else ""
    return f"{done:,}/{total:,}"


def rate_text(rate: float | None) -> str:
    """``17,400/s``; empty: not known, or too slow to say anything."""
    return "" if rate is None or rate < 1 else f"{rate:,.0f}/s"
