"""The plots of the demo: the epoch map below the rate of the writer, and event time."""

from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.demo.by_load.epoch_map import Cell
from anabranch.cli.demo.by_load.event_time import Moment
from anabranch.common.contracts.stream_queries import ScalingEvent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EPOCH_MAP = "epoch_map.png"
EVENT_TIME = "event_time.png"
_UNKNOWN = "#dddddd"


def plot_epoch_map(
    cells: Sequence[Cell],
    epochs: Sequence[ScalingEvent],
    written: Sequence[tuple[int, int]],
    *,
    target: int,
    out: Path,
) -> str:
    """Draw the map into `out`; returns the file's path.

    `written`: (Unix ms, number of events written by then), ascending. Colours show the rate of each
    segment in shares of the target; white lines are the borders of segments.
    """
    figures = import_module("matplotlib.figure")  # no other command should wait for this import
    figure: Figure = figures.Figure(figsize=(9, 5.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2.2))
    begun_ms = epochs[0].created_ms
    _draw_rate(above, written, begun_ms, target)
    colors = import_module("matplotlib.colors")
    shades = import_module("matplotlib").colormaps["viridis"]
    norm = colors.Normalize(0.0, max(2.0, *((cell.rate or 0) / target for cell in cells)))
    for cell in cells:
        left, right = (cell.from_ms - begun_ms) / 1000, (cell.to_ms - begun_ms) / 1000
        color = _UNKNOWN if cell.rate is None else shades(norm(cell.rate / target))
        below.bar(
            left, cell.key_end - cell.key_start, right - left, cell.key_start, align="edge",
            color=color, linewidth=0,
        )  # fmt: skip
    _draw_borders(below, cells, epochs, begun_ms)
    below.set_xlabel("seconds since the stream was created")
    below.set_ylabel("key space")
    below.set_ylim(0, 1)
    mappable = import_module("matplotlib.cm").ScalarMappable(norm, shades)
    figure.colorbar(mappable, ax=below, label="rate of the segment / target (grey: not known)")
    path = out / EPOCH_MAP
    figure.savefig(path, dpi=120)
    return str(path)


def _draw_rate(
    axes: "Axes", written: Sequence[tuple[int, int]], begun_ms: int, target: int
) -> None:
    seconds = [(at - begun_ms) / 1000 for at, _ in written]
    rates = [
        (after[1] - before[1]) * 1000 / max(1, after[0] - before[0])
        for before, after in pairwise(written)
    ]
    axes.step(seconds[1:], rates, where="pre")
    axes.axhline(target, linestyle="--", linewidth=1, color="grey", label="target of one segment")
    axes.set_ylabel("events/s")
    axes.legend(loc="upper right")


def _draw_borders(
    axes: "Axes", cells: Sequence[Cell], epochs: Sequence[ScalingEvent], begun_ms: int
) -> None:
    for cell in cells:
        left, right = (cell.from_ms - begun_ms) / 1000, (cell.to_ms - begun_ms) / 1000
        if cell.key_start > 0:
            axes.plot((left, right), (cell.key_start, cell.key_start), color="white", linewidth=1)
    for epoch in epochs[1:]:
        axes.axvline((epoch.created_ms - begun_ms) / 1000, color="white", linewidth=1)


def plot_event_time(moments: Sequence[Moment], *, begun_ms: int, out: Path) -> str:
    """Draw the course of event time into `out`; returns the file's path.

    The window of the reader follows the newest event that it has read. Where there is no watermark
    yet, it is not drawn.
    """
    figures = import_module("matplotlib.figure")
    figure: Figure = figures.Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.subplots()
    seconds = [(one.at_ms - begun_ms) / 1000 for one in moments]
    axes.plot(seconds, [_day(one.newest_ms) for one in moments], label="newest event read")
    bounds = [
        (second, _day(one.lower_ms), _day(one.upper_ms or one.newest_ms))
        for second, one in zip(seconds, moments, strict=True)
        if one.lower_ms is not None
    ]
    at, lower, upper = zip(*bounds, strict=True) if bounds else ((), (), ())
    axes.step(at, lower, where="post", color="tab:red", label="watermark: lower bound")
    axes.fill_between(at, lower, upper, step="post", alpha=0.2, color="tab:red")
    axes.set_xlabel("seconds since the stream was created")
    axes.set_ylabel("event time")
    axes.yaxis_date()
    axes.legend(loc="lower right")
    path = out / EVENT_TIME
    figure.savefig(path, dpi=120)
    return str(path)


def _day(time_ms: int) -> float:
    """A time as matplotlib counts dates: days since 1970."""
    return time_ms / 86_400_000
