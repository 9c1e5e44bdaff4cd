"""The command `anabranch demo`: replay rows, read them back, check, report.

Exit codes: 0 if all checks passed, 1 if one failed or the demo ended early, which the report in
`OUT` then says too. The data directory is removed only after success, and only if it is the demo's
own.
"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from anabranch.cli.demo.findings import checks_of, measures_of
from anabranch.cli.demo.group_reading import LEASE_MS
from anabranch.cli.demo.outcome import ClusterKind, Outcome
from anabranch.cli.demo.plans import check_flights_installed, flights_plan, quick_plan
from anabranch.cli.demo.record import record_of
from anabranch.cli.demo.replay import replay
from anabranch.cli.demo.report.machine import machine_of
from anabranch.cli.demo.report.page import Failure, Page
from anabranch.cli.demo.report.places import fresh_directory, make_directory
from anabranch.cli.demo.report.running import Demo, run_and_report
from anabranch.cli.demo.steps import Steps
from anabranch.cli.figures import moment
from anabranch.common.errors import InvalidRequest
from anabranch.common.runtime.clock import SystemClock

OUT_DEFAULT = Path("out/demo")


def demo(
    *,
    quick: Annotated[bool, Parameter(negative="")] = False,
    no_spark: Annotated[bool, Parameter(negative="")] = False,
    crash: Annotated[bool, Parameter(negative="")] = False,
    cluster: ClusterKind = "journal",
    out: Path = OUT_DEFAULT,
    data_dir: Path | None = None,
    limit: int | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Replay 336,776 real flights through a fresh cluster and check every one of them.

    The demo writes each day as a transaction, while the stream scales. Meanwhile a group of four
    readers shares the events, and the demo kills one of them. Then it reads all events back with
    the client, over HTTP, and with Spark from tier 2 alone, which makes a table of delays per hour
    and two plots. Before that, Spark archives the events as Parquet files, counts the departures
    per hour and airport, and audits tier 2. report.html in OUT shows the checks, the figures and
    all plots.

    Parameters
    ----------
    quick
        Replay 50,000 generated sensor readings instead, in about 20 seconds and without Spark and
        plots. This needs no packages beyond those of `anabranch up`.
    no_spark
        Leave out the pipelines on Spark.
    crash
        Kill the segment store three times during the writes.
    cluster
        Home of the containers' logs. `journal`: the disk of one store. `jetstream`: three NATS
        servers. `replicated`: the disks of three stores, each of which has a copy of every log.
        With the last two there are three stores, and one is killed and loses its disk during the
        writes.
    out
        Directory of report.html, report.json, the archive, the tables and the plots.
    data_dir
        Data directory of the cluster; must not exist. By default a new directory under OUT, which
        is removed when all checks passed.
    limit
        Replay only the first rows.
    json
        Print the report as one JSON object.
    """
    _check_limit(limit)
    if not quick:
        check_flights_installed(spark=not no_spark)
    make_directory(out)
    place = fresh_directory(data_dir, out)
    if quick:
        plan = quick_plan(place, out, limit=limit, crash=crash, cluster=cluster)
    else:
        plan = flights_plan(
            place, out, limit=limit, crash=crash, spark=not no_spark, cluster=cluster
        )
    clock, console = SystemClock(), Console(stderr=True, quiet=json)
    outcome = Outcome(plan, moment(clock.now_ms()), LEASE_MS)
    running = _running(outcome, clock, temporary=place if data_dir is None else None)
    return run_and_report(running, Steps(console, clock), console=console, json=json)


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise InvalidRequest(
            "the limit leaves no events to replay", remedy="use a limit of 1 or more"
        )


def _running(outcome: Outcome, clock: SystemClock, *, temporary: Path | None) -> Demo:
    return Demo(
        name="demo",
        work=lambda steps: replay(outcome, steps, clock),
        page=lambda failure: page_of(outcome, failure),
        record=lambda page: record_of(outcome, page),
        out=outcome.plan.out,
        temporary=temporary,
    )


def page_of(outcome: Outcome, failure: Failure | None) -> Page:
    """The report for people."""
    source = outcome.plan.source
    others = " and over HTTP"
    if not outcome.plan.without_spark:
        others = ", over HTTP, and with Spark from tier 2 alone"
    servers, loss = "", ""
    if outcome.plan.servers is not None:
        servers = f" of {outcome.plan.servers.described}"
        loss = " One store is killed and loses its disk."
    return Page(
        title=source.title,
        lead=(
            f"The demo writes {source.count:,} {source.described}, through a fresh cluster"
            f"{servers} on one machine. Each day is one transaction, and the stream is scaled "
            f"meanwhile.{loss} A group of four readers shares the events, and the demo kills one "
            f"of them. Then it reads all events back with the client{others}."
        ),
        begun=outcome.begun,
        checks=checks_of(outcome),
        measures=measures_of(outcome),
        pictures=outcome.pictures,
        machine=machine_of(),
        failure=failure,
    )
