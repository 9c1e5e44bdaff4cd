"""Draws a stream's segments over time and key space, with the damages, to a file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Normalize
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.patches import Rectangle

from anabranch.common.plot_style import ORANGE, SHADES, drawing, entitle
from anabranch.spark.pipelines.auditing.findings import Finding
from anabranch.spark.pipelines.auditing.report import SegmentSummary, StreamSummary

_MS_PER_DAY = 86_400_000
_WIDTH_MIN = 1 / 400
"""The least width of a segment, as a share of the whole time."""
_MB = 1_000_000


def plot_segments(stream: StreamSummary, damages: Sequence[Finding], path: Path) -> Path | None:
    """A rectangle per segment with blocks, a cross per damage → `path`; None without blocks."""
    drawn = [each for each in stream.segments if each.first_ms is not None]
    if not drawn:
        return None
    first = min(each.first_ms or 0 for each in drawn)
    last = max(each.last_ms or 0 for each in drawn)
    width_min = max((last - first) / _MS_PER_DAY * _WIDTH_MIN, 1 / _MS_PER_DAY)
    with drawing(path, 4.9) as figure:
        axes = figure.add_subplot()
        sizes = np.array([each.stored_bytes / _MB for each in drawn])
        shades = ScalarMappable(Normalize(0, float(sizes.max())), SHADES)
        boxes = [_box(each, width_min) for each in drawn]
        colours = shades.to_rgba(sizes)
        axes.add_collection(
            PatchCollection(boxes, facecolor=colours, edgecolor="white", linewidth=0.8)
        )
        entitle(
            axes,
            f"Segments of {stream.stream} in tier 2",
            "A box per segment: the keys that it takes, and the time from its first to its last "
            "block." + (" A cross marks a damage." if damages else ""),
        )
        axes.set_xlim(_day(first) - width_min, _day(last) + 2 * width_min)
        axes.set_ylim(0, 1)
        axes.set_xlabel("Time of the block (UTC)")
        axes.set_ylabel("Place in the key space")
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(formatter)
        axes.grid(visible=False)
        _mark(axes, {each.segment: each for each in drawn}, damages)
        bar = figure.colorbar(
            shades, ax=axes, label="Bytes in the segment (MB)", pad=0.015, aspect=28
        )
        bar.outline.set_visible(False)
    return path


def _box(segment: SegmentSummary, width_min: float) -> Rectangle:
    start, end = _day(segment.first_ms or 0), _day(segment.last_ms or 0)
    height = segment.key_end - segment.key_start
    return Rectangle((start, segment.key_start), max(end - start, width_min), height)


def _mark(axes: Axes, drawn: dict[str, SegmentSummary], damages: Sequence[Finding]) -> None:
    """A cross per damage with a place, at the time that its offset suggests."""
    places = []
    for damage in damages:
        segment = drawn.get(damage.segment)
        if segment is not None and damage.offset is not None:
            share = (damage.offset - segment.start_offset) / max(segment.stored_bytes, 1)
            start, end = _day(segment.first_ms or 0), _day(segment.last_ms or 0)
            middle = (segment.key_start + segment.key_end) / 2
            places.append((start + share * (end - start), middle))
    if places:
        days, keys = zip(*places, strict=True)
        axes.scatter(days, keys, s=90, marker="X", color=ORANGE, zorder=3)


def _day(unix_ms: int) -> float:
    """The time as Matplotlib counts it: days since 1970."""
    return unix_ms / _MS_PER_DAY
