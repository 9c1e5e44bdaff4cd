"""W6: from the moment an event should be written to the moment a reader at the tail has it.

Open loop: event i is due at start + i / rate, whatever the system does, and both latencies count
from there; a system that falls behind shows it. The sender looks once a millisecond for what is
due, for all systems alike. Every event carries its index, so the reader knows what it has and
whether it is the one that was sent. Writer and reader share one event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from anabranch.cli.perf.load.pacing import TICK_S, Pace
from anabranch.cli.perf.load.payloads import index_of, numbered
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.port import NOT_KEPT, Label, System, TailedStream
from bench.workloads.port import Meter

RATE_PER_S = 5_000
PATIENCE_SECONDS = 20.0

OpenTail = Callable[[], AbstractAsyncContextManager[AsyncIterator[Sequence[bytes]]]]


class Timetable:
    """When each event is due, and what became of it. Times in seconds, events by index."""

    def __init__(self, case: Case, start: float, count: int, rate_per_s: int) -> None:
        self._events = case.events
        self._pace = Pace(rate_per_s, start)
        self.count = count
        self.acked_ms: list[float] = []
        self.arrived_ms: list[float] = []
        self.wrong = 0
        self._seen = bytearray(count)

    def due(self, now: float) -> int:
        """How many events are due by now."""
        return min(self.count, self._pace.due(now))

    def event(self, index: int) -> bytes:
        return numbered(self._events[index % len(self._events)], index)

    def acked(self, first: int, end: int, now: float) -> None:
        self.acked_ms += [self._late_ms(index, now) for index in range(first, end)]

    def arrived(self, events: Sequence[bytes], now: float) -> None:
        """Note what the reader got; a wrong or repeated event is counted as wrong."""
        for event in events:
            index = index_of(event)
            if index >= self.count or self._seen[index] or event != self.event(index):
                self.wrong += 1
                continue
            self._seen[index] = 1
            self.arrived_ms.append(self._late_ms(index, now))

    @property
    def is_complete(self) -> bool:
        return len(self.arrived_ms) + self.wrong >= self.count

    @property
    def is_right(self) -> bool:
        return self.wrong == 0 and len(self.arrived_ms) == self.count

    def _late_ms(self, index: int, now: float) -> float:
        return self._pace.late(index, now) * 1000


class Tail:
    name = "W6"
    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, settings_left_out: frozenset[str]) -> None:
        self._left_out = settings_left_out

    def suits(self, label: Label) -> bool:
        kept_and_served = label.durability != NOT_KEPT and label.system != "disk"
        return kept_and_served and label.settings not in self._left_out

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with system.stream(case) as stream:
            assert isinstance(stream, TailedStream), "the system cannot be read while it grows"
            await stream.append(case.events[0])  # connected and known to the server
            seconds = effort.warm_up_s if warm_up else effort.tail_s
            return await Tailing(system, case, clock).measure(stream, stream.tail, seconds)


class Tailing:
    """The open loop, whoever reads."""

    def __init__(self, system: System, case: Case, clock: Stopwatch) -> None:
        self._system = system
        self._case = case
        self._clock = clock

    async def measure(self, stream: TailedStream, tail: OpenTail, seconds: float) -> Sample:
        """For so long; `tail` opens the reader that stands at the end."""
        async with tail() as batches:
            meter = Meter(self._system, self._clock)
            count = max(1, int(seconds * RATE_PER_S))
            timetable = Timetable(self._case, self._clock.now(), count, RATE_PER_S)
            await _send_and_read(stream, batches, timetable, self._clock)
            spent, cpu_seconds = meter.read()
        arrived_ms = timetable.arrived_ms or [PATIENCE_SECONDS * 1000]
        return Sample(
            count,
            spent,
            cpu_seconds,
            timetable.is_right,
            p50_ms=percentile(arrived_ms, 50),
            p99_ms=percentile(arrived_ms, 99),
            ack_p50_ms=percentile(timetable.acked_ms, 50),
            ack_p99_ms=percentile(timetable.acked_ms, 99),
        )


async def _send_and_read(
    stream: TailedStream,
    batches: AsyncIterator[Sequence[bytes]],
    timetable: Timetable,
    clock: Stopwatch,
) -> None:
    """Return when every event is acknowledged and has arrived, or no longer can be hoped for."""

    async def read() -> None:
        async for batch in batches:
            timetable.arrived(batch, clock.now())
            if timetable.is_complete:
                return

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        await _send_when_due(stream, timetable, clock)
        _, late = await asyncio.wait({reading}, timeout=PATIENCE_SECONDS)
        for task in late:
            task.cancel()


async def _send_when_due(stream: TailedStream, timetable: Timetable, clock: Stopwatch) -> None:
    sends_in_flight = 0

    async def send(first: int, end: int) -> None:
        nonlocal sends_in_flight
        sends_in_flight += 1
        await stream.send([timetable.event(index) for index in range(first, end)])
        sends_in_flight -= 1
        timetable.acked(first, end, clock.now())

    sent = 0
    async with asyncio.TaskGroup() as group:
        while sent < timetable.count:
            due = timetable.due(clock.now())
            if due > sent and sends_in_flight < stream.sends_in_flight_max:
                group.create_task(send(sent, due))
                sent = due
            await asyncio.sleep(TICK_S)
