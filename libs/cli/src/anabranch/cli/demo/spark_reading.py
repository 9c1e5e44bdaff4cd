"""Runs the pipeline of flight delays on tier 2, as a separate program.

The program reports its progress on its standard output, one JSON object per line, and ends with its
report.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from pathlib import Path

from anabranch.cli.demo.check import RowSum
from anabranch.cli.demo.outcome import SparkOutcome
from anabranch.common.errors import Unavailable

PROGRAM = "anabranch.spark.pipelines.flight_delays"
PIPELINE_S_MAX = 300.0
LOG = "pipeline.log"
_DOING = b'{"doing"'

Tell = Callable[[str, int, int], None]
"""Takes the phase of Spark, the number of finished tasks, and their total; 0 of 0: unknown."""


async def run_pipeline(stream: str, tier2_url: str, out: Path, tell: Tell) -> SparkOutcome:
    """Run the pipeline to its end; its other output goes to pipeline.log in `out`.

    `out` exists. Raises Unavailable if it fails or times out; the log has the reason.
    """
    log = out / LOG
    arguments = ("--stream", stream, "--tier2", tier2_url, "--out", str(out), "--json")
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", PROGRAM, *arguments, "--progress",
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
    if process.returncode != 0:
        raise _failed("the Spark pipeline failed", log)
    return outcome_of(told)


async def _listen(process: Process, tell: Tell) -> bytes:
    """Pass on the progress until the output ends; returns the last other line."""
    assert process.stdout is not None
    last = b""
    async for line in process.stdout:
        if line.startswith(_DOING) and line.endswith(b"\n"):  # not torn by a kill
            told = json.loads(line)
            tell(told["doing"], told["tasks_done"], told["tasks"])
        else:
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


async def _end(process: Process) -> None:
    """Kill the process and its children, unless it has ended by itself."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _failed(what: str, log: Path) -> Unavailable:
    lines = log.read_text(errors="replace").strip().splitlines()
    return Unavailable(what, remedy=f"read {log}", last=lines[-1][:500] if lines else "")
