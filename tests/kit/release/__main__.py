"""``python -m kit.release``: build all distributions into out/dist, and try them with every Python.

Prints a table; ends with 1 if a step failed or no interpreter was found. An interpreter that this
machine lacks is said, and is no failure: `--require 3.14` makes it one.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kit.release.build import build_all, check_all
from kit.release.pythons import VERSIONS, Python, find_pythons
from kit.release.steps import StepFailed
from kit.release.trial import COLUMNS, FAILED, try_with
from tidy.source import ROOT

MISSING = "MISSING: no such interpreter on this machine"


def table(rows: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The results as text: a line per interpreter, a column per step."""
    cells = [["python", *COLUMNS]]
    for version, found in rows.items():
        cells.append([version, *(found.get(column, "") for column in COLUMNS)])
        if not found:
            cells[-1][1] = MISSING
    widths = [
        max(len(row[at]) for row in cells if row[at] != MISSING) for at in range(len(cells[0]))
    ]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def build(root: Path) -> Sequence[Path]:
    """Build and check; returns the wheels. Raises StepFailed."""
    target = root / "out" / "dist"
    wheels = build_all(root, target)
    check_all(sorted(target.iterdir()), root / "out" / "release-tools")
    for file in sorted(target.iterdir()):
        say(f"built {file.relative_to(root)} ({file.stat().st_size:,} bytes)")
    return wheels


def try_all(pythons: Sequence[Python], wheels: Sequence[Path]) -> dict[str, dict[str, str]]:
    """Each interpreter's results; an empty mapping for one that is missing."""
    rows: dict[str, dict[str, str]] = {}
    for python in pythons:
        if python.program is None:
            say(f"python{python.version} is {MISSING}")
            rows[python.version] = {}
            continue
        say(f"trying {python.version} ({python.program})")
        rows[python.version] = try_with(python.program, wheels, say)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="kit.release")
    parser.add_argument("--python", action="append", help="a version to try, as 3.12; repeatable")
    parser.add_argument("--require", action="append", default=[], help="a version that must exist")
    options = parser.parse_args()
    try:
        wheels = build(ROOT)
    except StepFailed as error:
        say(f"{FAILED} to build\n{error}")
        return 1
    pythons = find_pythons(options.python or VERSIONS)
    rows = try_all(pythons, wheels)
    say("")
    for line in table(rows):
        say(line)
    absent = [each.version for each in pythons if each.program is None]
    failed = any(FAILED in found.values() for found in rows.values())
    return int(failed or len(absent) == len(pythons) or bool({*absent} & {*options.require}))


if __name__ == "__main__":
    sys.exit(main())
