"""W13 follow: a streaming query of Spark behind a writer with a fixed rate.

The writer is an open loop; the query starts the next micro-batch as soon as it has ended one. The
lag of a micro-batch is the age of its oldest event at its end. The first micro-batch, which starts
Spark's workers, does not count.
"""

from types import TracebackType
from typing import Self

from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.port import Label, SparkStream, System, TailedStream
from bench.workloads.port import Meter
from bench.workloads.w5_half_load import open_loop
from bench.workloads.w13_spark import SparkProcess

EVENTS_PER_S = 500_000.0
SECONDS_MIN = 10.0
WARM_UP_S = 3.0


class SparkFollow:
    """To be entered, for its session."""

    name = "W13 follow"
    event_bytes: tuple[int, ...] = (100,)

    def __init__(self, settings_left_out: frozenset[str], rate_per_s: float = EVENTS_PER_S) -> None:
        self._spark = SparkProcess()
        self._left_out = settings_left_out
        self._rate_per_s = rate_per_s

    async def __aenter__(self) -> Self:
        await self._spark.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._spark.__aexit__(kind, error, trace)

    def suits(self, label: Label) -> bool:
        return label.system == "anabranch" and label.settings not in self._left_out

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
            options = dict(source.options)
            await self._spark.ask({"follow": "start", "format": source.format, "options": options})
            await self._spark.ask({"follow": "wait", "events": first})
            meter, begun = Meter(system, clock), clock.now()
            await open_loop(stream, case, clock, rate_per_s=self._rate_per_s, count=count)
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
