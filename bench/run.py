"""Runs workloads on all systems, prints the table, writes `bench/out/latest.json`.

    python -m bench.run --workloads W1,W3,W12 --effort quick

Ends with 1 if any system did not hold exactly what was written to it. Data lie in
`bench/out/data-<n>` and are removed at the end; the directory must be on the disk that is meant,
and a file system in memory is refused.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from anabranch.cli.up.binaries import find_nats_server
from anabranch.common.errors import AnabranchError, DirectoryUnusable
from bench.case import LONG, MEDIUM, QUICK, Effort
from bench.catalogue import systems, workloads
from bench.clock import Stopwatch, SystemStopwatch, utc_text
from bench.machine import StealMeter, describe, file_system_of, sync_probe
from bench.report import LATEST, is_verified, print_table
from bench.rounds import Row, run_workload, running
from bench.systems.process import find_program
from bench.systems.redis import BINARY_VARIABLE
from bench.workloads.port import Workload

EFFORTS = {effort.name: effort for effort in (QUICK, MEDIUM, LONG)}
EXIT_UNVERIFIED = 1
EXIT_FAILED = 2
_IN_MEMORY = ("tmpfs", "ramfs", "overlay")


async def perform(names: Sequence[str], effort: Effort, directory: Path) -> dict[str, Any]:
    """The whole run, with its data in `directory` → the result as it is written to the file."""
    clock = SystemStopwatch()
    chosen = workloads(names)
    steal, started = StealMeter(), clock.now()
    machine = describe(directory)
    machine["servers"] = await _server_versions()
    probe = sync_probe(directory, clock)
    rows = await _rows(chosen, effort, directory, clock)
    machine["steal_percent"] = steal.percent()
    return {
        "at": utc_text(),
        "effort": effort.name,
        "seconds": round(clock.now() - started, 1),
        "machine": machine,
        "probe": {**probe, "after": sync_probe(directory, clock)},
        "rows": rows,
    }


async def _rows(
    chosen: Sequence[Workload], effort: Effort, directory: Path, clock: Stopwatch
) -> list[Row]:
    """Every workload in turn, on servers of its own or on those of the whole run."""
    compared = [
        system
        for system in systems(effort)
        if any(workload.suits(system.label) for workload in chosen)
    ]
    async with AsyncExitStack() as stack:
        if not effort.fresh_servers:
            await stack.enter_async_context(running(compared, directory))
        fresh_in = directory if effort.fresh_servers else None
        rows: list[Row] = []
        for workload in chosen:
            async with _prepared(workload):
                rows += await run_workload(
                    workload, compared, effort=effort, clock=clock, tell=_tell, fresh_in=fresh_in
                )
        return rows


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
    programs = {
        "nats-server": await find_nats_server(),
        "redis-server": find_program("redis-server", BINARY_VARIABLE),
    }
    for name, path in programs.items():
        process = await asyncio.create_subprocess_exec(
            path, "--version", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        output, _ = await process.communicate()
        words = output.decode(errors="replace").split()
        found[name] = next((word.strip("v=") for word in words if word[-1:].isdigit()), "unknown")
    return found


def _tell(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()


def _fresh_directory(out: Path) -> Path:
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
    parser.add_argument("--out", type=Path, default=LATEST.parent, help="where results go")
    options = parser.parse_args()
    try:
        directory = _fresh_directory(options.out)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                names = [name for name in options.workloads.split(",") if name]
                result = runner.run(perform(names, EFFORTS[options.effort], directory))
        finally:
            shutil.rmtree(directory)
    except AnabranchError as error:
        sys.stderr.write(f"error: {error} / try: {error.remedy}\n")
        return EXIT_FAILED
    (options.out / LATEST.name).write_text(json.dumps(result, indent=2) + "\n")
    sys.stderr.write("\n")
    print_table(result, sys.stdout)
    return 0 if is_verified(result["rows"]) else EXIT_UNVERIFIED


if __name__ == "__main__":
    sys.exit(main())
