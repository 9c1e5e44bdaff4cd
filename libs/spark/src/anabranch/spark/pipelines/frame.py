"""The frame around the work of every pipeline, the same for `python -m` and
`spark-submit`.

    arguments   a frozen dataclass (`arguments`), declared once
    session     that of `spark-submit`, else a local one
    progress    lines of JSON on standard output with `--progress`
    report      a frozen dataclass: as text, with `--json` as JSON, and as `report.json` and
                `report.txt` in the pipeline's directory of results
    errors      one line with the remedy; Spark's errors as text, because their objects are
                unusable after the end of the session
    exit code   0 done; 1 failed; 2 wrong usage; 3 done, and the report has findings;
                130 interrupted

A module of a pipeline ends with

    PIPELINE = Pipeline(name="…", arguments=Arguments, run=run, summary=summary)

    if __name__ == "__main__":
        run_program(PIPELINE)

where `run` is a function from (session, arguments, progress) to the report.
"""

import argparse
import json
import logging
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from anabranch.common.errors import AnabranchError
from anabranch.spark.pipelines.arguments import add_arguments, parsed
from anabranch.spark.pipelines.progress import Progress
from anabranch.spark.session import open_session

A = TypeVar("A")
R = TypeVar("R")

EXIT_FAILED = 1
EXIT_FINDINGS = 3
EXIT_INTERRUPTED = 130
REPORT_JSON = "report.json"
REPORT_TEXT = "report.txt"
_OUR_ERROR = re.compile(r"^(?:[\w.]*: )*anabranch\.common\.errors\.[\w.]+: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pipeline(Generic[A, R]):
    """A pipeline: its arguments, its work and its report (`A` and `R` are dataclasses)."""

    name: str
    """As in the catalogue; also the name of the application in Spark."""
    help: str
    arguments: type[A]
    run: Callable[[SparkSession, A, Progress], R]
    """The work. A run that was killed is continued by the next one with the same arguments."""
    summary: Callable[[R], Sequence[str]]
    """The report as lines for people."""
    results_in: Callable[[A], Path | None] = lambda _: None
    """The local directory of `report.json` and plots, which the frame creates; None: none."""
    has_findings: Callable[[R], bool] = lambda _: False
    """Whether the report names something that is wrong (exit code 3)."""
    quick: bool = True
    """Whether the work usually takes a minute or less: Java then compiles less."""


class SparkFailed(Exception):
    """Spark's error as text."""


def run_program(pipeline: Pipeline[A, R]) -> None:
    """The entry point of a pipeline's module: run the command line, and exit."""
    logging.basicConfig(level=logging.ERROR)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(main(pipeline, sys.argv[1:]))


def main(pipeline: Pipeline[A, R], words: Sequence[str]) -> int:
    """Run a command line; return the exit code."""
    chosen = parser_of(pipeline).parse_args(words)
    progress = Progress(sys.stdout if chosen.progress else None, sys.stderr)
    try:
        report = perform(pipeline, parsed(pipeline.arguments, chosen), progress)
    except AnabranchError as error:
        sys.stderr.write(f"{error}; {error.remedy_for('command')}\n")
        return EXIT_FAILED
    except SparkFailed as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run the pipeline again to continue\n")
        return EXIT_INTERRUPTED
    sys.stdout.write(as_json(report) if chosen.json else as_text(pipeline, report))
    return EXIT_FINDINGS if pipeline.has_findings(report) else 0


def parser_of(pipeline: Pipeline[Any, Any]) -> argparse.ArgumentParser:
    """The parser of a pipeline's command line: its own arguments, then those of the frame."""
    parser = argparse.ArgumentParser(prog=pipeline.name, description=pipeline.help)
    add_arguments(parser, pipeline.arguments)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--progress", action="store_true", help="print the progress before it, as lines of JSON"
    )
    return parser


def perform(pipeline: Pipeline[A, R], arguments: A, progress: Progress) -> R:
    """Do the work in a session and write the report. Raises AnabranchError, SparkFailed."""
    results = pipeline.results_in(arguments)
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
    progress.phase("starting")
    with (
        open_session(f"anabranch-{pipeline.name}", quick=pipeline.quick) as session,
        progress.watching(session),
        spark_errors_as_text(),
    ):
        report = pipeline.run(session, arguments, progress)
        progress.phase("stopping")
    if results is not None:
        (results / REPORT_JSON).write_text(as_json(report))
        (results / REPORT_TEXT).write_text(as_text(pipeline, report))
    return report


@contextmanager
def spark_errors_as_text() -> Iterator[None]:
    """Turn Spark's errors into SparkFailed; one of this project, in a task, into its own text."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from None
        raise SparkFailed(shown(str(error))) from None


def was_interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C ended a call into Java, which PySpark then tells as an error of its own."""
    return isinstance(error.__context__, KeyboardInterrupt)


def shown(text: str) -> str:
    """The text of an error of Spark; of the error in a task that is one of ours, only that."""
    ours = _OUR_ERROR.search(text)
    return ours[1] if ours else text


def as_json(report: Any) -> str:
    """The report as a line of JSON."""
    return json.dumps(asdict(report), default=str) + "\n"


def as_text(pipeline: Pipeline[A, R], report: R) -> str:
    """The report as lines for people."""
    return "".join(f"{line}\n" for line in pipeline.summary(report))
