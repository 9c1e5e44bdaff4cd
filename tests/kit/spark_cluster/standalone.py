"""Runs a Spark standalone master and two workers on loopback, from PySpark's own jars.

Each worker has an address of its own, because Spark speculates only on another host.

The processes see neither the repository nor its environment: no PYTHONPATH, and a PATH that finds
the interpreter beneath the environment. Each is the leader of a group, which ends with the block.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyspark

from anabranch.spark.java import find_java_home, java_version
from kit.infra import LOOPBACK
from kit.infra.settings import free_port
from kit.release.steps import clean_environment

HOME = Path(pyspark.__file__).parent
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
HOSTS = (LOOPBACK, "127.0.0.2")
WORKERS = len(HOSTS)
CORES = 2
READY_S_MAX = 120.0
STOP_S_MAX = 30.0
LOOK_EVERY_S = 0.1
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Standalone:
    """A running master with its workers."""

    url: str
    status_url: str
    worker_pids: tuple[int, ...]
    environment: Mapping[str, str]
    """The variables of the Spark processes: a clean shell, the machine's keys, and Java."""

    def executor_of(self, pid: int) -> int:
        """The executor whose Python worker, or descendant, the process is."""
        while pid > 1 and EXECUTOR not in _command(pid):
            pid = _parent(pid)
        assert _parent(pid) in self.worker_pids, "the process belongs to no worker of this cluster"
        return pid


@contextmanager
def standalone(directory: Path, keys: Mapping[str, str]) -> Iterator[Standalone]:
    """A cluster during the block; `keys` are variables that the machines set for tier 2."""
    java = find_java_home(os.environ, directory, which=shutil.which, version_of=java_version)
    environment = machine_environment(java, keys)
    port, status_port = free_port(), free_port()
    url = f"spark://{LOOPBACK}:{port}"
    master = ("master.Master", "--host", LOOPBACK, "--port", str(port))
    with ExitStack() as running:
        found = [
            running.enter_context(_process(directory, environment, number, words))
            for number, words in enumerate(
                [
                    (*master, "--webui-port", str(status_port)),
                    *(_worker(directory, number, url) for number in range(WORKERS)),
                ]
            )
        ]
        status_url = f"http://{LOOPBACK}:{status_port}/json/"
        _await(lambda: len(_alive_workers(status_url)) == WORKERS, "Spark's workers", directory)
        pids = tuple(process.pid for process in found[1:])
        yield Standalone(url, status_url, pids, environment)


def machine_environment(java: Path, keys: Mapping[str, str]) -> dict[str, str]:
    """The variables of a machine on which this repository was never installed."""
    path = f"{Path(sys.base_prefix, 'bin')}:/usr/bin:/bin"
    return {
        **clean_environment(),
        **keys,
        "JAVA_HOME": str(java),
        "PATH": path,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }


def _worker(directory: Path, number: int, url: str) -> tuple[str, ...]:
    work = directory / f"work-{number}"
    return (
        "worker.Worker", "--host", HOSTS[number], "--cores", str(CORES), "--memory", "1500m",
        "--work-dir", str(work), "--webui-port", str(free_port()), url,
    )  # fmt: skip


@contextmanager
def _process(
    directory: Path, environment: Mapping[str, str], number: int, words: tuple[str, ...]
) -> Iterator["subprocess.Popen[bytes]"]:
    name, *rest = words
    command: Sequence[str | Path] = (
        HOME / "bin/spark-class",
        f"org.apache.spark.deploy.{name}",
        *rest,
    )
    local = directory / "local"
    local.mkdir(exist_ok=True)
    with (directory / f"spark-{number}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**environment, "SPARK_LOCAL_DIRS": str(local)}, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        end_group(process)


def end_group(process: "subprocess.Popen[Any]") -> None:
    """End a leader, and then what is left of its group."""
    process.terminate()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _alive_workers(status_url: str) -> list[str]:
    try:
        with urlopen(status_url, timeout=2.0) as answer:
            told = json.load(answer)
    except OSError:
        return []
    return [one["id"] for one in told["workers"] if one["state"] == "ALIVE"]


def _await(condition: Callable[[], bool], what: str, directory: Path) -> None:
    deadline = time.monotonic() + READY_S_MAX  # noqa: TID251 - real processes
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not start: {directory}"  # noqa: TID251
        time.sleep(LOOK_EVERY_S)  # noqa: TID251 - real processes


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _parent(pid: int) -> int:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    return int(after_name.split()[1])
