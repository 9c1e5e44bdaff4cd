"""Draws the windows of the largest groups over time to a file."""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from anabranch.common.plot_style import COLOURS, THOUSANDS, End, drawing, entitle, label_ends
from anabranch.spark.pipelines.windowing.aggregates import Windowing

POINTS_MAX = 365
"""Of a line. With more windows, a point is the mean of several in a row."""
GROUPS_MAX = len(COLOURS)
NO_KEY = "(no key)"


def plot_windows(table: DataFrame, windowing: Windowing, path: Path) -> Path:
    """Draw the events per window, and the mean of the value if there is one. `table` has rows."""
    begin = F.col("window_start").cast("long")
    ends = table.agg(F.min(begin), F.max(begin)).first()
    assert ends is not None
    together = windows_per_point(ends[0], ends[1], windowing.window_s)
    points = points_of(table, windowing, ends[0], together)
    named = "1 window" if together == 1 else f"{together} windows in a row"
    heights = 2 if windowing.value else 1
    with drawing(path, 1.5 + 3.4 * heights) as figure:
        every = figure.subplots(heights, 1, sharex=True, squeeze=False)[:, 0]
        by = f"by {windowing.by or 'routing key'}" if windowing.by is not None else "in total"
        note = f"A point is the mean of {named}. The times are UTC."
        if points["key"].nunique() >= GROUPS_MAX:
            note += f" The {GROUPS_MAX} groups with most events are drawn."
        length = length_text(windowing.window_s)
        entitle(every[0], f"Events of {windowing.stream} per window of {length}, {by}", note)
        _lines(every[0], points, "events")
        every[0].set_ylabel("Events per window")
        every[0].yaxis.set_major_formatter(THOUSANDS)
        if windowing.value:
            _lines(every[1], points, "mean")
            every[1].set_ylabel(f"Mean of {windowing.value}")
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        every[-1].xaxis.set_major_locator(locator)
        formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
        every[-1].xaxis.set_major_formatter(formatter)
        every[-1].set_xlabel("Event time (start of the window)")
    return path


def length_text(seconds: int) -> str:
    """A length in the largest unit of which it is a multiple."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def windows_per_point(first_s: int, last_s: int, window_s: int) -> int:
    """How many windows a point stands for, so that there are at most `POINTS_MAX`."""
    count = (last_s - first_s) // window_s + 1
    return -(-count // POINTS_MAX)


def points_of(table: DataFrame, windowing: Windowing, first_s: int, together: int) -> pd.DataFrame:
    """Rows `at`, `key`, `events` (the mean of a window) and `mean`, for the largest groups.

    A window without events counts as 0, so that the area below a line is the number of events.
    """
    width = windowing.window_s * together
    key = F.coalesce("key", F.lit(NO_KEY if windowing.by is not None else "all"))
    at = F.floor((F.col("window_start").cast("long") - first_s) / width)
    named = table.select("*", key.alias("group"))
    largest = named.groupBy("group").agg(F.sum("events").alias("n")).orderBy(F.desc("n"))
    groups = [row["group"] for row in largest.limit(GROUPS_MAX).collect()]
    sums = [F.sum("events").alias("events")]
    if windowing.value:
        sums.append(F.try_divide(F.sum("value_sum"), F.sum("value_count")).alias("mean"))
    found = (
        named.where(F.col("group").isin(groups))
        .groupBy(at.alias("point"), "group").agg(*sums).toPandas()
    )  # fmt: skip
    return filled(found, first_s, width, together)


def filled(found: pd.DataFrame, first_s: int, width_s: int, together: int) -> pd.DataFrame:
    """Points for all places from the first to the last, of each group."""
    places = pd.RangeIndex(int(found["point"].max()) + 1, name="point")
    parts = []
    for group, part in found.groupby("group"):
        rows = part.set_index("point").reindex(places)
        rows["events"] = rows["events"].fillna(0) / together
        rows["key"] = str(group)
        rows["at"] = pd.to_datetime(first_s + places.to_numpy() * width_s, unit="s", utc=True)
        parts.append(rows)
    return pd.concat(parts)


def _lines(axes: Axes, points: pd.DataFrame, column: str) -> None:
    ends = []
    order = points.groupby("key")["events"].sum().sort_values(ascending=False).index
    for colour, key in zip(COLOURS, order, strict=False):
        drawn = points[points["key"] == key].dropna(subset=[column])
        axes.plot(drawn["at"], drawn[column], color=colour, linewidth=1.2)
        if len(drawn):
            last = drawn.iloc[-1]
            at = float(date2num(last["at"]))  # type: ignore[no-untyped-call]
            ends.append(End(at, float(last[column]), str(key), colour))
    if column == "events":
        axes.set_ylim(bottom=0)
    label_ends(axes, ends)
