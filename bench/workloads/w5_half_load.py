"""W5: how long acknowledgements take at half of what the system can do.

First the most it can do, as in W1; then half of that rate as an open loop: what is due is sent once
a millisecond, and latencies count from when each event was due. Nobody reads meanwhile.
"""

import asyncio
from itertools import cycle, islice

from anabranch.cli.perf.load.pacing import TICK_S, Pace
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.port import Label, System, TailedStream
from bench.workloads.port import Meter, holds_exactly
from bench.workloads.w1_max_write import MaxWrite

SHARE = 0.5
SECONDS_MIN = 1.0


class HalfLoad:
    name = "W5"
    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self) -> None:
        self._most = MaxWrite()

    def suits(self, label: Label) -> bool:
        return label.system == "anabranch" and label.settings.startswith("flush")

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        most = await self._most.measure(system, case, effort, clock, warm_up=warm_up)
        rate_per_s = SHARE * most.events / most.seconds
        seconds = effort.warm_up_s if warm_up else max(SECONDS_MIN, effort.tail_s)
        async with system.stream(case) as stream:
            assert isinstance(stream, TailedStream), "the system takes no open loop"
            await stream.write_all([case.events])  # connected and known to the server
            meter = Meter(system, clock)
            count = max(1, int(seconds * rate_per_s))
            late_ms = await open_loop(stream, case, clock, rate_per_s=rate_per_s, count=count)
            spent, cpu_seconds = meter.read()
            verified = await holds_exactly(stream, case, len(case.events) + count)
        return Sample(
            count, spent, cpu_seconds, verified and most.verified,
            ack_p50_ms=percentile(late_ms, 50), ack_p99_ms=percentile(late_ms, 99),
        )  # fmt: skip


async def open_loop(
    stream: TailedStream, case: Case, clock: Stopwatch, *, rate_per_s: float, count: int
) -> list[float]:
    """Send the first `count` events of the repeated pool when due → how late each tick's oldest
    and newest event was acknowledged, in ms."""
    late_ms: list[float] = []
    sends_in_flight = sent = 0
    events = cycle(case.events)
    pace = Pace(rate_per_s, clock.now())

    async def send(first: int, batch: list[bytes]) -> None:
        nonlocal sends_in_flight
        await stream.send(batch)
        sends_in_flight -= 1
        now = clock.now()
        late_ms.append(pace.late(first, now) * 1000)
        late_ms.append(pace.late(first + len(batch) - 1, now) * 1000)

    async with asyncio.TaskGroup() as group:
        while sent < count:
            due = min(count, pace.due(clock.now()))
            if due > sent and sends_in_flight < stream.sends_in_flight_max:
                sends_in_flight += 1
                group.create_task(send(sent, list(islice(events, due - sent))))
                sent = due
            await asyncio.sleep(TICK_S)
    return late_ms
