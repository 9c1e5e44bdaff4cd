"""Replays the flights through a fresh embedded cluster, with or without crashes, and reads them
back.

Each day is a transaction. A group of four readers reads the events while they are written; one of
the readers is killed. Then the demo reads the events with the client, over HTTP and, after the
cluster has stopped, with Spark from tier 2.

A crash is a SIGKILL of the segment store while events are in flight: sent and not acknowledged. The
cluster restarts the store; the writer gets no notice.
"""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from anabranch.cli.demo.check import Days, RowSum, Tally, Written
from anabranch.cli.demo.days import DayWriter, batches, days, write_one
from anabranch.cli.demo.flights import flights
from anabranch.cli.demo.group_reading import LEASE_MS, GroupReading, group_reading
from anabranch.cli.demo.group_records import GroupOutcome
from anabranch.cli.demo.http_reading import read_back
from anabranch.cli.demo.lag_plot import plot_lag
from anabranch.cli.demo.scaling import SCALE_COUNT, Scaling
from anabranch.cli.demo.spark_reading import PipelineOutcome, run_pipeline
from anabranch.cli.session import session_on
from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.client import Client, Transaction, connect
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock, SystemClock

SCOPE = "demo"
STREAM = "demo/flights"
SEGMENT_COUNT = 4
CRASH_COUNT = 3
STORE_BACK_S = 60.0
FLUSH_S_MAX = 120.0
READER_KILL_PART = 0.3
"""The share of the rows after which a reader of the group is killed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows to replay, and the places of data and results."""

    table: Path
    data_dir: Path
    out: Path
    rows: int
    crash: bool
    quiet: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a replay."""

    tally: Tally
    days: Days
    group: GroupOutcome
    http: RowSum
    spark: PipelineOutcome
    lag_plot: str
    write_seconds: float
    group_seconds: float
    read_seconds: float
    http_seconds: float
    spark_seconds: float
    segments: int
    scales: int
    scales_wanted: int
    crashes: int
    crashes_wanted: int

    @property
    def is_right(self) -> bool:
        written = self.tally.written.sum
        agreed = self.http == written and self.spark.read == written
        hurt = self.crashes == self.crashes_wanted and self.scales == self.scales_wanted
        lease_s = None if self.crashes_wanted else LEASE_MS / 1000
        whole = self.tally.torn(self.days) == 0
        return agreed and whole and self.tally.is_right and hurt and self.group.is_right(lease_s)


def crash_rows(rows: int, crashes: int) -> list[int]:
    """The row counts after which to crash: the middle of each of `crashes` equal parts."""
    return [rows * (2 * part + 1) // (2 * crashes) for part in range(crashes)]


async def replay(plan: Plan) -> Outcome:
    """Run the whole demo. Raises Unavailable if the cluster does not start."""
    clock = SystemClock()
    console = Console(stderr=True, quiet=plan.quiet)
    console.print(f"starting a cluster in {plan.data_dir}")
    async with embedded_cluster(UpSettings(data_dir=plan.data_dir)) as cluster:
        await cluster.wait_ready()
        async with connect(cluster.nats, name="demo") as client:
            await client.scopes.create(SCOPE)
            await client.streams.create(STREAM, segments=SEGMENT_COUNT)
            folder = plan.data_dir / "readers"
            where = cluster.endpoints_file
            with _progress(console) as progress:
                async with group_reading(client, where, STREAM, folder, clock) as reading:
                    writing = _Writing(
                        plan, client, cluster, reading=reading, clock=clock, progress=progress
                    )
                    start_s = clock.monotonic()
                    written = await writing.run()
                    written_s = clock.monotonic()
                    group = await reading.finish(written)
                group_s = clock.monotonic()
                tally = await _read_back(client, written, progress)
                read_s = clock.monotonic()
                http = await _read_over_http(str(cluster.endpoints["gateway"]), written, progress)
                http_s = clock.monotonic()
            segments = (await client.streams.describe(STREAM)).segment_count
            console.print("flushing to tier 2, stopping the cluster")
            await client.cluster.flush_to_tier2(timeout_s=FLUSH_S_MAX)
    console.print("Spark reads tier 2 by itself: a table of delays per hour, and two plots")
    spark_start_s = clock.monotonic()
    spark = await run_pipeline(STREAM, _tier2_url(plan.data_dir), plan.out)
    return Outcome(
        tally=tally,
        days=writing.days,
        group=group,
        http=http,
        spark=spark,
        lag_plot=await asyncio.to_thread(plot_lag, group, plan.out),
        write_seconds=written_s - start_s,
        group_seconds=group_s - written_s,
        read_seconds=read_s - group_s,
        http_seconds=http_s - read_s,
        spark_seconds=clock.monotonic() - spark_start_s,
        segments=segments,
        scales=writing.scales,
        scales_wanted=SCALE_COUNT,
        crashes=writing.crashes,
        crashes_wanted=CRASH_COUNT if plan.crash else 0,
    )


def _tier2_url(data_dir: Path) -> str:
    """The place of the embedded cluster's tier 2."""
    return (data_dir.resolve() / "segstore/tier2").as_uri()


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    return Progress(*columns, console=console)


class _Writing:
    """Writes the rows. Owns the crashes and the scales, and decides when a reader is killed."""

    def __init__(
        self,
        plan: Plan,
        client: Client,
        cluster: EmbeddedCluster,
        *,
        reading: GroupReading,
        clock: Clock,
        progress: Progress,
    ) -> None:
        self._plan = plan
        self._client = client
        self._cluster = cluster
        self._reading = reading
        self._clock = clock
        self._progress = progress
        self._task = progress.add_task("writing", total=plan.rows, note="")
        self._crash_at = crash_rows(plan.rows, CRASH_COUNT) if plan.crash else []
        self._reader_kill_at = round(plan.rows * READER_KILL_PART)
        self.crashes = 0
        self.scales = 0
        self.days = Days()

    async def run(self) -> Written:
        """Write every row, day by day, and wait until all can be read."""
        written = Written()
        rows = flights(self._plan.table, self._plan.rows)
        async with asyncio.TaskGroup() as tasks, self._client.writer(STREAM) as writer:
            scaling = Scaling(self._client, STREAM, self._plan.rows, tasks)
            writing = DayWriter(writer)
            for day in days(rows):
                async with writing.day(day) as transaction:
                    for batch in batches(day.rows):
                        for flight in batch:
                            await write_one(transaction, flight)
                            written.add(flight.event)
                        await asyncio.sleep(0)
                        await self._look(len(written.hashes), scaling, transaction)
            await scaling.finish()
            await writing.finish()
        self.scales, self.days = scaling.scales, writing.days
        return written

    async def _look(self, rows: int, scaling: Scaling, transaction: Transaction) -> None:
        """Begin the crash or scale that is due after `rows` written rows."""
        scaling.look(rows)
        self._reading.look(rows, self._reader_kill_at)
        if self._crash_at and rows >= self._crash_at[0]:
            await self._crash(transaction)
        self._progress.update(self._task, completed=rows)

    async def _crash(self, transaction: Transaction) -> None:
        """Kill the segment store now if events are in flight, else at the next batch."""
        victims = self._cluster.segstore_pids()
        if not victims or transaction.used_bytes == 0:
            return
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        self._crash_at.pop(0)
        self.crashes += 1
        self._progress.update(self._task, note=f"segment store killed {self.crashes}×")
        await self._until_restarted(victims)

    async def _until_restarted(self, victims: list[int]) -> None:
        deadline_s = self._clock.monotonic() + STORE_BACK_S
        while not self._cluster.segstore_pids() or self._cluster.segstore_pids() == victims:
            if self._clock.monotonic() > deadline_s:
                raise Unavailable("the segment store was not started again in time")
            await self._clock.sleep(0.02)


async def _read_back(client: Client, written: Written, progress: Progress) -> Tally:
    tally = Tally(written)
    task = progress.add_task("reading", total=len(written.hashes), note="")
    async with client.reader(STREAM, until_tail=True) as reader:
        async for batch in reader.batches():
            tally.add(batch.payloads, batch.keys)
            progress.update(task, completed=tally.events)
    return tally


async def _read_over_http(gateway_url: str, written: Written, progress: Progress) -> RowSum:
    wanted = len(written.hashes)
    task = progress.add_task("HTTP", total=wanted, note="")
    async with session_on(gateway_url) as session:
        return await read_back(
            session, STREAM, wanted, lambda events: progress.update(task, completed=events)
        )
