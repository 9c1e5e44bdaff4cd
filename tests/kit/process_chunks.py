"""`ChunkStorage` of one process: a tier 2 that all stores reach, each over a way of its own.

An object may be stored although its sender gave up or died meanwhile.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import OutcomeUnknown, Unavailable
from anabranch.common.storage.ports import Buffer
from kit.process_objects import now
from kit.ways import Way

T = TypeVar("T")

DEADLINE_S = 5.0


class ProcessChunks:
    """The objects as one process reaches them."""

    def __init__(self, objects: MemoryChunkStorage, way: Way) -> None:
        self._objects = objects
        self._way = way

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._way.ask(lambda: now(self._objects.put_new(name, [data])))
        except TimeoutError as error:
            raise OutcomeUnknown("tier 2 did not answer", name=name) from error

    async def get(self, name: str) -> bytes:
        return await self._read(lambda: self._objects.get(name))

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        return await self._read(lambda: self._objects.get_range(name, offset, length))

    async def size(self, name: str) -> int:
        return await self._read(lambda: self._objects.size(name))

    async def list(self, prefix: str) -> Sequence[str]:
        return await self._read(lambda: self._objects.list(prefix))

    async def delete(self, name: str) -> None:
        await self._read(lambda: self._objects.delete(name))

    async def _read(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self._way.ask(lambda: now(work()))
        except TimeoutError as error:
            raise Unavailable("tier 2 did not answer") from error
