"""W3: one event at a time, the next only after the acknowledgement: nothing but latency."""

from itertools import cycle

from anabranch.cli.perf.load.appends import append_one_by_one
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.port import NOT_KEPT, Label, Stream, System
from bench.workloads.port import Meter, holds_exactly, plain_stream


class OneAwaited:
    name = "W3"
    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, settings_left_out: frozenset[str]) -> None:
        self._left_out = settings_left_out

    def suits(self, label: Label) -> bool:
        return label.durability != NOT_KEPT and label.settings not in self._left_out

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with plain_stream(system, case) as stream:
            seconds = effort.warm_up_s if warm_up else effort.awaited_s
            return await await_one_by_one(system, stream, case, clock, seconds)


async def await_one_by_one(
    system: System, stream: Stream, case: Case, clock: Stopwatch, seconds: float
) -> Sample:
    """Append one event after the other to a fresh stream for so long, and read all of it back."""
    times_ms: list[float] = []
    meter = Meter(system, clock)
    ends_at = clock.now() + seconds

    def note(begun: float, acknowledged: float) -> bool:
        times_ms.append((acknowledged - begun) * 1000)
        return acknowledged < ends_at

    await append_one_by_one(stream.append, cycle(case.events), note, now=clock.now)
    measured_seconds, cpu_seconds = meter.read()
    return Sample(
        len(times_ms),
        measured_seconds,
        cpu_seconds,
        await holds_exactly(stream, case, len(times_ms)),
        p50_ms=percentile(times_ms, 50),
        p99_ms=percentile(times_ms, 99),
    )
