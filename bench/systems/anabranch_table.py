"""A key-value table of Anabranch with the configuration that a table has by default."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast

from anabranch.client import Table, Version
from anabranch.common.errors import VersionMismatch
from bench.systems.table import Entry, Held
from bench.systems.table import Version as AnyVersion

_BATCH_ENTRIES = 1_000


class AnabranchTable:
    """An open table whose keys and values are bytes."""

    def __init__(self, table: Table[bytes, bytes]) -> None:
        self._table = table

    async def create(self, key: bytes, value: bytes) -> AnyVersion:
        return await self._table.insert(key, value)

    async def replace(self, key: bytes, value: bytes, version: AnyVersion) -> AnyVersion | None:
        try:
            return await self._table.replace(key, value, cast(Version, version))
        except VersionMismatch:
            return None

    async def get(self, key: bytes) -> Held:
        found = await self._table.get(key)
        assert found is not None, "the key has no entry"
        return Held(found.value, found.version)

    async def put_many(self, entries: Mapping[bytes, bytes]) -> None:
        await self._table.put_many(entries)

    async def get_many(self, keys: Sequence[bytes]) -> Sequence[bytes]:
        return [each.value for each in await self._table.get_many(keys) if each is not None]

    async def scan(self) -> int:
        count = 0
        async for _ in self._table.entries():
            count += 1
        return count

    async def scan_arrow(self) -> int:
        count = 0
        async for batch in self._table.scan_arrow():
            count += batch.num_rows
        return count

    async def read_back(self) -> AsyncIterator[Sequence[Entry]]:
        batch: list[Entry] = []
        async for entry in self._table.entries():
            batch.append((entry.key, entry.value))
            if len(batch) == _BATCH_ENTRIES:
                yield batch
                batch = []
        yield batch
