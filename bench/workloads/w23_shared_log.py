"""W23: writes to containers whose logs are on JetStream, beside bare `publish` to the same servers.

bulk     W1 into such a cluster; then as many messages as the logs got meanwhile, of their mean size
         and with the window of a log, are published to a stream with as many replicas
awaited  W3 into such a cluster; then messages of the logs' mean size, one at a time

`× publish`: against the bare messages of the same round; in bulk by the bytes of the logs'
messages, one at a time by the medians. The servers sync every message before they acknowledge it.
The store flushes after the round, so the logs do not grow from round to round.
"""

import asyncio
import os
from dataclasses import dataclass, replace
from itertools import cycle

from nats.aio.client import Client as NatsClient

from anabranch.cli.perf.load.appends import append_one_by_one
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.nats_target import nats_target
from anabranch.segstore.adapters.jetstream_log.nats_stream import HEADERS_SIZE_BYTES_MAX
from anabranch.segstore.adapters.jetstream_log.window import MESSAGES_MAX, SIZE_BYTES_MAX
from bench.case import MIB, Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.anabranch import (
    NOT_FLUSHING,
    Anabranch,
    AnabranchApart,
    shared_logs,
)
from bench.systems.port import System
from bench.systems.publish import bare_stream, stored_in_logs
from bench.workloads.port import Meter, WithClusterApart, holds_exactly, plain_stream
from bench.workloads.w3_one_awaited import await_one_by_one

BYTES_MIN, BYTES_MAX = 256 * MIB, 512 * MIB
SECONDS_MIN = 0.5
"""A shorter round would be about the writer's connection to the store."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Messages in the logs of a cluster, or as many bare ones."""

    messages: int
    bytes: int

    def since(self, before: "Stored") -> "Stored":
        """What came after `before`."""
        return Stored(self.messages - before.messages, self.bytes - before.bytes)

    @property
    def mean_bytes(self) -> int:
        """The size of a message."""
        return self.bytes // self.messages


def window_for(message_bytes: int) -> int:
    """How many messages of this size a log may have in flight."""
    return max(1, min(MESSAGES_MAX, SIZE_BYTES_MAX // message_bytes))


class SharedLog(WithClusterApart):
    """The first round starts the cluster, for all rounds."""

    event_bytes: tuple[int, ...] = (1_024, 100)
    kind = ""

    def __init__(self, replicas: int) -> None:
        super().__init__()
        self.name = " ".join(filter(None, ("W23", f"R {replicas}", self.kind)))
        self._replicas = replicas
        self._cluster: Anabranch | None = None
        self._nats: NatsClient | None = None

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, AnabranchApart), "needs a cluster of its own"
        cluster = await self._running(system)
        before = await self._stored()
        sample = await self._write(cluster, case, effort, clock, warm_up=warm_up)
        written = (await self._stored()).since(before)
        await asyncio.to_thread(os.sync)
        notes = await self._beside(cluster, case, written, sample, clock)
        await cluster.client.cluster.flush_to_tier2()
        return replace(sample, notes=notes)

    async def _running(self, system: AnabranchApart) -> Anabranch:
        if self._cluster is None:
            self._cluster = await self._stack.enter_async_context(
                system.cluster(NOT_FLUSHING, up=shared_logs(self._replicas))
            )
            self._nats = await connect_nats(nats_target(self._cluster.endpoints_file), "bench-bare")
            self._stack.push_async_callback(self._nats.close)
        return self._cluster

    @property
    def nats(self) -> NatsClient:
        """Connected to the servers of the logs."""
        assert self._nats is not None, "the cluster does not run"
        return self._nats

    async def _stored(self) -> Stored:
        return Stored(*await stored_in_logs(self.nats))

    async def _write(
        self, cluster: Anabranch, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with plain_stream(cluster, case) as stream:
            seconds_max = effort.warm_up_s if warm_up else max(SECONDS_MIN, effort.write_s)
            bytes_max = min(max(BYTES_MIN, effort.bytes_max), BYTES_MAX)
            meter = Meter(cluster, clock)
            supply = Supply(case, clock, seconds_max, bytes_max)
            await stream.write_all(supply)
            seconds, cpu_seconds = meter.read()
            verified = await holds_exactly(stream, case, supply.events)
        return Sample(supply.events, seconds, cpu_seconds, verified)

    async def _beside(
        self,
        cluster: Anabranch,
        case: Case,
        written: Stored,
        sample: Sample,
        clock: Stopwatch,
    ) -> dict[str, float]:
        message = self._message(case, written)
        async with bare_stream(self.nats, self._replicas, window_for(len(message))) as bare:
            meter = Meter(cluster, clock)
            await bare.publish_all(message, written.messages)
            seconds, cpu_seconds = meter.read()
        published_per_s = written.messages * len(message) / seconds
        return {
            "× publish": written.bytes / sample.seconds / published_per_s,
            "publish MB/s": published_per_s / 1e6,
            "publish CPU µs/KiB": cpu_seconds / written.bytes * 1024 * 1e6,
            "CPU µs/KiB": (sample.cpu_seconds or 0.0) / written.bytes * 1024 * 1e6,
            "KiB/message": len(message) / 1024,
        }

    def _message(self, case: Case, written: Stored) -> bytes:
        """A message of the mean size, with content of the same kind."""
        size = min(written.mean_bytes, self.nats.max_payload - HEADERS_SIZE_BYTES_MAX)
        content = b"".join(case.events)
        return (content * (size // len(content) + 1))[:size]


class SharedLogAwaited(SharedLog):
    """The same, one event at a time."""

    event_bytes: tuple[int, ...] = (1_024,)
    kind = "awaited"

    async def _write(
        self, cluster: Anabranch, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with plain_stream(cluster, case) as stream:
            seconds = effort.warm_up_s if warm_up else max(SECONDS_MIN, effort.awaited_s)
            return await await_one_by_one(cluster, stream, case, clock, seconds)

    async def _beside(
        self,
        cluster: Anabranch,  # noqa: ARG002
        case: Case,
        written: Stored,
        sample: Sample,
        clock: Stopwatch,
    ) -> dict[str, float]:
        times_ms: list[float] = []

        def note(begun: float, acknowledged: float) -> bool:
            times_ms.append((acknowledged - begun) * 1000)
            return len(times_ms) < sample.events

        message = self._message(case, written)
        async with bare_stream(self.nats, self._replicas, 1) as bare:
            await append_one_by_one(bare.publish, cycle([message]), note, now=clock.now)
        assert sample.p50_ms is not None, "latencies were measured"
        publish_p50_ms = percentile(times_ms, 50)
        return {
            "× publish": publish_p50_ms / sample.p50_ms,
            "publish p50 ms": publish_p50_ms,
            "publish p99 ms": percentile(times_ms, 99),
        }
