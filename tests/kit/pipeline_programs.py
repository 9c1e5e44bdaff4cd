"""Runs pipelines as programs of their own, to their end or to the point where they die."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAM_S_MAX = 300.0
TESTS = Path(__file__).parents[1]


def run_program(
    module: str, words: Sequence[str], *, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `python -m` to its end; no process of it survives."""
    paths = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
    with subprocess.Popen(
        (sys.executable, "-P", "-m", module, *words),
        env={**os.environ, "PYTHONPATH": paths, **(environment or {})},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            # The Java process of one that is killed ends with it, and closes the pipes.
            out, errors = process.communicate(timeout=PROGRAM_S_MAX)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def die_at(point: str, name: str, words: Sequence[str]) -> None:
    """Run the pipeline until it dies at the point."""
    done = run_program("kit.dying_pipeline", (point, name, *words))
    assert done.returncode == -signal.SIGKILL, done.stderr
