"""How long to pause between attempts, and when to stop trying.

Pure arithmetic over a clock reading and a random draw; the caller sleeps.
"""

from dataclasses import dataclass, field

from anabranch.client.settings import BackoffSettings
from anabranch.common.runtime import backoff
from anabranch.common.runtime.ids import Rng


@dataclass(slots=True)
class Backoff:
    """Counts the failures since the last progress."""

    settings: BackoffSettings
    rng: Rng
    retry_timeout_s: float
    failures: int = field(default=0, init=False)
    _failing_since: float = field(default=0.0, init=False)

    def progress(self) -> None:
        """Something worked: the next failure starts a new series."""
        self.failures = 0

    def failed(self, now_s: float) -> float | None:
        """Seconds to pause before the next attempt; None when the retry time is used up."""
        if self.failures == 0:
            self._failing_since = now_s
        left_s = self.retry_timeout_s - (now_s - self._failing_since)
        if left_s <= 0:
            return None
        self.failures += 1
        pauses = backoff.Backoff(self.settings.first_s, self.settings.longest_s)
        return min(left_s, pauses.delay_s(self.failures, self.rng.random()))
