"""W8: transactions of ten events of 100 B, by one caller and by 16, each awaiting its commit.

begin, ten events, commit: the next one begins when the events of the last can be read. JetStream
stores ten messages as one atomic batch, Redis ten entries as one MULTI: both need no begin, no
lease and no segments, and cannot be written to by several processes or for longer than a moment.
Kafka's commit returns when the outcome is stored; readers see the events some time later.
"""

import asyncio

from bench.case import Case, Effort, Multiset, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.port import NOT_KEPT, Label, System, Transactional
from bench.workloads.port import Meter, plain_stream

EVENTS = 10
SYSTEMS = ("anabranch", "jetstream", "redis", "kafka")


class Transactions:
    event_bytes: tuple[int, ...] = (100,)

    def __init__(self, callers: int, settings_left_out: frozenset[str]) -> None:
        self.name = f"W8 {callers}"
        self._callers = callers
        self._left_out = settings_left_out

    def suits(self, label: Label) -> bool:
        has_transactions = label.system in SYSTEMS
        is_kept = label.durability != NOT_KEPT
        return has_transactions and is_kept and label.settings not in self._left_out

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        times_ms: list[float] = []
        expected, found = Multiset(), Multiset()
        events = case.events[:EVENTS]
        seconds_max = effort.warm_up_s if warm_up else max(effort.awaited_s, 3.0)
        async with plain_stream(system, case) as stream:
            assert isinstance(stream, Transactional), "knows no transactions"
            async with stream.transactors(self._callers) as transactors:
                ends_at = clock.now() + seconds_max

                async def call(number: int) -> None:
                    started = clock.now()
                    while True:
                        await transactors[number](events)
                        expected.add(events)
                        started, before = clock.now(), started
                        times_ms.append((started - before) * 1000)
                        if started >= ends_at:
                            return

                meter = Meter(system, clock)
                async with asyncio.TaskGroup() as group:
                    for number in range(self._callers):
                        group.create_task(call(number))
                seconds, cpu_seconds = meter.read()
            async for batch in stream.read_back():
                found.add(batch)
        return Sample(
            len(times_ms), seconds, cpu_seconds, found == expected,
            p50_ms=percentile(times_ms, 50), p99_ms=percentile(times_ms, 99),
        )  # fmt: skip
