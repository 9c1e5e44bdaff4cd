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
from itertools import pairwise

from anabranch.common.contracts.load import KeySketch
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.spread import HotKey, Spread
from anabranch.common.model.stream import ScalingType

POSITION_BITS = 32
"""Of a position in a sketch."""
SAMPLED_MIN = 64
"""Fewer events say nothing of the spread."""


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
