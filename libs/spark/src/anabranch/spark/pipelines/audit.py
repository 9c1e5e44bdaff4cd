"""Proves from tier 2 alone that streams are whole: every block, number, key and epoch.

    python -m anabranch.spark.pipelines.audit --tier2 file:///…/tier2 --streams demo/flights \\
        --out DIR

The driver reads the descriptions and catalogs once. Tasks read and verify every retained byte, and
turn it into one row per block; Spark checks the rows, and the driver the rest. No store, controller
or NATS server needs to run, and the audit changes nothing. It exits with 0 if the streams are
healthy, and with 3 if any check found damage.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from anabranch.common.errors import InvalidRequest
from anabranch.common.runtime.clock import SystemClock
from anabranch.spark.errors_shown import told_to_users
from anabranch.spark.options.places import TierTwo
from anabranch.spark.options.read import Division
from anabranch.spark.pipelines.arguments import argument
from anabranch.spark.pipelines.auditing import block_checks
from anabranch.spark.pipelines.auditing.conclusion import concluded, merge_places
from anabranch.spark.pipelines.auditing.plot import plot_segments
from anabranch.spark.pipelines.auditing.report import AuditReport, has_damage, summary
from anabranch.spark.pipelines.frame import Pipeline, run_program
from anabranch.spark.pipelines.progress import Progress
from anabranch.spark.tables.block_reading import BlockTask, plan, read
from anabranch.spark.tables.blocks import SCHEMA
from anabranch.spark.tables.options import parse_which
from anabranch.spark.tables.schema import spark_schema
from anabranch.spark.tables.stored import Stored

if TYPE_CHECKING:
    import pyarrow as pa

PLOTS_MAX = 8
"""The streams with the most bytes are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The streams to audit, by default all, and their place."""

    tier2: str = argument("the tier 2, such as file:///…", metavar="URL")
    streams: tuple[str, ...] = argument(
        "these streams, scope/stream", default=(), one_of="streams", metavar="STREAM"
    )
    pattern: str | None = argument(
        "the streams whose whole name matches the regular expression",
        default=None, one_of="streams",
    )  # fmt: skip
    topic: str | None = argument("the stream of this topic", default=None, one_of="streams")
    scope: str | None = argument("all streams of the scope", default=None)
    out: Path | None = argument("directory of the report and the plots", default=None)


class ReadTasks:
    """Reads the blocks of the tasks whose numbers it gets; Spark passes it to its workers."""

    def __init__(self, place: TierTwo, tasks: Sequence[BlockTask]) -> None:
        self._place = place
        self._tasks = tasks

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        with told_to_users():
            for number in (number for each in batches for number in each.column(0).to_pylist()):
                yield from read(self._place, self._tasks[number])


def run(session: SparkSession, arguments: Arguments, progress: Progress) -> AuditReport:
    """Audit the streams, and draw them. Raises Invalid errors, StreamNotFound, PlanOutdated."""
    clock = SystemClock()
    progress.phase("planning")
    began_s = clock.monotonic()
    place = TierTwo(arguments.tier2)
    stored, tasks = plan(place, parse_which(_options(arguments)), Division())
    progress.phase("reading")
    rows = block_checks.prepared(
        block_frame(session, place, tasks),
        block_checks.segment_frame(session, stored.streams),
    ).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        sums = block_checks.segment_sums(rows)
        progress.phase("checking")
        found = block_checks.first_findings(_all_findings(session, rows, stored))
    finally:
        rows.unpersist()
    report = concluded(arguments.tier2, stored, sums, found, clock.monotonic() - began_s)
    if arguments.out is None:
        return report
    progress.phase("drawing")
    return drawn(report, arguments.out)


def _options(arguments: Arguments) -> dict[str, str]:
    """The streams as options of a table. Raises InvalidRequest."""
    given = {
        "streams": ",".join(arguments.streams),
        "pattern": arguments.pattern,
        "topic": arguments.topic,
        "scope": arguments.scope,
    }
    if any("," in name for name in arguments.streams):
        raise InvalidRequest("a stream's name has no comma", remedy="put spaces between the names")
    return {name: value for name, value in given.items() if value}


def block_frame(session: SparkSession, place: TierTwo, tasks: Sequence[BlockTask]) -> DataFrame:
    """The rows of the table `blocks`, as they were planned: a task of Spark for each task."""
    schema = spark_schema(SCHEMA)
    if not tasks:
        return session.createDataFrame([], schema)
    numbers = session.range(0, len(tasks), 1, len(tasks))
    return numbers.mapInArrow(ReadTasks(place, tasks), schema)


def _all_findings(session: SparkSession, rows: DataFrame, stored: Stored) -> DataFrame:
    findings = block_checks.finding_frame(rows)
    places = [place for stream in stored.streams for place in merge_places(stream)]
    if not places:
        return findings
    return findings.union(block_checks.misplaced_merges(session, rows, places))


def drawn(report: AuditReport, out: Path) -> AuditReport:
    """Draw the largest streams into the directory; the report names the plots."""
    largest = sorted(report.streams, key=lambda each: -each.stored_bytes)[:PLOTS_MAX]
    paths = []
    for stream in largest:
        damages = [
            each
            for check in report.checks
            for each in check.findings
            if each.stream == stream.stream and each.is_damage
        ]
        path = out / f"segments-{stream.stream.replace('/', '-')}.png"
        paths.append(plot_segments(stream, damages, path))
    plots = tuple(str(path.resolve()) for path in paths if path is not None)
    return replace(report, plots=plots)


PIPELINE = Pipeline(
    name="audit",
    help="Prove from tier 2 alone that streams are whole: blocks, numbers, keys and epochs.",
    arguments=Arguments,
    run=run,
    summary=summary,
    results_in=lambda arguments: arguments.out,
    has_findings=has_damage,
)


if __name__ == "__main__":
    run_program(PIPELINE)
