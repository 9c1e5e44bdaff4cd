"""The end of a local session: however its program ends, Java ends and no file stays behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.spark.session import WORKER_MEMORY

pytestmark = pytest.mark.xdist_group("spark")
PROGRAM_S_MAX = 240
DEADLINE = f"""
import faulthandler
faulthandler.dump_traceback_later({PROGRAM_S_MAX}, exit=True)
from anabranch.spark.session import local_session
"""
ENTERED_BY_HAND = """
entered = local_session("by hand", quick=True)
session = entered.__enter__()
print("ready", flush=True)
"""
IN_A_JOB = """
import threading, time

def tell(tracker):
    while not tracker.getActiveJobsIds():
        time.sleep(0.05)
    print("ready", flush=True)

with local_session("in a job", quick=True) as session:
    tracker = session.sparkContext.statusTracker()
    threading.Thread(target=tell, args=[tracker], daemon=True).start()
    session.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', 600000L)").collect()
"""


@contextmanager
def started(program: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, after it has opened its session; its temporary files lie in `directory`.

    It ends by itself with exit code 1 after `PROGRAM_S_MAX`.
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-c", DEADLINE + program],
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def test_a_session_that_nothing_leaves_ends_with_its_program(tmp_path: Path) -> None:
    with started(ENTERED_BY_HAND, tmp_path) as process:
        assert process.wait(PROGRAM_S_MAX) == 0
    assert list(tmp_path.iterdir()) == []


def test_sigterm_in_the_middle_of_a_job_leaves_no_files(tmp_path: Path) -> None:
    with started(IN_A_JOB, tmp_path) as process:
        [directory] = tmp_path.iterdir()
        assert directory.name.startswith("anabranch-spark-")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PROGRAM_S_MAX) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_workers_reuse_the_memory_of_their_last_read(session: SparkSession) -> None:
    names = list(WORKER_MEMORY)

    def settings(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"value": [os.environ.get(name) for name in names]})

    found = session.range(1).mapInArrow(settings, "value string").collect()
    assert [row["value"] for row in found] == list(WORKER_MEMORY.values())
