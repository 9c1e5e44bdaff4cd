"""What the plots of the flight delays show, and hours across the change of clocks."""

from pathlib import Path

import pandas as pd
import pytest

from anabranch.common.plot_style import BLUE, GREEN, LABEL_GAP, ORANGE, End, drawing, label_ends
from anabranch.spark.pipelines.flight_delays import local_hours
from anabranch.spark.pipelines.flight_plots import (
    delayed_by_month,
    mean_by_hour,
    plot_by_hour,
    plot_by_month,
)


def table(*rows: tuple[str, str, int, int, int, float]) -> pd.DataFrame:
    """Rows of (UTC hour, origin, flights, cancelled, delayed, mean delay)."""
    columns = ["scheduled_hour", "origin", "flights", "cancelled", "delayed", "delay_mean_minutes"]
    made = pd.DataFrame(rows, columns=columns)
    return local_hours(made.assign(scheduled_hour=pd.to_datetime(made["scheduled_hour"])))


def test_hours_are_those_of_clocks_in_new_york_before_and_after_their_change() -> None:
    made = table(
        ("2013-03-10 06:00", "JFK", 1, 0, 0, 1.0),  # 01:00 EST, an hour before the change
        ("2013-03-10 07:00", "JFK", 1, 0, 0, 1.0),  # 03:00 EDT
        ("2013-11-03 05:00", "JFK", 1, 0, 0, 1.0),  # 01:00 EDT
        ("2013-11-03 06:00", "JFK", 1, 0, 0, 1.0),  # 01:00 EST
        ("2014-01-01 04:00", "JFK", 1, 0, 0, 1.0),  # 23:00 of 31 December
    )
    assert made["hour"].tolist() == [1, 3, 1, 1, 23]
    assert made["month"].tolist() == [3, 3, 11, 11, 12]


def test_means_are_weighted_by_departures_and_few_of_them_are_not_shown() -> None:
    means = mean_by_hour(
        table(
            ("2013-06-01 12:00", "JFK", 40, 10, 0, 10.0),
            ("2013-06-02 12:00", "JFK", 10, 0, 0, 30.0),
            ("2013-06-01 12:00", "LGA", 31, 2, 0, 99.0),
        )
    )
    assert means.loc[8, "JFK"] == pytest.approx(15.0)
    assert pd.isna(means.loc[8, "LGA"])


def test_the_share_of_delayed_flights_counts_those_that_departed() -> None:
    shares = delayed_by_month(table(("2013-06-01 12:00", "JFK", 50, 10, 10, 10.0)))
    assert shares.loc[6, 8] == pytest.approx(0.25)


def test_both_plots_are_drawn_also_of_little_or_nothing(tmp_path: Path) -> None:
    for made in (table(), table(("2013-06-01 12:00", "JFK", 50, 10, 10, 10.0))):
        for plot in (plot_by_hour, plot_by_month):
            path = plot(made, tmp_path / "plot.png")
            assert path.read_bytes().startswith(b"\x89PNG")


def test_the_names_of_lines_that_end_together_stand_apart_and_in_their_order(
    tmp_path: Path,
) -> None:
    ends = [End(2.0, 5.0, "b", BLUE), End(1.0, 4.99, "a", ORANGE), End(2.0, 9.0, "c", GREEN)]
    with drawing(tmp_path / "plot.png", 3.0) as figure:
        axes = figure.add_subplot(xlim=(0, 3), ylim=(0, 10))
        label_ends(axes, ends)
        places = [(text.get_text(), text.xy[1]) for text in axes.texts]  # type: ignore[attr-defined]
        limits = (axes.get_xlim(), axes.get_ylim())
    assert [name for name, _ in places] == ["a", "b", "c"]
    assert places[1][1] - places[0][1] == pytest.approx(10 * LABEL_GAP)
    assert places[2][1] == 9.0
    assert limits == ((0, 3), (0, 10))
