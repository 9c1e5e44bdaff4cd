"""The plots of the demo: the epoch map below the rate of the writer, and event time.

Importing this module imports matplotlib.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import FuncFormatter, PercentFormatter

from anabranch.cli.demo.by_load.epoch_map import Cell
from anabranch.cli.demo.by_load.event_time import Moment
from anabranch.common.contracts.stream_queries import ScalingEvent
from anabranch.common.plot_style import (
    BLUE,
    ORANGE,
    QUIET,
    SHADES,
    THOUSANDS,
    UNKNOWN,
    drawing,
    entitle,
)

Colour = tuple[float, float, float, float]

EPOCH_MAP = "epoch_map.png"
EVENT_TIME = "event_time.png"
_DAY_S = 86_400
_MONTHS = FuncFormatter(
    lambda days, _: datetime.fromtimestamp(days * _DAY_S, UTC).strftime("%b %Y")
)
_COUNT_WIDTH = 0.02
"""The width of a number above the map, as a share of the axis."""
_SECONDS = "Time since the stream was created (s)"


def plot_epoch_map(
    cells: Sequence[Cell],
    epochs: Sequence[ScalingEvent],
    written: Sequence[tuple[int, int]],
    *,
    target: int,
    out: Path,
) -> Path:
    """Draw the map into `out`; returns its path.

    `written`: (Unix ms, number of events written by then), ascending. Colours show the rate of each
    segment in shares of the target; white lines are the borders of segments.
    """
    path, begun_ms = out / EPOCH_MAP, epochs[0].created_ms
    end_s = max((cell.to_ms for cell in cells), default=begun_ms + 1000) - begun_ms
    with drawing(path, 6.6) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
        above.set_xlim(0, end_s / 1000)
        _draw_rate(above, written, begun_ms, target)
        highest = max(2.0, *((cell.rate or 0) / target for cell in cells))
        shades = mpl.colormaps[SHADES]
        _draw_cells(below, cells, begun_ms, lambda rate: shades(rate / target / highest))
        _draw_borders(below, cells, epochs, begun_ms)
        _count_segments(below, epochs, begun_ms, end_s / 1000)
        bar = figure.colorbar(
            ScalarMappable(Normalize(0.0, highest), shades), ax=below, pad=0.015, aspect=22,
            label="Rate of the segment\n(share of the target)",
            format=PercentFormatter(xmax=1, decimals=0),
        )  # fmt: skip
        bar.outline.set_visible(False)
        figure.align_ylabels()
    return path


def _draw_rate(axes: Axes, written: Sequence[tuple[int, int]], begun_ms: int, target: int) -> None:
    seconds = [(at - begun_ms) / 1000 for at, _ in written]
    rates = [
        (after[1] - before[1]) * 1000 / max(1, after[0] - before[0])
        for before, after in pairwise(written)
    ]
    axes.step(seconds[1:], rates, where="pre", color=BLUE)
    axes.axhline(target, linestyle="--", linewidth=1.2, color=ORANGE)
    axes.annotate(
        f"target of one segment: {target:,} events/s", (1, target), (-4, 3),
        xycoords=axes.get_yaxis_transform(), textcoords="offset points", color=ORANGE,
        ha="right", va="bottom",
    )  # fmt: skip
    axes.set_ylim(0, max([target, *rates]) * 1.1)
    axes.set_ylabel("Rate (events/s)")
    axes.yaxis.set_major_formatter(THOUSANDS)
    axes.tick_params(labelbottom=True)
    entitle(
        axes,
        "The load of the stream, and the segments that it scales to by itself",
        "Rate at which the demo writes.",
    )


def _draw_cells(
    axes: Axes, cells: Sequence[Cell], begun_ms: int, colour_of: Callable[[float], Colour]
) -> None:
    for cell in cells:
        left, right = (cell.from_ms - begun_ms) / 1000, (cell.to_ms - begun_ms) / 1000
        axes.bar(
            left, cell.key_end - cell.key_start, right - left, cell.key_start, align="edge",
            color=UNKNOWN if cell.rate is None else colour_of(cell.rate), linewidth=0,
        )  # fmt: skip
    axes.set_xlabel(_SECONDS)
    axes.set_ylabel("Hash of the routing key (0 to 1)")
    axes.set_ylim(0, 1)
    axes.set_yticks((0, 0.25, 0.5, 0.75, 1))
    axes.grid(visible=False)


def _draw_borders(
    axes: Axes, cells: Sequence[Cell], epochs: Sequence[ScalingEvent], begun_ms: int
) -> None:
    for cell in cells:
        left, right = (cell.from_ms - begun_ms) / 1000, (cell.to_ms - begun_ms) / 1000
        if cell.key_start > 0:
            axes.plot((left, right), (cell.key_start, cell.key_start), color="white", linewidth=1.2)
    for epoch in epochs[1:]:
        axes.axvline((epoch.created_ms - begun_ms) / 1000, color="white", linewidth=1.2)


def _count_segments(
    axes: Axes, epochs: Sequence[ScalingEvent], begun_ms: int, end_s: float
) -> None:
    """Write the number of segments above each epoch, unless it would touch the last number."""
    starts = [(epoch.created_ms - begun_ms) / 1000 for epoch in epochs]
    free_s = 0.0
    for epoch, (start, stop) in zip(epochs, pairwise((*starts, end_s)), strict=True):
        middle = (start + stop) / 2
        if middle >= free_s:
            axes.annotate(
                f"{epoch.segment_count}", (middle, 1), (0, 4), textcoords="offset points",
                ha="center", va="bottom", fontweight="bold",
            )  # fmt: skip
            free_s = middle + end_s * _COUNT_WIDTH
    axes.set_title(
        "Segments of the stream: their number, their keys, and their rates. "
        "Grey: the rate is not known yet.",
        loc="left", fontsize=9.5, color=QUIET, pad=19,
    )  # fmt: skip


def plot_event_time(moments: Sequence[Moment], *, begun_ms: int, out: Path) -> Path:
    """Draw the course of event time into `out`; returns its path.

    The window of the reader follows the newest event that it has read. Where there is no watermark
    yet, it is not drawn.
    """
    path = out / EVENT_TIME
    seconds = [(one.at_ms - begun_ms) / 1000 for one in moments]
    windows = [
        (second, _day(one.lower_ms), _day(one.upper_ms or one.newest_ms))
        for second, one in zip(seconds, moments, strict=True)
        if one.lower_ms is not None
    ]
    at, lower, upper = _with_steps(windows)
    with drawing(path, 4.4) as figure:
        axes = figure.add_subplot()
        axes.fill_between(
            at, lower, upper, alpha=0.2, color=ORANGE, linewidth=0,
            label="time window of the reader",
        )  # fmt: skip
        axes.plot(
            seconds, [_day(one.newest_ms) for one in moments], color=BLUE, label="newest event read"
        )
        axes.plot(
            at, lower, color=ORANGE, linewidth=1.6, label="lower bound of the window: the watermark"
        )
        axes.set_xlim(0, max(seconds, default=0) or 1)
        axes.set_xlabel(_SECONDS)
        axes.set_ylabel("Event time (scheduled departure)")
        axes.yaxis_date()
        axes.yaxis.set_major_formatter(_MONTHS)
        axes.legend(loc="upper left", bbox_to_anchor=(-0.01, -0.17), ncols=3, fontsize=9)
        entitle(
            axes,
            "Event time of a reader at the tail, and its time window",
            "No event that the reader still has to read is earlier than the lower bound.",
        )
    return path


def _with_steps(
    windows: Sequence[tuple[float, float, float]],
) -> tuple[list[float], list[float], list[float]]:
    """Times, lower bounds and upper bounds; a lower bound holds until the next one is known."""
    points = list(windows[:1])
    for (_, lower, _), after in pairwise(windows):
        points += [(after[0], lower, after[2]), after]
    return [one[0] for one in points], [one[1] for one in points], [one[2] for one in points]


def _day(time_ms: int) -> float:
    """A time as matplotlib counts dates: days since 1970."""
    return time_ms / 1000 / _DAY_S
