"""Half-open ranges of the key space [0, 1)."""

import itertools
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """Keys whose routing position p satisfies ``start <= p < end``."""

    start: float
    end: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.start < self.end <= 1.0:
            raise ValueError(f"key range [{self.start}, {self.end}) is not within [0, 1)")

    def __contains__(self, position: float) -> bool:
        return self.start <= position < self.end


def even_ranges(count: int) -> list[KeyRange]:
    """`count` adjacent ranges covering [0, 1) exactly; the last one ends at 1.0 by definition."""
    assert count > 0
    bounds = [index / count for index in range(count)] + [1.0]
    return [KeyRange(low, high) for low, high in itertools.pairwise(bounds)]
