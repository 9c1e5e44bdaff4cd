"""The arithmetic of the benchmark: percentiles, medians of rounds, the order of rounds. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """What several rounds say of one figure."""

    median: float
    min: float
    max: float


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed (nearest rank).

    `values` need not be sorted. `percent` in (0, 100]; no values is a programmer's error.
    """
    assert values, "nothing was measured"
    assert 0 < percent <= 100
    return sorted(values)[ceil(len(values) * percent / 100) - 1]


def spread(values: Sequence[float]) -> Spread:
    """Median, least and greatest of one figure over the rounds."""
    assert values, "no round was run"
    return Spread(median(values), min(values), max(values))


def rotated(items: Sequence[T], round_index: int) -> list[T]:
    """The order of one round: every item comes first, second … last equally often."""
    start = round_index % len(items) if items else 0
    return [*items[start:], *items[:start]]
