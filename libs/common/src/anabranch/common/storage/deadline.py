"""A time limit on every call to tier 2."""

import asyncio
from collections.abc import Sequence

from anabranch.common.errors import OutcomeUnknown, Unavailable
from anabranch.common.storage.ports import Buffer, ChunkStorage


class DeadlineChunkStorage:
    """A chunk storage whose every call ends within a time limit, in seconds.

    A put beyond it raises OutcomeUnknown, any other call Unavailable.
    """

    def __init__(self, storage: ChunkStorage, limit_s: float) -> None:
        self._storage = storage
        self._limit_s = limit_s

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                await self._storage.put_new(name, parts)
        except TimeoutError as error:
            raise OutcomeUnknown(
                "the creation of a tier-2 object took too long", name=name, limit_s=self._limit_s
            ) from error

    async def get(self, name: str) -> bytes:
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._storage.get(name)
        except TimeoutError as error:
            raise self._too_slow("read", name) from error

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._storage.get_range(name, offset, length)
        except TimeoutError as error:
            raise self._too_slow("read", name) from error

    async def size(self, name: str) -> int:
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._storage.size(name)
        except TimeoutError as error:
            raise self._too_slow("size", name) from error

    async def list(self, prefix: str) -> Sequence[str]:
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._storage.list(prefix)
        except TimeoutError as error:
            raise self._too_slow("list", prefix) from error

    async def delete(self, name: str) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                await self._storage.delete(name)
        except TimeoutError as error:
            raise self._too_slow("delete", name) from error

    def _too_slow(self, call: str, name: str) -> Unavailable:
        return Unavailable("tier 2 did not answer in time", call=call, name=name)
