"""The judgement on one row, from its pairs of measurements. Pure.

A row is worse if the median of its pairs is more than 3 % lower and six of seven pairs agree that
it is lower. Both are needed: the median alone moves with the noise of the machine, and many pairs
can agree on a difference too small to matter. Of seven pairs without any difference, six agree by
chance in one row of sixteen; only the rows of these that also move by 3 % are called worse wrongly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from statistics import median
from typing import Any, NamedTuple

LOWER_PERCENT_MAX = 3.0
_AGREEING, _OF = 6, 7


class Verdict(StrEnum):
    SAME = "same"
    WORSE = "WORSE"
    BETTER = "better"
    LOST = "EVENTS LOST"
    """The new checkout did not hold exactly the events that were written to it."""
    NEW = "new row"
    """The old checkout has no such row, so there is nothing to judge."""
    UNDECIDED = "UNDECIDED"
    """Fewer pairs were measured than were asked for."""


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: Verdict
    change_percent: float | None
    """The median of the pairs' changes in speed; None without a pair."""
    lower: int
    """In how many pairs the new checkout was slower."""
    pairs: int


class RowKey(NamedTuple):
    """Which row of the benchmark."""

    workload: str
    event_bytes: int
    settings: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of one checkout in one pair."""

    key: RowKey
    figure: str
    """The judged figure: ``events/s``, ``p50 ms`` or ``ack p50 ms``."""
    value: float | None
    """None if the measurement failed."""
    verified: bool
    steal_percent: float
    error: str = ""

    @property
    def speed(self) -> float | None:
        """Greater is better; None if there is nothing to compare."""
        if self.value is None or self.value <= 0 or not self.verified:
            return None
        return self.value if self.figure == "events/s" else 1 / self.value


def measured(line: Mapping[str, Any]) -> Measured:
    """Parse a line that a side wrote. An open loop is judged by its latency, since its rate is
    set; only open loops count the latency of acknowledgements apart."""
    if line.get("ack_p50_ms") is None:
        figure, value = "events/s", line.get("events_per_s")
    elif line.get("p50_ms") is None:
        figure, value = "ack p50 ms", line["ack_p50_ms"]
    else:
        figure, value = "p50 ms", line["p50_ms"]
    return Measured(
        RowKey(line["workload"], line["event_bytes"], line["settings"]),
        figure,
        value,
        line.get("verified", True),
        line.get("steal_percent", 0.0),
        line.get("error", ""),
    )


def pairs_needed(pairs: int) -> int:
    """How many of so many pairs must agree: six of seven, or the same share rounded up."""
    return ceil(pairs * _AGREEING / _OF)


def judge(speeds: Sequence[tuple[float, float]], pairs_asked: int) -> Judgement:
    """`speeds`: (old, new) of each pair, greater is better and greater than zero."""
    changes = [100 * (new / old - 1) for old, new in speeds]
    lower, higher = sum(new < old for old, new in speeds), sum(new > old for old, new in speeds)
    change = round(median(changes), 6) if changes else None
    needed = pairs_needed(len(speeds))
    if change is None or len(speeds) < pairs_asked:
        verdict = Verdict.UNDECIDED
    elif change < -LOWER_PERCENT_MAX and lower >= needed:
        verdict = Verdict.WORSE
    elif change > LOWER_PERCENT_MAX and higher >= needed:
        verdict = Verdict.BETTER
    else:
        verdict = Verdict.SAME
    return Judgement(verdict, change, lower, len(speeds))
