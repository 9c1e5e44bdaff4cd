"""W10: a store that holds 10,000 segments (100,000 in a LONG run) beside one that holds one.

idle      one writer and one segment as in W1, the others idle; `× alone`: against the same before
          they were made; `B/segment`: what each made the store's memory grow
spread    16 KiB blocks to all of them in turn over one connection, against the same blocks to one
          segment (`× one`): what the store makes of it, with as little client as there can be
"""

from bench.case import MIB, Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.machine import resident_bytes
from bench.segments_load import connected
from bench.systems.anabranch import APART, NOT_FLUSHING, Anabranch, AnabranchApart
from bench.systems.port import Label, System
from bench.workloads.port import Meter, holds_exactly

WARM_UP_SEGMENTS = 100
BLOCK_EVENTS = 16


class IdleSegments:
    name = "W10 idle"
    event_bytes: tuple[int, ...] = (1_024,)

    def suits(self, label: Label) -> bool:
        return label.settings == APART

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, AnabranchApart), "needs a cluster of its own"
        count = WARM_UP_SEGMENTS if warm_up else effort.segments
        async with system.cluster(NOT_FLUSHING) as cluster:
            alone = await _write(cluster, case, effort, clock)
            before = resident_bytes(cluster.pids_of("segstore"))
            async with connected(cluster.endpoints_file, "bench/idle", count) as load:
                await load.create()
            grown = resident_bytes(cluster.pids_of("segstore")) - before
            beside = await _write(cluster, case, effort, clock)
        rate, rate_alone = beside.events / beside.seconds, alone.events / alone.seconds
        notes = {"× alone": rate / rate_alone, "B/segment": grown / count}
        verified = alone.verified and beside.verified
        return Sample(beside.events, beside.seconds, beside.cpu_seconds, verified, notes=notes)


async def _write(cluster: Anabranch, case: Case, effort: Effort, clock: Stopwatch) -> Sample:
    async with cluster.stream(case) as stream:
        await stream.write_all([case.events])
        meter = Meter(cluster, clock)
        supply = Supply(case, clock, max(0.5, effort.write_s), 4 * effort.bytes_max)
        await stream.write_all(supply)
        seconds, cpu_seconds = meter.read()
        verified = await holds_exactly(stream, case, len(case.events) + supply.events)
    return Sample(supply.events, seconds, cpu_seconds, verified)


class SpreadSegments:
    name = "W10 spread"
    event_bytes: tuple[int, ...] = (1_024,)

    def suits(self, label: Label) -> bool:
        return label.settings == APART

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, AnabranchApart), "needs a cluster of its own"
        count = WARM_UP_SEGMENTS if warm_up else effort.segments
        blocks = max(count, 256 * MIB // (BLOCK_EVENTS * case.event_bytes))
        async with system.cluster(NOT_FLUSHING) as cluster:
            rates, spent, processor = [], [], []
            for segments in (1, count):
                stream = f"bench/spread-{segments}"
                async with connected(cluster.endpoints_file, stream, segments) as load:
                    await load.create()
                    await load.set_up()
                    meter = Meter(cluster, clock)
                    await load.append(case.events[:BLOCK_EVENTS], blocks)
                    seconds, cpu_seconds = meter.read()
                    verified = await load.holds(blocks * BLOCK_EVENTS)
                rates.append(blocks / seconds)
                spent.append(seconds)
                processor.append(cpu_seconds)
        notes = {"× one": rates[1] / rates[0]}
        events = blocks * BLOCK_EVENTS
        return Sample(events, spent[1], processor[1], verified, notes=notes)
