"""The command `anabranch perf scale`: how long a writer pauses when its stream is scaled.

One writer sends numbered events with keys at a steady rate while the stream is split, merged, split
… Event *i* has key *i* modulo the number of keys. Afterwards everything is read: each key must have
exactly the numbers that were acknowledged, in their order.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.cli.figures import counted, duration, size
from anabranch.cli.output import Output
from anabranch.cli.perf import amounts, shown
from anabranch.cli.perf.ending import EXIT_INTERRUPTED, Ending, ended_by_ctrl_c
from anabranch.cli.perf.live import live_view
from anabranch.cli.perf.load.histogram import Histogram
from anabranch.cli.perf.load.payloads import (
    all_numbered,
    batch_count,
    index_of,
    pool_count,
    pool_of,
)
from anabranch.cli.perf.load.scales import Scale, split_or_merge
from anabranch.cli.perf.order import Order
from anabranch.cli.perf.streams import Wanted, measured_stream
from anabranch.cli.perf.writing import Plan, Progress, WriteLoad
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client
from anabranch.common.runtime.clock import Clock, SystemClock

AFTER_S = 0.5
"""A pause is looked for until so long after a scale."""
COLUMNS = ("scale", "kind", "took", "pause")
EXIT_WRONG = 1
_HERE = Connection()


@dataclass(frozen=True, slots=True)
class Paused:
    """A scale, and the writer's longest pause around it in seconds."""

    scale: Scale
    pause_s: float

    @property
    def took_s(self) -> float:
        return self.scale.ended - self.scale.began


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a course on a stream."""

    stream: str
    plan: Plan
    progress: Progress
    done: list[Paused]
    order: Order

    @property
    def is_right(self) -> bool:
        """Whether the stream holds exactly the acknowledged events, in order per key."""
        return self.order.is_right(self.progress.acknowledged)


@dataclass(frozen=True, slots=True)
class Course:
    """How often the stream is scaled. `every_s`: from one scale's end to the next one's begin; at
    least `after_s`."""

    scales: int
    every_s: float
    segments: int
    after_s: float = AFTER_S


def scale(
    *,
    scales: int = 10,
    every: float = 1.0,
    rate: float = 5000.0,
    size: str = "1KiB",
    keys: int = 1000,
    segments: int = 1,
    connection: Connection = _HERE,
) -> int:
    """Measure how long a writer pauses while its stream is split and merged, and check every event.

    The command creates a stream, and deletes it at the end.

    Parameters
    ----------
    scales
        The number of scales: a split, a merge, a split, and so on.
    every
        Seconds between two scales.
    rate
        Events per second.
    size
        The size of an event: bytes, or as 1KiB.
    keys
        The number of routing keys that the events take in turn.
    segments
        The number of segments of the stream before each split.
    """
    for name, value in (("--scales", scales), ("--every", every), ("--segments", segments)):
        amounts.at_least_one(name, value)
    size_bytes = amounts.event_size(size)
    pool = pool_of(size_bytes, pool_count(size_bytes))
    plan = Plan(
        events=lambda _: all_numbered(pool),
        event_size_bytes=size_bytes,
        batch_count=batch_count(size_bytes),
        keys=amounts.key_count(keys, least=1),
        rate_per_s=amounts.events_per_s(rate),
    )
    course = Course(scales, max(every, AFTER_S), segments)

    async def perform(client: Client, output: Output) -> int:
        clock = SystemClock()
        ending = Ending(clock, None)
        with ended_by_ctrl_c(ending):
            async with measured_stream(client, Wanted(None, "scale", segments), output) as name:
                load = WriteLoad(client, name, plan, clock=clock, ending=ending)
                done: list[Paused] = []
                rows = live_rows(load.progress, done, clock.monotonic, course)
                with live_view(f"scaling {name}: {described(plan)}", rows, output):
                    await measure(client, name, load, course, done, clock=clock, ending=ending)
                    order = await read_back(client, name, plan.keys)
        show(Outcome(name, plan, load.progress, done, order), output)
        if not order.is_right(load.progress.acknowledged):
            return EXIT_WRONG
        return EXIT_INTERRUPTED if len(done) < scales else 0

    return run_with_client(connection, perform)


async def measure(
    client: Client,
    stream: str,
    load: WriteLoad,
    course: Course,
    done: list[Paused],
    *,
    clock: Clock,
    ending: Ending,
) -> None:
    """Scale under load as often as asked, or until Ctrl-C. Raises the client's errors."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.run())
        while len(done) < course.scales:
            await ending.pause(course.every_s - course.after_s)
            if ending.interrupted:
                return
            scaled = await split_or_merge(client, stream, course.segments, clock.monotonic)
            pause_s = await _pause(load.progress, scaled, course.after_s, ending)
            done.append(Paused(scaled, pause_s))
        ending.interrupt()


async def _pause(progress: Progress, scaled: Scale, after_s: float, ending: Ending) -> float:
    """The longest pause around a scale, as soon as it is known."""
    await ending.pause(after_s)
    while progress.ended <= scaled.ended and not ending.interrupted:
        await ending.pause(0.01)
    end = max(scaled.ended + after_s, progress.ended)
    return progress.moments.longest_gap(scaled.began, end)


async def read_back(client: Client, stream: str, key_count: int) -> Order:
    """Read the whole stream. Raises the reader's errors."""
    order = Order(key_count)
    async with client.reader(stream, until_tail=True) as reader:
        async for batch in reader.batches():
            for key, payload in zip(batch.keys, batch.payloads, strict=True):
                order.take(key, index_of(payload))
    return order


def described(plan: Plan) -> str:
    """The load in one line."""
    assert plan.rate_per_s is not None
    keys = counted(plan.keys, "key")
    return (
        f"events of {size(plan.event_size_bytes)}, {keys}, {shown.rate(plan.rate_per_s)} events/s"
    )


def live_rows(
    progress: Progress, done: list[Paused], now: Callable[[], float], course: Course
) -> shown.Live:
    """Returns the rows of the live view."""

    def rows() -> shown.Rows:
        passed = now() - progress.began if progress.began else 0.0
        made = len(done)
        last = f"{done[-1].scale.kind}, pause {_ms(done[-1].pause_s)}" if done else "none yet"
        return [
            ("time", f"{passed:.0f} s"),
            ("scales", f"{made} of {course.scales}  {shown.bar(made, course.scales)}"),
            ("last scale", last),
            ("longest pause", _ms(max((one.pause_s for one in done), default=0.0))),
            ("events", shown.count(progress.acknowledged)),
            ("acknowledged in", shown.latency(progress.latency)),
        ]

    return rows


def summary_of(seconds: list[float]) -> dict[str, float] | None:
    """The percentiles of some times, as the commands show them."""
    histogram = Histogram()
    for one in seconds:
        histogram.record(one)
    return histogram.summary_ms()


def record_of(outcome: Outcome) -> dict[str, object]:
    """The outcome as one JSON object."""
    plan, progress = outcome.plan, outcome.progress
    return {
        "stream": outcome.stream,
        "events": progress.acknowledged,
        "event_size_bytes": plan.event_size_bytes,
        "keys": plan.keys,
        "rate_asked": plan.rate_per_s,
        "events_per_s": shown.per_second(progress.acknowledged, progress.seconds),
        "scales": [
            {
                "kind": one.scale.kind,
                "took_ms": round(one.took_s * 1000, 3),
                "pause_ms": round(one.pause_s * 1000, 3),
            }
            for one in outcome.done
        ],
        "pause_ms": summary_of([one.pause_s for one in outcome.done]),
        "acknowledgement_ms": progress.latency.summary_ms(),
        "read": outcome.order.events,
        "misplaced": outcome.order.misplaced,
        "verified": outcome.is_right,
    }


def show(outcome: Outcome, output: Output) -> None:
    """Print the outcome."""
    if output.for_programs:
        output.done("", record_of(outcome))
        return
    output.done(f"perf scale {outcome.stream}: {described(outcome.plan)}", {})
    rows = [
        (str(number), one.scale.kind, _ms(one.took_s), _ms(one.pause_s))
        for number, one in enumerate(outcome.done, 1)
    ]
    output.rows(COLUMNS, rows, ())
    pauses = summary_of([one.pause_s for one in outcome.done])
    output.rows(
        shown.LATENCY_COLUMNS,
        [
            shown.latency_row("pause", pauses),
            shown.latency_row("acknowledgement", outcome.progress.latency.summary_ms()),
        ],
        (),
    )
    output.done(outcome.order.verdict(outcome.progress.acknowledged), {})


def _ms(seconds: float) -> str:
    return duration(seconds * 1000)
