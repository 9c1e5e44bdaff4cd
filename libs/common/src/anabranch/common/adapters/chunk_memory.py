"""Tier 2 in memory, for tests and stores that keep nothing."""

from collections.abc import Sequence

from anabranch.common.errors import CorruptChunk, ObjectExists, ObjectNotFound
from anabranch.common.storage.ports import Buffer


class MemoryChunkStorage:
    """Implements `ports.ChunkStorage` in a dictionary."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        if name in self.objects:
            raise ObjectExists("the object exists", name=name)
        self.objects[name] = b"".join(parts)

    async def get(self, name: str) -> bytes:
        try:
            return self.objects[name]
        except KeyError:
            raise ObjectNotFound("the object does not exist", name=name) from None

    async def get_range(self, name: str, offset: int, length: int) -> bytes:
        data = (await self.get(name))[offset : offset + length]
        if len(data) != length:
            raise CorruptChunk("the object is truncated", name=name, offset=offset, length=length)
        return data

    async def size(self, name: str) -> int:
        return len(await self.get(name))

    async def list(self, prefix: str) -> Sequence[str]:
        return sorted(name for name in self.objects if name.startswith(prefix))

    async def delete(self, name: str) -> None:
        self.objects.pop(name, None)
