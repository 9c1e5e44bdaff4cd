"""A system in memory, with a clock that only moves when something is written.

It can be told to lose, to change or to repeat events, which a report must not hide.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.case import Case
from bench.systems.port import Label, ReadingWay

APPEND_SECONDS = 0.001
Damage = Callable[[list[bytes]], list[bytes]]


class FakeStopwatch:
    """Time stands still unless `advance` is called, or `now` was told to step."""

    def __init__(self, step_s: float = 0.0) -> None:
        self._now = 0.0
        self._step_s = step_s

    def now(self) -> float:
        self._now += self._step_s
        return self._now

    def own_cpu(self) -> float:
        return self._now / 2

    def advance(self, seconds: float) -> None:
        self._now += seconds


class FakeStream:
    """What was written, as far as the damage leaves it."""

    sends_in_flight_max = 2

    def __init__(self, clock: FakeStopwatch, damage: Damage) -> None:
        self._clock = clock
        self._damage = damage
        self._held: list[bytes] = []
        self._news = asyncio.Event()
        self.ways: list[ReadingWay] = []

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        for batch in batches:
            self._held += batch
            self._clock.advance(APPEND_SECONDS * len(batch))

    async def write_each(self, batches: Iterable[Sequence[bytes]]) -> None:
        for batch in batches:
            for event in batch:
                await self.append(event)

    async def read_in(self, way: ReadingWay) -> int:
        self.ways.append(way)
        self._clock.advance(APPEND_SECONDS * len(self._held))
        return len(self._damage(list(self._held)))

    async def append(self, event: bytes) -> None:
        self._held.append(event)
        self._clock.advance(APPEND_SECONDS)

    @asynccontextmanager
    async def appenders(
        self, count: int
    ) -> AsyncIterator[Sequence[Callable[[bytes], Awaitable[None]]]]:
        yield [self.append] * count

    async def send(self, events: Sequence[bytes]) -> None:
        self._held += events
        self._news.set()

    async def read_back(self) -> AsyncIterator[Sequence[bytes]]:
        yield self._damage(list(self._held))

    @asynccontextmanager
    async def tail(self) -> AsyncIterator[AsyncIterator[Sequence[bytes]]]:
        yield self._from(len(self._held))

    async def _from(self, start: int) -> AsyncIterator[Sequence[bytes]]:
        while True:
            await self._news.wait()
            self._news.clear()
            if start < len(self._held):
                events, start = self._held[start:], len(self._held)
                yield self._damage(events)


class FakeSystem:
    """A system whose every stream suffers the same damage."""

    def __init__(self, clock: FakeStopwatch, damage: Damage = list, system: str = "fake") -> None:
        self.label = Label(system, "in memory", "D1")
        self._clock = clock
        self._damage = damage
        self.streams = 0

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        yield

    def pids(self) -> list[int]:
        return []

    @asynccontextmanager
    async def stream(self, case: Case) -> AsyncIterator[FakeStream]:
        self.streams += 1
        yield FakeStream(self._clock, self._damage)
