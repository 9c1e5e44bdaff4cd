"""W7: reading what the memory does not hold any more, and what that costs the writers.

read      a stream many times the store's cache, written by one writer and then read from its head
          by one reader; `× write`: against the rate at which it was written, in the same round
writers   5,000 events/s of 1 KB as an open loop while another process reads such a stream from its
          head again and again; `× alone`: p99 of the acknowledgements against the same without it
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.case import MIB, Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.anabranch import APART, NOT_FLUSHING, Anabranch, AnabranchApart
from bench.systems.port import Label, System
from bench.systems.process import server
from bench.workloads.port import Meter, holds_exactly
from bench.workloads.w5_half_load import open_loop
from bench.workloads.w6_tail import RATE_PER_S

CACHE_BYTES = 64 * MIB
BACKLOG_BYTES = 512 * MIB
SECONDS_MIN = 2.0
_SMALL_CACHE = {"ANABRANCH_SEGSTORE_CACHE_BYTES": str(CACHE_BYTES)}
PLACES = {
    "journal": {**NOT_FLUSHING, **_SMALL_CACHE},
    "tier 2": {"ANABRANCH_SEGSTORE_FLUSH_BYTES": str(8 * MIB), **_SMALL_CACHE},
}
"""Where the backlog is when it is read → the store's environment."""


class CatchUp:
    """`place`: one of `PLACES`."""

    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, place: str) -> None:
        self.name = f"W7 {place}"
        self._environment = PLACES[place]

    def suits(self, label: Label) -> bool:
        return label.settings == APART

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, AnabranchApart), "needs a cluster of its own"
        size = 2 * CACHE_BYTES if warm_up else max(BACKLOG_BYTES, effort.bytes_max)
        async with system.cluster(self._environment) as cluster, cluster.stream(case) as stream:
            supply = Supply(case, clock, float("inf"), size)
            started = clock.now()
            await stream.write_all(supply)
            write_seconds = clock.now() - started
            await stream.settle()
            meter, read = Meter(cluster, clock), 0
            async for batch in stream.read_back():
                read += len(batch)
            seconds, cpu_seconds = meter.read()
            verified = read == supply.events and await holds_exactly(stream, case, supply.events)
        notes = {"× write": write_seconds / seconds}
        return Sample(supply.events, seconds, cpu_seconds, verified, notes=notes)


class BesideCatchUp:
    """`place`: as in `CatchUp`."""

    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, place: str) -> None:
        self.name = f"W7 {place}, writers"
        self._environment = PLACES[place]

    def suits(self, label: Label) -> bool:
        return label.settings == APART

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, AnabranchApart), "needs a cluster of its own"
        count = int(RATE_PER_S * (effort.warm_up_s if warm_up else max(SECONDS_MIN, effort.tail_s)))
        async with (
            system.cluster(self._environment) as cluster,
            cluster.stream(case) as backlog,
            cluster.stream(case) as stream,
        ):
            await backlog.write_all(Supply(case, clock, float("inf"), BACKLOG_BYTES))
            await backlog.settle()
            await stream.write_all([case.events])
            alone = await open_loop(stream, case, clock, rate_per_s=RATE_PER_S, count=count)
            async with _busy_reader(cluster, backlog.name):
                meter = Meter(cluster, clock)
                late_ms = await open_loop(stream, case, clock, rate_per_s=RATE_PER_S, count=count)
                seconds, cpu_seconds = meter.read()
            pool = len(case.events)
            assert count % pool == 0 or warm_up, "the pool is written whole"
            verified = warm_up or await holds_exactly(stream, case, pool + 2 * count)
        return Sample(
            count, seconds, cpu_seconds, verified,
            ack_p50_ms=percentile(late_ms, 50), ack_p99_ms=percentile(late_ms, 99),
            notes={"× alone": percentile(late_ms, 99) / percentile(alone, 99)},
        )  # fmt: skip


@asynccontextmanager
async def _busy_reader(cluster: Anabranch, stream: str) -> AsyncIterator[None]:
    """A process that reads the stream from its head, again and again, until the block ends."""
    with TemporaryDirectory() as directory:
        begun = Path(directory) / "begun"
        program = (sys.executable, "-m", "bench.busy_reader")

        async def is_ready() -> bool:
            return begun.exists()

        command = (*program, str(cluster.endpoints_file), stream, str(begun))
        async with server(command, Path(directory) / "log", is_ready):
            yield
