"""W25: writes to containers whose logs three stores replicate, beside the same stores without it.

Two clusters of three stores run all the time, one with three copies of each log and one with one;
each round writes to both, one after the other. All copies are on one disk. If Kafka is there, three
brokers run beside them. A round of Kafka writes to a topic with three copies, of which two must be
in sync, and to one with one copy, on the same brokers. One row of Kafka has topics that are synced
before the acknowledgement, the other one topics that are not.

bulk     W1 on each; then an open loop on each at half the rate of the replicated one, as in W5
awaited  W3 on each

`× RF 1`: against the cluster without copies, in the same round; in bulk the events per second, one
at a time the medians. `p99 × RF 1`: how much longer acknowledgements take. The stores do not flush
during a round. A topic of Kafka is deleted before the next one is written.
"""

from dataclasses import replace

from bench.case import MIB, Case, Effort, Sample, Supply
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.anabranch import NOT_FLUSHING, Anabranch, AnabranchApart, stores
from bench.systems.kafka.system import BROKERS, REPLICATED_LABELS, KafkaApart, KafkaCluster
from bench.systems.port import Label, System, TailedStream
from bench.workloads.port import Meter, WithClusterApart, holds_exactly, plain_stream
from bench.workloads.w3_one_awaited import await_one_by_one
from bench.workloads.w5_half_load import SHARE, open_loop

BYTES_MIN, BYTES_MAX = 128 * MIB, 256 * MIB
LATE_BYTES_MAX = 512 * MIB
"""Of an open loop."""
SECONDS_MIN = 1.0
REPLICATION = 3


class Replicated(WithClusterApart):
    """The first round of a system starts its clusters, for all rounds."""

    name = "W25"
    event_bytes: tuple[int, ...] = (1_024, 100)

    def __init__(self) -> None:
        super().__init__()
        self._clusters: tuple[Anabranch, Anabranch] | None = None
        self._brokers: KafkaCluster | None = None

    def suits(self, label: Label) -> bool:
        return super().suits(label) or label in REPLICATED_LABELS

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        copied, single = await self._copied_and_single(system)
        found = await self._write(copied, case, effort, clock, warm_up=warm_up)
        beside = await self._write(single, case, effort, clock, warm_up=warm_up)
        notes = self._against(found, beside)
        verified = found.verified and beside.verified
        if self.loops:
            rate_per_s = SHARE * found.events / found.seconds
            late, whole = await self._late(copied, case, effort, clock, rate_per_s)
            late_single, whole_single = await self._late(single, case, effort, clock, rate_per_s)
            found = replace(found, ack_p50_ms=percentile(late, 50), ack_p99_ms=percentile(late, 99))
            notes["p99 × RF 1"] = percentile(late, 99) / percentile(late_single, 99)
            verified = verified and whole and whole_single
        for cluster in (copied, single):
            if isinstance(cluster, Anabranch):
                await cluster.client.cluster.flush_to_tier2()
        return replace(found, notes=notes, verified=verified)

    loops = True
    """Whether an open loop follows."""

    async def _copied_and_single(self, system: System) -> tuple[System, System]:
        """Where a log has three copies, and where it has one."""
        if isinstance(system, KafkaApart):
            brokers = await self._running_brokers(system)
            return system.on(brokers, BROKERS), system.on(brokers, 1)
        assert isinstance(system, AnabranchApart), "needs clusters of its own"
        return await self._running(system)

    async def _running_brokers(self, system: KafkaApart) -> KafkaCluster:
        if self._brokers is None:
            self._brokers = await self._stack.enter_async_context(system.brokers())
        return self._brokers

    async def _running(self, system: AnabranchApart) -> tuple[Anabranch, Anabranch]:
        if self._clusters is None:
            enter = self._stack.enter_async_context
            self._clusters = (
                await enter(system.cluster(NOT_FLUSHING, up=stores(3, REPLICATION))),
                await enter(system.cluster(NOT_FLUSHING, up=stores(3))),
            )
        return self._clusters

    async def _write(
        self, cluster: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
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

    def _against(self, found: Sample, beside: Sample) -> dict[str, float]:
        single_per_s = beside.events / beside.seconds
        return {
            "× RF 1": found.events / found.seconds / single_per_s,
            "RF 1 events/s": single_per_s,
        }

    async def _late(
        self, cluster: System, case: Case, effort: Effort, clock: Stopwatch, rate_per_s: float
    ) -> tuple[list[float], bool]:
        """Send at this rate → how late the acknowledgements came, and whether all is there."""
        async with cluster.stream(case) as stream:
            assert isinstance(stream, TailedStream), "the system takes no open loop"
            await stream.write_all([case.events])  # connected and known to the server
            count = max(1, int(max(SECONDS_MIN, effort.tail_s) * rate_per_s))
            count = min(count, LATE_BYTES_MAX // case.event_bytes)
            late_ms = await open_loop(stream, case, clock, rate_per_s=rate_per_s, count=count)
            return late_ms, await holds_exactly(stream, case, len(case.events) + count)


class ReplicatedAwaited(Replicated):
    """The same, one event at a time."""

    name = "W25 awaited"
    event_bytes: tuple[int, ...] = (1_024,)
    loops = False

    async def _write(
        self, cluster: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with plain_stream(cluster, case) as stream:
            seconds = effort.warm_up_s if warm_up else max(SECONDS_MIN, effort.awaited_s)
            return await await_one_by_one(cluster, stream, case, clock, seconds)

    def _against(self, found: Sample, beside: Sample) -> dict[str, float]:
        assert found.p50_ms is not None
        assert found.p99_ms is not None
        assert beside.p50_ms is not None
        assert beside.p99_ms is not None
        return {
            "× RF 1": beside.p50_ms / found.p50_ms,
            "p99 × RF 1": found.p99_ms / beside.p99_ms,
            "RF 1 p50 ms": beside.p50_ms,
            "RF 1 p99 ms": beside.p99_ms,
        }
