"""The commands `anabranch pipeline …`: the data pipelines on Spark, each a program of its own.

The package anabranch-spark knows its pipelines. This module imports nothing of it: it runs
`python -m anabranch.spark.pipelines` as a child process, with this process's output and Ctrl-C, and
tells it the cluster by the variable ANABRANCH_NATS_URL.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.output import Output
from anabranch.cli.session import ClusterAddress, Shown
from anabranch.cli.target import VARIABLES, Target
from anabranch.common.errors import BinaryNotFound, InvalidRequest, Unavailable

PROGRAM = "anabranch.spark.pipelines"
INSTALL = "pip install 'anabranch-spark[java,pipelines]'"
NEEDED = ("anabranch.spark", "pyspark")
LIST_S_MAX = 60.0
SIGNALLED = 128
COLUMNS = ("pipeline", "does")
_SHOWN = Shown()
_HERE = ClusterAddress()


def list_all(*, shown: Shown = _SHOWN) -> None:
    """List the pipelines on Spark."""
    check_installed(NEEDED)
    rows = list(listed(_told()))
    Output(shown.form).rows(COLUMNS, [(row["name"], row["help"]) for row in rows], rows)


def run(
    pipeline: str,
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)],
    cluster: ClusterAddress = _HERE,
) -> int:
    """Run a pipeline on Spark; its own arguments follow its name.

    The pipeline runs as `python -m anabranch.spark.pipelines`. It reads from the cluster that the
    options name, unless its own arguments name tier 2. After `--`, every word is an argument of the
    pipeline: `anabranch pipeline run archive -- --help` shows them.

    Parameters
    ----------
    pipeline
        Name of the pipeline, see `anabranch pipeline list`.
    arguments
        Arguments of the pipeline.
    """
    check_installed(NEEDED)
    if pipeline.startswith("-"):
        raise InvalidRequest(
            "the name of the pipeline stands before its arguments",
            remedy="run `anabranch pipeline list` to see the names",
        )
    environment = environment_of(cluster.target, os.environ)
    command = (sys.executable, "-P", "-m", PROGRAM, pipeline, *arguments)
    with subprocess.Popen(command, env=environment) as child:
        return _awaited(child)


def check_installed(modules: Sequence[str]) -> None:
    """Raises BinaryNotFound, which says how to install the pipelines."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise BinaryNotFound(
            "the pipelines on Spark are not installed", remedy=INSTALL, missing=", ".join(missing)
        )


def environment_of(target: Target, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the pipeline. A gateway's address is left out: Spark cannot use it.

    A pipeline of tier 2 alone needs no cluster, so that a target without one is no error here.
    """
    found = {name: value for name, value in environment.items() if name not in VARIABLES.values()}
    found["PYTHONSAFEPATH"] = "1"  # Spark's workers inherit it from here
    if not target.context.http:
        found[VARIABLES["nats"]] = target.address
    return found


def listed(lines: str) -> Iterator[dict[str, str]]:
    """The rows of the catalogue, from the output of the program."""
    for line in lines.splitlines():
        row = json.loads(line)
        yield {"name": row["name"], "help": row["help"]}


def _told() -> str:
    try:
        done = subprocess.run(
            (sys.executable, "-P", "-m", PROGRAM),
            capture_output=True, text=True, timeout=LIST_S_MAX, check=True,
        )  # fmt: skip
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise Unavailable(
            "the list of pipelines could not be read",
            remedy=f"run `{sys.executable} -m {PROGRAM}` to see why",
        ) from error
    return done.stdout


def _awaited(child: "subprocess.Popen[bytes]") -> int:
    """The exit code. Ctrl-C reaches the child by itself; SIGTERM is handed on to it."""
    before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        while True:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                continue  # the child ends in order
            return code if code >= 0 else SIGNALLED - code
    finally:
        signal.signal(signal.SIGTERM, before)
