"""The reads of an open table: look-ups by key, scans and watches."""

import asyncio
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar, cast

from anabranch.client.serializers import Serializer
from anabranch.client.tables.arrow_scan import ArrowScan
from anabranch.client.tables.entries import Entry, K, V, Version
from anabranch.client.tables.keys import TableKeyRange, TableKeys
from anabranch.client.tables.lookups import KEYS_SIZE_BYTES_MAX, Found
from anabranch.client.tables.partitions import Partitions
from anabranch.client.tables.parts import TableParts
from anabranch.client.tables.scan import (
    Decoding,
    Scan,
    ScanPlan,
    StoredEntry,
    joined_entries,
    planned,
)
from anabranch.client.tables.watch import Watch, WatchStart
from anabranch.common.contracts.tables import TableDescription
from anabranch.common.errors import InvalidRequest, SerializationFailed
from anabranch.common.model.table import KEY_SIZE_BYTES_MAX
from anabranch.common.wire.table import GET_KEYS_MAX
from anabranch.common.wire.table_columns import ABSENT

T = TypeVar("T")

LOOK_UP_KEYS_MAX = min(GET_KEYS_MAX, 1024)
"""Keys of one look-up of `get_many`: more begin the next, so that decoding does not hold up the
event loop for long."""


class _Closing(Protocol):
    def close(self) -> None: ...


class Reads(Generic[K, V]):
    """Reads entries, and remembers what is to be stopped when the table is closed."""

    def __init__(
        self,
        described: TableDescription,
        keys: TableKeys[K],
        values: Serializer[V] | None,
        partitions: Partitions,
        parts: TableParts,
    ) -> None:
        self._described = described
        self._keys = keys
        self._values = values
        self._partitions = partitions
        self._parts = parts
        self._decoding = Decoding(keys, values)
        self._segment_ids = [each.segment_id for each in described.partitions]
        self._scans: weakref.WeakSet[_Closing] = weakref.WeakSet()
        self._watches: weakref.WeakSet[Watch[K, V]] = weakref.WeakSet()

    # --- by key ---------------------------------------------------------------------------

    async def get(self, key: K) -> Entry[K, V] | None:
        """The entry of the key."""
        index, stored = self._keys.place(key)
        told = await self._partitions.look_up(index, (stored,), len(stored))
        number, (version,), (expires_ms,), (value,) = await told
        if version == ABSENT:
            return None
        own = Version(self._segment_ids[index], number, version)
        return self._decoding.entry(StoredEntry(stored, value, own, expires_ms))

    async def exists(self, key: K) -> bool:
        """Whether the key has an entry."""
        index, stored = self._keys.place(key)
        told = await self._partitions.look_up(index, (stored,), len(stored))
        return (await told).versions[0] != ABSENT

    async def get_many(self, keys: Iterable[K]) -> list[Entry[K, V] | None]:
        """The entry of each key, in their order."""
        listed = list(keys)
        if not listed:
            return []
        indexes, stored = self._keys.places(listed)
        sent: list[tuple[int, Sequence[int], Sequence[bytes], asyncio.Future[Found]]] = []
        for index, places in _look_ups(indexes, stored):
            own = [stored[place] for place in places]
            told = await self._partitions.look_up(index, own, sum(map(len, own)))
            sent.append((index, places, own, told))
        await asyncio.wait([told for *_, told in sent])
        entries: list[Entry[K, V] | None] = [None] * len(listed)
        for index, places, asked, told in sent:
            found = self._entries(index, asked, told.result())
            for place, entry in zip(places, found, strict=True):
                entries[place] = entry
        return entries

    def _entries(
        self, index: int, keys: Sequence[bytes], found: Found
    ) -> Iterable[Entry[K, V] | None]:
        """The entry of each table key, or None."""
        columns = (keys, found.values, found.versions, found.expires_ms)
        stored = joined_entries(self._segment_ids[index], found.segment_number, columns)
        if ABSENT not in found.versions and self._decoding.is_trivial:
            return cast(list[Entry[K, V]], stored)
        decode = self._decoding.entry
        return [None if each.version.number == ABSENT else decode(each) for each in stored]

    # --- ranges ---------------------------------------------------------------------------

    def entries(self, keys: TableKeyRange, page_size: int | None) -> Scan[Entry[K, V]]:
        """The entries of the range."""
        return self._scan(self._plan(keys, page_size), self._decoding.entries)

    def without_values(self, keys: TableKeyRange, page_size: int | None) -> Scan[Entry[K, None]]:
        """The entries of the range, with None as value."""
        plan = self._plan(keys, page_size, values=False)
        return self._scan(plan, self._decoding.without_values)

    def keys(self, keys: TableKeyRange, page_size: int | None) -> Scan[K]:
        """The keys of the range."""
        return self._scan(self._plan(keys, page_size, values=False), self._decoding.keys)

    def arrow(self, keys: TableKeyRange, page_size: int | None) -> ArrowScan:
        """The entries of the range as record batches."""
        scan = ArrowScan(self._plan(keys, page_size), self._parts)
        self._scans.add(scan)
        return scan

    def _scan(
        self,
        plan: ScanPlan,
        convert: Callable[[Sequence[StoredEntry]], Iterable[T | SerializationFailed]],
    ) -> Scan[T]:
        scan = Scan(plan, self._parts, convert)
        self._scans.add(scan)
        return scan

    def _plan(self, keys: TableKeyRange, page_size: int | None, *, values: bool = True) -> ScanPlan:
        if page_size is not None and page_size < 1:
            raise InvalidRequest("a page needs at least one entry", page_size=page_size)
        return planned(self._described.partitions, keys, self._parts, page_size, values=values)

    # --- changes --------------------------------------------------------------------------

    def watch(self, start: WatchStart) -> Watch[K, V]:
        """The changes from a place on."""
        watch = Watch(start, self._described, self._parts, self._keys, self._values)
        self._watches.add(watch)
        return watch

    async def close(self) -> None:
        """Stop all scans and watches."""
        for scan in tuple(self._scans):
            scan.close()
        for watch in tuple(self._watches):
            await watch.close()


def _look_ups(
    indexes: Sequence[int], stored: Sequence[bytes]
) -> Iterable[tuple[int, Sequence[int]]]:
    """The places of the keys of each look-up, and the index of its partition."""
    groups: dict[int, list[int]] = {index: [] for index in set(indexes)}
    for place, index in enumerate(indexes):
        groups[index].append(place)
    limit = LOOK_UP_KEYS_MAX
    if max(map(len, stored)) * limit > KEYS_SIZE_BYTES_MAX:
        limit = KEYS_SIZE_BYTES_MAX // (KEY_SIZE_BYTES_MAX + 64)
    for index, places in groups.items():
        for low in range(0, len(places), limit):
            yield index, places[low : low + limit]
