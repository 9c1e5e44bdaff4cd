"""W4: 64 tasks of one program, each awaiting its event of 1 KB before it sends the next.

All share one client of the system: what a service does that answers its callers only when their
events are durable. Every task writes one event at least, however slow the machine is.
"""

import asyncio

from bench.case import Case, Effort, Multiset, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.port import NOT_KEPT, Label, System
from bench.workloads.port import Meter, plain_stream

TASKS = 64


class ManyAwaiting:
    name = "W4"
    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, settings_left_out: frozenset[str]) -> None:
        self._left_out = settings_left_out

    def suits(self, label: Label) -> bool:
        served = label.durability != NOT_KEPT and label.system != "disk"
        return served and label.settings not in self._left_out

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        times_ms: list[float] = []
        expected, found = Multiset(), Multiset()
        async with plain_stream(system, case) as stream:
            ends_at = clock.now() + (effort.warm_up_s if warm_up else effort.awaited_s)

            async def append(first: int) -> range:
                """Append every TASKS-th event from `first`; returns the numbers of all of them."""
                number, started = first, clock.now()
                while started < ends_at or number == first:
                    await stream.append(case.events[number % len(case.events)])
                    started, before = clock.now(), started
                    times_ms.append((started - before) * 1000)
                    number += TASKS
                return range(first, number, TASKS)

            meter = Meter(system, clock)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(append(first)) for first in range(TASKS)]
            seconds, cpu_seconds = meter.read()
            for task in tasks:
                expected.add([case.events[number % len(case.events)] for number in task.result()])
            async for batch in stream.read_back():
                found.add(batch)
        return Sample(
            len(times_ms), seconds, cpu_seconds, found == expected,
            p50_ms=percentile(times_ms, 50), p99_ms=percentile(times_ms, 99),
        )  # fmt: skip
