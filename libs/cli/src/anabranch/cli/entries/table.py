"""An open table, with keys as commands name them."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from anabranch.cli.entries.keys import EntryKey, StoredKey
from anabranch.cli.entries.records import LoadedEntry, StoredChange, StoredEntry
from anabranch.client import Entry, Scan, Table, Version

T = TypeVar("T")

BATCH_COUNT_MAX = 1000
"""Entries or changes that are printed together, if as many have arrived."""
SNAPSHOT = "snapshot"
"""The start of a watch that begins with all entries."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The bounds of a scan; None leaves one out. With `primary`, the others bound secondary keys.

    `values`: entries have values. `count`: end after so many.
    """

    start: bytes | None = None
    end: bytes | None = None
    prefix: bytes | None = None
    primary: bytes | None = None
    values: bool = True
    count: int | None = None


class Entries:
    """The entries of an open table. Raises the client's errors."""

    def __init__(self, table: Table[StoredKey, bytes]) -> None:
        self._table = table
        self.has_pairs = table.description.config.secondary_key_size != 0

    def _key(self, key: EntryKey) -> StoredKey:
        return key.of_table(has_pairs=self.has_pairs)

    async def get(self, key: EntryKey) -> Entry[StoredKey, bytes] | None:
        return await self._table.get(self._key(key))

    async def put(self, key: EntryKey, value: bytes, *, ttl_ms: int | None) -> Version:
        return await self._table.put(self._key(key), value, ttl_ms=ttl_ms)

    async def insert(self, key: EntryKey, value: bytes, *, ttl_ms: int | None) -> Version:
        return await self._table.insert(self._key(key), value, ttl_ms=ttl_ms)

    async def replace(
        self, key: EntryKey, value: bytes, version: str, *, ttl_ms: int | None
    ) -> Version:
        expected = Version.parse(version)
        return await self._table.replace(self._key(key), value, expected, ttl_ms=ttl_ms)

    async def remove(self, key: EntryKey, version: str | None) -> None:
        expected = None if version is None else Version.parse(version)
        await self._table.remove(self._key(key), expected)

    async def load(self, entries: Sequence[LoadedEntry], *, ttl_ms: int | None) -> None:
        """Put all of them; the later of two with one key stays."""
        pairs = [(self._key(each.key), each.value) for each in entries]
        await self._table.put_many(pairs, ttl_ms=ttl_ms)

    async def scan(self, request: ScanRequest) -> AsyncGenerator[Sequence[StoredEntry], None]:
        """Entries in the order of their keys, in batches; to be closed by the caller."""
        bounds: dict[str, Any] = {
            "start": request.start,
            "end": request.end,
            "prefix": request.prefix,
            "primary": request.primary,
        }
        scan = self._table.entries(**bounds) if request.values else self._bare(bounds)
        found = cast("Scan[StoredEntry]", scan)
        try:
            async for batch in _batches(found, found.next_nowait, request.count):
                yield batch
        finally:
            found.close()

    def _bare(self, bounds: dict[str, Any]) -> Scan[Entry[StoredKey, None]]:
        return self._table.entries(**bounds, values=False)

    async def watch(
        self, start: str, count: int | None
    ) -> AsyncGenerator[Sequence[StoredChange], None]:
        """Changes as they come, in batches, up to the count; to be closed by the caller."""
        async with self._table.watch(None if start == SNAPSHOT else start) as changes:
            async for batch in _batches(changes, changes.next_nowait, count):
                yield batch


async def _batches(
    items: AsyncIterator[T], next_nowait: Callable[[], T | None], count: int | None
) -> AsyncGenerator[Sequence[T], None]:
    """The items that arrived together, up to the count."""
    left = count
    while left is None or left > 0:
        first = await anext(items, None)
        if first is None:
            return
        most = BATCH_COUNT_MAX if left is None else min(left, BATCH_COUNT_MAX)
        batch = [first]
        while len(batch) < most and (item := next_nowait()) is not None:
            batch.append(item)
        left = None if left is None else left - len(batch)
        yield batch
