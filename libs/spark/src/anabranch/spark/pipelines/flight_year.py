"""Archives the flights of the demo, counts departures per hour and airport, and audits the stream.

    python -m anabranch.spark.pipelines.flight_year --stream demo/flights --nats ./endpoints.json \\
        --tier2 file:///…/tier2 --out DIR

The three pipelines `archive`, `windows` and `audit` run one after the other in one session, each
with a directory in `--out`. The cluster runs, and has flushed the stream to tier 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.spark.pipelines import archive, audit, windows
from anabranch.spark.pipelines.arguments import argument
from anabranch.spark.pipelines.frame import Pipeline, run_program
from anabranch.spark.pipelines.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The stream of flights, its cluster, and the place of the results."""

    stream: str = argument("scope/stream of flights")
    nats: str = argument("the cluster: a URL, or its endpoints file", metavar="WHERE")
    tier2: str = argument("its tier 2, such as file:///…", metavar="URL")
    to: str | None = argument("scope/stream that gets an event per window", default=None)
    out: Path = argument("directory of the results")


@dataclass(frozen=True, slots=True)
class Report:
    """The sums of the three; `…_events` are equal if nothing is lost or repeated.

    `archive_crc_sum`: the sum of the CRC32 of all archived events. `damages`: the checks of the
    audit that failed.
    """

    archive: str
    archive_events: int
    archive_crc_sum: int
    table: str
    windows: int
    windows_events: int
    audited_events: int
    audited_bytes: int
    healthy: bool
    damages: tuple[str, ...]
    plots: tuple[str, ...]


def run(session: SparkSession, arguments: Arguments, progress: Progress) -> Report:
    """Run the three. A run that was killed is continued by the next one."""
    archived = archive.run(
        session,
        archive.Arguments(
            stream=arguments.stream, nats=arguments.nats, out=str(arguments.out / "archive")
        ),
        progress,
    )
    counted = windows.run(
        session,
        windows.Arguments(
            stream=arguments.stream, nats=arguments.nats, out=arguments.out / "windows",
            by="origin", value="dep_delay", close=True, to=arguments.to, segments=1,
        ),
        progress,
    )  # fmt: skip
    audits = arguments.out / "audit"
    audits.mkdir(exist_ok=True)
    audited = audit.run(
        session,
        audit.Arguments(tier2=arguments.tier2, streams=(arguments.stream,), out=audits),
        progress,
    )
    return Report(
        archive=archived.out,
        archive_events=archived.archive_events or 0,
        archive_crc_sum=archived.archive_crc_sum or 0,
        table=counted.table,
        windows=counted.table_windows,
        windows_events=counted.table_events,
        audited_events=audited.events,
        audited_bytes=audited.stored_bytes,
        healthy=audited.healthy,
        damages=tuple(
            each.name for each in audited.checks if any(one.is_damage for one in each.findings)
        ),
        plots=(*counted.plots, *audited.plots),
    )


def summary(report: Report) -> Sequence[str]:
    """The report as lines for people."""
    health = "healthy" if report.healthy else f"damaged: {', '.join(report.damages)}"
    return (
        f"archived {report.archive_events:,} events in {report.archive}",
        f"counted {report.windows_events:,} events in {report.windows:,} windows in {report.table}",
        f"audited {report.audited_events:,} events of {report.audited_bytes:,} bytes: {health}",
        *(f"drew {path}" for path in report.plots),
    )


PIPELINE = Pipeline(
    name="flight-year",
    help="Archive, count by windows and audit the flights of the demo.",
    arguments=Arguments,
    run=run,
    summary=summary,
    results_in=lambda arguments: arguments.out,
    has_findings=lambda report: not report.healthy,
)


if __name__ == "__main__":
    run_program(PIPELINE)
