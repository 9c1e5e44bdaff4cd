"""The pause before the next attempt: doubling, bounded, and spread.

The upper bound of a pause doubles with each failure in a row up to `longest_s`. The pause is drawn
from its upper half ("equal jitter"), so that callers stopped by one fault do not all come back at
the same moment, and a caller never retries at once. Pure: the caller counts
its failures, draws, and sleeps.
"""

from dataclasses import dataclass

_DOUBLINGS_MAX = 40


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between `first_s / 2` and `longest_s` seconds."""

    first_s: float
    longest_s: float

    def delay_s(self, failures: int, draw: float) -> float:
        """Seconds to pause after the `failures`-th failure in a row, from 1; `draw` in [0, 1)."""
        assert failures >= 1, "the backoff has no attempt to pause after"
        ceiling_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _DOUBLINGS_MAX))
        return ceiling_s * (0.5 + draw / 2)
