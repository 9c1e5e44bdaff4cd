"""Compares two checkouts, prints a table, writes `bench/out/compare.json`.

    python -m bench.compare --old main --new . --workloads W1,W3 --pairs 7 --effort quick

Ends with 1 if a row is worse, or if the new checkout did not hold exactly the events written to it;
with 2 if a row stays undecided. `--old` and `--new` are directories of checkouts or revisions.
"""

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TextIO

import uvloop
from rich.console import Console
from rich.table import Table

from anabranch.common.errors import AnabranchError
from bench.clock import SystemStopwatch, utc_text
from bench.compare.checkout import checkout, differences
from bench.compare.judge import LOWER_PERCENT_MAX, Verdict, pairs_needed
from bench.compare.pairs import REPEATS_MAX, ComparedRow, Comparison, Plan, compare
from bench.compare.process import measure_side
from bench.report import LATEST
from bench.rounds import STEAL_PERCENT_MAX
from bench.run import EFFORTS, EXIT_FAILED, fresh_directory, tell

WORKLOADS = "W1,W2,W3,W4,W6,W7,W14"
EXIT_WORSE = 1
EXIT_UNDECIDED = EXIT_FAILED
_ROOT = Path(__file__).resolve().parents[2]
_COLUMNS = (
    "workload", "event", "settings", "figure", "OLD", "NEW", "speed", "slower in", "stolen %",
    "verdict",
)  # fmt: skip
_LEFT_COLUMNS = 4


def exit_status(verdicts: Iterable[Verdict], *, has_gaps: bool) -> int:
    """0 only if every row was decided, none is worse and no event was lost."""
    found = set(verdicts)
    if found & {Verdict.WORSE, Verdict.LOST}:
        return EXIT_WORSE
    return EXIT_UNDECIDED if has_gaps or Verdict.UNDECIDED in found else 0


def cells(row: ComparedRow) -> tuple[str, ...]:
    """One row as the text of its columns."""
    judged = row.judgement
    change = judged.change_percent
    return (
        row.key.workload,
        f"{row.key.event_bytes:,} B" if row.key.event_bytes else "–",
        row.key.settings,
        row.figure,
        _figure(row.old),
        _figure(row.new),
        "–" if change is None else f"{change:+.1f} %",
        f"{judged.lower} of {judged.pairs}",
        f"{row.steal_percent:.1f}",
        judged.verdict.value,
    )


def notes(comparison: Comparison, plan: Plan) -> list[str]:
    """The conditions of the comparison, as lines."""
    repeats = ", ".join(f"{name} {count}" for name, count in comparison.repeats.items())
    worse = [
        row.key.workload.split()[0]
        for row in comparison.rows()
        if row.judgement.verdict is Verdict.WORSE
    ]
    return [
        f"OLD: {plan.old.described}",
        f"NEW: {plan.new.described}",
        *(f"beware: {line}" for line in differences(plan.old, plan.new, _ROOT)),
        f"a row is worse if the median of its pairs is more than {LOWER_PERCENT_MAX:g} % lower and "
        f"at least {pairs_needed(plan.pairs)} of {plan.pairs} pairs agree",
        f"pairs measured again because of a failure or more than {plan.steal_percent_max:g} % "
        f"stolen time, at most {REPEATS_MAX} for a workload: {repeats or 'none'}",
        *(f"FAILED {count} times: {line}" for line, count in comparison.failures.items()),
        *(f"to confirm it: the same with WORKLOADS={name}" for name in dict.fromkeys(worse)),
    ]


def print_table(rows: Sequence[ComparedRow], lines: Iterable[str], stream: TextIO) -> None:
    """The comparison for people."""
    table = Table(title="Two checkouts: medians of the pairs", title_justify="left")
    for index, name in enumerate(_COLUMNS):
        table.add_column(name, justify="left" if index < _LEFT_COLUMNS else "right")
    for row in rows:
        table.add_row(*cells(row))
    console = Console(file=stream, width=None if stream.isatty() else 140)
    console.print(table)
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _figure(values: Sequence[float]) -> str:
    if not values:
        return "–"
    middle = median(values)
    return f"{middle:,.0f}" if middle >= 100 else f"{middle:.3f}"


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.compare", description="compare two checkouts")
    parser.add_argument("--old", required=True, help="the directory of a checkout, or a revision")
    parser.add_argument("--new", default=".", help="the same; this directory if it is not given")
    parser.add_argument("--workloads", default=WORKLOADS, help="names, separated by commas")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--effort", choices=sorted(EFFORTS), default="quick")
    parser.add_argument("--steal-max", type=float, default=STEAL_PERCENT_MAX, metavar="PERCENT")
    parser.add_argument("--out", type=Path, default=LATEST.parent, help="where results go")
    return parser.parse_args()


def main() -> int:
    options, clock = _parsed(), SystemStopwatch()
    started = clock.now()
    try:
        directory = fresh_directory(options.out.resolve())
        try:
            plan = Plan(
                old=checkout(options.old, _ROOT, directory / "old"),
                new=checkout(options.new, _ROOT, directory / "new"),
                workloads=tuple(name for name in options.workloads.split(",") if name),
                effort=options.effort,
                pairs=max(1, options.pairs),
                steal_percent_max=options.steal_max,
                tell=tell,
                measure=measure_side,
            )
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                comparison = runner.run(compare(plan, directory))
            lines = notes(comparison, plan)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    except AnabranchError as error:
        sys.stderr.write(f"error: {error} / try: {error.remedy}\n")
        return EXIT_FAILED
    rows = comparison.rows()
    seconds = round(clock.now() - started, 1)
    lines.append(f"{options.effort} rounds, {seconds:g} s at {utc_text()}")
    result = {"notes": lines, "rows": [asdict(row) for row in rows]}
    (options.out / "compare.json").write_text(json.dumps(result, indent=2) + "\n")
    sys.stderr.write("\n")
    print_table(rows, lines, sys.stdout)
    verdicts = [row.judgement.verdict for row in rows]
    return exit_status(verdicts, has_gaps=comparison.has_gaps)


if __name__ == "__main__":
    sys.exit(main())
