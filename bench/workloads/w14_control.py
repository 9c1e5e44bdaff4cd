"""W14: what one controller answers and decides in a second.

light     describe, current segments and successors in turn, 32 callers that share one connection
heavy     create with two segments, scale, seal, by 32 callers: an operation counts when its work is
          done, so all of it is durable; `CPU` is that of client, controller, NATS and store
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

from anabranch.client import Client
from anabranch.common.model.names import segment_id
from anabranch.common.model.stream import StreamState, fixed
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.stats import percentile
from bench.systems.anabranch import SCOPE, Anabranch
from bench.systems.port import Label, System
from bench.workloads.port import Meter

CALLERS = 32
STREAMS = 16
HEAVY_SECONDS_MIN = 3.0
HALVES = ((0.0, 0.25), (0.25, 0.5))
FIRST = segment_id(0, 0)

_numbers = count(1)


class LightOperations:
    """Queries that every controller answers from its mirror."""

    name = "W14 light"
    event_bytes: tuple[int, ...] = (0,)

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def suits(self, label: Label) -> bool:
        return label.settings == self._settings and label.system == "anabranch"

    async def measure(
        self,
        system: System,
        case: Case,  # noqa: ARG002
        effort: Effort,
        clock: Stopwatch,
        *,
        warm_up: bool,
    ) -> Sample:
        assert isinstance(system, Anabranch), "needs a controller"
        client = system.client
        names = [f"{SCOPE}/light-{next(_numbers)}" for _ in range(STREAMS)]
        for name in names:
            await client.streams.create(name, fixed(2))
            await client.streams.scale(name, [FIRST], HALVES)
        asked = _Asked(client, names)
        meter = Meter(system, clock)
        seconds = effort.warm_up_s if warm_up else max(1.0, effort.http_s)
        late_ms = await act_by_callers(asked.next, clock, seconds)
        spent, cpu_seconds = meter.read()
        for name in names:
            await client.streams.seal(name)
            await client.streams.delete(name)
        return _sample(late_ms, spent, cpu_seconds, verified=asked.is_right)


class _Asked:
    """Asks the three questions in turn, of one stream after the other."""

    def __init__(self, client: Client, names: list[str]) -> None:
        self._client = client
        self._names = names
        self._asked = count()
        self.is_right = True

    async def next(self) -> None:
        number = next(self._asked)
        name = self._names[number // 3 % len(self._names)]
        match number % 3:
            case 0:
                found = (await self._client.streams.describe(name)).segment_count
            case 1:
                found = len((await self._client.streams.current_segments(name)).segments)
            case _:
                found = 1 + len((await self._client.streams.successors(name, FIRST)).successors)
        self.is_right = self.is_right and found == 3


class HeavyOperations:
    """Operations that change a stream and its segments."""

    name = "W14 heavy"
    event_bytes: tuple[int, ...] = (0,)

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def suits(self, label: Label) -> bool:
        return label.settings == self._settings and label.system == "anabranch"

    async def measure(
        self,
        system: System,
        case: Case,  # noqa: ARG002
        effort: Effort,
        clock: Stopwatch,
        *,
        warm_up: bool,
    ) -> Sample:
        assert isinstance(system, Anabranch), "needs a controller"
        client = system.client
        names: list[str] = []
        late_ms: list[float] = []

        async def timed(operation: Awaitable[object]) -> None:
            began = clock.now()
            await operation
            late_ms.append((clock.now() - began) * 1000)

        async def life() -> None:
            name = f"{SCOPE}/heavy-{next(_numbers)}"
            await timed(client.streams.create(name, fixed(2)))
            await timed(client.streams.scale(name, [FIRST], HALVES))
            await timed(client.streams.seal(name))
            names.append(name)

        meter = Meter(system, clock)
        await act_by_callers(life, clock, 0.2 if warm_up else max(HEAVY_SECONDS_MIN, effort.http_s))
        spent, cpu_seconds = meter.read()
        verified = True
        for name in names:
            found = await client.streams.describe(name)
            verified = verified and (found.state, found.segment_count) == (StreamState.SEALED, 3)
            await client.streams.delete(name)
        return _sample(late_ms, spent, cpu_seconds, verified=verified)


async def act_by_callers(
    act: Callable[[], Awaitable[None]], clock: Stopwatch, seconds: float
) -> list[float]:
    """All callers act again and again until time is up, once at least → how long each took, ms."""
    late_ms: list[float] = []
    ends_at = clock.now() + seconds

    async def call() -> None:
        began = clock.now()
        while True:
            await act()
            began, before = clock.now(), began
            late_ms.append((began - before) * 1000)
            if began >= ends_at:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(call())
    return late_ms


def _sample(late_ms: list[float], seconds: float, cpu_seconds: float, *, verified: bool) -> Sample:
    return Sample(
        len(late_ms),
        seconds,
        cpu_seconds,
        verified,
        p50_ms=percentile(late_ms, 50),
        p99_ms=percentile(late_ms, 99),
    )
