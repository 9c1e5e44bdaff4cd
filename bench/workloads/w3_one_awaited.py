"""W3: one event at a time, the next only after the acknowledgement: nothing but latency."""

from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.port import Label, System
from bench.workloads.port import Meter, holds_exactly


class OneAwaited:
    name = "W3"
    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, settings_left_out: frozenset[str]) -> None:
        self._left_out = settings_left_out

    def suits(self, label: Label) -> bool:
        return label.settings not in self._left_out

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        times_ms: list[float] = []
        async with system.stream(case) as stream:
            meter = Meter(system, clock)
            now = clock.now()
            ends_at = now + (effort.warm_up_s if warm_up else effort.awaited_s)
            while now < ends_at:
                await stream.append(case.events[len(times_ms) % len(case.events)])
                started, now = now, clock.now()
                times_ms.append((now - started) * 1000)
            seconds, cpu_seconds = meter.read()
            verified = await holds_exactly(stream, case, len(times_ms))
        return Sample(
            len(times_ms),
            seconds,
            cpu_seconds,
            verified,
            p50_ms=percentile(times_ms, 50),
            p99_ms=percentile(times_ms, 99),
        )
