"""Replays the flights at a changing rate through a stream that follows its load by itself.

Nobody scales the stream: its policy names a target rate, and the controller splits and merges its
segments. Meanwhile the demo samples the rate of every segment, notes event times, and reads the
stream at its tail, where it asks for its time window.
When the last row is written and the stream has one segment again, it checks every row.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.cli.demo.by_load.epoch_map import cells, sample_of
from anabranch.cli.demo.by_load.event_time import Moment, least_to_come
from anabranch.cli.demo.by_load.outcome import Course, Outcome
from anabranch.cli.demo.by_load.pace import PHASES, TARGET_RATE, crossing_s, finish_s, rows_due
from anabranch.cli.demo.check import Tally, Written
from anabranch.cli.demo.flights import flights_by_time
from anabranch.cli.demo.report.page import Picture
from anabranch.cli.demo.steps import Steps
from anabranch.cli.figures import counted
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
from anabranch.common.runtime.clock import Clock

SCOPE = "demo"
STREAM = "demo/flights"
CONFIG = StreamConfig(
    scaling=ScalingPolicy(ScalingType.EVENT_RATE, TARGET_RATE, scale_factor=4, min_segments=1)
)
TICK_S = 0.05
SAMPLE_S = 1.0
MERGED_S_MAX = 240.0
"""How long the demo waits for the last merge after the last row."""
MAP_CAPTION = "The load of the stream, its segments over time, and the rate of each of them"
TIME_CAPTION = "Event time of a reader at the tail, and its time window"


async def replay(outcome: Outcome, steps: Steps, clock: Clock) -> None:
    """Run the whole demo; the outcome fills up. Raises Unavailable if no cluster starts."""
    plan, course = outcome.plan, outcome.course
    async with steps.shown():
        steps.begin("starting a cluster")
        async with embedded_cluster(UpSettings(data_dir=plan.data_dir)) as cluster:
            await cluster.wait_ready()
            async with connect(cluster.nats, name="demo") as client:
                await client.scopes.create(SCOPE)
                await client.streams.create(STREAM, CONFIG)
                begun_s = clock.monotonic()
                async with _watching(client, clock, course, steps):
                    outcome.written = await _write(outcome, client, clock, steps)
                    steps.begin("waiting for merges")
                    await _until_merged(client, clock)
                outcome.epochs = await _epochs(client)
                outcome.first_split_s = _first_split_s(outcome)
                outcome.tally = await _read_back(client, outcome.written, steps)
                outcome.seconds = clock.monotonic() - begun_s
            steps.begin("stopping the cluster")
        steps.begin("drawing")
        outcome.pictures += await asyncio.to_thread(_draw, outcome)


def _first_split_s(outcome: Outcome) -> float | None:
    crossing_ms = outcome.course.written[0][0] + (crossing_s(PHASES, TARGET_RATE) or 0.0) * 1000
    splits = [one.created_ms for one in outcome.epochs[1:] if one.splits]
    return (splits[0] - crossing_ms) / 1000 if splits else None


def _draw(outcome: Outcome) -> list[Picture]:
    # No other command should wait for this import.
    from anabranch.cli.demo.by_load.plots import plot_epoch_map, plot_event_time

    course, epochs, out = outcome.course, outcome.epochs, outcome.plan.out
    end_ms = course.samples[-1].at_ms
    found = cells(epochs, course.samples, end_ms)
    epoch_map = plot_epoch_map(found, epochs, course.written, target=TARGET_RATE, out=out)
    event_time = plot_event_time(course.moments, begun_ms=epochs[0].created_ms, out=out)
    return [Picture(epoch_map, MAP_CAPTION), Picture(event_time, TIME_CAPTION)]


async def _write(outcome: Outcome, client: Client, clock: Clock, steps: Steps) -> Written:
    """Write all rows at the pace of `PHASES`."""
    steps.begin("loading the flights")
    rows = await asyncio.to_thread(lambda: list(flights_by_time(outcome.plan.table)))
    written, course, whole_s = Written(), outcome.course, finish_s(PHASES, len(rows))
    least_ms = least_to_come(rows)
    steps.begin("writing", len(rows))
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
            left_s = begun_s + whole_s - clock.monotonic()
            steps.advance(done, left_s=max(0.0, left_s))
            await clock.sleep(TICK_S)
        await writer.flush()
    return written


async def _write_one(writer: EventWriter, event: bytes, key: str | None, time_ms: int) -> None:
    while True:
        try:
            writer.write(event, key, time_ms)
        except BufferFull:
            await writer.flush()
        else:
            return


@asynccontextmanager
async def _watching(
    client: Client, clock: Clock, course: Course, steps: Steps
) -> AsyncIterator[None]:
    """Sample the rates of the segments, and read at the tail, during the block."""
    async with asyncio.TaskGroup() as tasks:
        watching = (
            tasks.create_task(_sample(client, clock, course, steps)),
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


async def _sample(client: Client, clock: Clock, course: Course, steps: Steps) -> None:
    """Sample the rates until cancelled. A query that fails is left out."""
    count = 1
    while True:
        try:
            explained = await client.streams.explain(STREAM)
        except Retry:
            pass
        else:
            course.samples.append(sample_of(clock.now_ms(), explained.segments))
            if len(explained.segments) != count:
                count = len(explained.segments)
                steps.remark(f"the stream has {counted(count, 'segment')} now")
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


async def _read_back(client: Client, written: Written, steps: Steps) -> Tally:
    tally = Tally(written)
    steps.begin("reading back", len(written.hashes))
    async with client.reader(STREAM, until_tail=True) as reader:
        async for batch in reader.batches():
            tally.add(batch.payloads, batch.keys)
            steps.advance(tally.events)
    return tally
