"""W15: how long a writer stands still when its stream is scaled.

One writer sends 1 KB events with keys at half of the rate that W1 reaches in the same round, as an
open loop; meanwhile the stream is split into two, merged, split … A pause is the longest time that
passed between two acknowledgements from a scale's beginning until a second after its end.
"""

import asyncio
from itertools import cycle, islice

from anabranch.cli.perf.load.pacing import TICK_S, Pace
from anabranch.cli.perf.load.scales import Moments, Scale, split_or_merge
from anabranch.client import Client
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.anabranch import Anabranch
from bench.systems.port import Label, System
from bench.workloads.port import Meter
from bench.workloads.w1_max_write import MaxWrite
from bench.workloads.w5_half_load import SHARE

BETWEEN_S = 0.25
AFTER_S = 0.5
SCALES_MIN = 10
KEYS = tuple(f"key-{number}" for number in range(1_000))


class ScaleUnderLoad:
    name = "W15"
    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, settings: str) -> None:
        self._settings = settings
        self._most = MaxWrite()

    def suits(self, label: Label) -> bool:
        return label.settings == self._settings and label.system == "anabranch"

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, Anabranch), "nobody else scales"
        most = await self._most.measure(system, case, effort, clock, warm_up=warm_up)
        scales = 2 if warm_up else max(SCALES_MIN, int(effort.tail_s * 5))
        async with system.named_stream() as name:
            load = _Load(system.client, name, case, SHARE * most.events / most.seconds, clock)
            meter = Meter(system, clock)
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(load.run())
                done = await _scale_again_and_again(system.client, name, scales, clock)
                load.stopping = True
                await writing
            spent, cpu_seconds = meter.read()
            verified = await _count(system.client, name) == load.sent
        gap = load.acknowledged.longest_gap
        pauses = [gap(scale.began, scale.ended + AFTER_S) * 1000 for scale in done]
        notes = {
            "scales": float(scales),
            "pause p50 ms": percentile(pauses, 50),
            "pause p99 ms": percentile(pauses, 99),
            "scale p50 ms": percentile([(scale.ended - scale.began) * 1000 for scale in done], 50),
        }
        return Sample(load.sent, spent, cpu_seconds, verified and most.verified, notes=notes)


class _Load:
    """The open loop, and when it was acknowledged."""

    def __init__(
        self, client: Client, name: str, case: Case, rate_per_s: float, clock: Stopwatch
    ) -> None:
        self._client = client
        self._name = name
        self._events = cycle(zip(case.events, KEYS, strict=True))
        self._rate_per_s = rate_per_s
        self._clock = clock
        self.acknowledged = Moments()
        self.sent = 0
        self.stopping = False

    async def run(self) -> None:
        """Send what is due, once a millisecond, until told to stop."""
        pace = Pace(self._rate_per_s, self._clock.now())
        async with self._client.writer(self._name) as writer:
            while not self.stopping:
                due = pace.due(self._clock.now())
                batch = list(islice(self._events, max(0, due - self.sent)))
                if batch:
                    self.sent += len(batch)
                    events, keys = zip(*batch, strict=True)
                    await writer.drain()
                    writer.write_batch(events, keys)
                    await writer.flush()
                    self.acknowledged.add(self._clock.now())
                await asyncio.sleep(TICK_S)


async def _scale_again_and_again(
    client: Client, name: str, scales: int, clock: Stopwatch
) -> list[Scale]:
    """Split, merge, split …"""
    done: list[Scale] = []
    for _ in range(scales):
        await asyncio.sleep(BETWEEN_S)
        done.append(await split_or_merge(client, name, 1, clock.now))
    await asyncio.sleep(AFTER_S)
    return done


async def _count(client: Client, name: str) -> int:
    found = 0
    async with client.reader(name, until_tail=True) as reader:
        async for batch in reader.batches():
            found += len(batch)
    return found
