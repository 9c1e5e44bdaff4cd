"""Turns the flights of a stream into a table of delays per hour and two plots.

    python -m anabranch.spark.pipelines.flight_delays --stream demo/flights \\
        --tier2 file:///…/tier2 --out DIR

The program reads the stream once. Its report (`events`, `row_sum`) does not depend on the order of
events, so it can be compared with the reports of other readers: `row_sum` is the sum of the CRC32
of all events. Hours are hours of the scheduled departure; hours of the day are in New York's time.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType, StringType, StructField, StructType

from anabranch.spark.pipelines.arguments import StreamInput, argument
from anabranch.spark.pipelines.flight_plots import plot_by_hour, plot_by_month
from anabranch.spark.pipelines.frame import Pipeline, run_program
from anabranch.spark.pipelines.progress import Progress

TABLE = "hourly_delays.parquet"
DELAYED_MINUTES = 15
GROUPS_MAX = 100_000
_FLIGHT = StructType([StructField("origin", StringType()), StructField("dep_delay", DoubleType())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(StreamInput):
    """A stream of flights, and the directory of the results."""

    out: Path = argument("directory of the results")


@dataclass(frozen=True, slots=True)
class Report:
    """The counts of a run. `not_flights`: events without an origin, which the table omits."""

    events: int
    row_sum: int
    not_flights: int
    parquet_rows: int
    table: str
    plots: tuple[str, ...]


def read_flights(session: SparkSession, stream: str, source: tuple[str, str]) -> DataFrame:
    """The stream's events; `source` is an option of the data source and its value."""
    return session.read.format("anabranch").option(*source).load(stream)


def hourly_delays(events: DataFrame) -> DataFrame:
    """One row per scheduled hour (UTC) and origin, with `row_sum`; `origin` null: no flights.

    Delays are of the departure, in minutes, of flights that departed (negative: early); the
    `delayed` departed more than 15 minutes late.
    """
    flight = F.from_json(F.col("event").cast("string"), _FLIGHT)
    delay = F.col("dep_delay")
    return (
        events.select("event", "event_time", flight.alias("flight"))
        .select("event", "event_time", "flight.origin", "flight.dep_delay")
        .groupBy(F.date_trunc("hour", "event_time").alias("scheduled_hour"), "origin")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(delay.isNull()).alias("cancelled"),
            F.count_if(delay > DELAYED_MINUTES).alias("delayed"),
            F.mean(delay).alias("delay_mean_minutes"),
            F.percentile(delay, 0.5).alias("delay_p50_minutes"),
            F.percentile(delay, 0.9).alias("delay_p90_minutes"),
            F.sum(F.crc32("event")).alias("row_sum"),
        )
    )


def run(session: SparkSession, arguments: Arguments, progress: Progress) -> Report:
    """Read, write the table and draw the plots. Replaces the table and the plots in `out`."""
    out, source = arguments.out, arguments.source(os.environ)
    progress.phase("reading")
    # With more groups Spark sorts rows to compute percentiles, which takes 20 times as long.
    session.conf.set("spark.sql.objectHashAggregate.sortBased.fallbackThreshold", GROUPS_MAX)
    hours = hourly_delays(read_flights(session, arguments.stream, source)).persist()
    try:
        flights = F.col("flights")
        read = hours.agg(
            F.sum(flights).alias("events"),
            F.sum("row_sum").alias("row_sum"),
            F.sum(F.when(F.col("origin").isNull(), flights)).alias("not_flights"),
        ).first()
        assert read is not None
        progress.phase("writing")
        table = out.resolve() / TABLE
        known = hours.where("origin IS NOT NULL").drop("row_sum")
        share = F.try_divide("delayed", flights - F.col("cancelled"))
        known = known.withColumn("delayed_share", share)
        known.orderBy("scheduled_hour", "origin").coalesce(1).write.mode("overwrite").parquet(
            table.as_uri()
        )
    finally:
        hours.unpersist()
    written = session.read.parquet(table.as_uri()).toPandas()
    progress.phase("drawing")
    plots = (
        plot_by_hour(local_hours(written), out / "delay_by_hour.png"),
        plot_by_month(local_hours(written), out / "delayed_share_by_month.png"),
    )
    return Report(
        events=read["events"] or 0,
        row_sum=read["row_sum"] or 0,
        not_flights=read["not_flights"] or 0,
        parquet_rows=len(written),
        table=str(table),
        plots=tuple(str(path.resolve()) for path in plots),
    )


def local_hours(hours: pd.DataFrame) -> pd.DataFrame:
    """Add `month` (1 … 12) and `hour` (0 … 23) in New York's time to the table."""
    local = hours["scheduled_hour"].dt.tz_localize("UTC").dt.tz_convert("America/New_York")
    return hours.assign(month=local.dt.month, hour=local.dt.hour)


def summary(report: Report) -> Sequence[str]:
    """The report as lines for people."""
    return (
        f"read {report.events:,} events (sum of CRC32 {report.row_sum})",
        f"wrote {report.parquet_rows:,} rows to {report.table}",
        *(f"drew {path}" for path in report.plots),
    )


PIPELINE = Pipeline(
    name="flight-delays",
    help="Turn the flights of the demo into a table of delays per hour and two plots.",
    arguments=Arguments,
    run=run,
    summary=summary,
    results_in=lambda arguments: arguments.out,
)


if __name__ == "__main__":
    run_program(PIPELINE)
