"""An object store in memory that a process can be cut off from, as from NATS."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.eventsourcing.ports import ObjectWrite, StoredObject

LOOK_S = 0.05


@dataclass
class Line:
    """A process's way to the stores. While it is `cut`, calls fail and watches stand still; while
    it is `lagging`, only the latter."""

    cut: bool = False
    lagging: bool = False

    def check(self) -> None:
        if self.cut:
            raise Unavailable("cut off")

    async def wait(self) -> None:
        while self.cut or self.lagging:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


class ThroughLine:
    """An `ObjectStore`: the inner one, over a line."""

    def __init__(self, inner: InMemoryObjectStore, line: Line) -> None:
        self._inner = inner
        self._line = line

    async def get(self, key: str) -> StoredObject | None:
        self._line.check()
        return await self._inner.get(key)

    async def create(self, key: str, value: bytes) -> int:
        self._line.check()
        return await self._inner.create(key, value)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        self._line.check()
        return await self._inner.update(key, value, revision)

    async def delete(self, key: str, revision: int) -> None:
        self._line.check()
        await self._inner.delete(key, revision)

    async def write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[int | None]:
        self._line.check()
        return await self._inner.write_all(writes)

    async def list(self) -> Sequence[StoredObject]:
        self._line.check()
        return await self._inner.list()

    async def watch(self) -> AsyncIterator[StoredObject | None]:
        self._line.check()
        async for found in self._inner.watch():
            await self._line.wait()
            yield found
