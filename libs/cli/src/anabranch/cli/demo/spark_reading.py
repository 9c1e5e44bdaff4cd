"""Runs the pipeline of flight delays on tier 2, as a separate program."""

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path

from anabranch.cli.demo.check import RowSum
from anabranch.common.errors import BinaryNotFound, Unavailable

PROGRAM = "anabranch.spark.pipelines.flight_delays"
PIPELINE_S_MAX = 300.0
LOG = "pipeline.log"
_NEEDED = ("pyspark", "pyarrow", "matplotlib")


@dataclass(frozen=True, slots=True)
class PipelineOutcome:
    """The events that Spark read, and its results."""

    read: RowSum
    parquet_rows: int
    plots: tuple[str, ...]


def check_spark_installed() -> None:
    """Raises BinaryNotFound, which names the package to install."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing or importlib.util.find_spec("anabranch.spark") is None:
        raise BinaryNotFound(
            "the demo's Spark pipeline is not installed",
            remedy="pip install 'anabranch-cli[demo]'",
            missing=", ".join(missing) or "anabranch-spark",
        )


async def run_pipeline(stream: str, tier2_url: str, out: Path) -> PipelineOutcome:
    """Run the pipeline to its end; its other output goes to pipeline.log in `out`.

    `out` exists. Raises Unavailable if it fails or times out; the log has the reason.
    """
    log = out / LOG
    arguments = ("--stream", stream, "--tier2", tier2_url, "--out", str(out), "--json")
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", PROGRAM, *arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=errors, start_new_session=True,
            env={**os.environ, "PYTHONSAFEPATH": "1"},  # Spark's workers inherit it from here
        )  # fmt: skip
        try:
            async with asyncio.timeout(PIPELINE_S_MAX):
                told, _ = await process.communicate()
        except TimeoutError as error:
            raise _failed("the Spark pipeline did not finish in time", log) from error
        finally:
            await _end(process)
    if process.returncode != 0:
        raise _failed("the Spark pipeline failed", log)
    return outcome_of(told)


def outcome_of(told: bytes) -> PipelineOutcome:
    """The pipeline's report, from JSON."""
    report = json.loads(told)
    return PipelineOutcome(
        read=RowSum(report["events"], report["row_sum"]),
        parquet_rows=report["parquet_rows"],
        plots=tuple(report["plots"]),
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
