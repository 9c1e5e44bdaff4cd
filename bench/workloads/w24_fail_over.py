"""W24, W26: the store of a container is killed, and its writer goes on with another store.

Three stores. A writer awaits one event after the other; `kill -9` ends the store that serves them,
`KILLS` times in a round. Seconds count from the kill to the first acknowledgement of an event that
was sent after it. The store stays down until then, and must be whole again before the next kill.

W24 store           logs on JetStream, on three NATS servers; the store alone is killed
W24 store and NATS  the store, and at the same moment the NATS server that leads the container's log
W26                 three stores replicate the logs; the store that leads is killed

`seconds` is the median of a round's kills, `longest s` the longest. `lost`: acknowledged events
that are not in the stream at the end; the row is verified only if all are there once and in order.
"""

import asyncio
import signal
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

from nats.aio.client import Client as NatsClient

from anabranch.cli.perf.load.appends import append_one_by_one
from anabranch.cli.up import UpSettings
from anabranch.cli.up.held import HeldParts, store_at
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.errors import Unavailable
from anabranch.common.model.hashing import container_of
from anabranch.common.model.names import SegmentId, segment_name, stream_ref
from anabranch.common.runtime.nats_target import nats_target
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.anabranch import Anabranch, AnabranchApart, AnabranchStream
from bench.systems.port import System
from bench.systems.publish import are_current, leader_of_growing_log
from bench.workloads.port import Meter, WithClusterApart, holds_exactly

KILLS = 5
STEADY_S = 1.0
"""How long the writer writes undisturbed before each kill."""
PATIENCE_S = 90.0
LOOK_S = 0.01


@dataclass(slots=True)
class Awaited:
    """The events that the writer sent and got acknowledged, by the clock."""

    begun: list[float] = field(default_factory=list)
    acknowledged: list[float] = field(default_factory=list)
    stopping: bool = False

    def note(self, begun: float, acknowledged: float) -> bool:
        """Add an event; False ends the writer."""
        self.begun.append(begun)
        self.acknowledged.append(acknowledged)
        return not self.stopping

    @property
    def times_ms(self) -> list[float]:
        """How long each event took."""
        pairs = zip(self.begun, self.acknowledged, strict=True)
        return [(acknowledged - begun) * 1000 for begun, acknowledged in pairs]

    def first_answer_after(self, moment: float) -> float | None:
        """When the first event that was sent after the moment was acknowledged."""
        at = bisect_right(self.begun, moment)
        return self.acknowledged[at] if at < len(self.acknowledged) else None


class FailOver(WithClusterApart):
    """The warm-up starts the cluster, for all rounds."""

    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, name: str, up: UpSettings, *, with_nats: bool = False) -> None:
        super().__init__()
        self.name = name
        self._up = up
        self._with_nats = with_nats
        self._cluster: Anabranch | None = None
        self._held: HeldParts
        self._monitor_urls: list[str] = []
        self._nats: NatsClient

    async def measure(
        self,
        system: System,
        case: Case,
        effort: Effort,  # noqa: ARG002
        clock: Stopwatch,
        *,
        warm_up: bool,
    ) -> Sample:
        assert isinstance(system, AnabranchApart), "needs a cluster of its own"
        cluster, awaited = await self._running(system), Awaited()
        async with cluster.stream(case) as stream:
            meter = Meter(cluster, clock)
            async with asyncio.TaskGroup() as group:
                group.create_task(_write(stream, case, awaited, clock))
                outages = [
                    await self._outage(stream.name, awaited, clock)
                    for _ in range(1 if warm_up else KILLS)
                ]
                awaited.stopping = True
            seconds, _ = meter.read()
            events = len(awaited.begun)
            read = sum([len(batch) async for batch in stream.read_back()])
            verified = await holds_exactly(stream, case, events)
        notes = {
            "seconds": percentile(outages, 50),
            "longest s": max(outages),
            "kills": len(outages),
            "lost": max(0, events - read),
        }
        times_ms = awaited.times_ms
        return Sample(
            events, seconds, None, verified,
            p50_ms=percentile(times_ms, 50), p99_ms=percentile(times_ms, 99), notes=notes,
        )  # fmt: skip

    async def _running(self, system: AnabranchApart) -> Anabranch:
        if self._cluster is None:
            enter = self._stack.enter_async_context
            self._held = HeldParts(Path(self._stack.enter_context(TemporaryDirectory())))
            self._cluster = await enter(system.cluster({}, up=self._up, parts=self._parts))
            self._nats = await connect_nats(nats_target(self._cluster.endpoints_file), "bench-look")
            self._stack.push_async_callback(self._nats.close)
        return self._cluster

    def _parts(self, plan: ClusterPlan) -> list[PartSpec]:
        self._monitor_urls = plan.nats_monitor_url.split(",")
        return self._held.holdable(cluster_parts(plan))

    async def _outage(self, stream: str, awaited: Awaited, clock: Stopwatch) -> float:
        """Kill once → seconds until the writer's next acknowledgement."""
        cluster = self._cluster
        assert cluster is not None
        await asyncio.sleep(STEADY_S)
        parts = [await store_of(cluster, stream)]
        if self._with_nats:
            parts.append(await leader_of_growing_log(self._nats))
        for part in parts:
            self._held.hold(part)
        killed_at = clock.now()
        for part in parts:
            cluster.signal(part, signal.SIGKILL)
        try:
            answered_at = await _answer_after(killed_at, awaited)
        finally:
            for part in parts:
                self._held.release(part)
        async with asyncio.timeout(PATIENCE_S):
            while not (await are_current(self._monitor_urls) and await is_whole(cluster)):  # noqa: ASYNC110  the cluster tells nobody
                await asyncio.sleep(LOOK_S)
        return answered_at - killed_at


async def _answer_after(moment: float, awaited: Awaited) -> float:
    async with asyncio.timeout(PATIENCE_S):
        while (  # noqa: ASYNC110  the writer tells nobody
            answered_at := awaited.first_answer_after(moment)
        ) is None:
            await asyncio.sleep(LOOK_S)
    return answered_at


async def _write(stream: AnabranchStream, case: Case, awaited: Awaited, clock: Stopwatch) -> None:
    await append_one_by_one(stream.append, cycle(case.events), awaited.note, now=clock.now)


async def store_of(cluster: Anabranch, stream: str) -> str:
    """The name of the store that serves the stream's only segment."""
    [segment] = (await cluster.client.streams.current_segments(stream)).segments
    containers = [each async for each in cluster.client.containers.list()]
    name = segment_name(stream_ref(stream), SegmentId(segment.segment_id))
    owner = containers[container_of(name, len(containers))]
    return store_at(cluster.embedded, f"{owner.host}:{owner.port}")


async def is_whole(cluster: Anabranch) -> bool:
    """Whether all parts are ready, and all containers are open, stay where they are, and have all
    their copies in sync."""
    if not all(state.ready for state in cluster.states.values()):
        return False
    try:
        containers = [each async for each in cluster.client.containers.list()]
    except Unavailable:
        return False
    return all(
        each.state == "open" and not each.target and len(each.isr) in (0, len(each.replicas))
        for each in containers
    )
