"""A plot of the lag of the demo's reader group."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.demo.group_records import GroupOutcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOT = "group_lag.png"


def plot_lag(outcome: GroupOutcome, out: Path) -> str:
    """Draw the plot into `out`; returns the file's name."""
    # Only the demo draws, so no other command should wait for this import.
    figures = import_module("matplotlib.figure")
    figure: Figure = figures.Figure(figsize=(8, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([second for second, _ in outcome.lag], [events for _, events in outcome.lag])
    if (kill := outcome.kill) is not None:
        axes.axvspan(
            kill.at_s - outcome.begun_s, kill.taken_over_s - outcome.begun_s, alpha=0.2,
            label=f"{kill.reader_id} is dead, its segments are not taken over",
        )  # fmt: skip
        axes.legend(loc="upper left")
    axes.set_xlabel("seconds since the first write")
    axes.set_ylabel("events written, not processed")
    axes.set_ylim(bottom=0)
    path = out / PLOT
    figure.savefig(path, dpi=120)
    return str(path)
