"""A plot of the lag of the demo's reader group. Importing this module imports matplotlib."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from anabranch.cli.demo.group_records import GroupOutcome, Kill
from anabranch.common.plot_style import BLUE, ORANGE, THOUSANDS, drawing, entitle

PLOT = "group_lag.png"


def plot_lag(outcome: GroupOutcome, out: Path) -> Path:
    """Draw the plot into `out`; returns its path."""
    path = out / PLOT
    seconds, events = [at for at, _ in outcome.lag], [count for _, count in outcome.lag]
    highest = max(events, default=0) or 1
    with drawing(path, 4.1) as figure:
        axes = figure.add_subplot()
        axes.fill_between(seconds, events, color=BLUE, alpha=0.15, linewidth=0)
        axes.plot(seconds, events, color=BLUE)
        axes.set_xlim(0, max(seconds, default=0) or 1)
        axes.set_ylim(0, highest * 1.2)  # room for the words about the kill
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(THOUSANDS)
        axes.set_xlabel("Time since the first write (s)")
        axes.set_ylabel("Lag (events)")
        if outcome.kill is not None:
            _mark_kill(axes, outcome.kill, outcome.begun_s)
        entitle(
            axes,
            "Lag of the reader group while one of its readers is killed",
            "Lag: events that are written and not yet processed. Shaded: the time until the lease\n"
            "of the killed reader expires and the other readers take over its segments.",
        )
    return path


def _mark_kill(axes: Axes, kill: Kill, begun_s: float) -> None:
    """Shade the time between the kill and the takeover, and say beside it which reader died."""
    start, stop = kill.at_s - begun_s, kill.taken_over_s - begun_s
    axes.axvspan(start, stop, color=ORANGE, alpha=0.18, linewidth=0)
    axes.axvline(start, color=ORANGE, linewidth=1.2)
    axes.axvline(stop, color=ORANGE, linewidth=1.2)
    is_late = stop > sum(axes.get_xlim()) / 2
    place, gap, side = (start, -6, "right") if is_late else (stop, 6, "left")
    count = len(kill.segments)
    axes.annotate(
        f"{kill.reader_id} killed; its {count} {'segment' if count == 1 else 'segments'} "
        f"taken over {kill.takeover_seconds:.1f} s later",
        (place, axes.get_ylim()[1]), (gap, -4), textcoords="offset points", color=ORANGE,
        ha=side, va="top", bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )  # fmt: skip
