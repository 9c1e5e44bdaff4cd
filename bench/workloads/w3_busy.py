"""W3 busy: as W3, while another process writes to the same store as fast as it can.

How long one event waits behind megabytes of others is decided by who writes the journal: a thread
beside a busy event loop starves, the loop itself does not. The load is a process of its own, so
that it is the store's loop which is busy and not the one that measures. The load's rate is measured
before and meanwhile.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.busy_writer import acknowledged_bytes
from bench.case import MIB, Case, Effort, Sample
from bench.clock import Stopwatch
from bench.systems.anabranch import Anabranch
from bench.systems.port import Label, System
from bench.systems.process import server
from bench.workloads.port import plain_stream
from bench.workloads.w3_one_awaited import await_one_by_one

SECONDS_MIN = 2.0
"""Shorter, and the 99th percentile would be a matter of a handful of events."""
WARM_BYTES = 256 * MIB
"""A writer fills several journal files before its rate is measured."""


class BusyAwaited:
    name = "W3 busy"
    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, settings_left_out: frozenset[str]) -> None:
        self._left_out = settings_left_out

    def suits(self, label: Label) -> bool:
        return label.system == "anabranch" and label.settings not in self._left_out

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, Anabranch), "only Anabranch is measured beside a busy writer"
        seconds = effort.warm_up_s if warm_up else max(SECONDS_MIN, effort.awaited_s)
        async with (
            system.named_stream() as loaded,
            plain_stream(system, case) as stream,
            _busy_writer(system.endpoints_file, loaded) as progress,
        ):
            alone = await _rate(progress, clock, seconds)
            assert alone > 0, "the writer alone stood still"
            async with asyncio.TaskGroup() as group:
                beside = group.create_task(_rate(progress, clock, seconds))
                sample = await await_one_by_one(system, stream, case, clock, seconds)
            return replace(sample, notes={"writer × alone": beside.result() / alone})


async def _rate(progress: Path, clock: Stopwatch, seconds: float) -> float:
    """The bytes per second that the writer gets acknowledged for so long."""
    begun, before = clock.now(), acknowledged_bytes(progress)
    await asyncio.sleep(seconds)
    return (acknowledged_bytes(progress) - before) / (clock.now() - begun)


@asynccontextmanager
async def _busy_writer(endpoints_file: Path, stream: str) -> AsyncIterator[Path]:
    """A process that writes to the stream until the block ends, after it has warmed up; yields its
    file of progress."""
    with TemporaryDirectory() as directory:
        progress = Path(directory) / "progress"
        program = (sys.executable, "-m", "bench.busy_writer")

        async def is_ready() -> bool:
            return progress.exists() and acknowledged_bytes(progress) >= WARM_BYTES

        command = (*program, str(endpoints_file), stream, str(progress))
        async with server(command, Path(directory) / "log", is_ready):
            yield progress
