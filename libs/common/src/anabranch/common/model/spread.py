"""How the load of one segment is spread over its keys. Pure.

A *cell* is a range of the key space that no cut divides. Events without a key are written to any
segment: no cut moves them, and each part of a split gets the same share of them.
"""

import math
from dataclasses import dataclass

from anabranch.common.model.key_range import KeyRange

SINGLE_SHARE = 1 / 32
"""A larger share is that of one cell; a smaller one may spread over the cells since the one
before."""


@dataclass(frozen=True, slots=True)
class HotKey:
    """The place of a routing key, from 0 to 1, and the share of the segment's load in its cell."""

    position: float
    share: float


@dataclass(frozen=True, slots=True)
class Spread:
    """The shares of one segment's load.

    keys      of the segment
    bits      a cell is 2^-bits wide
    cells     the numbers of cells that have load, ascending
    shares    their shares
    keyless   the share of events without a key
    heaviest  the routing key in the cell with the greatest share
    count     the sampled events

    All shares and `keyless` together are 1.
    """

    keys: KeyRange
    bits: int
    cells: tuple[int, ...]
    shares: tuple[float, ...]
    keyless: float
    heaviest: HotKey
    count: int

    def stays(self, count: int) -> float:
        """The share that one of `count` parts keeps at least, however the keys are cut."""
        return max(self.shares) + self.keyless / count

    def within(self, part: KeyRange, count: int) -> float:
        """The share that this part gets, as one of `count`."""
        low, high = part.start * 2**self.bits, part.end * 2**self.bits
        found = self.keyless / count
        before = math.floor(self.keys.start * 2**self.bits)
        for cell, share in zip(self.cells, self.shares, strict=True):
            since = cell if share > SINGLE_SHARE else before
            inside = min(high, cell + 1) - max(low, since)
            found += share * max(0.0, inside) / (cell + 1 - since)
            before = cell + 1
        return found
