"""How the load of one segment is spread over its keys, by the sample in a load report. Pure.

    KeySketch ──inside the segment, in the unit of the policy──▶ cells and their shares of the load

A *cell* is a range of the key space of the smallest width that a segment may have, so no split
divides one. A share above a 32nd lies in one cell, and usually is one routing key; smaller ones
spread over the cells since the one before. Events without a key are written to any segment: no cut
moves them, and each part of a split gets the same share of them.

Without enough events whose keys are known, nothing is known of the spread: events in compressed
blocks, a store of an older release, or a segment that has been written for some seconds only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from anabranch.common.contracts.load import KeySketch
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.stream import ScalingType

POSITION_BITS = 32
"""Of a position in a sketch."""
SAMPLED_MIN = 64
"""Fewer events say nothing of the spread."""
SINGLE_SHARE = 1 / 32
"""A larger share is that of one cell."""


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


def spread_of(
    sketch: KeySketch | None, keys: KeyRange, measure: ScalingType, halvings_max: float
) -> Spread | None:
    """How the load of a segment with these keys is spread; None: it is not known.

    A sketch that contradicts itself counts as none, and positions outside the keys are not counted.
    """
    if sketch is None or not _is_sound(sketch):
        return None
    by_events = measure is ScalingType.EVENT_RATE
    low, high = (math.floor(bound * 2**POSITION_BITS) for bound in (keys.start, keys.end))
    bits = max(1, min(POSITION_BITS, math.floor(halvings_max)))
    loads: dict[int, int] = {}
    tops: dict[int, tuple[int, int]] = {}
    """Of each cell, the load of the position that has most, and that position."""
    count = sketch.keyless_events
    for position, events, size in zip(sketch.positions, sketch.events, sketch.sizes, strict=True):
        if low <= position < max(high, low + 1):
            count += events
            cell, load = position >> (POSITION_BITS - bits), events if by_events else size
            tops[cell] = max(tops.get(cell, (0, 0)), (load, position))
            loads[cell] = loads.get(cell, 0) + load
    keyless = sketch.keyless_events if by_events else sketch.keyless_size
    whole = sum(loads.values()) + keyless
    if count < SAMPLED_MIN or sketch.unread_events > count or not any(loads.values()):
        return None
    heaviest = max(loads, key=loads.__getitem__)
    return Spread(
        keys=keys,
        bits=bits,
        cells=tuple(loads),
        shares=tuple(load / whole for load in loads.values()),
        keyless=keyless / whole,
        heaviest=HotKey(tops[heaviest][1] / 2**POSITION_BITS, loads[heaviest] / whole),
        count=count,
    )


def _is_sound(sketch: KeySketch) -> bool:
    """Whether it has what a store tells: nobody but the store checks it."""
    parallel: Sequence[Sequence[int]] = (sketch.positions, sketch.events, sketch.sizes)
    others = (sketch.keyless_events, sketch.keyless_size, sketch.unread_events)
    return (
        len({len(each) for each in parallel}) == 1
        and all(low < high for low, high in pairwise(sketch.positions))
        and min((*sketch.positions, *sketch.events, *sketch.sizes, *others)) >= 0
    )
