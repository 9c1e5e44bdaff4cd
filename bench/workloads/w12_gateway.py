"""W12: what HTTP costs. 64 connections, each with one request at a time.

POST     one event of 1 KB in, answered when it is synced; beside a route that does nothing
GET      one event of 1 KB out, from the head of a stream; beside the same
direct   64 writers of the client library, each with one event at a time: what the gateway's
         callers would have without it
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from bench.case import Case, Effort, Multiset, Sample
from bench.clock import Stopwatch
from bench.http_load import CONNECTIONS, Load, get_request, post_request, run_load
from bench.stats import percentile
from bench.systems.port import HttpStream, Label, ManyWriters, Stream, System
from bench.workloads.port import Meter

EVENT_BYTES: tuple[int, ...] = (1_024,)


class Turns:
    """The next event of the pool, until the time is up; every connection gets one at least."""

    def __init__(self, case: Case, clock: Stopwatch, seconds: float) -> None:
        self._case = case
        self._clock = clock
        self._ends_at = clock.now() + seconds
        self.taken = 0

    def next(self) -> bytes | None:
        if self.taken >= CONNECTIONS and self._clock.now() >= self._ends_at:
            return None
        self.taken += 1
        return self._case.events[(self.taken - 1) % len(self._case.events)]

    async def are_held_by(self, stream: Stream) -> bool:
        """Whether the stream holds the events that were taken, in any order, and no others."""
        expected, found = Multiset(), Multiset()
        expected.add([self._case.events[i % len(self._case.events)] for i in range(self.taken)])
        async for batch in stream.read_back():
            found.add(batch)
        return found == expected


class _OverHttp:
    """What the workloads through the gateway share."""

    event_bytes: tuple[int, ...] = EVENT_BYTES

    def __init__(self, settings_left_out: frozenset[str]) -> None:
        self._left_out = settings_left_out

    def suits(self, label: Label) -> bool:
        return label.system in ("anabranch", "echo") and label.settings not in self._left_out


class GatewayPost(_OverHttp):
    name = "W12 POST"

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with system.stream(case) as stream:
            assert isinstance(stream, HttpStream), "the system has no HTTP"
            target = stream.http
            turns = Turns(case, clock, effort.warm_up_s if warm_up else effort.http_s)

            def next_request() -> bytes | None:
                body = turns.next()
                return None if body is None else post_request(target.host, target.post_path, body)

            meter, load = Meter(system, clock), Load(next_request, clock)
            await run_load(target.host, target.port, load)
            sample = _sample(load.times_ms, meter, verified=load.wrong == 0)
            if isinstance(stream, Stream) and not await turns.are_held_by(stream):
                return replace(sample, verified=False)
        return sample


class GatewayGet(_OverHttp):
    name = "W12 GET"

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        async with system.stream(case) as stream:
            assert isinstance(stream, HttpStream), "the system has no HTTP"
            expected = b""
            if isinstance(stream, Stream):
                expected = case.events[0]
                await stream.append(expected)
            target = stream.http
            request = get_request(target.host, target.get_path)
            turns = Turns(case, clock, effort.warm_up_s if warm_up else effort.http_s)
            meter = Meter(system, clock)
            load = Load(lambda: request if turns.next() else None, clock, expected)
            await run_load(target.host, target.port, load)
            return _sample(load.times_ms, meter, verified=load.wrong == 0)


class DirectWriters:
    name = "W12 direct"
    event_bytes: tuple[int, ...] = EVENT_BYTES

    def __init__(self, settings_left_out: frozenset[str]) -> None:
        self._left_out = settings_left_out

    def suits(self, label: Label) -> bool:
        return label.system == "anabranch" and label.settings not in self._left_out

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        times_ms: list[float] = []

        async def write(append: Callable[[bytes], Awaitable[None]]) -> None:
            while (body := turns.next()) is not None:
                started = clock.now()
                await append(body)
                times_ms.append((clock.now() - started) * 1000)

        async with system.stream(case) as stream:
            assert isinstance(stream, ManyWriters), "the system has no writers"
            async with stream.appenders(CONNECTIONS) as appenders:
                turns = Turns(case, clock, effort.warm_up_s if warm_up else effort.http_s)
                meter = Meter(system, clock)
                async with asyncio.TaskGroup() as group:
                    for append in appenders:
                        group.create_task(write(append))
                sample = _sample(times_ms, meter, verified=True)
            return replace(sample, verified=await turns.are_held_by(stream))


def _sample(times_ms: list[float], meter: Meter, *, verified: bool) -> Sample:
    seconds, cpu_seconds = meter.read()
    return Sample(
        len(times_ms), seconds, cpu_seconds, verified,
        p50_ms=percentile(times_ms, 50), p99_ms=percentile(times_ms, 99),
    )  # fmt: skip
