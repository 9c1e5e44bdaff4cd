"""Into which ranges a hot segment is divided. Pure.

    spread known, and equal parts would be uneven ──▶ cuts between cells, by measured load
    otherwise                                     ──▶ parts of equal width

Measured parts are as even as cuts between cells can make them: of all ways to cut, the sum of the
squares of their loads is the least. A cell with a hot key therefore becomes a part of its own,
wherever it is, and the load around it is divided as if the key were not there. There are no more
parts than keep each one, but for such a cell, below the load that is asked for.

Equal parts are preferred as long as the sample does not prove them uneven, because a sample of some
hundred events errs by several per cent.

Each measured bound is a multiple of the smallest width that a segment may have, and of the greatest
power of two that fits. Such numbers are exact as floats, so that all parts cover the segment's keys
exactly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.spread import Spread

UNEVEN = 0.15
"""Equal parts are even enough while the heaviest one is no further above the mean."""
ERRORS = 1.5
"""The same beyond so many standard errors of the sample."""


@dataclass(frozen=True, slots=True)
class Division:
    """Ranges that touch and cover a segment's keys exactly. `is_measured`: cut by measured load."""

    ranges: tuple[KeyRange, ...]
    is_measured: bool = False


def divided(
    keys: KeyRange, count: int, spread: Spread | None, *, filled: float, halvings_max: float
) -> Division | None:
    """At most `count` parts; None: the keys are too few for a division.

    `filled`: the share of the load that a part should not exceed. No part is narrower than
    `halvings_max` halvings of the key space.
    """
    if count < 2:
        return None
    if spread is not None and not _are_even(keys, count, spread):
        ranges = measured_parts(spread, count, filled)
        if ranges:
            return Division(ranges, is_measured=True)
    if (keys.end - keys.start) / count < 2**-halvings_max:
        return None
    return Division(equal_parts(keys, count))


def equal_parts(keys: KeyRange, count: int) -> tuple[KeyRange, ...]:
    """`count` ranges of the same width; the first and the last bound are those of `keys`."""
    start, end = keys.start, keys.end
    inner = [start + (end - start) * number / count for number in range(1, count)]
    return tuple(KeyRange(low, high) for low, high in pairwise((start, *inner, end)))


def _are_even(keys: KeyRange, count: int, spread: Spread) -> bool:
    heaviest = max(spread.within(part, count) for part in equal_parts(keys, count))
    return heaviest * count <= 1 + UNEVEN + ERRORS * math.sqrt(count / spread.count)


def measured_parts(spread: Spread, count: int, filled: float) -> tuple[KeyRange, ...]:
    """From 2 to `count` parts of the most even load; none: all keyed load is in one cell."""
    cuts, loads = _cuts(spread)
    if not cuts:
        return ()
    needed = _needed(loads, filled - spread.keyless / count)
    begins = _most_even(loads, min(count, len(loads), max(2, needed)))
    inner = [cuts[begin - 1] / 2**spread.bits for begin in begins]
    bounds = (spread.keys.start, *inner, spread.keys.end)
    return tuple(KeyRange(low, high) for low, high in pairwise(bounds))


def _cuts(spread: Spread) -> tuple[list[int], list[float]]:
    """Where the keys may be cut, in cells, and the load before, between and behind the cuts.

    No cut is closer to a bound of the segment than a cell is wide.
    """
    scale = 2**spread.bits
    low, high = math.ceil(spread.keys.start * scale) + 1, math.floor(spread.keys.end * scale) - 1
    cuts: list[int] = []
    loads = [spread.shares[0]]
    for (cell, following), share in zip(pairwise(spread.cells), spread.shares[1:], strict=True):
        first, last = max(cell + 1, low), min(following, high)
        if first > last:
            loads[-1] += share
            continue
        cuts.append(_roundest(first, first + (last - first) // 4))
        loads.append(share)
    return cuts, loads


def _roundest(low: int, high: int) -> int:
    """The number from `low` to `high` that the greatest power of two divides."""
    shift = (low ^ high).bit_length()
    while ((high >> shift) << shift) < low:
        shift -= 1
    return (high >> shift) << shift


def _needed(loads: Sequence[float], filled: float) -> int:
    """The fewest runs of neighbours that stay within `filled`, or are a single load above it."""
    count, together = 1, 0.0
    for load in loads:
        if together and together + load > filled:
            count, together = count + 1, 0.0
        together += load
    return count


def _most_even(loads: Sequence[float], count: int) -> list[int]:
    """Where the second of `count` runs of neighbours begins, the third, and so on: those with the
    least sum of squares. Takes `count` times the square of the number of loads."""
    sums = list(accumulate(loads, initial=0.0))
    best = [each**2 for each in sums]
    begins: list[list[int]] = []
    for number in range(1, count):
        found = [
            min(
                (best[begin] + (sums[end] - sums[begin]) ** 2, begin)
                for begin in range(number, end)
            )
            for end in range(number + 1, len(sums))
        ]
        best = [math.inf] * (number + 1) + [cost for cost, _ in found]
        begins.append([0] * (number + 1) + [begin for _, begin in found])
    chosen, end = [], len(loads)
    for of in reversed(begins):
        end = of[end]
        chosen.append(end)
    return chosen[::-1]
