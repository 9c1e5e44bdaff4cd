"""W13 follow: a streaming query of Spark behind a writer with a fixed rate.

The writer sends what is due, as far as it can; events that it sends late count from when they were
due. The query starts the next micro-batch as soon as it has ended one, and reads the column `event`
alone. The lag of a micro-batch is the age of its oldest event at its end. The first micro-batch,
which starts Spark's workers, does not count.
"""

import asyncio
from itertools import cycle, islice

from anabranch.cli.perf.load.pacing import TICK_S, Pace
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.spark_session import InSpark
from bench.stats import percentile
from bench.systems.port import SparkStream, System, TailedStream
from bench.workloads.port import Meter

EVENTS_PER_S = 500_000.0
SECONDS_MIN = 10.0
WARM_UP_S = 3.0
SENDS_MAX = 16
EVENTS_PER_SEND_MAX = 10_000


class SparkFollow(InSpark):
    """One segment."""

    name = "W13 follow"
    event_bytes: tuple[int, ...] = (100,)

    def __init__(self, settings_left_out: frozenset[str], rate_per_s: float = EVENTS_PER_S) -> None:
        super().__init__(settings_left_out)
        self._rate_per_s = rate_per_s

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        seconds = WARM_UP_S if warm_up else max(SECONDS_MIN, effort.tail_s)
        first, count = len(case.events), int(seconds * self._rate_per_s)
        async with system.stream(case) as stream:
            assert isinstance(stream, SparkStream), "Spark cannot read the system"
            assert isinstance(stream, TailedStream), "the system takes no open loop"
            source = await stream.spark_source("stores")
            await stream.write_all([case.events])
            options = {**source.options, "columns": "event"}
            await self._spark.ask({"follow": "start", "format": source.format, "options": options})
            await self._spark.ask({"follow": "wait", "events": first})
            meter, begun = Meter(system, clock), clock.now()
            await paced(stream, case, Pace(self._rate_per_s, begun), clock, count)
            found = await self._spark.ask({"follow": "wait", "events": first + count})
            spent, cpu_seconds = meter.read()
            await self._spark.ask({"follow": "stop"})
        batches = [(float(at), int(events)) for at, events in found["batches"]]
        lags_ms = lags(batches, first, begun, self._rate_per_s)
        verified = sum(events for _, events in batches) == first + count
        return Sample(
            count, spent, cpu_seconds, verified,
            p50_ms=percentile(lags_ms, 50), p99_ms=percentile(lags_ms, 99),
            notes={"batches": float(len(lags_ms)), "lag s": max(lags_ms) / 1000},
        )  # fmt: skip


async def paced(stream: TailedStream, case: Case, pace: Pace, clock: Stopwatch, count: int) -> None:
    """Send the first `count` events of the repeated pool when they are due, or as soon after as
    few sends are on their way."""
    events = cycle(case.events)
    on_their_way = asyncio.Semaphore(SENDS_MAX)
    sent = 0

    async def send(batch: list[bytes]) -> None:
        try:
            await stream.send(batch)
        finally:
            on_their_way.release()

    async with asyncio.TaskGroup() as group:
        while sent < count:
            size = min(count, pace.due(clock.now())) - sent
            if size > 0:
                await on_their_way.acquire()
                batch = list(islice(events, min(size, EVENTS_PER_SEND_MAX)))
                sent += len(batch)
                group.create_task(send(batch))
            await asyncio.sleep(TICK_S)


def lags(
    batches: list[tuple[float, int]], first: int, begun: float, rate_per_s: float
) -> list[float]:
    """The lag of each batch in ms. `batches`: (end, events), of which the first `first` events came
    before the clock; event number n after them was due n / `rate_per_s` after `begun`."""
    found: list[float] = []
    seen = -first
    for at, events in batches:
        if seen >= 0 and events:
            found.append((at - begun - seen / rate_per_s) * 1000)
        seen += events
    return found
