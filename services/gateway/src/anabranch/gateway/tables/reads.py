"""Reads of entries: one, many by their keys, and a range in pages or as a whole.

A look-up of many keys and a page end at a size, so that an answer stays small however large the
values are. A scan of a whole range holds about one page of each partition at a time.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from anabranch.client import Scan
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.gateway.bounds.places import ReadPlaces
from anabranch.gateway.tables.keys import (
    EntryKey,
    EntryRange,
    KeyedEntry,
    StoredEntry,
    StoredKey,
    key_after,
)
from anabranch.gateway.tables.long_reads import FollowedTable, WholeScan, held
from anabranch.gateway.tables.open_tables import OpenTable, OpenTables
from anabranch.gateway.tables.page_tokens import entries_token, last_key

T = TypeVar("T")

SNAPSHOT = "snapshot"
"""The start of a watch that begins with all entries."""
LOOK_UP_FIRST = 16
"""The keys that a look-up reads first; each value has up to 1 MiB."""
LOOK_UP_MORE = 1024
SCAN_PAGE_MAX = 1000
"""The entries that a scan reads at once from a partition."""
ENTRY_COST_BYTES = 64
"""The estimated size of an entry in an answer beside its key and value."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The entries of a range of a table, at most `limit`; without `values`, keys alone."""

    table: str
    entries: EntryRange
    limit: int | None = None
    values: bool = True


@dataclass(frozen=True, slots=True)
class EntriesPage:
    """A page, and the token of the next one; empty on the last page."""

    entries: Sequence[KeyedEntry]
    next_page_token: str


class EntryReads:
    """Reads for many callers, as many at a time as there are `places`.

    Every method raises the table's errors, InvalidKey, and Unavailable after the time-out.
    """

    def __init__(
        self,
        tables: OpenTables,
        places: ReadPlaces,
        clock: Clock,
        *,
        size_bytes_max: int,
        timeout_s: float,
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._places = places
        self._size_bytes_max = size_bytes_max
        self._timeout_s = timeout_s

    # --- by key ---------------------------------------------------------------------------

    async def get(self, table: str, key: EntryKey) -> StoredEntry | None:
        """The entry of the key, or None."""

        async def look(found: OpenTable) -> StoredEntry | None:
            return await found.table.get(found.key(key))

        return await self._in_time(table, self._tables.call(table, look))

    async def look_up(self, table: str, keys: Sequence[EntryKey]) -> list[StoredEntry | None]:
        """The entries of the first keys, in their order; None for a key without one.

        It has at least one item, and ends with the one that reaches the size of an answer. Raises
        also Overloaded.
        """

        async def look(found: OpenTable) -> list[StoredEntry | None]:
            entries: list[StoredEntry | None] = []
            wanted = [found.key(key) for key in keys]
            size_bytes, count = 0, LOOK_UP_FIRST
            while len(entries) < len(wanted) and size_bytes < self._size_bytes_max:
                at = len(entries)
                for entry in await found.table.get_many(wanted[at : at + count]):
                    entries.append(entry)
                    size_bytes += _size_of(entry)
                    if size_bytes >= self._size_bytes_max:
                        break
                mean = size_bytes // len(entries) + 1
                count = max(1, min((self._size_bytes_max - size_bytes) // mean, LOOK_UP_MORE))
            return entries

        with self._places.taken():
            return await self._in_time(table, self._tables.call(table, look))

    # --- ranges ---------------------------------------------------------------------------

    async def page(self, request: ScanRequest, token: str) -> EntriesPage:
        """The page of a list at the token; at the beginning of the range without one.

        It ends at the limit, or with the entry that reaches the size of an answer. Raises also
        InvalidRequest for the token of another list, and Overloaded.
        """
        assert request.limit is not None

        async def read(found: OpenTable) -> EntriesPage:
            last = last_key(found.life, request.entries, token)
            scan = _scan(found, request, last)
            try:
                entries, more = await self._up_to_limit(scan, request.limit)
            finally:
                scan.close()
            following = ""
            if more:
                following = entries_token(found.life, request.entries, entries[-1].key)
            return EntriesPage(entries, following)

        with self._places.taken():
            return await self._in_time(request.table, self._tables.call(request.table, read))

    async def _up_to_limit(
        self, scan: Scan[KeyedEntry], limit: int | None
    ) -> tuple[list[KeyedEntry], bool]:
        """The entries that fit, and whether another one follows."""
        entries: list[KeyedEntry] = []
        size_bytes = 0
        async for entry in scan:
            if len(entries) == limit or size_bytes >= self._size_bytes_max:
                return entries, True
            entries.append(entry)
            size_bytes += _size_of(entry)
        return entries, False

    async def scan(self, request: ScanRequest) -> WholeScan:
        """Begin a scan of a whole range, which the caller closes. Raises also Overloaded."""

        async def begin(found: OpenTable, stack: AsyncExitStack) -> WholeScan:
            scan = _scan(found, request, None)
            stack.callback(scan.close)
            first = await anext(scan, None)
            return WholeScan(scan, first, stack.pop_all())

        beginning = held(self._places, self._tables, request.table, begin)
        return await self._in_time(request.table, beginning)

    async def watch(self, table: str, start: str) -> FollowedTable:
        """Begin to follow the changes of a table; the caller closes it.

        `start`: snapshot, earliest, now, or the token of a position. Raises also InvalidRequest,
        VersionCompacted, Overloaded.
        """

        async def begin(found: OpenTable, stack: AsyncExitStack) -> FollowedTable:
            watch = found.table.watch(None if start == SNAPSHOT else start)
            stack.push_async_callback(watch.close)
            await watch.__aenter__()
            return FollowedTable(watch, self._clock, stack.pop_all())

        return await self._in_time(table, held(self._places, self._tables, table, begin))

    async def _in_time(self, table: str, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError as error:
            raise Unavailable("the entries were not read in time", table=table) from error


def _scan(found: OpenTable, request: ScanRequest, last: StoredKey | None) -> Scan[KeyedEntry]:
    """A scan of the range, behind the entry `last` if it is given."""
    entries = request.entries
    bounds: dict[str, Any] = {
        "start": entries.start if last is None else key_after(last, entries),
        "end": entries.end,
        "prefix": entries.prefix,
        "primary": entries.primary,
        "page_size": min(SCAN_PAGE_MAX, (request.limit or SCAN_PAGE_MAX) + 1),
    }
    if request.values:
        return cast("Scan[KeyedEntry]", found.table.entries(**bounds))
    return cast("Scan[KeyedEntry]", found.table.entries(**bounds, values=False))


def _size_of(entry: KeyedEntry | None) -> int:
    if entry is None:
        return ENTRY_COST_BYTES
    key = entry.key if isinstance(entry.key, tuple) else (entry.key,)
    return sum(map(len, key)) + len(entry.value or b"") + ENTRY_COST_BYTES
