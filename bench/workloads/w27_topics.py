"""W27: topics of 1,000 partitions, on a cluster of its own with one store.

The first topic shows how long 1,000 partitions take from the request to *online*, and nine more
how long 10,000 take together (a warm-up makes one topic of ten). An "event" is a partition.

`1,000 s`        seconds until the first topic was online
`10,000 s`       seconds for all ten
`B/partition`    what each made the memory of all processes of the cluster grow, a minute later
`at once`        the same 3 s after the last partition was online
`reconcile s`    a list of all partition objects on the NATS server, decoded and compared with a
                 local store that has the same; a controller does this in each reconciliation
"""

import asyncio

from anabranch.client import Client
from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.contracts.objects import PARTITION
from anabranch.common.model.objects import PartitionResolution, PartitionSpec, PartitionStatus
from anabranch.common.runtime.clock import SystemClock
from anabranch.controller.cluster.objects.local_store import LocalStore
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.machine import resident_bytes
from bench.systems.anabranch import APART, NOT_FLUSHING, Anabranch, AnabranchApart
from bench.systems.port import Label, System
from bench.workloads.port import Meter

TOPICS = 10
PARTITIONS = 1_000
WARM_UP_PARTITIONS = 10
ONLINE_S_MAX = 90.0
SETTLE_S = 3.0
IDLE_S = 60.0


class TopicCreation:
    name = "W27"
    event_bytes: tuple[int, ...] = (100,)

    def suits(self, label: Label) -> bool:
        return label.settings == APART

    async def measure(
        self,
        system: System,
        case: Case,  # noqa: ARG002
        effort: Effort,  # noqa: ARG002
        clock: Stopwatch,
        *,
        warm_up: bool,
    ) -> Sample:
        assert isinstance(system, AnabranchApart), "needs a cluster of its own"
        topics, partitions = (1, WARM_UP_PARTITIONS) if warm_up else (TOPICS, PARTITIONS)
        async with system.cluster(NOT_FLUSHING) as cluster:
            client = cluster.client
            before = resident_bytes(cluster.pids())
            meter = Meter(cluster, clock)
            await client.topics.create("topic-0", partitions=partitions, wait_s=ONLINE_S_MAX)
            first_s, _ = meter.read()
            for number in range(1, topics):
                await client.topics.create(f"topic-{number}", partitions=partitions)
            async with asyncio.TaskGroup() as group:
                for number in range(topics):
                    group.create_task(_online(client, f"topic-{number}"))
            seconds, cpu_seconds = meter.read()
            await asyncio.sleep(SETTLE_S)
            at_once = resident_bytes(cluster.pids()) - before
            await asyncio.sleep(0 if warm_up else IDLE_S - SETTLE_S)
            grown = resident_bytes(cluster.pids()) - before
            online = [
                found.resolution is PartitionResolution.ONLINE
                for found in await client.topics.partitions()
            ]
            reconcile_s = await _reconcile(cluster, clock)
        count = topics * partitions
        notes = {
            f"{partitions:,} s": first_s,
            f"{count:,} s": seconds,
            "B/partition": grown / count,
            "at once": at_once / count,
            "reconcile s": reconcile_s,
        }
        verified = len(online) == count and all(online)
        return Sample(count, seconds, cpu_seconds, verified, notes=notes)


async def _online(client: Client, topic: str) -> None:
    """Wait until every partition of the topic is online."""
    async with asyncio.timeout(ONLINE_S_MAX):
        while True:
            found = await client.topics.describe(topic)
            if found.partitions_online == found.partition_count:
                return
            await asyncio.sleep(0.05)


async def _reconcile(cluster: Anabranch, clock: Stopwatch) -> float:
    nats = await connect_nats(cluster.embedded.nats, "bench")
    try:
        objects = JetStreamObjectStore(nats, SystemClock(), PARTITION.bucket)
        store: LocalStore[PartitionSpec, PartitionStatus] = LocalStore()
        store.sync_all([PARTITION.from_stored(found) for found in await objects.list()])
        began = clock.now()
        store.sync_all([PARTITION.from_stored(found) for found in await objects.list()])
        return clock.now() - began
    finally:
        await close_nats(nats)
