"""Runs a demo and leaves its report, however the demo ends.

An early end (an error, Ctrl-C) leaves a report that names the step and the reason, and is then
raised as it was. The data of the cluster goes only after success.
"""

import contextlib
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from anabranch.cli.demo.report.page import Failure, Page, failure_of
from anabranch.cli.demo.report.places import write_report
from anabranch.cli.demo.steps import Steps
from anabranch.cli.output import Form, Output
from anabranch.cli.session import run_async
from anabranch.common.errors import DirectoryUnusable

Record = dict[str, object]


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo to run. `page`, `record`: its report, of as much as there is when they are called.

    `temporary`: a directory to remove after success; None: nothing is.
    """

    name: str
    work: Callable[[Steps], Coroutine[Any, Any, None]]
    page: Callable[[Failure | None], Page]
    record: Callable[[Page], Record]
    out: Path
    temporary: Path | None


def run_and_report(demo: Demo, steps: Steps, *, console: Console, json: bool) -> int:
    """Returns the exit code: 0 if all checks passed. Raises the error of a demo that ends early."""
    try:
        run_async(demo.work(steps))
    except BaseException as error:
        page = demo.page(failure_of(error, steps.name))
        with contextlib.suppress(DirectoryUnusable):  # the first error says more
            path = write_report(demo.out, demo.record(page), page)
            console.print(f"report: {path}", markup=False, highlight=False, soft_wrap=True)
        raise
    page = demo.page(None)
    record = demo.record(page)
    path = write_report(demo.out, record, page)
    if demo.temporary is not None and page.is_right:
        shutil.rmtree(demo.temporary)
    output = Output(Form.JSON if json else Form.TABLE)
    if json:
        output.details(demo.name, {**record, "page": str(path)})
    else:
        output.table(page.title, lines_of(page))
        output.done(page.verdict, {})
        output.done(f"report: {path}", {})
    return 0 if page.is_right else 1


def lines_of(page: Page) -> list[tuple[str, str]]:
    """The figures and the checks for a table of two columns."""
    return [
        *((f"{each.part}: {each.name}", each.text) for each in page.measures),
        *((each.name, ": ".join(filter(None, (each.result, each.found)))) for each in page.checks),
    ]
