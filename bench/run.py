"""Runs workloads on all systems, prints the table, writes `bench/out/latest.json`.

    python -m bench.run --workloads W1,W3,W12 --effort quick

Ends with 1 if any system did not hold exactly what was written to it, and with 2 if a case failed,
which is then listed below the table; the results of the other cases stay. Data lie in
`bench/out/data-<n>` and are removed at the end; the directory must be on the disk that is meant,
and a file system in memory is refused.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvloop

from anabranch.cli.up.binaries import find_nats_server
from anabranch.common.errors import AnabranchError, BinaryNotFound, DirectoryUnusable
from anabranch.spark.java import java_version
from bench.case import LONG, MEDIUM, QUICK, Effort
from bench.catalogue import KAFKA_LABELS, systems, workloads
from bench.clock import SystemStopwatch, utc_text
from bench.machine import StealMeter, describe, file_system_of, sync_probe
from bench.report import LATEST, is_verified, print_table
from bench.rounds import (
    STEAL_PERCENT_MAX,
    Conditions,
    Results,
    error_text,
    run_workload,
    running,
)
from bench.systems.kafka.setup import KafkaPrograms, find_kafka
from bench.systems.redis import redis_program
from bench.workloads.port import Workload

EFFORTS = {effort.name: effort for effort in (QUICK, MEDIUM, LONG)}
EXIT_UNVERIFIED = 1
EXIT_FAILED = 2
_IN_MEMORY = ("tmpfs", "ramfs", "overlay")


async def perform(
    names: Sequence[str],
    effort: Effort,
    directory: Path,
    *,
    steal_percent_max: float = STEAL_PERCENT_MAX,
) -> dict[str, Any]:
    """The whole run, with its data in `directory` → the result as it is written to the file."""
    clock = SystemStopwatch()
    chosen = workloads(names)
    kafka, left_out = kafka_for(chosen, _installed_kafka)
    for line in left_out:
        tell(f"left out: {line}\n")
    steal, started = StealMeter(), clock.now()
    machine = describe(directory)
    machine["servers"] = await _server_versions() | ({"kafka": kafka.version} if kafka else {})
    probe = sync_probe(directory, clock)
    conditions = Conditions(effort, clock, tell, steal_percent_max=steal_percent_max)
    results = await _results(chosen, directory, conditions, kafka)
    machine["steal_percent"] = steal.percent()
    return {
        "at": utc_text(),
        "effort": effort.name,
        "seconds": round(clock.now() - started, 1),
        "machine": machine,
        "probe": {**probe, "after": sync_probe(directory, clock)},
        "steal_percent_max": steal_percent_max,
        "rows": results.rows,
        "failures": results.failures,
        "left_out": left_out,
    }


def kafka_for(
    chosen: Sequence[Workload], find: Callable[[], KafkaPrograms]
) -> tuple[KafkaPrograms | None, list[str]]:
    """The programs of Kafka if a workload compares with it, or a line with the missing part."""
    if not any(workload.suits(label) for workload in chosen for label in KAFKA_LABELS):
        return None, []
    try:
        return find(), []
    except BinaryNotFound as error:
        return None, [f"kafka: {error_text(error)}"]


def _installed_kafka() -> KafkaPrograms:
    return find_kafka(
        os.environ,
        which=shutil.which,
        version_of=java_version,
        has_module=lambda name: find_spec(name) is not None,
    )


async def _results(
    chosen: Sequence[Workload],
    directory: Path,
    conditions: Conditions,
    kafka: KafkaPrograms | None,
) -> Results:
    """Every workload in turn, on servers of its own or on those of the whole run."""
    effort, results = conditions.effort, Results()
    compared = [
        system
        for system in systems(effort, kafka)
        if any(workload.suits(system.label) for workload in chosen)
    ]
    fresh_in = directory if effort.fresh_servers else None
    with results.containing("all"):
        async with AsyncExitStack() as stack:
            if fresh_in is None:
                await stack.enter_async_context(running(compared, directory))
            for workload in chosen:
                with results.containing(workload.name):
                    async with _prepared(workload):
                        await run_workload(
                            workload,
                            compared,
                            conditions=conditions,
                            results=results,
                            fresh_in=fresh_in,
                        )
    return results


@asynccontextmanager
async def _prepared(workload: Workload) -> AsyncIterator[None]:
    """With what the workload itself needs to run, if anything."""
    if isinstance(workload, AbstractAsyncContextManager):
        async with workload:
            yield
    else:
        yield


async def _server_versions() -> dict[str, str]:
    """What the rivals' programs say of themselves."""
    found = {}
    for path in (await find_nats_server(), await redis_program()):
        process = await asyncio.create_subprocess_exec(
            path, "--version", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        output, _ = await process.communicate()
        words = output.decode(errors="replace").split()
        numbers = [word.strip("v=") for word in words if word[-1:].isdigit()]
        found[path.name] = numbers[0] if numbers else "unknown"
    return found


def tell(text: str) -> None:
    """Show how far the run is: on a terminal, in one line that is written over."""
    sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()


def fresh_directory(out: Path) -> Path:
    """A new directory on a real disk. Raises DirectoryUnusable."""
    out.mkdir(parents=True, exist_ok=True)
    kind = file_system_of(out)
    if kind in _IN_MEMORY:
        raise DirectoryUnusable(
            "a benchmark of durable writes needs a real disk", path=str(out), file_system=kind
        )
    number = 1
    while (directory := out / f"data-{number}").exists():
        number += 1
    directory.mkdir()
    return directory


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.run", description="compare systems side by side")
    parser.add_argument(
        "--workloads", default="W1,W2,W3,W4,W5,W6,W7,W10,W11,W12", help="names, separated by commas"
    )
    parser.add_argument("--effort", choices=sorted(EFFORTS), default=MEDIUM.name)
    parser.add_argument(
        "--steal-max",
        type=float,
        default=STEAL_PERCENT_MAX,
        metavar="PERCENT",
        help="repeat rounds of which the host stole more",
    )
    parser.add_argument("--out", type=Path, default=LATEST.parent, help="where results go")
    options = parser.parse_args()
    try:
        directory = fresh_directory(options.out)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                names = [name for name in options.workloads.split(",") if name]
                effort = EFFORTS[options.effort]
                result = runner.run(
                    perform(names, effort, directory, steal_percent_max=options.steal_max)
                )
        finally:
            # A server that failed may still be writing, which must not cost the result.
            shutil.rmtree(directory, ignore_errors=True)
    except AnabranchError as error:
        sys.stderr.write(f"error: {error} / try: {error.remedy}\n")
        return EXIT_FAILED
    (options.out / LATEST.name).write_text(json.dumps(result, indent=2) + "\n")
    sys.stderr.write("\n")
    print_table(result, sys.stdout)
    if not is_verified([*result["rows"], *result["failures"]]):
        return EXIT_UNVERIFIED
    return EXIT_FAILED if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
