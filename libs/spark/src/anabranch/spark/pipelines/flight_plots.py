"""Draws the plots of the flight delays to files, without a display.

People with any colour vision can distinguish the colours, which also differ in lightness.
"""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

DPI = 120
FLIGHTS_MIN = 30
"""With fewer departed flights, a mean or a share is not significant and not drawn."""

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_AIRPORTS = {"EWR": "Newark (EWR)", "JFK": "Kennedy (JFK)", "LGA": "LaGuardia (LGA)"}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def mean_by_hour(hours: pd.DataFrame) -> pd.DataFrame:
    """Mean departure delay in minutes: a row per hour of the day, a column per origin."""
    departed = hours["flights"] - hours["cancelled"]
    sums = hours.assign(departed=departed, minutes=hours["delay_mean_minutes"] * departed)
    by_hour = sums.groupby(["hour", "origin"])[["minutes", "departed"]].sum()
    mean = by_hour["minutes"] / by_hour["departed"]
    return mean.where(by_hour["departed"] >= FLIGHTS_MIN).unstack("origin")


def delayed_by_month(hours: pd.DataFrame) -> pd.DataFrame:
    """Share of departed flights that were delayed: a row per month, a column per hour."""
    sums = hours.groupby(["month", "hour"])[["flights", "cancelled", "delayed"]].sum()
    departed = sums["flights"] - sums["cancelled"]
    return (sums["delayed"] / departed).where(departed >= FLIGHTS_MIN).unstack("hour")


def plot_by_hour(hours: pd.DataFrame, path: Path) -> Path:
    """A line per airport of the mean delay over the hours of the day → `path`."""
    means = mean_by_hour(hours).dropna(how="all")
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    ends: list[tuple[float, str, str]] = []
    for colour, (origin, mean) in zip(_COLOURS, means.items(), strict=False):
        drawn = mean.dropna()
        axes.plot(drawn.index, drawn, color=colour, marker="o", markersize=4, linewidth=2)
        if len(drawn):
            ends.append((float(drawn.iloc[-1]), _AIRPORTS.get(str(origin), str(origin)), colour))
    _label_ends(axes, ends, max(means.index, default=0))
    axes.set_title(
        "Mean departure delay of flights from New York, by hour of the day",
        loc="left",
        fontweight="bold",
    )
    axes.set_xlabel("Hour of scheduled departure (New York time)")
    axes.set_ylabel("Mean departure delay (minutes)")
    axes.set_xticks(list(means.index), [f"{hour:02d}" for hour in means.index])
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    return _save(figure, path)


def _label_ends(axes: Axes, ends: list[tuple[float, str, str]], hour: int) -> None:
    """Name the lines at their right ends, far enough apart to be read."""
    low, high = axes.get_ylim()
    least = (high - low) / 18
    before = low - least
    for value, name, colour in sorted(ends):
        place = max(value, before + least)
        axes.annotate(name, (hour + 0.3, place), color=colour, va="center", annotation_clip=False)
        before = place


def plot_by_month(hours: pd.DataFrame, path: Path) -> Path:
    """A heat map of the share of delayed flights, by month and hour of the day → `path`."""
    shares = delayed_by_month(hours).dropna(axis=1, how="all")
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    image = axes.pcolormesh(
        range(len(shares.columns) + 1), range(len(shares.index) + 1), shares, cmap="cividis", vmin=0
    )
    axes.set_xticks(
        [place + 0.5 for place in range(len(shares.columns))],
        [f"{hour:02d}" for hour in shares.columns],
    )
    axes.set_yticks(
        [place + 0.5 for place in range(len(shares.index))],
        [_MONTHS[month - 1] for month in shares.index],
    )
    axes.invert_yaxis()
    axes.set_title(
        "Share of delayed flights from New York, by month and hour", loc="left", fontweight="bold"
    )
    axes.set_xlabel("Hour of scheduled departure (New York time)")
    axes.set_ylabel("Month of scheduled departure")
    axes.spines[:].set_visible(False)
    figure.colorbar(
        image, ax=axes, label="Flights departing > 15 minutes late",
        format=PercentFormatter(xmax=1, decimals=0),
    )  # fmt: skip
    return _save(figure, path)


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, format="png", dpi=DPI)
    return path
