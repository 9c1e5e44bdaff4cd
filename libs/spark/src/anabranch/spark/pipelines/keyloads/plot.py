"""Draws the load over the key space, with the segments and their new bounds, to a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.common.plot_style import BLUE, ORANGE, QUIET, THOUSANDS, drawing, entitle
from anabranch.spark.pipelines.keyloads.shares import Cell, Divided

BARS = 256
"""Cells are drawn together, so that each bar is wide enough to be seen."""
_KB = 1000
Loads = np.ndarray[Any, np.dtype[np.float64]]


def plot_load(
    stream: str,
    cells: Sequence[Cell],
    found: Sequence[Divided],
    path: Path,
    *,
    bits: int,
    by_events: bool,
) -> Path:
    """A bar per range of keys, a line per bound of a segment, a dashed one per new bound."""
    bars = summed(cells, bits, by_events=by_events)
    with drawing(path, 4.6) as figure:
        axes = figure.add_subplot()
        width = 1 / len(bars)
        at = np.arange(len(bars)) * width
        axes.bar(at, bars, width, align="edge", color=BLUE, linewidth=0)
        for each in found:
            axes.axvline(each.key_start, color=QUIET, linewidth=0.8)
            for part in each.parts[1:]:
                axes.axvline(part.start, color=ORANGE, linewidth=1.4, linestyle="--")
        axes.axvline(1, color=QUIET, linewidth=0.8)
        entitle(
            axes,
            f"Load of {stream} over the key space",
            f"A bar per 1/{len(bars)} of the key space. Grey: bounds of the current segments. "
            "Dashed: bounds that give\neach part of a segment an equal share.",
        )
        axes.set_xlim(0, 1)
        axes.set_xlabel("Place in the key space")
        axes.set_ylabel("Events" if by_events else "Bytes of events (kB)")
        axes.yaxis.set_major_formatter(THOUSANDS)
    return path


def summed(
    cells: Sequence[Cell], bits: int, *, by_events: bool
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """The load of each bar: in events, or in kB."""
    count = min(BARS, 2**bits)
    numbers = [cell.number * count >> bits for cell in cells]
    loads = [cell.events if by_events else cell.bytes / _KB for cell in cells]
    return np.bincount(numbers, loads, minlength=count).astype(np.float64)
