"""Archives a stream as Parquet files, partitioned by event time: each event once.

    python -m anabranch.spark.pipelines.archive --stream demo/flights --nats ./endpoints.json \\
        --out archive

A run continues where the last one ended, and ends at the stream's present tail; with `--follow` it
goes on until Ctrl-C. A streaming query cuts the stream into batches. For each batch, tasks write
files, and then the driver adds one manifest that lists them with the cut of the stream after them
(`archiving.manifest`). Only the manifest counts: a run that is killed before it leaves files that
no list names, and the next run begins at the last manifest's cut.

Spark's own log of the query lies in a temporary directory: a run begins it with the last manifest's
cut, as if a query had stopped there. So there is no second record that could disagree.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds
from anabranch.spark.pipelines.archiving import checkpoint, lake, place
from anabranch.spark.pipelines.archiving.compaction import compacted, plan_compaction
from anabranch.spark.pipelines.archiving.files import Files, open_files, url_of
from anabranch.spark.pipelines.archiving.manifest import Batch, Contents, Origin, with_batch
from anabranch.spark.pipelines.archiving.tasks import merge_groups, read_named, write_events
from anabranch.spark.pipelines.arguments import argument, nats_url
from anabranch.spark.pipelines.frame import Pipeline, run_program
from anabranch.spark.pipelines.progress import Progress
from anabranch.spark.pipelines.queries import await_end, triggered

FORMATS = ("parquet", *lake.FORMATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The stream, the place of the archive, and how it is written."""

    stream: str = argument("scope/stream")
    nats: str | None = argument(
        "the cluster: a URL, or its endpoints file (default: the variable ANABRANCH_NATS_URL)",
        default=None, metavar="WHERE",
    )  # fmt: skip
    out: str = argument("directory or URL of the archive", metavar="PLACE")
    unit: str = argument("partitions of a day or an hour", default="day", choices=("day", "hour"))
    follow: bool = argument("go on until Ctrl-C", default=False)
    every: float = argument("with --follow: seconds between batches", default=10.0)
    max_bytes: int | None = argument("about the most stored bytes of a batch", default=None)
    max_rows: int | None = argument("about the most events of a batch", default=None)
    reader_group: str | None = argument(
        "scope/group that releases archived events, for consumption retention", default=None
    )
    compact: bool = argument("then rewrite the small files of closed days", default=False)
    format: str = argument(
        "parquet with manifests, or a table of Delta Lake or Iceberg",
        default="parquet", choices=FORMATS,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """This run, and the whole archive (`archive_…`); None where Delta or Iceberg know it."""

    out: str
    batches: int
    events: int
    crc_sum: int
    archive_files: int | None
    archive_events: int | None
    archive_crc_sum: int | None
    archive_size_bytes: int | None
    archived_up_to: str
    swept_files: int = 0
    compacted_files: int = 0


class Archivist:
    """Owns the state of the archive during a run: its contents, which grow by each batch."""

    def __init__(self, files: Files, url: str, origin: Origin, contents: Contents) -> None:
        self._files = files
        self._url = url
        self._origin = origin
        self.contents = contents
        self.added: list[Batch] = []

    def add(self, events: DataFrame, after: str) -> Batch:
        """Write the next batch and publish it. Raises ObjectExists if another run did."""
        number = self.contents.batch + 1
        written = write_events(events, self._url, unit=self._origin.unit, writer=f"{number:010d}")
        batch = Batch(number, self._origin, self.contents.after, after, tuple(written))
        place.publish(self._files, batch)
        self.contents = with_batch(self.contents, batch)
        self.added.append(batch)
        return batch

    def compact(self, session: SparkSession, now_ms: int) -> int:
        """Rewrite the small files of closed partitions; returns how many files that replaces."""
        groups = plan_compaction(self.contents, now_ms)
        if not groups:
            return 0
        writer = f"g{self.contents.generation + 1:010d}"
        new = merge_groups(session, groups, self._url, unit=self._origin.unit, writer=writer)
        place.publish(self._files, compacted(self.contents, self._origin, groups, new))
        self.contents, _ = place.load(self._files)
        return sum(map(len, groups))


def read(session: SparkSession, out: str) -> DataFrame:
    """The events of the archive as a table: those columns of the stream, and `event_date` or
    `event_hour`, by which Spark omits files. Raises InvalidRequest if the place has no archive."""
    url = url_of(out)
    contents, _ = place.load(open_files(url))
    if contents.origin is None:
        raise InvalidRequest(
            "the place holds no archive", remedy="name the --out of `archive`", place=url
        )
    return read_named(session, url, contents, sorted(contents.files))


def followed(
    session: SparkSession, arguments: Arguments, environment: Mapping[str, str]
) -> DataFrame:
    """The stream as a streaming table."""
    options = {
        "nats_url": nats_url(arguments.nats, environment),
        "max_bytes_per_trigger": arguments.max_bytes,
        "max_rows_per_trigger": arguments.max_rows,
        "reader_group": arguments.reader_group,
    }
    reader = session.readStream.format("anabranch")
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, value)
    return reader.load(arguments.stream)


def run(session: SparkSession, arguments: Arguments, progress: Progress) -> Report:
    """Archive up to the stream's present tail, or follow the stream until Ctrl-C."""
    if arguments.format != "parquet":
        return _into_table(session, arguments, progress)
    events = followed(session, arguments, os.environ)
    url = url_of(arguments.out)
    files = open_files(url)
    contents, snapshot = place.load(files)
    origin = Origin(str(stream_ref(arguments.stream)), arguments.unit)
    if contents.origin not in (None, origin):
        raise InvalidRequest(
            "the place holds an archive of another kind",
            remedy="name another place, or the stream and --unit of the archive",
            archive=f"{contents.origin.stream} by {contents.origin.unit}",
        )
    swept = place.sweep(files, contents, snapshot)
    archivist = Archivist(files, url, origin, contents)
    progress.phase("archiving")
    with tempfile.TemporaryDirectory(prefix="anabranch-archive-") as log:
        checkpoint.begin(Path(log), contents.after, SystemIds())

        def add(batch: DataFrame, number: int) -> None:
            added = archivist.add(batch, checkpoint.offset_of(Path(log), number))
            count = sum(file.rows for file in added.files)
            progress.say(f"batch {added.number}: {count:,} events in {len(added.files)} files")

        writer = events.writeStream.option("checkpointLocation", Path(log).as_uri())
        writer = triggered(
            writer.foreachBatch(add), follow=arguments.follow, every_s=arguments.every
        )
        await_end(writer.start(), follow=arguments.follow)
    compacted_files = 0
    if arguments.compact:
        progress.phase("compacting")
        compacted_files = archivist.compact(session, SystemClock().now_ms())
    return _report(url, archivist, swept.files, compacted_files)


def _report(url: str, archivist: Archivist, swept: int, compacted_files: int) -> Report:
    contents = archivist.contents
    added = [file for batch in archivist.added for file in batch.files]
    return Report(
        out=url,
        batches=len(archivist.added),
        events=sum(file.rows for file in added),
        crc_sum=sum(file.crc_sum for file in added),
        archive_files=len(contents.files),
        archive_events=contents.rows,
        archive_crc_sum=contents.crc_sum,
        archive_size_bytes=contents.size_bytes,
        archived_up_to=contents.after,
        swept_files=swept,
        compacted_files=compacted_files,
    )


def _into_table(session: SparkSession, arguments: Arguments, progress: Progress) -> Report:
    """Archive into a table of Delta Lake or Iceberg, whose own log makes it exactly once."""
    if arguments.compact:
        raise InvalidRequest(
            "this pipeline compacts its own archives only",
            remedy="omit --compact, and compact the table with its own OPTIMIZE or procedures",
        )
    lake.check_usable(session, arguments.format, arguments.out)
    events = followed(session, arguments, os.environ)
    progress.phase("archiving")
    writer = lake.writer(events, arguments.format, arguments.out, arguments.unit)
    writer = triggered(writer, follow=arguments.follow, every_s=arguments.every)
    query = writer.start(arguments.out)
    await_end(query, follow=arguments.follow)
    counted = lake.counted(query)
    return Report(
        out=arguments.out, batches=counted.batches, events=counted.events, crc_sum=0,
        archive_files=None, archive_events=None, archive_crc_sum=None, archive_size_bytes=None,
        archived_up_to=counted.end,
    )  # fmt: skip


def summary(report: Report) -> Sequence[str]:
    """The report as lines for people."""
    lines = [f"archived {report.events:,} events in {report.batches} batches"]
    if report.archive_files is not None:
        lines.append(
            f"{report.out} holds {report.archive_events:,} events in {report.archive_files:,} "
            f"files of {report.archive_size_bytes:,} bytes (sum of CRC32 {report.archive_crc_sum})"
        )
    if report.swept_files:
        lines.append(f"deleted {report.swept_files:,} files of earlier attempts")
    if report.compacted_files:
        lines.append(f"rewrote {report.compacted_files:,} small files")
    lines.append(f"archived up to {report.archived_up_to or 'the head'}")
    return lines


PIPELINE = Pipeline(
    name="archive",
    help="Archive a stream as Parquet files, partitioned by event time: each event once.",
    arguments=Arguments,
    run=run,
    summary=summary,
    quick=False,
)

if __name__ == "__main__":
    run_program(PIPELINE)
