"""W8: transactions of ten events of 100 B, by one caller and by 16, each awaiting its commit.

Ten events, commit: the next one begins when the events of the last can be read. Anabranch commits
by one request if the events lie in one segment, or in segments that are together; otherwise it
begins a transaction at the controller. JetStream stores ten messages as one atomic batch, Redis ten
entries as one MULTI: neither can be written to by several processes or for longer than a moment.
Kafka's commit returns when the outcome is stored; readers see the events some time later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bench.case import Case, Effort, Multiset, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.anabranch import Anabranch
from bench.systems.port import NOT_KEPT, Label, Stream, System, Transactional
from bench.workloads.port import Meter, plain_stream

EVENTS = 10
SEGMENTS = 4
KEYS = [f"key {number}" for number in range(EVENTS)]
"""They reach all four segments."""
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
        async with plain_stream(system, case) as stream:
            assert isinstance(stream, Transactional), "knows no transactions"
            async with stream.transactors(self._callers) as transactors:
                called = await call_all(
                    transactors, Meter(system, clock), case, clock, seconds_of(effort, warm_up)
                )
            return await called.checked(stream)


class TransactionsOverSegments:
    """The same over four segments, each transaction with events of all of them; `together`: the
    stream keeps them in one container, so that one request commits. Only of Anabranch."""

    event_bytes: tuple[int, ...] = (100,)

    def __init__(self, callers: int, settings_left_out: frozenset[str], *, together: bool) -> None:
        self.name = f"W8 {'together' if together else 'spread'} {callers}"
        self._callers = callers
        self._together = together
        self._left_out = settings_left_out

    def suits(self, label: Label) -> bool:
        return label.system == "anabranch" and label.settings not in self._left_out

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, Anabranch), "only Anabranch keeps segments together"
        async with system.stream(case, SEGMENTS, together=self._together) as stream:
            async with stream.transactors(self._callers, KEYS) as transactors:
                called = await call_all(
                    transactors, Meter(system, clock), case, clock, seconds_of(effort, warm_up)
                )
            return await called.checked(stream)


def seconds_of(effort: Effort, warm_up: bool) -> float:
    """How long a round lasts."""
    return effort.warm_up_s if warm_up else max(effort.awaited_s, 3.0)


@dataclass(frozen=True, slots=True)
class Called:
    """What the calls of a round gave."""

    times_ms: Sequence[float]
    seconds: float
    cpu_seconds: float
    expected: Multiset

    async def checked(self, stream: Stream) -> Sample:
        """The sample, once the stream was read."""
        found = Multiset()
        async for batch in stream.read_back():
            found.add(batch)
        return Sample(
            len(self.times_ms), self.seconds, self.cpu_seconds, found == self.expected,
            p50_ms=percentile(self.times_ms, 50), p99_ms=percentile(self.times_ms, 99),
        )  # fmt: skip


async def call_all(
    transactors: Sequence[Callable[[Sequence[bytes]], Awaitable[None]]],
    meter: Meter,
    case: Case,
    clock: Stopwatch,
    seconds_max: float,
) -> Called:
    """Let each caller commit one transaction after the other until the time is over."""
    times_ms: list[float] = []
    expected, events = Multiset(), case.events[:EVENTS]
    ends_at = clock.now() + seconds_max

    async def call(transact: Callable[[Sequence[bytes]], Awaitable[None]]) -> None:
        started = clock.now()
        while True:
            await transact(events)
            expected.add(events)
            started, before = clock.now(), started
            times_ms.append((started - before) * 1000)
            if started >= ends_at:
                return

    async with asyncio.TaskGroup() as group:
        for transact in transactors:
            group.create_task(call(transact))
    seconds, cpu_seconds = meter.read()
    return Called(times_ms, seconds, cpu_seconds, expected)
