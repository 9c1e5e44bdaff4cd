"""Runs the pipelines of the flights, each as a separate program.

A program reports its progress on its standard output, one JSON object per line, and ends with its
report.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from pathlib import Path

from anabranch.cli.demo.check import RowSum
from anabranch.cli.demo.outcome import SparkOutcome, YearOutcome
from anabranch.common.errors import DirectoryUnusable, Unavailable

PROGRAM = "anabranch.spark.pipelines.flight_delays"
YEAR_PROGRAM = "anabranch.spark.pipelines.flight_year"
PIPELINE_S_MAX = 300.0
LOG = "pipeline.log"
YEAR = "year"
"""The directory of the archive, the windows and the audit, below that of all results."""
DEPARTURES = "demo/departures"
FINDINGS = 3
"""The exit code of a pipeline whose report has findings."""
_DOING = b'{"doing"'
_SAID = b'{"said"'

Tell = Callable[[str, int, int], None]
"""Takes the phase of Spark, the number of finished tasks, and their total; 0 of 0: unknown."""


async def run_pipeline(stream: str, tier2_url: str, out: Path, tell: Tell) -> SparkOutcome:
    """Compute the delays from tier 2; see `_run`."""
    words = ("--stream", stream, "--tier2", tier2_url, "--out", str(out))
    return outcome_of(await _run(PROGRAM, words, out / LOG, tell))


async def run_year(
    stream: str, endpoints: Path, tier2_url: str, out: Path, tell: Tell
) -> YearOutcome:
    """Archive the stream, count departures per hour and audit tier 2, while the cluster runs.

    Replaces the results of an earlier demo. Raises as `_run`, and DirectoryUnusable.
    """
    year = out / YEAR
    await asyncio.to_thread(make_fresh, year)
    words = (
        "--stream", stream, "--nats", str(endpoints), "--tier2", tier2_url,
        "--to", DEPARTURES, "--out", str(year),
    )  # fmt: skip
    return year_of(await _run(YEAR_PROGRAM, words, year / LOG, tell))


def make_fresh(year: Path) -> None:
    """Create the directory, without the results of an earlier demo, whose stream is gone.

    Raises DirectoryUnusable for a directory that no demo has made.
    """
    try:
        if year.exists():
            if not (year / LOG).is_file():
                raise DirectoryUnusable(
                    "the demo would replace a directory that is not its own",
                    remedy="name another --out", path=str(year),
                )  # fmt: skip
            shutil.rmtree(year)
        year.mkdir()
    except OSError as error:
        raise DirectoryUnusable(
            "results cannot be written", path=str(year), cause=error.strerror or str(error)
        ) from error


async def _run(program: str, words: Sequence[str], log: Path, tell: Tell) -> bytes:
    """Run a pipeline to its end → its report; its other output goes to the log.

    The directory of the log exists. Raises Unavailable if the pipeline fails or times out; the log
    has the reason.
    """
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", program, *words, "--json", "--progress",
            stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=errors, start_new_session=True,
            env={**os.environ, "PYTHONSAFEPATH": "1"},  # Spark's workers inherit it from here
        )  # fmt: skip
        try:
            async with asyncio.timeout(PIPELINE_S_MAX):
                told = await _listen(process, tell)
                await process.wait()
        except TimeoutError as error:
            raise _failed("the Spark pipeline did not finish in time", log) from error
        finally:
            await _end(process)
    if process.returncode not in (0, FINDINGS):
        raise _failed("the Spark pipeline failed", log)
    return told


async def _listen(process: Process, tell: Tell) -> bytes:
    """Pass on the progress until the output ends; returns the last other line."""
    assert process.stdout is not None
    last = b""
    async for line in process.stdout:
        if line.startswith(_DOING) and line.endswith(b"\n"):  # not torn by a kill
            told = json.loads(line)
            tell(told["doing"], told["tasks_done"], told["tasks"])
        elif not line.startswith(_SAID):
            last = line
    return last


def outcome_of(told: bytes) -> SparkOutcome:
    """The pipeline's report, from JSON."""
    report = json.loads(told)
    return SparkOutcome(
        read=RowSum(report["events"], report["row_sum"]),
        parquet_rows=report["parquet_rows"],
        plots=tuple(map(Path, report["plots"])),
    )


def year_of(told: bytes) -> YearOutcome:
    """The report of the year, from JSON."""
    report = json.loads(told)
    return YearOutcome(
        archived=RowSum(report["archive_events"], report["archive_crc_sum"]),
        windows=report["windows"],
        windows_events=report["windows_events"],
        audited_events=report["audited_events"],
        damages=tuple(report["damages"]),
        plots=tuple(map(Path, report["plots"])),
    )


async def _end(process: Process) -> None:
    """Kill the process and its children, unless it has ended by itself."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _failed(what: str, log: Path) -> Unavailable:
    lines = log.read_text(errors="replace").strip().splitlines()
    return Unavailable(what, remedy=f"read {log}", last=lines[-1][:500] if lines else "")
