"""Runs `side.py` on a checkout, as a process that ends in time and leaves nothing behind."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.compare.checkout import Checkout
from bench.compare.judge import Measured, measured
from bench.compare.pairs import Rows
from bench.systems.process import die_with_parent

SIDE_SECONDS_MAX = {"quick": 300.0, "medium": 1_800.0, "long": 14_400.0}
"""A checkout that has not finished a workload by then is stopped. By effort."""
_LOG_TAIL_SIZE_BYTES = 400
_SIDE = Path(__file__).with_name("side.py")


async def measure_side(
    side: Checkout, workload: str, effort: str, directory: Path
) -> tuple[Rows, str | None]:
    """As `MeasureSide` says."""
    result, log = directory / "result", directory / "log"
    with _own(directory):
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", str(_SIDE)),
                *("--workload", workload, "--effort", effort),
                *("--data", str(directory / "data"), "--result", str(result)),
                cwd=side.root,
                env=side.environment(os.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        error = await ended(process, SIDE_SECONDS_MAX[effort])
        text = result.read_text() if result.exists() else ""
        rows = {row.key: row for row in rows_of(text)}
        return rows, error and f"{error}: {_tail(log)}"


async def ended(process: asyncio.subprocess.Process, seconds_max: float) -> str | None:
    """Wait for the end → the reason if it is a bad one. The process does not outlive the call."""
    try:
        async with asyncio.timeout(seconds_max):
            status = await process.wait()
        return f"exit status {status}" if status else None
    except TimeoutError:
        return f"not finished after {seconds_max:g} s"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def rows_of(text: str) -> list[Measured]:
    """Parse the rows of a side; one that was killed may have left a part of a line at the end."""
    whole = text[: text.rfind("\n") + 1]
    return [measured(json.loads(line)) for line in whole.splitlines()]


@contextmanager
def _own(directory: Path) -> Iterator[None]:
    """A directory that is there for the block."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    try:
        yield
    finally:
        # A server that was killed with its parent may still be writing to it for a moment.
        shutil.rmtree(directory, ignore_errors=True)


def _tail(log: Path) -> str:
    """The end of a log in one line."""
    text = log.read_bytes()[-_LOG_TAIL_SIZE_BYTES:].decode(errors="replace")
    return " ".join(text.split())
