"""How much of a backlog a micro-batch takes: even shares of a budget. Pure.

The share that one stream or segment does not want goes to the others, so a batch is full as long as
there is enough anywhere, and a short backlog is taken whole. A budget of at least one byte gives at
least one byte to the largest backlog; every batch makes progress.
"""

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def fill(wanted: Mapping[K, int], budget: int) -> dict[K, int]:
    """Divide at most `budget` among the keys, none more than it wants. Omits keys that get none.

    ::

        fill({"a": 10, "b": 100, "c": 100}, 90)  # {"a": 10, "b": 40, "c": 40}
    """
    shares: dict[K, int] = {}
    left, rest = budget, len(wanted)
    for key in sorted(wanted, key=lambda each: wanted[each]):
        share = min(wanted[key], left // rest)
        if share > 0:
            shares[key] = share
        left -= share
        rest -= 1
    return shares


def bytes_of_rows(rows: int, counted: Mapping[K, tuple[int, int]]) -> int:
    """About the size of so many events, ≥ 1; `counted`: (bytes, events) of samples."""
    size = sum(each for each, _ in counted.values())
    events = sum(each for _, each in counted.values())
    return max(1, rows * size // events) if events else max(1, size)
