"""The command `anabranch demo-scaling`: flights at a changing rate, which the stream follows."""

import importlib.util
import os
import platform
import shutil
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.demo.by_load.pace import TARGET_RATE
from anabranch.cli.demo.by_load.replay import Outcome, Plan, replay
from anabranch.cli.demo.flights import table_path
from anabranch.cli.demo.places import fresh_directory, make_directory, write_report
from anabranch.cli.output import Form, Output
from anabranch.cli.session import run_async
from anabranch.common.errors import BinaryNotFound

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
    end it checks every event.

    Parameters
    ----------
    out
        Directory of report.json and the plots.
    data_dir
        Data directory of the cluster; must not exist. By default a new directory under OUT, which
        is removed when all checks passed.
    json
        Print the report as one JSON object.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise BinaryNotFound(
            "the demo draws with matplotlib", remedy="pip install 'anabranch-cli[demo]'"
        )
    make_directory(out)
    plan = Plan(table_path(), fresh_directory(data_dir, out), out, quiet=json)
    outcome = run_async(replay(plan))
    if data_dir is None and outcome.is_right:
        shutil.rmtree(plan.data_dir)
    report = report_of(outcome)
    write_report(out / "report.json", report)
    output = Output(Form.JSON if json else Form.TABLE)
    if json:
        output.details("demo-scaling", report)
    else:
        output.table("Flights of 2013, at a changing rate", summary_of(outcome))
    return 0 if outcome.is_right else 1


def report_of(outcome: Outcome) -> dict[str, object]:
    """The content of report.json."""
    tally = outcome.tally
    return {
        "events_written": len(tally.written.hashes),
        "events_read": tally.events,
        "duplicates": tally.duplicates,
        "missing": tally.missing,
        "out_of_order": tally.out_of_order,
        "changed": tally.changed,
        "late": outcome.late,
        "target_rate": TARGET_RATE,
        "first_split_seconds": outcome.first_split_s,
        "segments_max": outcome.segments_max,
        "segments_last": outcome.segments_last,
        "epochs": [
            {"epoch": one.stream_epoch, "created_ms": one.created_ms,
             "segments": one.segment_count, "cause": one.cause}
            for one in outcome.epochs
        ],
        "seconds": round(outcome.seconds, 3),
        "plots": list(outcome.plots),
        "environment": {"python": platform.python_version(), "cpu_count": os.cpu_count()},
    }  # fmt: skip


def summary_of(outcome: Outcome) -> list[tuple[str, str]]:
    """The report for people."""
    tally = outcome.tally
    first = outcome.first_split_s
    begun_ms = outcome.epochs[0].created_ms
    return [
        ("events written", f"{len(tally.written.hashes):,}"),
        ("events read", f"{tally.events:,}"),
        ("duplicates, missing", f"{tally.duplicates:,}, {tally.missing:,}"),
        ("out of order, changed", f"{tally.out_of_order:,}, {tally.changed:,}"),
        ("events before the reader's time window", f"{outcome.late:,}"),
        (
            "first split",
            "never" if first is None else f"{first:.1f} s after the rate exceeded the target",
        ),
        ("most segments", f"{outcome.segments_max}"),
        ("segments at the end", f"{outcome.segments_last}"),
        *(
            (f"epoch {one.stream_epoch}, {(one.created_ms - begun_ms) / 1000:.0f} s",
             f"{_segments(one.segment_count)}: {one.cause}")
            for one in outcome.epochs[1:]
        ),
        *(("plot", path) for path in outcome.plots),
        ("result", "no damage found" if outcome.is_right else "THE CHECK FAILED"),
    ]  # fmt: skip


def _segments(count: int) -> str:
    return "1 segment" if count == 1 else f"{count} segments"
