"""Replays the rows of a source through a fresh embedded cluster, and reads them back.

Each day is a transaction. A group of four readers reads the events while they are written; one of
the readers is killed, and in a cluster of three stores one store loses its disk. Then the demo
reads the events with the client and over HTTP. Unless its plan leaves Spark out, Spark archives,
counts and audits the stream and, after the cluster has stopped, reads it from tier 2.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from anabranch.cli.demo.check import Tally, Written
from anabranch.cli.demo.group_reading import GroupReading, group_reading
from anabranch.cli.demo.http_reading import read_back
from anabranch.cli.demo.outcome import STORES, Comparison, Outcome, SparkOutcome
from anabranch.cli.demo.report.page import Picture
from anabranch.cli.demo.spark_reading import run_pipeline, run_year
from anabranch.cli.demo.steps import Steps
from anabranch.cli.demo.writing import RowWriter
from anabranch.cli.session import session_on
from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.cli.up.held import HeldParts
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.client import Client, connect
from anabranch.common.runtime.clock import Clock

SEGMENT_COUNT = 4
FLUSH_S_MAX = 120.0
LAG_CAPTION = "Lag of the reader group, one of whose readers is killed"
SPARK_CAPTIONS = {
    "delay_by_hour": "Mean departure delay by hour of the day, computed by Spark from the stream",
    "windows": "Departures per hour and airport, and their mean delay, counted by Spark's windows",
    "segments-demo-flights": "The segments of the stream, as the audit read them from tier 2",
    "delayed_share_by_month": "Share of late departures by month and hour, computed by Spark",
}


async def replay(outcome: Outcome, steps: Steps, clock: Clock) -> None:
    """Run the whole demo; each part adds its results to the outcome when it is done.

    Raises Unavailable if the cluster does not start or a part does not end in time.
    """
    await _Replay(outcome, steps, clock).run()


class _Replay:
    """Owns the course of one demo."""

    def __init__(self, outcome: Outcome, steps: Steps, clock: Clock) -> None:
        self._outcome = outcome
        self._plan = outcome.plan
        self._stream = outcome.plan.source.stream
        self._steps = steps
        self._clock = clock
        self._held = HeldParts(outcome.plan.data_dir / "run")

    async def run(self) -> None:
        with_spark, begun_s = not self._plan.without_spark, self._clock.monotonic()
        async with self._steps.shown():
            self._steps.begin("starting a cluster")
            async with embedded_cluster(self._up(), parts=self._parts) as cluster:
                await cluster.wait_ready()
                async with connect(cluster.nats, name="demo") as client:
                    written = await self._write(client, cluster)
                    await self._read(client, written)
                    await self._read_over_http(str(cluster.endpoints["gateway"]), written)
                    described = await client.streams.describe(self._stream)
                    self._outcome.segments = described.segment_count
                    if with_spark:
                        self._steps.begin("flushing to tier 2")
                        await client.cluster.flush_to_tier2(timeout_s=FLUSH_S_MAX)
                        await self._run_year(cluster)
                self._steps.begin("stopping the cluster")
            if self._plan.draws:
                await self._draw()
            if with_spark:
                await self._read_with_spark()
        self._outcome.seconds = self._clock.monotonic() - begun_s

    def _up(self) -> UpSettings:
        data_dir, servers = self._plan.data_dir, self._plan.servers
        if servers is None:
            return UpSettings(data_dir=data_dir)
        return UpSettings(
            data_dir=data_dir,
            tier2_url=self._plan.tier2_url,
            store_count=STORES,
            nats_count=servers.nats,
            log=servers.log,
            replication=servers.replication,
        )

    def _parts(self, plan: ClusterPlan) -> Sequence[PartSpec]:
        parts = cluster_parts(plan)
        return self._held.holdable(parts) if self._plan.loses_store else parts

    async def _write(self, client: Client, cluster: EmbeddedCluster) -> Written:
        """Write all rows while the group reads them, and wait until it has processed them."""
        await client.scopes.create(self._stream.partition("/")[0])
        await client.streams.create(self._stream, segments=SEGMENT_COUNT)
        self._steps.begin("starting 4 readers")
        async with group_reading(
            client, cluster.endpoints_file, self._stream, folder=self._plan.data_dir / "readers",
            clock=self._clock, remark=self._steps.remark,
        ) as reading:  # fmt: skip
            writer = RowWriter(
                self._plan, client, cluster,
                held=self._held, reading=reading, clock=self._clock, steps=self._steps,
            )  # fmt: skip
            self._outcome.writing = await writer.run()
            written = self._outcome.writing.written
            await self._finish_group(reading, written)
        return written

    async def _finish_group(self, reading: GroupReading, written: Written) -> None:
        begun_s = self._clock.monotonic()
        self._steps.begin("group catches up")
        self._outcome.group = await reading.finish(written, _CatchingUp(self._steps).tell)
        self._outcome.group_seconds = self._clock.monotonic() - begun_s

    async def _read(self, client: Client, written: Written) -> None:
        begun_s, tally = self._clock.monotonic(), Tally(written)
        self._steps.begin("reading back", len(written.hashes))
        async with client.reader(self._stream, until_tail=True) as reader:
            async for batch in reader.batches():
                tally.add(batch.payloads, batch.keys)
                self._steps.advance(tally.events)
        self._outcome.tally = tally
        self._outcome.read_seconds = self._clock.monotonic() - begun_s

    async def _read_over_http(self, gateway_url: str, written: Written) -> None:
        begun_s, wanted = self._clock.monotonic(), len(written.hashes)
        self._steps.begin("reading over HTTP", wanted)
        async with session_on(gateway_url) as session:
            read = await read_back(session, self._stream, wanted, self._steps.advance)
        self._outcome.http = Comparison(read, self._clock.monotonic() - begun_s)

    async def _run_year(self, cluster: EmbeddedCluster) -> None:
        begun_s, told = self._clock.monotonic(), _SparkSteps(self._steps)
        found = await run_year(
            self._stream, cluster.endpoints_file, self._plan.tier2_url, self._plan.out, told.tell
        )
        self._outcome.year = replace(found, seconds=self._clock.monotonic() - begun_s)
        self._outcome.pictures += _pictures(found.plots)

    async def _read_with_spark(self) -> None:
        begun_s, tier2 = self._clock.monotonic(), self._plan.tier2_url
        told = _SparkSteps(self._steps)
        found = await run_pipeline(self._stream, tier2, self._plan.out, told.tell)
        seconds = self._clock.monotonic() - begun_s
        self._outcome.spark = SparkOutcome(found.read, found.parquet_rows, found.plots, seconds)
        self._outcome.pictures += _pictures(found.plots)

    async def _draw(self) -> None:
        # A demo without plots runs without matplotlib.
        from anabranch.cli.demo.lag_plot import plot_lag

        self._steps.begin("drawing")
        assert self._outcome.group is not None
        path = await asyncio.to_thread(plot_lag, self._outcome.group, self._plan.out)
        self._outcome.pictures.append(Picture(path, LAG_CAPTION))


def _pictures(plots: Sequence[Path]) -> list[Picture]:
    return [Picture(path, SPARK_CAPTIONS.get(path.stem, path.stem)) for path in plots]


class _CatchingUp:
    """Advances the step of a group by the events that it is less behind than at first."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._first = 0

    def tell(self, behind: int) -> None:
        self._first = max(self._first, behind)
        self._steps.advance(self._first - behind, total=self._first or None)


class _SparkSteps:
    """Makes a step of each phase of Spark."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._phase = ""

    def tell(self, phase: str, done: int, tasks: int) -> None:
        if phase != self._phase:
            self._phase = phase
            self._steps.begin(f"Spark: {phase}", unit="tasks")
        if tasks:
            self._steps.advance(done, total=tasks)
