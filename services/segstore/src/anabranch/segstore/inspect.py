"""``python -m anabranch.segstore.inspect DIRECTORY``: print the contents of a store's journal.

It prints one line of JSON per file and container, one per fault, and one for the whole, and changes
nothing. The exit code is 1 if an open would refuse the journal.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.errors import AnabranchError, DirectoryUnusable
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.inspection import JournalReport, inspect_journal


def lines_of(report: JournalReport) -> Iterator[dict[str, object]]:
    """The lines that are printed for the report."""
    for file in report.files:
        for container, operations in sorted(file.containers.items()):
            yield {
                "file": file.name,
                "container": container,
                "first_sequence": operations.first_sequence,
                "last_sequence": operations.last_sequence,
                "frames": operations.frames,
                "bytes": operations.size_bytes,
            }
        if file.torn is not None:
            yield {"torn": file.name, "position": file.torn.position, "bytes": file.torn.size}
    for name in report.orphans:
        yield {"orphan": name}
    for fault in report.faults:
        yield {"fault": fault}
    yield {
        "journal": report.journal_id,
        "journal_epoch": max(report.fences, default=0),
        "containers": len(report.logs),
        "files": len(report.files),
        "frames": sum(o.frames for file in report.files for o in file.containers.values()),
        "bytes": sum(o.size_bytes for file in report.files for o in file.containers.values()),
        "faults": len(report.faults),
    }


def inspect(directory: Path) -> JournalReport:
    """Inspect the journal in this directory, or in this data directory of a store.

    Raises DirectoryUnusable.
    """
    for root in (directory, directory / "journal"):
        disk = LocalDisk(root, read_only=True)
        if disk.exists(layout.FORMAT_FILE):
            return inspect_journal(disk)
    raise DirectoryUnusable(
        "the directory holds no journal",
        remedy="name a segment store's data directory, or the folder journal in it",
        path=str(directory),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m anabranch.segstore.inspect")
    parser.add_argument("directory", type=Path, help="a segment store's data directory")
    options = parser.parse_args()
    try:
        report = inspect(options.directory)
    except AnabranchError as error:
        sys.stderr.write(json.dumps({"error": error.to_body("command")}) + "\n")
        return 1
    for line in lines_of(report):
        sys.stdout.write(json.dumps(line) + "\n")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
