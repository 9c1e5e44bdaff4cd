"""The command `anabranch demo`: replay the flights, read them back, check, report."""

import os
import platform
import shutil
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.demo.check import RowSum
from anabranch.cli.demo.flights import ROW_COUNT, table_path
from anabranch.cli.demo.group_records import GroupOutcome
from anabranch.cli.demo.places import fresh_directory, make_directory, write_report
from anabranch.cli.demo.replay import Outcome, Plan, replay
from anabranch.cli.demo.spark_reading import check_spark_installed
from anabranch.cli.output import Form, Output
from anabranch.cli.session import run_async
from anabranch.common.errors import InvalidRequest

OUT_DEFAULT = Path("out/demo")


def demo(
    *,
    crash: Annotated[bool, Parameter(negative="")] = False,
    out: Path = OUT_DEFAULT,
    data_dir: Path | None = None,
    limit: int | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Replay 336,776 real flights through a fresh cluster and check every one of them.

    The demo writes each day as a transaction, while the stream scales. Meanwhile a group of four
    readers shares the events, and the demo kills one of them. Then it reads all events back with
    the client, over HTTP, and with Spark from tier 2 alone, which makes a table of delays per hour
    and two plots. A third plot shows the lag of the group.

    Parameters
    ----------
    crash
        Kill the segment store three times during the writes.
    out
        Directory of report.json, the table and the plots.
    data_dir
        Data directory of the cluster; must not exist. By default a new directory under OUT, which
        is removed when all checks passed.
    limit
        Replay only the first rows.
    json
        Print the report as one JSON object.
    """
    if limit is not None and limit < 1:
        raise InvalidRequest(
            "the limit leaves no events to replay", remedy="use a limit of 1 or more"
        )
    check_spark_installed()
    make_directory(out)
    plan = Plan(
        table=table_path(),
        data_dir=fresh_directory(data_dir, out),
        out=out,
        rows=min(limit or ROW_COUNT, ROW_COUNT),
        crash=crash,
        quiet=json,
    )
    outcome = run_async(replay(plan))
    if data_dir is None and outcome.is_right:
        shutil.rmtree(plan.data_dir)
    report = report_of(outcome)
    write_report(out / "report.json", report)
    output = Output(Form.JSON if json else Form.TABLE)
    if json:
        output.details("demo", report)
    else:
        output.table("Flights of 2013, replayed", summary_of(outcome))
    return 0 if outcome.is_right else 1


def report_of(outcome: Outcome) -> dict[str, object]:
    """The content of report.json."""
    tally = outcome.tally
    seconds = outcome.write_seconds + outcome.read_seconds
    return {
        "events_written": len(tally.written.hashes),
        "events_read": tally.events,
        "duplicates": tally.duplicates,
        "missing": tally.missing,
        "out_of_order": tally.out_of_order,
        "changed": tally.changed,
        "seconds": round(seconds, 3),
        "write_seconds": round(outcome.write_seconds, 3),
        "read_seconds": round(outcome.read_seconds, 3),
        "events_per_s": round(len(tally.written.hashes) / outcome.write_seconds),
        "bytes": tally.written.size_bytes,
        "row_sum": tally.written.sum.row_sum,
        "transactions": {
            "committed": outcome.days.count,
            "aborted": outcome.days.aborted,
            "torn": tally.torn(outcome.days),
        },
        "group": group_report_of(outcome.group),
        "group_seconds": round(outcome.group_seconds, 3),
        "http_events": outcome.http.events,
        "http_row_sum": outcome.http.row_sum,
        "http_seconds": round(outcome.http_seconds, 3),
        "spark_events": outcome.spark.read.events,
        "spark_row_sum": outcome.spark.read.row_sum,
        "spark_seconds": round(outcome.spark_seconds, 3),
        "parquet_rows": outcome.spark.parquet_rows,
        "plots": [*outcome.spark.plots, outcome.lag_plot],
        "segments": outcome.segments,
        "scales": outcome.scales,
        "scales_wanted": outcome.scales_wanted,
        "crashes": outcome.crashes,
        "crashes_wanted": outcome.crashes_wanted,
        "environment": {"python": platform.python_version(), "cpu_count": os.cpu_count()},
    }


def group_report_of(group: GroupOutcome) -> dict[str, object]:
    """The results of the group's readers."""
    assert group.kill is not None
    return {
        "events": group.events,
        "missing": group.missing,
        "out_of_order": group.out_of_order,
        "changed": group.changed,
        "segments_moved": group.moved,
        "readers": {
            share.reader_id: {
                "events": share.events,
                "segments": share.segments,
                "segments_taken_over": share.taken_over,
            }
            for share in group.readers
        },
        "killed": group.kill.reader_id,
        "killed_with_segments": len(group.kill.segments),
        "takeover_seconds": round(group.kill.takeover_seconds, 3),
        "processed_twice": group.repeated,
        "processed_twice_of_others": group.repeated_of_others,
        "processed_twice_since_seconds": round(group.repeated_after_s, 3),
        "lag": [{"second": second, "events": events} for second, events in group.lag],
    }


def summary_of(outcome: Outcome) -> list[tuple[str, str]]:
    """The report for people."""
    tally = outcome.tally
    rate = len(tally.written.hashes) / outcome.write_seconds
    return [
        ("events written", f"{len(tally.written.hashes):,}"),
        ("events read", f"{tally.events:,}"),
        ("duplicates", f"{tally.duplicates:,}"),
        ("missing", f"{tally.missing:,}"),
        ("out of order", f"{tally.out_of_order:,}"),
        ("changed", f"{tally.changed:,}"),
        (
            "transactions, one a day",
            f"{outcome.days.count} committed, {outcome.days.aborted} aborted, "
            f"{tally.torn(outcome.days)} torn",
        ),
        ("scaled while written", f"{outcome.scales} times, {outcome.segments} segments now"),
        ("segment store killed", f"{outcome.crashes} times"),
        ("written in", f"{outcome.write_seconds:.1f} s ({rate:,.0f} events/s)"),
        ("read and checked in", f"{outcome.read_seconds:.1f} s"),
        *_group_summary(outcome.group),
        ("read over HTTP", _compared(outcome.http, tally.written.sum, outcome.http_seconds)),
        (
            "read by Spark from tier 2",
            _compared(outcome.spark.read, tally.written.sum, outcome.spark_seconds),
        ),
        ("rows of hourly delays", f"{outcome.spark.parquet_rows:,}"),
        *(("plot", path) for path in (*outcome.spark.plots, outcome.lag_plot)),
        ("result", "no damage found" if outcome.is_right else "THE CHECK FAILED"),
    ]


def _group_summary(group: GroupOutcome) -> list[tuple[str, str]]:
    assert group.kill is not None
    shares = ", ".join(f"{share.events:,}" for share in group.readers)
    return [
        ("read by a group of four", f"{group.events:,} events: {shares}"),
        ("segments moved", f"{group.moved}, to another reader"),
        (
            "reader killed",
            f"{group.kill.reader_id}; taken over after {group.kill.takeover_seconds:.1f} s, "
            f"{group.repeated:,} events processed twice",
        ),
    ]


def _compared(read: RowSum, written: RowSum, seconds: float) -> str:
    """The number of events, and whether they are the written ones."""
    verdict = "the same" if read == written else "DIFFERENT FROM THE WRITTEN EVENTS"
    return f"{read.events:,} events, {verdict}, in {seconds:.1f} s"
