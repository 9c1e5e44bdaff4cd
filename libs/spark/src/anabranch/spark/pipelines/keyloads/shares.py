"""Measured cells of the key space → even parts of each segment. Pure.

The rule is that of auto-scaling when it divides a segment by a measured spread
(`anabranch.common.model.division`), except that the measure here is of all events, not of a sample,
so that equal widths are never preferred.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.common.model.division import measured_parts
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.spread import HotKey, Spread


@dataclass(frozen=True, slots=True)
class Segment:
    """A current segment of the stream."""

    segment_id: int
    name: str
    keys: KeyRange


@dataclass(frozen=True, slots=True)
class Cell:
    """The load of a cell inside one segment, by the number of the cell, and its heaviest key."""

    number: int
    events: int
    bytes: int
    top_position: float


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a segment, [start, end) of the key space, and its share of the segment's load."""

    start: float
    end: float
    share: float


@dataclass(frozen=True, slots=True)
class Divided:
    """A current segment, its load, and the parts that divide it evenly; no parts: it stays."""

    segment: str
    segment_id: int
    key_start: float
    key_end: float
    events: int
    bytes: int
    share: float
    parts: tuple[Part, ...]


def spread_of(
    keys: KeyRange, cells: Sequence[Cell], keyless: float, bits: int, *, by_events: bool
) -> Spread | None:
    """The spread of a segment's load; None without a key. `keyless`: the load without one, which
    all parts share, in the unit of the measure."""
    loads = {cell.number: cell.events if by_events else cell.bytes for cell in cells}
    whole = sum(loads.values()) + keyless
    if not any(loads.values()):
        return None
    ordered = sorted(cells, key=lambda cell: cell.number)
    heaviest = max(ordered, key=lambda cell: loads[cell.number])
    return Spread(
        keys=keys,
        bits=bits,
        cells=tuple(cell.number for cell in ordered),
        shares=tuple(loads[cell.number] / whole for cell in ordered),
        keyless=keyless / whole,
        heaviest=HotKey(heaviest.top_position, loads[heaviest.number] / whole),
        count=sum(cell.events for cell in cells),
    )


def parts_of(spread: Spread | None, count: int) -> tuple[Part, ...]:
    """Up to `count` parts of the most even load; none if a single cell has all keys."""
    if spread is None or count < 2:
        return ()
    ranges = measured_parts(spread, count, 0.0)
    return tuple(Part(each.start, each.end, load_in(spread, each, len(ranges))) for each in ranges)


def load_in(spread: Spread, keys: KeyRange, count: int) -> float:
    """The share of the cells in one of `count` parts, whose bounds are bounds of cells or of the
    segment."""
    low, high = math.floor(keys.start * 2**spread.bits), math.ceil(keys.end * 2**spread.bits)
    inside = (
        share for cell, share in zip(spread.cells, spread.shares, strict=True) if low <= cell < high
    )
    return sum(inside) + spread.keyless / count


def divided(
    segments: Sequence[Segment],
    cells: Mapping[int, Sequence[Cell]],
    keyless: tuple[int, int],
    *,
    bits: int,
    count: int,
    by_events: bool,
) -> tuple[Divided, ...]:
    """Each segment with its load and its parts. `cells`: by segment id. `keyless`: events and bytes
    without a key, which the segments share evenly."""
    events = sum(cell.events for each in cells.values() for cell in each) + keyless[0]
    size = sum(cell.bytes for each in cells.values() for cell in each) + keyless[1]
    whole = max(1, events if by_events else size)
    shared = keyless[0 if by_events else 1] / len(segments)
    found = []
    for segment in segments:
        own = cells.get(segment.segment_id, ())
        spread = spread_of(segment.keys, own, shared, bits, by_events=by_events)
        load = sum(cell.events if by_events else cell.bytes for cell in own) + shared
        found.append(
            Divided(
                segment=segment.name,
                segment_id=segment.segment_id,
                key_start=segment.keys.start,
                key_end=segment.keys.end,
                events=sum(cell.events for cell in own),
                bytes=sum(cell.bytes for cell in own),
                share=load / whole,
                parts=parts_of(spread, count),
            )
        )
    return tuple(found)


def command(stream: str, epoch: int | None, found: Sequence[Divided]) -> str:
    """The command line that scales the stream; empty: no segment is divided."""
    split = [each for each in found if each.parts]
    if not split:
        return ""
    sealed = ",".join(str(each.segment_id) for each in split)
    ranges = ",".join(
        f"{plain(part.start)}-{plain(part.end)}" for each in split for part in each.parts
    )
    at = "" if epoch is None else f" --epoch {epoch}"
    return f"anabranch stream scale {stream} --seal {sealed} --ranges {ranges}{at}"


def plain(bound: float) -> str:
    """A bound as the command reads it: without an exponent, and exact."""
    return np.format_float_positional(bound, trim="-")
