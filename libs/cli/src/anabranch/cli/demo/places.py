"""The directories of a demo, and its report."""

import json
from pathlib import Path

from anabranch.common.errors import DirectoryUnusable


def fresh_directory(data_dir: Path | None, out: Path) -> Path:
    """A data directory that does not exist yet, so that nothing old is counted or destroyed.

    By default a new one under `out`. Raises DirectoryUnusable.
    """
    if data_dir is not None:
        if data_dir.exists():
            raise DirectoryUnusable(
                "the demo needs a fresh data directory",
                remedy="name a directory that does not exist, or omit --data-dir",
                path=str(data_dir),
            )
        return data_dir
    number = 1
    while (candidate := out / f"cluster-{number}").exists():
        number += 1
    return candidate


def make_directory(out: Path) -> None:
    """Create the directory of results. Raises DirectoryUnusable."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DirectoryUnusable(
            "results cannot be written", path=str(out), cause=error.strerror or str(error)
        ) from error


def write_report(path: Path, report: dict[str, object]) -> None:
    """Write the report as JSON. Raises DirectoryUnusable."""
    try:
        path.write_text(json.dumps(report, indent=2) + "\n")
    except OSError as error:
        raise DirectoryUnusable(
            "the report cannot be written", path=str(path), cause=error.strerror or str(error)
        ) from error
