"""Aggregates a stream by windows of event time into a stream and a table: each window once.

    python -m anabranch.spark.pipelines.windows --stream demo/flights --nats ./endpoints.json \\
        --by origin --value dep_delay --window 1h --delay 1d --to demo/departures --out out/windows

A run continues where the last one ended, and ends at the stream's present tail; with `--follow` it
goes on until Ctrl-C. Spark's checkpoint in `--out` holds the windows that are not written yet, so a
run adds to them. A window is written when an event is later than its end by `--delay`; `--close`
writes all of them at the end of a stream.

A batch of windows is one transaction, whose application is the query's id and whose version is the
batch's number, and one part of the table. If a run dies between them, the next one repeats the
batch: the transaction is found committed, and the part of the table is replaced.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import stream_ref
from anabranch.common.model.quantities import duration_s
from anabranch.spark.pipelines.archiving.tasks import file_path
from anabranch.spark.pipelines.arguments import argument, nats_url
from anabranch.spark.pipelines.frame import Pipeline, run_program
from anabranch.spark.pipelines.progress import Progress
from anabranch.spark.pipelines.queries import await_end, triggered
from anabranch.spark.pipelines.windowing.aggregates import Windowing, told, windows_of
from anabranch.spark.pipelines.windowing.directory import CLOSING_SCHEMA, MARKER, Directory
from anabranch.spark.pipelines.windowing.plot import plot_windows

_DROPPED = "numRowsDroppedByWatermark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The stream, the windows, and where they go."""

    stream: str = argument("scope/stream")
    nats: str | None = argument(
        "the cluster: a URL, or its endpoints file (default: the variable ANABRANCH_NATS_URL)",
        default=None, metavar="WHERE",
    )  # fmt: skip
    out: Path = argument("directory of the table, the plot and the checkpoint")
    to: str | None = argument("scope/stream that gets an event per window", default=None)
    segments: int | None = argument(
        "create that stream, if it does not exist, with so many segments", default=None
    )
    window: str = argument("length of a window, such as 15m, 1h or 1d", default="1h")
    delay: str = argument(
        "write a window when an event is so much later than its end", default="10m"
    )
    by: str | None = argument(
        "group by this field of the events, which are JSON (default: by routing key)",
        default=None, metavar="FIELD", one_of="group",
    )  # fmt: skip
    whole: bool = argument("do not group", default=False, one_of="group")
    value: str | None = argument(
        "also sum, mean and percentiles of this field, a number", default=None, metavar="FIELD"
    )
    close: bool = argument("then write the open windows too; later events are late", default=False)
    follow: bool = argument("go on until Ctrl-C", default=False)
    every: float = argument("with --follow: seconds between batches", default=10.0)
    max_bytes: int | None = argument("about the most stored bytes of a batch", default=None)

    def windowing(self) -> Windowing:
        """What the windows are. Raises InvalidRequest."""
        window_s, delay_s = duration_s(self.window), duration_s(self.delay)
        if window_s < 1:
            raise InvalidRequest("a window has no length", remedy="give --window 1s or more")
        if self.close and self.follow:
            raise InvalidRequest(
                "--close and --follow contradict each other",
                remedy="end the run that follows, and then run with --close",
            )
        return Windowing(
            stream=str(stream_ref(self.stream)),
            to=str(stream_ref(self.to)) if self.to else None,
            window_s=window_s,
            delay_s=delay_s,
            by=None if self.whole else self.by or "",
            value=self.value,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """This run, and the whole table (`table_…`).

    `events`: those in the windows that this run wrote. `late_groups`: groups whose events came
    after their window had been written, so that they are in no window. `complete_until`: windows
    that end up to then are written.
    """

    table: str
    to: str | None
    windows: int
    events: int
    late_groups: int
    table_windows: int
    table_events: int
    complete_until: str
    plots: tuple[str, ...]


@dataclass(slots=True)
class Writing:
    """Writes the batches of a run, and owns their counts."""

    arguments: Arguments
    windowing: Windowing
    directory: Directory
    where: str
    progress: Progress
    windows: int = 0
    events: int = 0
    late_groups: int = 0
    complete_until: str = ""

    def write(self, batch: DataFrame, number: int) -> None:
        """Write the windows of a batch to the table, then to the stream. Safe to repeat."""
        windows = batch.persist()
        try:
            found = windows.agg(F.count("*"), F.sum("events")).first()
            assert found is not None
            if not found[0]:
                return
            part = windows.orderBy("window_start", "key").coalesce(1)
            self.directory.forget(number)
            part.write.mode("overwrite").parquet(self.directory.batch(number))
            self.directory.record(number)
            if self.windowing.to is not None:
                self._tell(windows, number)
        finally:
            windows.unpersist()
        self.windows += found[0]
        self.events += found[1]
        self.progress.say(f"batch {number}: {found[0]:,} windows of {found[1]:,} events")

    def _tell(self, windows: DataFrame, number: int) -> None:
        writer = told(windows).write.format("anabranch").mode("append")
        writer = writer.option("nats_url", self.where).option("version", number)
        writer = writer.option("application", f"windows-{self.directory.query_id()}")
        if self.arguments.segments is not None:
            writer = writer.option("create_stream", "true")
            writer = writer.option("segments", self.arguments.segments)
        writer.save(self.windowing.to)

    def note(self, reported: Sequence[Mapping[str, object]]) -> None:
        """Add what Spark reports of its batches."""
        for each in reported:
            operators, times = each.get("stateOperators"), each.get("eventTime")
            if isinstance(operators, list):
                self.late_groups += sum(
                    one.get("numRowsDroppedByWatermark", 0) for one in operators
                )
            if isinstance(times, dict):
                self.complete_until = times.get("watermark", self.complete_until)


def followed(
    session: SparkSession, stream: str, where: str, max_bytes: int | None, directory: Directory
) -> DataFrame:
    """The events of the stream, and the markers that close windows, which are not `counted`."""
    reader = session.readStream.format("anabranch").option("nats_url", where)
    if max_bytes is not None:
        reader = reader.option("max_bytes_per_trigger", max_bytes)
    reader = reader.option("columns", "event,routing_key,event_time")
    marker = session.readStream.schema(CLOSING_SCHEMA).option("pathGlobFilter", MARKER)
    markers = marker.json(directory.closing.resolve().as_uri())
    return (
        reader.load(stream)
        .withColumn("counted", F.lit(1))
        .unionByName(markers.withColumn("counted", F.lit(0)), allowMissingColumns=True)
    )


def run(session: SparkSession, arguments: Arguments, progress: Progress) -> Report:
    """Aggregate what the stream has, or follow it until Ctrl-C."""
    windowing = arguments.windowing()
    where = nats_url(arguments.nats, os.environ)
    directory = Directory(arguments.out)
    directory.begin(windowing)
    writing = Writing(arguments, windowing, directory, where, progress)
    progress.phase("aggregating")
    if arguments.close and not directory.is_closed:
        if arguments.max_bytes is not None:
            _query(session, writing)
        directory.close()
    _query(session, writing)
    progress.phase("drawing")
    return _report(session, writing)


def _query(session: SparkSession, writing: Writing) -> None:
    arguments, directory = writing.arguments, writing.directory
    # The marker makes the events of later batches late, so that there may be only one batch.
    max_bytes = None if directory.is_closed else arguments.max_bytes
    events = followed(session, writing.windowing.stream, writing.where, max_bytes, directory)
    writer = (
        windows_of(events, writing.windowing)
        .writeStream.outputMode("append")
        .option("checkpointLocation", directory.checkpoint.resolve().as_uri())
        .foreachBatch(writing.write)
    )
    query = triggered(writer, follow=arguments.follow, every_s=arguments.every).start()
    await_end(query, follow=arguments.follow)
    writing.note([dict(each) for each in query.recentProgress])


def read(session: SparkSession, directory: Directory, windowing: Windowing) -> DataFrame | None:
    """The table of all windows; None before the first one. Raises CorruptManifest."""
    files = directory.files()
    if not files:
        return None
    found = session.read.parquet(*(file_path(path.resolve()) for path in files))
    return found.select(*windowing.columns)


def _report(session: SparkSession, writing: Writing) -> Report:
    table = read(session, writing.directory, writing.windowing)
    counts, plots = (0, 0), []
    if table is not None:
        found = table.agg(F.count("*"), F.sum("events")).first()
        assert found is not None
        counts = (found[0], found[1])
        plots = [plot_windows(table, writing.windowing, writing.arguments.out / "windows.png")]
    return Report(
        table=str(writing.directory.table.resolve()),
        to=writing.windowing.to,
        windows=writing.windows,
        events=writing.events,
        late_groups=writing.late_groups,
        table_windows=counts[0],
        table_events=counts[1],
        complete_until=writing.complete_until,
        plots=tuple(str(path.resolve()) for path in plots),
    )


def summary(report: Report) -> Sequence[str]:
    """The report as lines for people."""
    lines = [f"wrote {report.windows:,} windows of {report.events:,} events"]
    if report.to is not None:
        lines[0] += f" to {report.to}"
    if report.late_groups:
        lines.append(
            f"left out late events, in {report.late_groups:,} groups: their windows were written "
            "before; give a longer --delay, and another --out"
        )
    lines.append(
        f"{report.table} holds {report.table_windows:,} windows of {report.table_events:,} events"
    )
    if report.complete_until:
        lines.append(f"windows that end up to {report.complete_until} are complete")
    return (*lines, *(f"drew {path}" for path in report.plots))


PIPELINE = Pipeline(
    name="windows",
    help="Count and sum a stream by windows of event time into a stream and a table: once each.",
    arguments=Arguments,
    run=run,
    summary=summary,
    results_in=lambda arguments: arguments.out,
)

if __name__ == "__main__":
    run_program(PIPELINE)
