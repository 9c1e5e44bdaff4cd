"""The directories of a demo, and the two files of its report."""

import json
from collections.abc import Mapping
from pathlib import Path

from anabranch.cli.demo.report.html import html_of
from anabranch.cli.demo.report.page import Page
from anabranch.common.errors import DirectoryUnusable

RECORD = "report.json"
PAGE = "report.html"


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
    """Create the directory of results, without the report of an earlier demo.

    Raises DirectoryUnusable.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in (RECORD, PAGE):
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise DirectoryUnusable(
            "results cannot be written", path=str(out), cause=error.strerror or str(error)
        ) from error


def write_report(out: Path, record: Mapping[str, object], page: Page) -> Path:
    """Write both files, the record as JSON; returns the path of the page.

    Raises DirectoryUnusable.
    """
    path = out / PAGE
    try:
        (out / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        path.write_text(html_of(page, out.resolve()), encoding="utf-8")
    except OSError as error:
        raise DirectoryUnusable(
            "the report cannot be written", path=str(out), cause=error.strerror or str(error)
        ) from error
    return path
