"""Percentiles of any number of times in a few KiB, each at most 1/128 too high.

A time of 256 µs or more falls into one of 128 equal buckets between two powers of two, a shorter
one into a bucket of one microsecond. The count and the maximum are exact.
"""

from collections.abc import Mapping
from math import ceil

SUB_BITS = 7
"""2^7 buckets between two powers of two."""
TIME_US_MAX = (1 << 36) - 1
"""19 hours; a longer time falls into the last bucket."""
PERCENTS: Mapping[str, float] = {"p50": 50, "p90": 90, "p99": 99, "p99_9": 99.9}


def bucket_of(time_us: int) -> int:
    """The number of the bucket that a time falls into; grows with the time."""
    shift = max(0, time_us.bit_length() - SUB_BITS - 1)
    return (shift << SUB_BITS) + (time_us >> shift)


def highest_in(bucket: int) -> int:
    """The longest time of a bucket, in microseconds."""
    shift = max(0, (bucket >> SUB_BITS) - 1)
    return ((bucket - (shift << SUB_BITS) + 1) << shift) - 1


class Histogram:
    """Counts of times by bucket."""

    def __init__(self) -> None:
        self._counts = [0] * (bucket_of(TIME_US_MAX) + 1)
        self._max_us = 0
        self.count = 0

    def record(self, seconds: float, count: int = 1) -> None:
        """Add a time, as often as `count`. A negative one, of clocks that disagree, counts as 0."""
        time_us = max(0, min(TIME_US_MAX, round(seconds * 1_000_000)))
        self._counts[bucket_of(time_us)] += count
        self._max_us = max(self._max_us, time_us)
        self.count += count

    def record_run(self, first_s: float, last_s: float, count: int) -> None:
        """Add the times of `count` events that end together and began one after the other.

        Half of them count as the first one's time, the others as the last one's.
        """
        self.record(first_s, count - count // 2)
        if count > 1:
            self.record(last_s, count // 2)

    @property
    def max_ms(self) -> float:
        """The longest time; 0 without any."""
        return self._max_us / 1000

    def percentile_ms(self, percent: float) -> float:
        """The time that `percent` of all do not exceed (nearest rank); 0 without any."""
        rank, below = ceil(self.count * percent / 100), 0
        for bucket, count in enumerate(self._counts):
            below += count
            if below >= rank > 0:
                return min(highest_in(bucket), self._max_us) / 1000
        return 0.0

    def summary_ms(self) -> dict[str, float] | None:
        """The usual percentiles and the maximum by name; None without any time."""
        if not self.count:
            return None
        found = {name: self.percentile_ms(percent) for name, percent in PERCENTS.items()}
        return {**found, "max": self.max_ms}
