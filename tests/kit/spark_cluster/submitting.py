"""Runs programs by `spark-submit` on a standalone cluster, as docs/spark.md lists the commands."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kit.infra import LOOPBACK
from kit.spark_cluster.standalone import CORES, HOME, PYTHON, WORKERS, Standalone, end_group

PROGRAM_S_MAX = 300.0
SHOWN_CHARACTERS_MAX = 4000
LOOK_EVERY_S = 0.05


class Submitter:
    """Submits programs with the packed environment, with speculation on."""

    def __init__(self, cluster: Standalone, archive: Path | None, directory: Path) -> None:
        self._cluster = cluster
        self._archive = archive
        self._directory = directory

    def run(self, program: Path, *words: str) -> dict[str, Any]:
        """The last line that a program prints, as JSON. An assertion fails unless it ends well."""
        code, out, errors = self.outcome(program, *words)
        assert code == 0, f"{program.name} ended with {code}: {said(out, errors)}"
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    def outcome(self, program: Path, *words: str) -> tuple[int, str, str]:
        """Exit code, output and errors of a program."""
        with self.running(program, *words) as process:
            return ended(process)

    @contextmanager
    def running(self, program: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
        """A program that runs during the block, at most."""
        process = subprocess.Popen(
            [*self.command(), program, *words], cwd=self._directory, env=self.environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            with process:
                yield process
        finally:
            end_group(process)

    def command(self) -> Sequence[str | Path]:
        """The command of the documentation, and what keeps a test on this machine and small."""
        settings = {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.speculation": "true",
            "spark.sql.shuffle.partitions": "4",
            "spark.executor.cores": str(CORES),
            "spark.cores.max": str(CORES * WORKERS),
            "spark.ui.enabled": "false",
        }
        packed = () if self._archive is None else packed_options(self._archive)
        options = (word for name, text in settings.items() for word in ("--conf", f"{name}={text}"))
        return (HOME / "bin/spark-submit", "--master", self._cluster.url, *packed, *options)

    def environment(self) -> Mapping[str, str]:
        """The driver's: it finds the project in its own environment, the executors in theirs."""
        own = Path(sys.executable).parent
        cluster = self._cluster.environment
        return {
            **cluster, "PATH": f"{own}{os.pathsep}{cluster['PATH']}", "PYSPARK_PYTHON": PYTHON,
        }  # fmt: skip


def await_file(path: Path, process: "subprocess.Popen[str]") -> None:
    """Wait until the program, or one of its tasks, has made the file."""
    deadline = time.monotonic() + PROGRAM_S_MAX  # noqa: TID251 - a real process
    while not path.exists():
        assert process.poll() is None, said(*ended(process)[1:])
        assert time.monotonic() < deadline, f"{path} does not appear"  # noqa: TID251
        time.sleep(LOOK_EVERY_S)  # noqa: TID251 - a real process


def said(out: str, errors: str) -> str:
    """The ends of what a program printed: `spark-submit` passes a traceback on as output."""
    return f"{errors[-SHOWN_CHARACTERS_MAX:]}\n{out[-SHOWN_CHARACTERS_MAX:]}"


def packed_options(archive: Path) -> tuple[str, ...]:
    return ("--archives", f"{archive}#environment", "--conf", PACKED_PATH)


PACKED_PATH = "spark.executorEnv.PYTHONPATH=./environment"


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Wait for the end of a program."""
    out, errors = process.communicate(timeout=PROGRAM_S_MAX)
    return process.returncode, out, errors
