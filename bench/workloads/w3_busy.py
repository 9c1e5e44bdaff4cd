"""W3 busy: as W3, while another process writes to the same store as fast as it can.

How long one event waits behind megabytes of others is decided by who writes the journal: a thread
beside a busy event loop starves, the loop itself does not. The load is a process of its own, so
that it is the store's loop which is busy and not the one that measures.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.systems.anabranch import Anabranch
from bench.systems.port import Label, System
from bench.systems.process import server
from bench.workloads.port import plain_stream
from bench.workloads.w3_one_awaited import await_one_by_one

SECONDS_MIN = 0.5
"""Shorter, and the 99th percentile would be a matter of a handful of events."""


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
            _busy_writer(system.endpoints_file, loaded),
        ):
            return await await_one_by_one(system, stream, case, clock, seconds)


@asynccontextmanager
async def _busy_writer(endpoints_file: Path, stream: str) -> AsyncIterator[None]:
    """A process that writes to the stream until the block ends; it says when it has begun."""
    with TemporaryDirectory() as directory:
        begun = Path(directory) / "begun"
        command = (
            sys.executable,
            "-m",
            "bench.busy_writer",
            str(endpoints_file),
            stream,
            str(begun),
        )

        async def is_ready() -> bool:
            return begun.exists()

        async with server(command, Path(directory) / "log", is_ready):
            yield
