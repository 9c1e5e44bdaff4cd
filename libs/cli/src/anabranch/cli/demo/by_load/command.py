"""The command `anabranch demo-scaling`: flights at a changing rate, which the stream follows.

Exit codes and clean-up are those of `anabranch demo`.
"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from anabranch.cli.demo.by_load.findings import checks_of, measures_of, record_of
from anabranch.cli.demo.by_load.outcome import Outcome, Plan
from anabranch.cli.demo.by_load.pace import TARGET_RATE
from anabranch.cli.demo.by_load.replay import replay
from anabranch.cli.demo.flights import table_path
from anabranch.cli.demo.installed import FLIGHTS, check_installed
from anabranch.cli.demo.report.machine import machine_of
from anabranch.cli.demo.report.page import Failure, Page
from anabranch.cli.demo.report.places import fresh_directory, make_directory
from anabranch.cli.demo.report.running import Demo, run_and_report
from anabranch.cli.demo.steps import Steps
from anabranch.cli.figures import moment
from anabranch.common.runtime.clock import SystemClock

OUT_DEFAULT = Path("out/demo-scaling")


def demo_scaling(
    *,
    out: Path = OUT_DEFAULT,
    data_dir: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Replay the flights at a changing rate, and watch the stream scale by itself.

    The stream begins with one segment, and its policy asks for 2,000 events/s per segment. The demo
    writes slowly, then six times too fast for one segment, then slowly again. It draws the epoch
    map: which segment had which keys when, and how fast it was written. The writer notes event
    times, and a reader at the tail asks for its time window, which the demo draws too. At the
    end it checks every event. report.html in OUT shows the checks, the figures and the plots.

    Parameters
    ----------
    out
        Directory of report.html, report.json and the plots.
    data_dir
        Data directory of the cluster; must not exist. By default a new directory under OUT, which
        is removed when all checks passed.
    json
        Print the report as one JSON object.
    """
    check_installed(FLIGHTS)
    table = table_path()
    make_directory(out)
    plan = Plan(table, fresh_directory(data_dir, out), out)
    clock, console = SystemClock(), Console(stderr=True, quiet=json)
    outcome = Outcome(plan, moment(clock.now_ms()))
    running = Demo(
        name="demo-scaling",
        work=lambda steps: replay(outcome, steps, clock),
        page=lambda failure: page_of(outcome, failure),
        record=lambda page: record_of(outcome, page),
        out=out,
        temporary=plan.data_dir if data_dir is None else None,
    )
    return run_and_report(running, Steps(console, clock), console=console, json=json)


def page_of(outcome: Outcome, failure: Failure | None) -> Page:
    """The report for people."""
    return Page(
        title="Flights of 2013, at a changing rate",
        lead=(
            "The demo writes all flights that left New York City in 2013: slowly, then six times "
            "too fast for one segment, then slowly again. The policy of the stream asks for "
            f"{TARGET_RATE:,} events/s per segment, and nothing else scales it. A reader at the "
            "tail follows event time. At the end the demo reads every event back."
        ),
        begun=outcome.begun,
        checks=checks_of(outcome),
        measures=measures_of(outcome),
        pictures=outcome.pictures,
        machine=machine_of(),
        failure=failure,
    )
