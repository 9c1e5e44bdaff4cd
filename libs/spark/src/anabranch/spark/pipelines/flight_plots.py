"""Draws the plots of the flight delays to files, without a display."""

from pathlib import Path

import pandas as pd
from matplotlib.ticker import PercentFormatter

from anabranch.common.plot_style import (
    COLOURS,
    QUIET,
    SHADES,
    UNKNOWN,
    End,
    drawing,
    entitle,
    label_ends,
)

FLIGHTS_MIN = 30
"""With fewer departed flights, a mean or a share is not significant and not drawn."""

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
    with drawing(path, 4.9) as figure:
        axes = figure.add_subplot()
        ends = []
        for colour, (origin, mean) in zip(COLOURS, means.items(), strict=False):
            drawn = mean.dropna()
            axes.plot(drawn.index, drawn, color=colour, marker="o", markersize=4)
            name = _AIRPORTS.get(str(origin), str(origin))
            if len(drawn):
                ends.append(End(float(drawn.index[-1]), float(drawn.iloc[-1]), name, colour))
        entitle(
            axes,
            "Mean departure delay of flights from New York, by hour of the day",
            f"One line per airport. An hour with fewer than {FLIGHTS_MIN} departures has no point.",
        )
        axes.set_xlabel("Scheduled departure (hour of the day, New York time)")
        axes.set_ylabel("Mean departure delay (minutes)")
        axes.set_xticks(list(means.index), [f"{hour:02d}" for hour in means.index])
        axes.set_xlim(min(means.index, default=0) - 0.4, max(means.index, default=0) + 0.4)
        axes.axhline(0, color=QUIET, linewidth=0.8, zorder=1)
        label_ends(axes, ends)
    return path


def plot_by_month(hours: pd.DataFrame, path: Path) -> Path:
    """A heat map of the share of delayed flights, by month and hour of the day → `path`."""
    shares = delayed_by_month(hours).dropna(axis=1, how="all")
    columns, rows = range(len(shares.columns) + 1), range(len(shares.index) + 1)
    with drawing(path, 4.9) as figure:
        axes = figure.add_subplot()
        axes.set_facecolor(UNKNOWN)
        image = axes.pcolormesh(
            columns, rows, shares, cmap=SHADES, vmin=0, edgecolors="white", linewidth=0.6
        )
        axes.set_xticks(
            [place + 0.5 for place in columns[:-1]], [f"{hour:02d}" for hour in shares.columns]
        )
        axes.set_yticks(
            [place + 0.5 for place in rows[:-1]], [_MONTHS[month - 1] for month in shares.index]
        )
        axes.tick_params(length=0)
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        entitle(
            axes,
            "Share of flights from New York that departed late, by month and hour",
            "Late: more than 15 minutes after schedule. "
            f"Grey: fewer than {FLIGHTS_MIN} departures.",
        )
        axes.set_xlabel("Scheduled departure (hour of the day, New York time)")
        axes.set_ylabel("Scheduled departure (month)")
        bar = figure.colorbar(
            image, ax=axes, label="Late departures (share of all departures)", pad=0.015,
            aspect=28, format=PercentFormatter(xmax=1, decimals=0),
        )  # fmt: skip
        bar.outline.set_visible(False)
    return path
