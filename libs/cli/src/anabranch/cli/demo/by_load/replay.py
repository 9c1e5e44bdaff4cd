"""Replays the flights at a changing rate through a stream that follows its load by itself.

Nobody scales the stream: its policy names a target rate, and the controller splits and merges its
segments. Meanwhile the demo samples the rate of every segment, notes event times, and reads the
stream at its tail, where it asks for its time window.
When the last row is written and the stream has one segment again, it checks every row.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from anabranch.cli.demo.by_load.epoch_map import Sample, cells, sample_of
from anabranch.cli.demo.by_load.event_time import Moment, least_to_come
from anabranch.cli.demo.by_load.pace import PHASES, TARGET_RATE, crossing_s, rows_due
from anabranch.cli.demo.by_load.plots import plot_epoch_map, plot_event_time
from anabranch.cli.demo.check import Tally, Written
from anabranch.cli.demo.flights import flights_by_time
from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import (
    Client,
    EventWriter,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
    TimeWindow,
    connect,
)
from anabranch.common.contracts.stream_queries import ScalingEvent
from anabranch.common.errors import BufferFull, Retry
from anabranch.common.runtime.clock import Clock, SystemClock

SCOPE = "demo"
STREAM = "demo/flights"
CONFIG = StreamConfig(
    scaling=ScalingPolicy(ScalingType.EVENT_RATE, TARGET_RATE, scale_factor=4, min_segments=1)
)
TICK_S = 0.05
SAMPLE_S = 1.0
MERGED_S_MAX = 240.0
"""How long the demo waits for the last merge after the last row."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The places of the table, the data and the results."""

    table: Path
    data_dir: Path
    out: Path
    quiet: bool


@dataclass(slots=True)
class Course:
    """What was seen while the rows were written."""

    samples: list[Sample] = field(default_factory=list)
    written: list[tuple[int, int]] = field(default_factory=list)
    """(Unix ms, rows written by then)."""
    moments: list[Moment] = field(default_factory=list)
    """Event times of the reader at the tail."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results. `first_split_s`: seconds from the load's crossing of the target to the first
    split; None: there was none."""

    tally: Tally
    epochs: tuple[ScalingEvent, ...]
    moments: tuple[Moment, ...]
    first_split_s: float | None
    seconds: float
    plots: tuple[str, ...]

    @property
    def late(self) -> int:
        """Events earlier than the lower bound of the time window before them."""
        return self.moments[-1].late if self.moments else 0

    @property
    def segments_max(self) -> int:
        return max(epoch.segment_count for epoch in self.epochs)

    @property
    def segments_last(self) -> int:
        return self.epochs[-1].segment_count

    @property
    def is_right(self) -> bool:
        followed = self.segments_max > 1 and self.segments_last == 1
        causes = {epoch.cause.partition(":")[0] for epoch in self.epochs[1:]}
        in_time = any(at.lower_ms is not None for at in self.moments) and not self.late
        by_itself = causes <= {"auto-split", "auto-merge"}
        return self.tally.is_right and followed and by_itself and in_time


async def replay(plan: Plan) -> Outcome:
    """Run the whole demo. Raises Unavailable if the cluster does not start."""
    clock = SystemClock()
    console = Console(stderr=True, quiet=plan.quiet)
    console.print(f"starting a cluster in {plan.data_dir}")
    async with embedded_cluster(UpSettings(data_dir=plan.data_dir)) as cluster:
        await cluster.wait_ready()
        async with connect(cluster.nats, name="demo") as client:
            await client.scopes.create(SCOPE)
            await client.streams.create(STREAM, CONFIG)
            begun_s = clock.monotonic()
            with _progress(console) as progress:
                course = Course()
                async with _watching(client, clock, course):
                    written = await _write(plan, client, clock, course, progress)
                    console.print("waiting until the quiet stream has one segment again")
                    await _until_merged(client, clock)
                epochs = await _epochs(client)
                tally = await _read_back(client, written, progress)
    crossing_ms = course.written[0][0] + (crossing_s(PHASES, TARGET_RATE) or 0.0) * 1000
    splits = [one.created_ms for one in epochs[1:] if one.splits]
    end_ms = course.samples[-1].at_ms
    drawn = plot_epoch_map(
        cells(epochs, course.samples, end_ms), epochs, course.written,
        target=TARGET_RATE, out=plan.out,
    )  # fmt: skip
    return Outcome(
        tally=tally,
        epochs=epochs,
        moments=tuple(course.moments),
        first_split_s=(splits[0] - crossing_ms) / 1000 if splits else None,
        seconds=clock.monotonic() - begun_s,
        plots=(drawn, plot_event_time(course.moments, begun_ms=epochs[0].created_ms, out=plan.out)),
    )


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description:>8}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    return Progress(*columns, console=console)


async def _write(
    plan: Plan, client: Client, clock: Clock, course: Course, progress: Progress
) -> Written:
    """Write all rows at the pace of `PHASES`."""
    rows, written = list(flights_by_time(plan.table)), Written()
    least_ms = least_to_come(rows)
    task = progress.add_task("writing", total=len(rows), note="")
    async with client.writer(STREAM) as writer:
        begun_s, done = clock.monotonic(), 0
        course.written.append((clock.now_ms(), 0))
        while done < len(rows):
            due = min(rows_due(PHASES, clock.monotonic() - begun_s), len(rows))
            for flight in rows[done:due]:
                await _write_one(writer, flight.event, flight.key, flight.timestamp_ms)
                written.add(flight.event)
            done = due
            if clock.now_ms() - course.written[-1][0] >= SAMPLE_S * 1000:
                course.written.append((clock.now_ms(), done))
                await writer.note_time(least_ms[done])
            progress.update(task, completed=done, note=_note(course.samples))
            await clock.sleep(TICK_S)
        await writer.flush()
    return written


def _note(samples: Sequence[Sample]) -> str:
    if not samples:
        return ""
    count = len(samples[-1].rates)
    return f"{count} segment{'' if count == 1 else 's'}"


async def _write_one(writer: EventWriter, event: bytes, key: str | None, time_ms: int) -> None:
    while True:
        try:
            writer.write(event, key, time_ms)
        except BufferFull:
            await writer.flush()
        else:
            return


@asynccontextmanager
async def _watching(client: Client, clock: Clock, course: Course) -> AsyncIterator[None]:
    """Sample the rates of the segments, and read at the tail, during the block."""
    async with asyncio.TaskGroup() as tasks:
        watching = (
            tasks.create_task(_sample(client, clock, course)),
            tasks.create_task(_follow(client, clock, course)),
        )
        yield
        for task in watching:
            task.cancel()


async def _follow(client: Client, clock: Clock, course: Course) -> None:
    """Read the stream, and note event times once a second, until cancelled."""
    newest_ms = late = noted_ms = 0
    window = TimeWindow(None, None)
    async with client.reader(STREAM) as reader:
        async for batch in reader.batches():
            times = batch.timestamps_ms
            newest_ms = max(newest_ms, *times)
            if window.lower_ms is not None:
                late += sum(at < window.lower_ms for at in times)
            if clock.now_ms() - noted_ms < SAMPLE_S * 1000:
                continue
            noted_ms, window = clock.now_ms(), await reader.time_window()
            moment = Moment(noted_ms, newest_ms, window.lower_ms, window.upper_ms, late)
            course.moments.append(moment)


async def _sample(client: Client, clock: Clock, course: Course) -> None:
    """Sample the rates until cancelled. A query that fails is left out."""
    while True:
        try:
            explained = await client.streams.explain(STREAM)
        except Retry:
            pass
        else:
            course.samples.append(sample_of(clock.now_ms(), explained.segments))
        await clock.sleep(SAMPLE_S)


async def _until_merged(client: Client, clock: Clock) -> None:
    """Wait until the stream has one segment, or `MERGED_S_MAX` have passed."""
    until_s = clock.monotonic() + MERGED_S_MAX
    while clock.monotonic() < until_s:
        if (await client.streams.describe(STREAM)).segment_count == 1:
            await clock.sleep(2 * SAMPLE_S)  # so that the map shows it
            return
        await clock.sleep(SAMPLE_S)


async def _epochs(client: Client) -> tuple[ScalingEvent, ...]:
    events = client.streams.scaling_events(STREAM, 0, 2**53)
    return tuple([event async for event in events])


async def _read_back(client: Client, written: Written, progress: Progress) -> Tally:
    tally = Tally(written)
    task = progress.add_task("reading", total=len(written.hashes), note="")
    async with client.reader(STREAM, until_tail=True) as reader:
        async for batch in reader.batches():
            tally.add(batch.payloads, batch.keys)
            progress.update(task, completed=tally.events)
    return tally
