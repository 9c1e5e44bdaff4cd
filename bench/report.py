"""Shows a result: a table for the terminal, or Markdown for docs/performance.md.

    python -m bench.report              the last run
    python -m bench.report --markdown   the same to be pasted into a document

`bench/out/latest.json` = {machine, probe, rows, failures}; a row's `range` holds the least and the
greatest of the rounds behind each median, `steal_percent` the most that the host stole of the
machine's time in one of them, and `repeats` how many rounds were repeated for that reason.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

LATEST = Path(__file__).parent / "out" / "latest.json"
Result = Mapping[str, Any]
_COLUMNS = (
    "workload", "event", "system", "class", "events/s (least–greatest)", "MB/s",
    "p50 ms", "p99 ms", "ack p99 ms", "CPU µs/event", "stolen %", "notes", "verified",
)  # fmt: skip
_LEFT_COLUMNS = 4


def is_verified(outcomes: Sequence[Result]) -> bool:
    """Whether every system held exactly what was written to it, in every row and failed case."""
    return all(each["verified"] is True for each in outcomes)


def cells(row: Result) -> tuple[str, ...]:
    """One row as the text of its columns."""
    least, greatest = row["range"]["events_per_s"]
    return (
        row["workload"],
        f"{row['event_bytes']:,} B" if row["event_bytes"] else "–",
        f"{row['system']}, {row['settings']}",
        row["durability"],
        f"{row['events_per_s']:,.0f} ({least:,.0f}–{greatest:,.0f})",
        f"{row['mb_per_s']:,.1f}" if row["event_bytes"] else "–",
        _milliseconds(row["p50_ms"]),
        _milliseconds(row["p99_ms"]),
        _milliseconds(row["ack_p99_ms"]),
        "–" if row["cpu_us_per_event"] is None else f"{row['cpu_us_per_event']:,.1f}",
        _stolen(row),
        ", ".join(f"{name} {value:g}" for name, value in row["notes"].items()) or "–",
        "yes" if row["verified"] else "NO: LOST OR CHANGED",
    )


def conditions(result: Result) -> list[str]:
    """What the figures were taken on, as lines."""
    machine, probe = result["machine"], result["probe"]
    return [
        f"{machine['cpu_count']} cores ({machine['cpu_model']}), {machine['memory_gib']} GiB, "
        f"{machine['file_system']}, Linux {machine['kernel']}, Python {machine['python']}"
        f"{_halting(machine.get('poll_ns'))}",
        ", ".join(f"{name} {number}" for name, number in versions(machine)),
        f"bare 4 KB sync: {_sync(probe)} before, {_sync(probe['after'])} after",
        f"load before {machine['load_1m_before']}, stolen time {machine['steal_percent']} %, "
        f"{result['effort']} run of {result['seconds']} s at {result['at']}",
        *_repeats(result),
    ]


def _halting(poll_ns: int | None) -> str:
    """What an idle processor of a virtual machine does, where the kernel says so."""
    if poll_ns is None:
        return ""
    return f", idle processors {f'poll for {poll_ns / 1000:g} µs' if poll_ns else 'halt at once'}"


def _repeats(result: Result) -> list[str]:
    repeats = sum(row.get("repeats", 0) for row in result["rows"])
    if not repeats:
        return []
    limit = result["steal_percent_max"]
    return [
        f"rounds repeated because the host stole more than {limit:g} % of their time: {repeats}"
    ]


def failures(result: Result) -> list[str]:
    """The cases that have no row because they failed, as lines."""
    return [
        f"FAILED: {each['workload']} {each['event_bytes']} B of {each['system']} "
        f"{each['settings']}: {each['error']}"
        f"{'' if each['verified'] else ', AND EVENTS WERE LOST OR CHANGED'}"
        for each in result.get("failures", ())
    ]


def left_out(result: Result) -> list[str]:
    """The peers that did not run, and how they would, as lines."""
    return [f"LEFT OUT: {line}" for line in result.get("left_out", ())]


def versions(machine: Result) -> list[tuple[str, str]]:
    return [*machine["servers"].items(), *machine["clients"].items()]


def print_table(result: Result, stream: TextIO) -> None:
    """The result for people."""
    table = Table(title="Side by side: medians of the rounds", title_justify="left")
    for index, name in enumerate(_COLUMNS):
        table.add_column(name, justify="left" if index < _LEFT_COLUMNS else "right")
    for previous, row in zip([None, *result["rows"]], result["rows"], strict=False):
        if previous is not None and _group(previous) != _group(row):
            table.add_section()
        table.add_row(*cells(row))
    console = Console(file=stream, width=None if stream.isatty() else 160)
    console.print(table)
    for line in (*failures(result), *left_out(result), *conditions(result)):
        console.print(line, highlight=False, markup=False)


def markdown(result: Result) -> str:
    """The result as a Markdown table with its conditions."""
    sides = [":--" if index < _LEFT_COLUMNS else "--:" for index in range(len(_COLUMNS))]
    lines = [_COLUMNS, tuple(sides), *(cells(row) for row in result["rows"])]
    table = [f"| {' | '.join(line)} |" for line in lines]
    above = [f"- {line}" for line in (*conditions(result), *failures(result), *left_out(result))]
    return "\n".join([*above, "", *table])


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.report", description="show a benchmark's result")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--file", type=Path, default=LATEST, help="the result to show")
    options = parser.parse_args()
    result = json.loads(options.file.read_text())
    if options.markdown:
        sys.stdout.write(markdown(result) + "\n")
    else:
        print_table(result, sys.stdout)
    return 0


def _sync(probe: Result) -> str:
    return f"p50 {probe['sync_4k_p50_ms']} ms and p99 {probe['sync_4k_p99_ms']} ms"


def _stolen(row: Result) -> str:
    """Rows of older results say nothing about it."""
    if "steal_percent" not in row:
        return "–"
    again = f" ({row['repeats']} again)" if row["repeats"] else ""
    return f"{row['steal_percent']:.1f}{again}"


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _group(row: Result) -> tuple[str, int]:
    return row["workload"], row["event_bytes"]


if __name__ == "__main__":
    sys.exit(main())
