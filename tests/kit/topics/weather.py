"""The way between a controller and the object store: slow, lossy, and its watches break.

`Weather` says how bad it is. A write may be lost, may take effect without an answer, or may take
effect later. A watch lags, breaks, or lists again by itself, as watches of JetStream do.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from anabranch.common.errors import AnabranchError, OutcomeUnknown, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore, ObjectWrite, StoredObject
from kit.rng import Random

T = TypeVar("T")

LATE_S_MAX = 3.0


@dataclass
class Weather:
    """Probabilities per call, and times in seconds. `is_cut(controller)`: it reaches nothing."""

    rng: Random
    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    broken_watch: float = 0.0
    listed_again: float = 0.0
    call_s_max: float = 0.02
    lag_s_max: float = 0.05
    cut: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def calm(self) -> None:
        """End every fault."""
        self.refused = self.lost = self.late = self.broken_watch = self.listed_again = 0.0
        self.call_s_max, self.lag_s_max = 0.02, 0.05
        self.cut.clear()

    def happens(self, probability: float, name: str) -> bool:
        """Whether a fault of this kind happens now; it is counted."""
        if probability and self.rng.random() < probability:
            self.counts[name] += 1
            return True
        return False

    async def travel(self, longest_s: float) -> None:
        """Let a message travel."""
        await asyncio.sleep(self.rng.random() * longest_s)


class FaultyBucket:
    """An `ObjectStore` as one controller reaches it."""

    def __init__(self, inner: ObjectStore, weather: Weather, controller: int) -> None:
        self._inner = inner
        self._weather = weather
        self._controller = controller

    async def get(self, key: str) -> StoredObject | None:
        await self._reach()
        return await self._inner.get(key)

    async def list(self) -> Sequence[StoredObject]:
        await self._reach()
        return await self._inner.list()

    async def create(self, key: str, value: bytes) -> int:
        return await self._write(lambda: self._inner.create(key, value))

    async def update(self, key: str, value: bytes, revision: int) -> int:
        return await self._write(lambda: self._inner.update(key, value, revision))

    async def delete(self, key: str, revision: int) -> None:
        await self._write(lambda: self._inner.delete(key, revision))

    async def write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[int | None]:
        rng = self._weather.rng

        async def perform() -> Sequence[int | None]:
            return await self._inner.write_all(writes)

        async def some() -> Sequence[int | None]:
            chosen = [write for write in writes if rng.random() < 0.5]
            return await self._inner.write_all(chosen) if chosen else []

        return await self._write(perform, some)

    async def watch(self) -> AsyncIterator[StoredObject | None]:
        weather = self._weather
        await self._reach()
        while True:
            async for found in self._inner.watch():
                await weather.travel(weather.lag_s_max)
                if self._controller in weather.cut:
                    raise Unavailable("the connection broke")
                if weather.happens(weather.broken_watch, "broken watches"):
                    raise Unavailable("the watch broke")
                if found is not None and weather.happens(weather.listed_again, "lists again"):
                    break
                yield found

    async def _reach(self) -> None:
        weather = self._weather
        await weather.travel(weather.call_s_max)
        if self._controller in weather.cut or weather.happens(weather.refused, "refused calls"):
            raise Unavailable("the object store does not answer")

    async def _write(
        self,
        perform: Callable[[], Awaitable[T]],
        some: Callable[[], Awaitable[T]] | None = None,
    ) -> T:
        weather = self._weather
        await self._reach()
        if weather.happens(weather.lost / 2, "lost writes"):
            if some is not None:
                await some()
            raise OutcomeUnknown("no answer from the object store")
        if weather.happens(weather.late, "late writes"):
            asyncio.get_running_loop().call_later(
                weather.rng.random() * LATE_S_MAX, _perform_now, perform
            )
            raise OutcomeUnknown("no answer from the object store")
        done = await perform()
        if weather.happens(weather.lost / 2, "lost answers"):
            raise OutcomeUnknown("no answer from the object store")
        await weather.travel(weather.call_s_max)
        return done


def _perform_now(perform: Callable[[], Awaitable[object]]) -> None:
    """Perform a write on a bucket in memory, which never waits. A refused one does nothing."""
    work = perform()
    try:
        work.send(None)  # type: ignore[attr-defined]
    except (StopIteration, AnabranchError):
        return
    raise AssertionError("a bucket in memory does not wait")
